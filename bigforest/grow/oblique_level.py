"""The tasks of passes for trees that split on projections: what level.py and spill.py do, with values for codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.decoded import Decoded, ValueReader
from bigforest.grow.directions import Found
from bigforest.grow.level import Ends, walk
from bigforest.grow.oblique_family import Family
from bigforest.grow.oblique_question import (
    DirectionQuestion,
    DirectionReply,
    features,
    joined,
    merged_all,
    most_collected,
    no_reply,
    question,
    tell,
)
from bigforest.grow.oblique_top import DirectionTop
from bigforest.grow.question import choose
from bigforest.grow.spill import Spilled, Spread, write_rows
from bigforest.grow.standing import Stood
from bigforest.kernels.level_values import Cells, collect_values, count_values, route_values, sum_values
from bigforest.memory import release_freed
from bigforest.sample import BLOCK_ROWS, Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.store import Store


class Table(NamedTuple):
    """What the tasks read: the store for the rows, its values for cells, and how trees look at these."""

    store: Store
    sampler: Sampler
    decoded: Decoded
    family: Family


def split_large(
    table: Table,
    tops: Sequence[DirectionTop],
    room: int,
    folder: Path,
    ranges: Sequence[tuple[range]],
    crew: Crew,
) -> None:
    """See level.split_large."""
    while chosen := choose(tops, room):
        questions = [question(tops[at], entries) for at, entries in chosen]
        release_freed()
        replies = crew.reduce(answer, ranges, merged_all, (table, questions, folder))
        for (at, entries), asked, reply in zip(chosen, questions, replies, strict=True):
            tops[at].sent(reply.below, reply.above, reply.standing)
            tell(tops[at], entries, asked, reply)


def sample(table: Table, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
    """Task: Family.sample of some blocks for each of the trees, [trees, ...]."""
    with ValueReader(table.store, table.decoded, blocks) as reader:
        found: list[NDArray[np.int64]] = []
        for block in blocks:
            cells = reader.read(block, range(len(table.decoded.place)))
            first = block * table.store.block_rows
            here = [table.family.sample(tree, first, cells) for tree in trees]
            found = [one + two for one, two in zip(found, here, strict=True)] if found else here
    return np.stack(found)


def answer(table: Table, questions: list[DirectionQuestion], folder: Path, blocks: range) -> list[DirectionReply]:
    """Task: the replies of some blocks to the questions."""
    value = np.empty(BLOCK_ROWS)
    most = max(map(most_collected, questions), default=0)
    found, tags = np.empty(most * BLOCK_ROWS), np.empty(most * BLOCK_ROWS, np.uint32)
    pieces: list[list[list[Found]]] = [[] for _ in questions]
    replies = [no_reply(asked, table.family.columns) for asked in questions]
    for at, (items, begin, end), cells in _route(table, questions, blocks, replies, folder):
        asked, reply = questions[at], replies[at]
        rows = (cells, asked.asked, items, begin, end)
        parts, weighted = np.uint64(asked.tally.parts), asked.tally.weighted
        count_values(*rows, asked.counts, parts, weighted, value, reply.counts, reply.least, reply.most, reply.unfit)
        if asked.collects.node.size:
            ends = np.empty(asked.collects.node.size, np.uint64)
            collect_values(*rows, asked.collects, asked.wanted, value, found, tags, ends)
            cuts = ends.astype(np.int64).tolist()
            pieces[at].append(
                [
                    Found(found[first:last].copy(), tags[first:last].copy())
                    for first, last in zip([0, *cuts], cuts, strict=False)
                ]
            )
        if asked.sums.size:
            sum_values(cells, items, begin, end, asked.sums, table.family.steps, reply.sums)
    return [
        reply._replace(found=[joined(each) for each in zip(*parts, strict=True)])
        for reply, parts in zip(replies, pieces, strict=True)
    ]


def spill(
    table: Table, questions: list[DirectionQuestion], small: list[list[int]], folder: Path, blocks: range
) -> Spilled[DirectionReply]:
    """Task: write the rows of the `small` nodes of some blocks into `folder`, with the columns that they split on."""
    replies = [no_reply(asked, table.family.columns) for asked in questions]
    rows = (
        (questions[at].tree, small[at], Spread((cells.f32, cells.f64), *stood))
        for at, stood, cells in _route(table, questions, blocks, replies, None)
    )
    suffix = write_rows(rows, folder, blocks.start)
    return Spilled(replies, {blocks.start: suffix})


def spilled_both(one: Spilled[DirectionReply], two: Spilled[DirectionReply]) -> Spilled[DirectionReply]:
    """What is known after both."""
    return Spilled(merged_all(one.replies, two.replies), one.suffixes | two.suffixes)


def _route(
    table: Table,
    questions: Sequence[DirectionQuestion],
    blocks: range,
    replies: Sequence[DirectionReply],
    folder: Path | None,
) -> Iterator[tuple[int, Stood, Cells]]:
    """For every block and question, its number, the block's rows by nodes, and the columns that the tree splits on."""
    value, spare = np.empty(BLOCK_ROWS), np.empty(BLOCK_ROWS, np.uint64)
    needed: Iterable[int] = range(len(table.decoded.place))
    if folder is not None and not any(asked.sums.size for asked in questions):
        needed = sorted(table.family.needed(set().union(*map(features, questions))))
    with ValueReader(table.store, table.decoded, blocks) as reader:

        def read(block: int, _: int | None) -> Cells:
            return reader.read(block, needed)

        def send(cells: Cells, at: int, items: NDArray[np.uint64], begin: Ends, end: Ends) -> Cells:
            asked, reply = questions[at], replies[at]
            seen = table.family.view(asked.own, cells)
            route_values(seen, asked.ways, items, spare, value, asked.splits, begin, end, reply.below, reply.above)
            return seen

        walked = walk(table.store, table.sampler, questions, blocks, replies, folder, read, send)
        yield from ((at, stood, cells) for at, (stood, _), cells in walked)
