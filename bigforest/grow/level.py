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
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.grow.question import choose, merged_all, tell
from bigforest.grow.standing import Standing, Stood
from bigforest.grow.top import Ground, TreeTop
from bigforest.memory import release_freed
from bigforest.sample import BLOCK_ROWS, Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.store import Store

# What a block of a table holds: its codes, or its values.
Cells = TypeVar("Cells")
# Where the rows of each node begin, or end.
Places = NDArray[np.uint64]


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


class Passed(Protocol):
    """A table that passes go over, as trees see it: those on features (feature_passes.py), or on projections
    (oblique_passes.py). Their questions and replies are of question.py or oblique_question.py."""

    @property
    def store(self) -> Store: ...
    @property
    def sampler(self) -> Sampler: ...
    @property
    def ground(self) -> Ground: ...

    def question(self, top: Any, entries: Sequence[int]) -> Any:
        """What the nodes `entries` of a tree ask."""

    def answer(self, questions: list[Any], folder: Path, blocks: range) -> list[Any]:
        """The replies of some blocks to the questions; where rows stand then is written into `folder`."""

    def teach(self, tops: Sequence[Any], crew: Crew) -> None:
        """Hand nodes what follows from their rows in order, not from blocks on their own, where they ask for that."""


def split_large(
    table: Passed, tops: Sequence[TreeTop], folder: Path, ranges: Sequence[tuple[range]], crew: Crew
) -> None:
    """Pass over the store until no node of `tops` searches.

    folder  for files of where rows stand.
    ranges  the runs of blocks, the same for all passes over these trees.
    """
    while chosen := choose(tops, table.ground.limits.room):
        _ask(table, tops, chosen, folder, ranges, crew)
        table.teach(tops, crew)


def _ask(
    table: Passed,
    tops: Sequence[TreeTop],
    chosen: Sequence[tuple[int, list[int]]],
    folder: Path,
    ranges: Sequence[tuple[range]],
    crew: Crew,
) -> None:
    """One pass, for these nodes of these trees."""
    questions = [table.question(tops[at], entries) for at, entries in chosen]
    release_freed()
    replies = crew.reduce(answer, ranges, merged_all, (table, questions, folder))
    for (at, entries), asked, reply in zip(chosen, questions, replies, strict=True):
        tops[at].sent(reply.below, reply.above, reply.standing)
        tell(tops[at], entries, asked.answers(reply))


def answer(table: Passed, questions: list[Any], folder: Path, blocks: range) -> list[Any]:
    """Task: see Passed."""
    return table.answer(questions, folder, blocks)


def block_ranges(store: Store, tasks: int) -> list[tuple[range]]:
    """All blocks of the store in `tasks` runs of about equal length, or fewer where there are fewer blocks."""
    blocks = -(-store.rows // store.block_rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [(range(first, stop),) for first, stop in pairwise(cuts)]


def walk(
    table: Passed,
    questions: Sequence[Asked],
    blocks: range,
    replies: Sequence[Told],
    folder: Path | None,
    read: Callable[[int, int | None], Cells],
    send: Callable[[Cells, int, NDArray[np.uint64], Places, Places], Cells],
) -> Iterator[tuple[int, tuple[Stood, NDArray[Any]], Cells]]:
    """For every block and question, the question's number, the block's rows sorted by the nodes they fall into, their
    targets, and the cells of the block.

    replies  learn where the rows stand then.
    folder   for the files of where they stand; None to forget it.
    read  gives a block's cells; its second argument is the block to be read next, if any.
    send  sends the items of a block down the newest splits of the question of this number, and gives the cells as its
          tree sees them.
    """
    store = table.store
    items = np.empty(BLOCK_ROWS, np.uint64)
    with ExitStack() as stack:
        standing = []
        for asked, reply in zip(questions, replies, strict=True):
            if folder is not None and asked.splits.node.size:
                name = f"standing-{asked.tree}-{blocks.start}-{secrets.token_hex(8)}.bin"
                reply.standing[blocks.start] = folder / name
            out = reply.standing.get(blocks.start)
            before = asked.standing.get(blocks.start)
            standing.append(stack.enter_context(Standing(table.sampler, asked.tree, before, out)))
        for block in blocks:
            store.check_unchanged()
            cells = read(block, block + 1 if block + 1 in blocks else None)
            start = block * store.block_rows
            target = _labels(store, start, min(start + store.block_rows, store.rows))
            for at, asked in enumerate(questions):
                classes = None if store.spec.target.task == "regression" else target
                here, begin, end = standing[at].take(block, target.size, classes, asked.nodes, items)
                seen = send(cells, at, here, begin, end)
                standing[at].keep(here, begin, end)
                yield at, ((here, begin, end), target), seen


def _labels(store: Store, start: int, stop: int) -> NDArray[Any]:
    """The targets of some rows in memory of our own, where nobody else can change them: kernels count by class.

    Raises FormatError for classes that are none.
    """
    target = np.array(store.labels(start, stop))
    target.flags.writeable = False  # as those of a file, or kernels would be compiled apart
    classes = len(store.spec.target.classes)
    if classes and target.size and target.max() >= classes:
        raise FormatError(f"{store.path}: a class is out of range; encode the table again")
    return target
