"""Grow trees whose rows do not fit in memory: split large nodes by passes, write the rows of small ones to disk by
node, and grow each of those in memory. Oracle: grow/whole.py grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.grow.assemble import remove_subtree
from bigforest.grow.bag import check_bag, total_of, weighed_block
from bigforest.grow.level import Passed, split_large
from bigforest.grow.question import merged_all
from bigforest.grow.spill import NodeRows, Spilled, Spread, rows_of, write_rows
from bigforest.grow.tally import Counts, Tally
from bigforest.grow.top import TreeTop
from bigforest.memory import release_freed
from bigforest.sample import Sampler
from bigforest.schedule.crew import Crew

Top = TypeVar("Top", bound=TreeTop)


class Seedling(NamedTuple):
    """A small node: entry in the top of its tree, rows at most, and what `grow` starts from."""

    tree: int
    entry: int
    rows: int
    key: np.uint64
    depth: int
    constant: NDArray[np.bool_]


class Stem(NamedTuple, Generic[Top]):
    """The upper part of a tree, and the subtrees below it: the nodes of each by entry, in files of `folder`."""

    top: Top
    sizes: dict[int, int]
    folder: Path

    def subtree(self, entry: int) -> Path:
        """The file of a subtree."""
        return subtree_path(self.folder, self.top.tree, entry)


class Table(Passed, Protocol):
    """See Passed."""

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """The runs of blocks, for so many tasks."""

    def tops(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, crew: Crew
    ) -> Sequence[TreeTop]:
        """The trees, with their roots alone; totals int64 [trees, parts], what their bags hold."""

    def spread(self, questions: Sequence[Any], blocks: range, replies: Sequence[Any]) -> Iterator[tuple[int, Spread]]:
        """For every block and question, without probes, its number, and the rows of the block with all that trees grow
        on; replies learn what was sent left and right."""

    def grow(self, own: Any, seedling: Seedling, rows: NodeRows, path: Path) -> int:
        """Grow the subtree below a small node from its rows into the file `path`; gives its nodes.

        own  TreeTop.own
        """

    def finish(self, sizes: Mapping[Path, int], crew: Crew) -> None:
        """Do what is best done for many subtrees together; the number of nodes of each by its file."""

    def pieces(self, stem: Any) -> Iterator[TreeArrays]:
        """The nodes of a tree in preorder, in pieces. Memory: one subtree."""


def grow_by_passes(
    table: Table,
    parts: Sequence[range],
    directory: Path,
    folder: Path,
    *,
    crew: Crew,
    on_trees: Callable[[int], None],
) -> None:
    """Write the parts of some trees, which share the passes over the store; `folder` is empty scratch.

    on_trees is told how many trees are done.
    """
    trees = [tree for part in parts for tree in part]
    ranges = table.ranges(crew.size)
    tally = table.ground.tally
    totals = crew.reduce(count_bags, ranges, np.add, (table.sampler, trees, tally))
    if tally.weighted:
        check_bag(int(tally.weight(totals).max()))
    tops = table.tops(trees, totals, ranges, folder, crew)
    split_large(table, tops, folder, ranges, crew)
    questions = [table.question(top, []) for top in tops]
    small = [top.small() for top in tops]
    spilled = crew.reduce(spill, ranges, spilled_both, (table, questions, small, folder))
    for top, reply in zip(tops, spilled.replies, strict=True):
        top.sent(reply.below, reply.above, {})
    sizes = _grow_all(table, tops, spilled, folder, crew)
    files = {subtree_path(folder, tree, entry): nodes for tree, own in sizes.items() for entry, nodes in own.items()}
    table.finish(files, crew)
    stems = {top.tree: Stem(top, sizes[top.tree], folder) for top in tops}

    def end(index: int, _: None) -> None:
        for tree in parts[index]:
            for entry in sizes[tree]:
                remove_subtree(stems[tree].subtree(entry))
        on_trees(len(parts[index]))

    own = [([stems[tree] for tree in part],) for part in parts]
    crew.run(write_stems, own, end, (table, directory))


def count_bags(sampler: Sampler, trees: Sequence[int], tally: Tally, blocks: range) -> Counts:
    """Task: what the bags of the trees hold in some blocks, int64 [trees, parts]."""
    store = sampler.store
    totals = np.zeros((len(trees), tally.parts), np.int64)
    store.fetch([], blocks)
    for block in blocks:
        target = store.labels(block * store.block_rows, (block + 1) * store.block_rows)
        for at, tree in enumerate(trees):
            totals[at] += total_of(target, weighed_block(sampler, tree, block), tally)
    return totals


def spill(table: Table, questions: list[Any], small: list[list[int]], folder: Path, blocks: range) -> Spilled[Any]:
    """Task: write the rows of the `small` nodes (entries of each question's top) of some blocks into `folder`.

    questions  one per tree, without probes.
    """
    replies = [asked.no_reply() for asked in questions]
    rows = ((questions[at].tree, small[at], spread) for at, spread in table.spread(questions, blocks, replies))
    suffix = write_rows(rows, folder, blocks.start)
    return Spilled(replies, {blocks.start: suffix})


def spilled_both(one: Spilled[Any], two: Spilled[Any]) -> Spilled[Any]:
    """What is known after both."""
    return Spilled(merged_all(one.replies, two.replies), one.suffixes | two.suffixes)


def grow_seedling(table: Table, own: dict[int, Any], seedling: Seedling, rows: NodeRows, path: Path) -> int:
    """Task: see Table.grow; `own` by tree."""
    nodes = table.grow(own[seedling.tree], seedling, rows, path)
    release_freed()
    return nodes


def write_stems(table: Table, directory: Path, stems: list[Stem[Any]]) -> None:
    """Task: write consecutive trees as one part."""
    store = table.store
    pieces = (piece for stem in stems for piece in table.pieces(stem))
    write_part(directory, stems[0].top.tree, pieces, store.spec, table.sampler.config, store.levels())
    release_freed()


def _grow_all(
    table: Table, tops: Sequence[TreeTop], spilled: Spilled[Any], folder: Path, crew: Crew
) -> dict[int, dict[int, int]]:
    """Grow the subtrees below all small nodes, tree by tree, large ones first; gives their sizes by tree and entry."""
    suffixes = [suffix for _, suffix in sorted(spilled.suffixes.items())]
    tasks = []
    for top in tops:
        own = [
            (
                Seedling(top.tree, entry, int(top.tally.rows(node.total)), node.key, node.depth, node.constant),
                rows_of(folder, top.tree, number, suffixes),
                subtree_path(folder, top.tree, entry),
            )
            for number, entry in enumerate(top.small())
            for node in [top.nodes[entry]]
        ]
        tasks += sorted(own, key=lambda task: -task[0].rows)
    sizes: dict[int, dict[int, int]] = {top.tree: {} for top in tops}
    wanted = Counter(path for _, rows, _ in tasks for path in rows.paths)

    # Removing files may wait for the disk, and this thread hands out the tasks.
    removed: list[Future[None]] = []
    with ThreadPoolExecutor(1, thread_name_prefix="bigforest-remove") as remover:

        def keep(index: int, nodes: int) -> None:
            seedling, rows, _ = tasks[index]
            sizes[seedling.tree][seedling.entry] = nodes
            wanted.subtract(rows.paths)
            over = [path for path in rows.paths if not wanted[path]]
            removed.append(remover.submit(_remove, over))  # only now: until here the task may have to be done again

        crew.run(grow_seedling, tasks, keep, (table, {top.tree: top.own for top in tops}))
    for done in removed:
        done.result()
    return sizes


def _remove(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def subtree_path(folder: Path, tree: int, entry: int) -> Path:
    """The file of a subtree."""
    return folder / f"subtree-{tree}-{entry}.bin"
