"""Which trees go together, and with how many rows: the least time within a budget, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import MemoryEstimate
from bigforest.forest.format.parts import PIECE_BYTES, piece_rows

# Bytes of a node while it is loaded, of a mixed leaf per class (its counts and its ballot), and of a term of an oblique
# node or a level, as it comes and as it is kept.
NODE_BYTES = 16
MIXED_BYTES = 12
ENTRY_BYTES = 72
# Bytes of a shrunk value of a leaf: it comes in pieces, which are put together.
SHRUNK_BYTES = 16

# What reading takes per thread: a piece, what it is checked with, and what Arrow decodes it from and keeps. Measured.
LOADING_BYTES = 32 << 20
# Copies of a node in it.
_COPIES = 6

# Nanoseconds to load a node on one thread, and for each of its counts.
LOADING_NS = 60
COUNT_NS = 4

# Sizes of groups that are tried.
_CHOICES = 64


def loaded_tree_bytes(
    nodes: NDArray[np.int64], mixed: NDArray[np.int64], entries: NDArray[np.int64], classes: int, lambdas: int = 0
) -> NDArray[np.int64]:
    """Bytes that trees of this many nodes, mixed leaves, and terms or levels take while they are loaded.

    classes  of the target; 1 where it is a number.
    lambdas  by how many the leaves are shrunk: all of them have values then.
    """
    if lambdas:
        return NODE_BYTES * nodes + SHRUNK_BYTES * max(classes * lambdas, 2) * (nodes // 2 + 1) + ENTRY_BYTES * entries
    # A number takes as much as the counts of two classes.
    return NODE_BYTES * nodes + MIXED_BYTES * max(classes, 2) * mixed + ENTRY_BYTES * entries


def loading_bytes(nodes: int, classes: int) -> int:
    """What reading takes per thread, where there are no more nodes than these: LOADING_BYTES at most."""
    return min(LOADING_BYTES, _COPIES * PIECE_BYTES // piece_rows(classes) * nodes)


def cut(sizes: NDArray[np.int64], first: NDArray[np.int64], most: int, trees: int) -> list[range]:
    """Consecutive entries that go together, one at least: at most `most` bytes of `sizes` and `trees` trees.

    first  number of the first tree of each entry, then the number of trees.
    """
    groups: list[range] = []
    begin = taken = 0
    for entry, size in enumerate(sizes.tolist()):
        if entry > begin and (taken + size > most or first[entry + 1] - first[begin] > trees):
            groups.append(range(begin, entry))
            begin, taken = entry, 0
        taken += size
    return [*groups, range(begin, sizes.size)]


def cuts(sizes: NDArray[np.int64], first: NDArray[np.int64], most: int, trees: int) -> list[list[range]]:
    """Several ways to `cut`, from single entries to as many together as `most` bytes, at least the largest, allow."""
    largest = int(sizes.max())
    found: dict[int, list[range]] = {}
    for bound in np.linspace(largest, max(largest, min(int(sizes.sum()), most)), _CHOICES):
        groups = cut(sizes, first, int(bound), trees)
        found.setdefault(len(groups), groups)
    return list(found.values())


def group_bytes(sizes: NDArray[np.int64], groups: Sequence[range]) -> int:
    """Bytes of the largest group."""
    return max(int(sizes[group.start : group.stop].sum()) for group in groups)


class LoadPlan(NamedTuple):
    """How to bring rows and trees together: each range of `rows` rows before one group of entries after the other."""

    groups: list[range]
    rows: int
    need: MemoryEstimate


class Visit(NamedTuple):
    """What rows and trees cost that are brought together, besides the trees.

    stage      its name, for the estimate.
    rows       rows of the table; classes, of its target.
    fixed      bytes whatever is chosen.
    row_bytes  bytes kept for each row of a range; ranges are multiples of `step` rows.
    row_ns     time to bring a row before a group.
    group_ns   time to load a group, besides its nodes.
    one_keeps  whether rows are kept even where all trees are one group.
    """

    stage: str
    rows: int
    classes: int
    fixed: int
    row_bytes: int
    step: int
    row_ns: float
    group_ns: float
    one_keeps: bool


def choose_load_plan(
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    visit: Visit,
    room: int,
    smallest: int,
    most: int | None = None,
    trees: int | None = None,
) -> LoadPlan:
    """The way that takes the least time and at most `room` bytes, which must hold the largest entry and a step of rows.

    sizes, first  see `cut`.
    smallest      the smallest budget that works.
    most, trees   most bytes and trees of a group in any case; None for any number.
    """
    groups, rows = [range(sizes.size)], visit.rows
    keeps = visit.one_keeps or int(sizes.sum()) > room
    if keeps:
        most = room if most is None else most
        groups, rows = _quickest(sizes, first, visit, room, most, sizes.size if trees is None else trees)
        keeps = visit.one_keeps or len(groups) > 1
    memory = visit.fixed + group_bytes(sizes, groups) + (rows * visit.row_bytes if keeps else 0)
    return LoadPlan(groups, rows, MemoryEstimate(visit.stage, memory, min(smallest, memory), passes=len(groups)))


def _quickest(
    sizes: NDArray[np.int64], first: NDArray[np.int64], visit: Visit, room: int, most: int, trees: int
) -> tuple[list[range], int]:
    rows, step, row_bytes = visit.rows, visit.step, visit.row_bytes
    node_ns = LOADING_NS + COUNT_NS * visit.classes
    best: tuple[float, list[range], int] | None = None
    for groups in cuts(sizes, first, min(most, room - step * row_bytes), trees):
        left = room - group_bytes(sizes, groups)
        part = max(step, min(rows, left // row_bytes // step * step if left < rows * row_bytes else rows))
        loads = -(-rows // part) if len(groups) > 1 else 1
        load = float(sizes.sum()) / NODE_BYTES * node_ns + len(groups) * visit.group_ns
        time = loads * load + float(rows) * len(groups) * visit.row_ns
        if best is None or time < best[0]:
            best = time, groups, part
    assert best is not None
    return best[1:]
