"""Grow trees that split on projections, whose rows do not fit in memory: passes.py, with values for codes.

The values of the table are written to scratch once (decoded.py). A node that does not fit draws its directions, and
passes project its rows on them, in the order of terms in which growing in memory does. Oracle: grow/forest.py
grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.grow.arrays import tree_arrays
from bigforest.grow.assemble import join_pieces, read_arrays, write_arrays
from bigforest.grow.bag import check_bag
from bigforest.grow.decoded import decode
from bigforest.grow.level import block_ranges
from bigforest.grow.oblique_family import Subtree
from bigforest.grow.oblique_level import Table, answer, sample, spill, spilled_both, split_large
from bigforest.grow.oblique_question import DirectionReply, merged_all, question
from bigforest.grow.oblique_top import DirectionTop, Ends
from bigforest.grow.passes import Seedling, count_bags, grow_all, subtree_path
from bigforest.grow.rotation_passes import rotation_passes
from bigforest.grow.sparse_passes import sparse_passes
from bigforest.grow.spill import load_rows
from bigforest.grow.top import Ground, root_key
from bigforest.kernels.oblique import Pool
from bigforest.kernels.target import Classes
from bigforest.kernels.tree import CodeTree
from bigforest.memory import release_freed
from bigforest.sample import Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.store import Store

# Of the arrays of a subtree in a file: feature, right, depth, counts; threshold and number of terms of each node;
# feature and weight of the terms.
_TYPES = ("<i4", "<u4", "<u4", "<u4", "<f8", "<u4", "<i4", "<f8")


class Prepared(NamedTuple):
    """What all trees of a forest share: what tasks read, in which runs of blocks, and how nodes are split."""

    table: Table
    ranges: list[tuple[range]]
    ground: Ground


def prepare(store: Store, config: TrainConfig, ground: Ground, folder: Path, crew: Crew) -> Prepared:
    """Write the values of the table to the scratch `folder`."""
    ranges = [(blocks,) for blocks in block_ranges(store, crew.size)]
    # A task has as much room for a dictionary as for its histograms and keys, of 4 bytes a count.
    most = max(ground.limits.room // 2, store.block_rows)
    decoded = decode(store, ranges, folder, crew, most)
    make = rotation_passes if config.family == "rotation" else sparse_passes
    family = make(store, config, decoded.spans, most)
    return Prepared(Table(store, Sampler.of(store, config), decoded, family), ranges, ground)


def grow_oblique_by_passes(
    prepared: Prepared,
    config: TrainConfig,
    parts: Sequence[range],
    directory: Path,
    folder: Path,
    *,
    crew: Crew,
    on_trees: Callable[[int], None],
) -> None:
    """Write the parts of some trees; see passes.grow_by_passes."""
    table, ranges, ground = prepared
    store = table.store
    trees = [tree for part in parts for tree in part]
    totals = crew.reduce(count_bags, ranges, np.add, (table.sampler, trees, ground.tally))
    if ground.tally.weighted:
        check_bag(int(ground.tally.weight(totals).max()))
    known = _survey(prepared, trees, totals, folder, crew)
    tops = [
        DirectionTop(tree, root_key(config, tree), total, ground, table.family.search, *known[tree])
        for tree, total in zip(trees, totals, strict=True)
    ]
    split_large(table, tops, ground.limits.room, folder, ranges, crew)
    questions = [question(top, []) for top in tops]
    small = [top.small() for top in tops]
    spilled = crew.reduce(spill, ranges, spilled_both, (table, questions, small, folder))
    for top, reply in zip(tops, spilled.replies, strict=True):
        top.sent(reply.below, reply.above, {})
    own = {top.tree: top.own for top in tops}
    sizes = grow_all(tops, spilled, folder, crew, grow_seedling, (table, ground, own))

    def end(index: int, _: None) -> None:
        for tree in parts[index]:
            for entry in sizes[tree]:
                subtree_path(folder, tree, entry).unlink(missing_ok=True)
        on_trees(len(parts[index]))

    ends = table.family.ends(store)
    stems = {top.tree: _stem(top, sizes[top.tree], store, ends, config) for top in tops}
    tasks = [([stems[tree] for tree in part], [own[tree] for tree in part]) for part in parts]
    crew.run(write_stems, tasks, end, (table, config, directory, folder))


def _survey(
    prepared: Prepared, trees: Sequence[int], totals: NDArray[np.int64], folder: Path, crew: Crew
) -> dict[int, tuple[Any, NDArray[np.bool_]]]:
    """What each tree has of its own, and its constant columns; see Family.own."""
    table, ranges, ground = prepared
    samples: Sequence[NDArray[np.int64] | None] = [None] * len(trees)
    if table.family.sampled:
        samples = [*crew.reduce(sample, ranges, np.add, (table, trees))]
    surveys = zip(trees, samples, strict=True)
    questions = [table.family.survey(tree, ground.tally, found) for tree, found in surveys]
    asked = [question for question in questions if question is not None]
    replies: list[DirectionReply | None] = [None] * len(trees)
    if asked:
        replies = [*crew.reduce(answer, ranges, merged_all, (table, asked, folder))]
    of_tree = zip(trees, questions, totals, replies, strict=True)
    return {tree: table.family.own(*known) for tree, *known in of_tree}


def grow_seedling(
    table: Table, ground: Ground, own: dict[int, Any], seedling: Seedling, files: list[Path], path: Path
) -> int:
    """Task: grow the subtree below a small node from its rows in `files` into the file `path`; gives its nodes."""
    store = table.store
    layout = table.family.layout(table.decoded)
    matrices, items = load_rows(files, layout.matrices, store.block_rows, seedling.rows)
    target = Classes(ground.tally.classes, ground.table)
    subtree = Subtree(items, target, ground.rules, seedling.key, seedling.depth, seedling.constant)
    columns = [matrices[width == 8][slot] for width, slot in layout.place.tolist()]
    nodes, pool = table.family.grow(own[seedling.tree], columns, subtree, table.family.ends(store))
    _write_subtree(path, nodes, pool)
    del columns, matrices, items, subtree
    release_freed()
    return nodes.feature.size


class Stem(NamedTuple):
    """The upper part of a tree: its nodes in preorder, their entries, and the nodes of each subtree by entry."""

    tree: int
    nodes: TreeArrays
    order: list[int]
    sizes: dict[int, int]


def _stem(top: DirectionTop, sizes: dict[int, int], store: Store, ends: Ends, config: TrainConfig) -> Stem:
    pool = top.pool(ends)
    nodes = tree_arrays(top.skeleton(), store.dictionaries, config.impurity, pool, known=pool.threshold)
    return Stem(top.tree, nodes, list(top.preorder()), sizes)


def write_stems(
    table: Table, config: TrainConfig, directory: Path, folder: Path, stems: list[Stem], own: list[Any]
) -> None:
    """Task: write consecutive trees as one part; `own` is what each has of its own."""
    dictionaries = table.store.dictionaries

    def pieces(stem: Stem, own: Any) -> Any:
        def below(entry: int) -> TreeArrays:
            nodes, pool = _read_subtree(subtree_path(folder, stem.tree, entry))
            return tree_arrays(nodes, dictionaries, config.impurity, pool, known=pool.threshold)

        for nodes in join_pieces(stem.nodes, stem.order, stem.sizes, below):
            yield table.family.finished(own, nodes)

    trees = (pieces(*each) for each in zip(stems, own, strict=True))
    write_part(directory, stems[0].tree, trees, table.store.spec, config)
    release_freed()


def _write_subtree(path: Path, nodes: CodeTree, pool: Pool) -> None:
    arrays: list[NDArray[Any]] = [nodes.feature, nodes.right, nodes.depth, nodes.counts, pool.threshold, pool.size]
    typed = zip([*arrays, pool.feature, pool.weight], _TYPES, strict=True)
    write_arrays(path, [array.astype(kind, copy=False) for array, kind in typed])


def _read_subtree(path: Path) -> tuple[CodeTree, Pool]:
    """Inverse of `_write_subtree`. Raises FormatError for a damaged file."""
    feature, right, depth, counts, threshold, size, term, weight = read_arrays(path, _TYPES)
    none = np.zeros(feature.size, np.uint32)
    nodes = CodeTree(feature, right, depth, none, none, counts.reshape(feature.size, -1))
    return nodes, Pool(threshold, size, term, weight, np.array([term.size], np.uint64))
