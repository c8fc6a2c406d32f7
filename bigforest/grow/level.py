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
    classes = len(store.spec.target.classes)
    while True:
        chosen = choose(tops, room)
        if not chosen:
            return
        questions = [question(tops[at], entries, classes) for at, entries in chosen]
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
    pieces: list[list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]] = [[] for _ in questions]
    replies = [no_reply(asked) for asked in questions]
    needed = sorted(set().union(*(features(asked) for asked in questions)))
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

        for at, stood, codes in walk(store, sampler, questions, blocks, replies, folder, read, send):
            yield at, Routed(codes, *stood)


def walk(
    store: Store,
    sampler: Sampler,
    questions: Sequence[Asked],
    blocks: range,
    replies: Sequence[Told],
    folder: Path | None,
    read: Callable[[int, int | None], Cells],
    send: Callable[[Cells, int, NDArray[np.uint64], Ends, Ends], Cells],
) -> Iterator[tuple[int, Stood, Cells]]:
    """`route` for whatever a block holds.

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
                here, begin, end = standing[at].take(block, target, asked.nodes, items)
                seen = send(cells, at, here, begin, end)
                standing[at].keep(here, begin, end)
                yield at, (here, begin, end), seen


def _joined(reply: Reply, parts: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]) -> list[NDArray[np.uint64]]:
    """The keys of each Collect from those of each block, which stand one Collect after the other."""
    if not parts:
        return reply.keys
    cuts = [np.concatenate([[0], ends.astype(np.int64)]) for _, ends in parts]
    return [
        np.concatenate([keys[cut[p] : cut[p + 1]] for (keys, _), cut in zip(parts, cuts, strict=True)])
        for p in range(parts[0][1].size)
    ]
