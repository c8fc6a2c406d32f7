"""Which trees are loaded together, and for how many rows: the plan with the least time within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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


def group_bytes(sizes: NDArray[np.int64], groups: Sequence[range]) -> int:
    """Bytes of the largest group."""
    return max(int(sizes[group.start : group.stop].sum()) for group in groups)


def choose_groups(
    sizes: NDArray[np.int64], room: int, *, rows: int, classes: int, row_bytes: int, step: int, row_ns: float
) -> tuple[list[range], int]:
    """The groups of entries, and the rows that are brought before one group after the other, that take the least time.

    sizes      int64 [entries], bytes of each.
    room       most bytes together, which hold the largest entry and a step of rows.
    rows       of the table; classes: of its target.
    row_bytes  kept for each row that is brought, unless all entries are one group; these rows are a multiple of `step`.
    row_ns     time to bring a row before a group.
    """
    total, largest = int(sizes.sum()), int(sizes.max())
    if total <= room:
        return [range(sizes.size)], rows
    most = max(largest, min(total, room - step * row_bytes))
    best: tuple[float, list[range], int] | None = None
    for bound in np.linspace(largest, most, _CHOICES).astype(np.int64).tolist():
        groups = cut(sizes, np.arange(sizes.size + 1), bound, sizes.size)
        left = room - group_bytes(sizes, groups)
        part = max(step, min(rows, left // row_bytes // step * step if left < rows * row_bytes else rows))
        loads = -(-rows // part) if len(groups) > 1 else 1
        load = float(total) / NODE_BYTES * (LOADING_NS + COUNT_NS * classes)
        time = loads * load + float(rows) * len(groups) * row_ns
        if best is None or time < best[0]:
            best = time, groups, part
    assert best is not None
    return best[1:]
