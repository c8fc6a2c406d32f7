"""Split the nodes that do not fit in memory, breadth first, by passes over the store.

A pass goes over the blocks once, in order. For every tree it takes the rows of the block where they stand
(standing.py), sends them down the newest splits, and answers what the nodes ask (frontier.py). Many nodes and many
trees share a pass. Runs of blocks are spread over tasks, and what tasks find is added up (question.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.judge import Keys
from bigforest.grow.question import (
    Question,
    Reply,
    choose,
    features,
    merged_all,
    most_probes,
    no_reply,
    question,
    tell,
)
from bigforest.grow.standing import Standing, Stood
from bigforest.grow.top import TreeTop
from bigforest.kernels.layout import Codes
from bigforest.kernels.level import collect_block, count_block, route_block
from bigforest.kernels.rows import no_rows
from bigforest.memory import release_freed
from bigforest.sample import BLOCK_ROWS, Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.blocks import BlockReader
from bigforest.store.store import Store

# What a block of a table holds: its codes, or its values.
Cells = TypeVar("Cells")
Ends = NDArray[np.uint64]


class Asked(Protocol):
    """What `walk` needs of a question."""

    @property
    def tree(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def splits(self) -> Any: ...
    @property
    def standing(self) -> Mapping[int, Path]: ...


class Told(Protocol):
    """What `walk` adds to a reply."""

    @property
    def standing(self) -> dict[int, Path]: ...


class Routed(NamedTuple):
    """The rows of one block and tree, sorted by the nodes they fall into; see route_block.

    value  int64 [rows of the block], numbers to predict; None for classes
    """

    codes: Codes
    value: NDArray[np.int64] | None
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
        chosen = choose(tops, room)
        if not chosen:
            return
        questions = [question(tops[at], entries) for at, entries in chosen]
        release_freed()
        replies = crew.reduce(answer, ranges, merged_all, (store, sampler, questions, folder))
        for (at, entries), asked, reply in zip(chosen, questions, replies, strict=True):
            tops[at].sent(reply.below, reply.above, reply.standing)
            tell(tops[at], entries, asked, reply)


def block_ranges(store: Store, tasks: int) -> list[range]:
    """All blocks of the store in `tasks` runs of about equal length, or fewer where there are fewer blocks."""
    blocks = -(-store.rows // store.block_rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [range(first, stop) for first, stop in pairwise(cuts)]


def answer(store: Store, sampler: Sampler, questions: list[Question], folder: Path, blocks: range) -> list[Reply]:
    """Task: the replies of some blocks to the questions."""
    by_row = no_rows()
    fetched = np.empty(BLOCK_ROWS, np.uint32)
    most = max((most_probes(asked) for asked in questions), default=0)
    found = np.empty(most * BLOCK_ROWS + 1, np.uint64)
    numbers = np.empty(found.size, np.int64) if any(asked.tally.numbers for asked in questions) else None
    pieces: list[list[list[Keys]]] = [[] for _ in questions]
    replies = [no_reply(asked) for asked in questions]
    needed = sorted(set().union(*(features(asked) for asked in questions)))
    for at, routed in route(store, sampler, questions, blocks, needed, replies, folder):
        asked, reply = questions[at], replies[at]
        codes, value, items, begin, end = routed
        rows = (codes, by_row, items, begin, end, value)
        parts, weighted = np.uint64(asked.tally.parts), asked.tally.weighted
        cells = (reply.counts, reply.low, reply.high, reply.spread)
        count_block(*rows, asked.counts, parts, weighted, fetched, *cells)
        if asked.collects.node.size:
            ends = np.empty(asked.collects.node.size, np.uint64)
            collect_block(*rows, asked.collects, asked.wanted, fetched, found, numbers, ends)
            pieces[at].append(_cut(found, numbers, ends))
    return [reply._replace(keys=_joined(blocks)) for reply, blocks in zip(replies, pieces, strict=True)]


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
    by_row, fetched = no_rows(), np.empty(BLOCK_ROWS, np.uint32)
    spare = np.empty(BLOCK_ROWS, np.uint64)
    store.fetch(needed, blocks)
    with ExitStack() as stack:
        reader = stack.enter_context(BlockReader(store.folder, store.spec, store.block_rows, store.place))

        def read(block: int, following: int | None) -> Codes:
            return reader.read(block, needed, following)

        def send(codes: Codes, at: int, items: NDArray[np.uint64], begin: Ends, end: Ends) -> Codes:
            below, above = replies[at].below, replies[at].above
            route_block(codes, by_row, items, spare, fetched, questions[at].splits, begin, end, below, above)
            return codes

        for at, (stood, target), codes in walk(store, sampler, questions, blocks, replies, folder, read, send):
            yield at, Routed(codes, target if questions[at].tally.numbers else None, *stood)


def walk(
    store: Store,
    sampler: Sampler,
    questions: Sequence[Asked],
    blocks: range,
    replies: Sequence[Told],
    folder: Path | None,
    read: Callable[[int, int | None], Cells],
    send: Callable[[Cells, int, NDArray[np.uint64], Ends, Ends], Cells],
) -> Iterator[tuple[int, tuple[Stood, NDArray[Any]], Cells]]:
    """`route` for whatever a block holds: with the rows come the targets of the block.

    read  gives a block's cells; its second argument is the block to be read next, if any.
    send  sends the items of a block down the newest splits of the question of this number, and gives the cells as its
          tree sees them.
    """
    items = np.empty(BLOCK_ROWS, np.uint64)
    with ExitStack() as stack:
        standing = []
        for asked, reply in zip(questions, replies, strict=True):
            if folder is not None and asked.splits.node.size:
                name = f"standing-{asked.tree}-{blocks.start}-{secrets.token_hex(8)}.bin"
                reply.standing[blocks.start] = folder / name
            out = reply.standing.get(blocks.start)
            before = asked.standing.get(blocks.start)
            standing.append(stack.enter_context(Standing(sampler, asked.tree, before, out)))
        for block in blocks:
            cells = read(block, block + 1 if block + 1 in blocks else None)
            start = block * store.block_rows
            target = store.labels(start, min(start + store.block_rows, store.rows))
            for at, asked in enumerate(questions):
                classes = None if store.spec.target.task == "regression" else target
                here, begin, end = standing[at].take(block, target.size, classes, asked.nodes, items)
                seen = send(cells, at, here, begin, end)
                standing[at].keep(here, begin, end)
                yield at, ((here, begin, end), target), seen


def _cut(found: NDArray[np.uint64], numbers: NDArray[np.int64] | None, ends: NDArray[np.uint64]) -> list[Keys]:
    """The keys of each Collect in a block, which stand one Collect after the other up to `ends`; copies."""
    none = np.empty(0, np.int64)
    cuts = [slice(*pair) for pair in pairwise([0, *ends.tolist()])]
    return [Keys(found[cut].copy(), none if numbers is None else numbers[cut].copy()) for cut in cuts]


def _joined(blocks: list[list[Keys]]) -> list[Keys]:
    """The keys of each Collect from those of each block."""
    return [Keys.joined(own) for own in zip(*blocks, strict=True)]
