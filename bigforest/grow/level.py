"""Split the nodes that do not fit in memory, breadth first, by passes over the store.

A pass goes over the blocks once, in order. For every tree it takes the rows of the block where they stand
(standing.py), sends them down the newest splits, and answers what the nodes ask (frontier.py). Many nodes and many
trees share a pass. Runs of blocks are spread over tasks; what tasks find is added up, in integers, so it does not
matter how.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.frontier import Answer, Collect, Count, Counted, Probe
from bigforest.grow.standing import Standing
from bigforest.grow.top import TreeTop
from bigforest.kernels.layout import Codes
from bigforest.kernels.level import Probes, Splits, collect_block, count_block, route_block
from bigforest.kernels.rows import no_rows
from bigforest.memory import release_freed
from bigforest.sample import BLOCK_ROWS, Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.blocks import BlockReader
from bigforest.store.store import Store


class Question(NamedTuple):
    """What a pass asks about one tree.

    nodes     number of nodes, and its newest splits; classes of the target
    standing  TreeTop.standing
    counts    probes of Count
    collects  probes of Collect; wanted bool, the wanted buckets of all of them
    """

    tree: int
    nodes: int
    splits: Splits
    standing: dict[int, Path]
    classes: int
    counts: Probes
    collects: Probes
    wanted: NDArray[np.bool_]


class Reply(NamedTuple):
    """What the blocks of one task answer about one tree; see kernels/level.py.

    keys            one array per Collect
    below, above    of the newest splits
    standing        where the rows stand now, for TreeTop.sent; empty where there were no splits
    """

    counts: NDArray[np.uint32]
    low: NDArray[np.uint32]
    high: NDArray[np.uint32]
    keys: list[NDArray[np.uint64]]
    below: NDArray[np.uint32]
    above: NDArray[np.uint32]
    standing: dict[int, Path]


class Routed(NamedTuple):
    """The rows of one block and tree, sorted by the nodes they fall into; see route_block."""

    codes: Codes
    items: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]


def split_large(
    store: Store,
    sampler: Sampler,
    tops: Sequence[TreeTop],
    room: int,
    folder: Path,
    ranges: Sequence[tuple[range]],
    crew: Crew,
) -> None:
    """Pass over the store until no node of `tops` searches.

    room    counts of all histograms of a pass, and keys.
    folder  for files of where rows stand.
    ranges  the runs of blocks, the same for all passes over these trees.
    """
    while True:
        chosen = _choose(tops, room)
        if not chosen:
            return
        questions = [question(tops[at], entries, store) for at, entries in chosen]
        release_freed()
        replies = crew.reduce(answer, ranges, merged_all, (store, sampler, questions, folder))
        for (at, entries), asked, reply in zip(chosen, questions, replies, strict=True):
            tops[at].sent(reply.below, reply.above, reply.standing)
            _tell(tops[at], entries, asked, reply)


def merged_all(one: list[Reply], two: list[Reply]) -> list[Reply]:
    """The replies of the blocks of both, question by question."""
    return [merged(*pair) for pair in zip(one, two, strict=True)]


def merged(one: Reply, two: Reply) -> Reply:
    """The reply of the blocks of both."""
    return Reply(
        counts=one.counts + two.counts,
        low=np.minimum(one.low, two.low),
        high=np.maximum(one.high, two.high),
        keys=[np.concatenate(pair) for pair in zip(one.keys, two.keys, strict=True)],
        below=np.maximum(one.below, two.below),
        above=np.minimum(one.above, two.above),
        standing=one.standing | two.standing,
    )


def block_ranges(store: Store, tasks: int) -> list[range]:
    """All blocks of the store in `tasks` runs of about equal length, or fewer where there are fewer blocks."""
    blocks = -(-store.rows // store.block_rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [range(first, stop) for first, stop in pairwise(cuts)]


def answer(store: Store, sampler: Sampler, questions: list[Question], folder: Path, blocks: range) -> list[Reply]:
    """Task: the replies of some blocks to the questions."""
    by_row = no_rows()
    fetched = np.empty(BLOCK_ROWS, np.uint32)
    most = max((_most_probes(asked) for asked in questions), default=0)
    found = np.empty(most * BLOCK_ROWS + 1, np.uint64)
    pieces: list[list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]] = [[] for _ in questions]
    replies = [no_reply(asked) for asked in questions]
    needed = sorted(set().union(*(_features(asked) for asked in questions)))
    for at, routed in route(store, sampler, questions, blocks, needed, replies, folder):
        asked, reply = questions[at], replies[at]
        codes, items, begin, end = routed
        classes = np.uint64(asked.classes)
        count_block(
            codes, by_row, items, begin, end, asked.counts, classes, fetched, reply.counts, reply.low, reply.high
        )
        if asked.collects.node.size:
            ends = np.empty(asked.collects.node.size, np.uint64)
            collect_block(codes, by_row, items, begin, end, asked.collects, asked.wanted, fetched, found, ends)
            pieces[at].append((found[: int(ends[-1])].copy(), ends))
    return [reply._replace(keys=_joined(reply, parts)) for reply, parts in zip(replies, pieces, strict=True)]


def route(
    store: Store,
    sampler: Sampler,
    questions: Sequence[Question],
    blocks: range,
    needed: Sequence[int],
    replies: Sequence[Reply],
    folder: Path | None,
) -> Iterator[tuple[int, Routed]]:
    """For every block and question, the question's number and the block's rows sorted by the nodes they fall into.

    needed   features whose codes are wanted.
    replies  learn which codes were sent left and right, and where the rows stand then.
    folder   for the files of where they stand; None to forget it.
    """
    items, spare = np.empty(BLOCK_ROWS, np.uint64), np.empty(BLOCK_ROWS, np.uint64)
    by_row, fetched = no_rows(), np.empty(BLOCK_ROWS, np.uint32)
    store.fetch(needed, blocks)
    with ExitStack() as stack:
        reader = stack.enter_context(BlockReader(store.folder, store.spec, store.block_rows, store.place))
        standing = []
        for asked, reply in zip(questions, replies, strict=True):
            if folder is not None and asked.splits.node.size:
                name = f"standing-{asked.tree}-{blocks.start}-{secrets.token_hex(8)}.bin"
                reply.standing[blocks.start] = folder / name
            out = reply.standing.get(blocks.start)
            before = asked.standing.get(blocks.start)
            standing.append(stack.enter_context(Standing(sampler, asked.tree, before, out)))
        for block in blocks:
            codes = reader.read(block, needed, block + 1 if block + 1 in blocks else None)
            start = block * store.block_rows
            target = store.labels(start, start + reader.size(block))
            for at, asked in enumerate(questions):
                here, begin, end = standing[at].take(block, target, asked.nodes, items)
                below, above = replies[at].below, replies[at].above
                route_block(codes, by_row, here, spare, fetched, asked.splits, begin, end, below, above)
                standing[at].keep(here, begin, end)
                yield at, Routed(codes, here, begin, end)


def _choose(tops: Sequence[TreeTop], room: int) -> list[tuple[int, list[int]]]:
    """Trees and those of their searching nodes whose histograms fit, in order; at least one node if any searches."""
    chosen: list[tuple[int, list[int]]] = []
    left = room
    for at, top in enumerate(tops):
        entries: list[int] = []
        for entry in top.searching():
            size = sum(_cells(probe, top, entry) for probe in _asking(top, entry))
            if size > left and (chosen or entries):
                return [*chosen, (at, entries)] if entries else chosen
            left -= size
            entries.append(entry)
        if entries:
            chosen.append((at, entries))
    return chosen


def _cells(probe: Probe, top: TreeTop, entry: int) -> int:
    if isinstance(probe, Collect):  # 8 bytes a key, as for a count
        return probe.rows
    return probe.buckets * top.nodes[entry].total.size


def _asking(top: TreeTop, entry: int) -> list[Probe]:
    search = top.nodes[entry].search
    assert search is not None
    return search.asking


def question(top: TreeTop, entries: Sequence[int], store: Store) -> Question:
    """What the nodes `entries` of a tree ask."""
    counts: list[tuple[int, Count]] = []
    collects: list[tuple[int, Collect]] = []
    for entry in entries:
        for probe in _asking(top, entry):
            if isinstance(probe, Collect):
                collects.append((entry, probe))
            else:
                counts.append((entry, probe))
    wanted = [probe.wanted for _, probe in collects]
    return Question(
        tree=top.tree,
        nodes=len(top.nodes),
        splits=top.splits(),
        standing=top.standing,
        classes=len(store.spec.target.classes),
        counts=_probes(counts),
        collects=_probes([(entry, probe.count) for entry, probe in collects]),
        wanted=np.concatenate(wanted) if wanted else np.zeros(0, np.bool_),
    )


def _probes(asked: Sequence[tuple[int, Count]]) -> Probes:
    buckets = np.array([probe.buckets for _, probe in asked], np.uint64)
    return Probes(
        node=np.array([entry for entry, _ in asked], np.uint32),
        feature=np.array([probe.feature for _, probe in asked], np.uint32),
        low=np.array([probe.low for _, probe in asked], np.uint32),
        shift=np.array([probe.shift for _, probe in asked], np.uint32),
        buckets=buckets,
        offset=np.cumsum(buckets, dtype=np.uint64) - buckets,
    )


def no_reply(asked: Question) -> Reply:
    """The reply of no blocks."""
    cells = int(asked.counts.buckets.sum()) * asked.classes
    probes, splits = asked.counts.node.size, asked.splits.node.size
    return Reply(
        counts=np.zeros(cells, np.uint32),
        low=np.full(probes, 0xFFFFFFFF, np.uint32),
        high=np.zeros(probes, np.uint32),
        keys=[],
        below=np.zeros(splits, np.uint32),
        above=np.full(splits, 0xFFFFFFFF, np.uint32),
        standing={},
    )


def _features(asked: Question) -> set[int]:
    parts = (asked.counts.feature, asked.collects.feature, asked.splits.feature)
    return {int(feature) for part in parts for feature in part}


def _most_probes(asked: Question) -> int:
    """Most Collects of one node: no row is collected more often."""
    return int(np.unique(asked.collects.node, return_counts=True)[1].max(initial=0))


def _joined(reply: Reply, parts: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]) -> list[NDArray[np.uint64]]:
    """The keys of each Collect from those of each block, which stand one Collect after the other."""
    if not parts:
        return reply.keys
    cuts = [np.concatenate([[0], ends.astype(np.int64)]) for _, ends in parts]
    return [
        np.concatenate([keys[cut[p] : cut[p + 1]] for (keys, _), cut in zip(parts, cuts, strict=True)])
        for p in range(parts[0][1].size)
    ]


def _tell(top: TreeTop, entries: list[int], asked: Question, reply: Reply) -> None:
    """Hand every node its answers and settle those that know their split."""
    keys = iter(reply.keys)
    counted = iter(zip(asked.counts.offset, asked.counts.buckets, reply.low, reply.high, strict=True))

    def answered(probe: Probe) -> Answer:
        if isinstance(probe, Collect):
            return next(keys)
        offset, buckets, low, high = (int(number) for number in next(counted))
        cells = reply.counts[offset * asked.classes : (offset + buckets) * asked.classes]
        return Counted(cells.reshape(buckets, asked.classes).astype(np.int64), low, high)

    for entry in entries:
        search = top.nodes[entry].search
        assert search is not None
        search.hear([answered(probe) for probe in search.asking])
        top.settle(entry)
