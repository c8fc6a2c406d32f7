"""Leaves of out-of-bag rows in trees that were grown by passes.

1. While a part of the forest is written, the splits of its trees are copied to scratch (`keeping_splits`), as arrays
   that are mapped: the system keeps their pages in memory as long as there is room, and threads share them. So a tree
   need not fit into the budget.
2. In trees on features, `cut_exactly` converts thresholds to codes. Growing knows only the codes of the rows of a node.
   An out-of-bag row may have a code between two of these codes, on either side of the threshold.
3. A task for each run of blocks routes the out-of-bag rows down the trees of some parts (`route_left_out`).
4. A task for each part joins the runs into the file of leaves of the part (`join_runs`), the same as in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.forest.files import has_levels
from bigforest.forest.leaf_votes import (
    LEAF_TYPES,
    LeafChunk,
    leaf_chunk_rows,
    leaf_chunks,
    leaves_path,
    write_leaves,
    writing_ballots,
)
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.out_of_core.context import PROJECTIONS
from bigforest.grow.out_of_core.table import Passes, TableView
from bigforest.grow.row_codes import fill_rows
from bigforest.grow.trees import code_view, find_left_out, split_arrays, splits_of
from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.predict.flat_tree import NodeLayout
from bigforest.kernels.predict.route_codes import CodeView
from bigforest.planning.sizes import fitting
from bigforest.predict.packed_trees import replace_thresholds
from bigforest.storage.array_file import ArrayFile, ScratchArray, appending, mapped_array, writing_arrays
from bigforest.storage.atomic import remove_files
from bigforest.storage.paths import local_workdir
from bigforest.store.store import Store

# Types of the arrays of splits (grow/trees.py split_arrays) in all trees, in trees on features without and with
# categories, and in trees on projections.
_NODES = {"feature": "<i4", "right": "<u4", "threshold": "<f8"}
_CUTS = {"below": "<u4"}  # replaces thresholds (`cut_exactly`)
_ON_FEATURES = _NODES | _CUTS | {"default_left": "|b1"}
_ON_LEVELS = _ON_FEATURES | {"level_start": "<i8", "level": "<u4"}
_ON_PROJECTIONS = _NODES | {"term_start": "<i8", "term": "<i4", "weight": "<f8"}
# Nodes whose cuts are converted at a time.
_STRETCH = 1 << 15
# Bits of a link below the feature of a node, and the lowest bit, which is set in inner nodes (NodeLayout of
# kernels/predict/flat_tree.py).
_PLACE, _ONE = np.uint64(32), np.uint64(1)


class SplitFiles(NamedTuple):
    """The splits of a tree: arrays by the names of `split_types`, and the depth of the deepest node."""

    arrays: dict[str, ScratchArray]
    depth: int

    @property
    def nodes(self) -> int:
        return self.arrays["feature"].size


def split_types(spec: DataSpec, *, projected: bool) -> dict[str, str]:
    """Return the types of the arrays of splits; projected: nodes split on projections."""
    if projected:
        return _ON_PROJECTIONS
    return _ON_LEVELS if has_levels(spec) else _ON_FEATURES


# Function of (tree, pieces) that yields the pieces of the tree and copies their splits.
KeepTree = Callable[[int, Iterator[TreeArrays]], Iterator[TreeArrays]]


@contextmanager
def keeping_splits(
    spec: DataSpec, directory: Path, folder: Path, part: range, types: Mapping[str, str]
) -> Iterator[tuple[KeepTree, dict[int, SplitFiles]]]:
    """Copy the splits of the trees of a part while they are written; types: of the arrays (`split_types`).

    Yields the function that the pieces of each tree must pass through, and the splits by tree. The ballots (votes)
    of the leaves are written when the context ends.
    """
    splits: dict[int, SplitFiles] = {}
    with writing_ballots(leaves_path(directory, part.start), spec, folder) as add_ballots:

        def through(tree: int, pieces: Iterator[TreeArrays]) -> Iterator[TreeArrays]:
            levels = terms = depth = 0
            with appending(folder, f"splits-{tree}", types) as (arrays, add):
                for piece in pieces:
                    depth = max(depth, int(piece.depth.max(initial=0)))
                    piece_arrays = split_arrays(piece)
                    level_start, term_start = piece_arrays["level_start"][:-1], piece_arrays["term_start"][:-1]
                    written = piece_arrays | {"level_start": level_start + levels, "term_start": term_start + terms}
                    add(**{name: written[name] for name in types})
                    levels, terms = levels + piece_arrays["level"].size, terms + piece_arrays["term"].size
                    add_ballots(piece)
                    yield piece
                ends = {"level_start": np.array([levels]), "term_start": np.array([terms])}
                add(**{name: end for name, end in ends.items() if name in types})
            splits[tree] = SplitFiles(arrays, depth)

        yield through, splits


def write_left_out(
    passes: Passes,
    parts: Sequence[range],
    splits: Mapping[int, SplitFiles],
    directory: Path,
    advance: Callable[[int], None],
) -> None:
    """Write the leaves of out-of-bag rows in the trees of some parts. Call `advance` with the number of trees done."""
    table, ranges, folder, executor = passes
    sizes = [sum(splits[tree].nodes for tree in part) for part in parts]
    for group in fitting(parts, sizes, table.context.limits.routed):
        trees = {tree: splits[tree] for part in group for tree in part}
        if table.context.kind != PROJECTIONS:
            [trees] = executor.map(cut_exactly, [(trees,)], (table.store,))
        # The same runs of blocks as in the passes: a worker has read its blocks before.
        runs = executor.reduce(route_left_out, ranges, or_, (table, group, trees, folder))
        read = {array.path for tree in trees for each in (splits, trees) for array in each[tree].arrays.values()}
        remove_files(read)
        shared = (table.store, directory, [run for _, run in sorted(runs.items())])
        executor.run(join_runs, [(part,) for part in group], lambda _, count: advance(count), shared)
        remove_files([_leaves_path(run, part) for run in runs.values() for part in group])


def cut_exactly(store: Store, trees: dict[int, SplitFiles]) -> dict[int, SplitFiles]:
    """Task: replace the threshold of each node by the largest code of the table that goes left, `below`.

        codes of the node's rows      12        40         below = 12 after growing
        values                        1.0       8.0        threshold 4.5
        codes of the table            12 .. 29 | 30 .. 40  below = 29 for rows out of bag

    A dictionary may be larger than memory, so values are not looked up one by one: each dictionary is read once, in
    order, for all trees. Nodes are in a mapped scratch file, 16 bytes each.
    """
    scratch = next(iter(trees.values())).arrays["below"].path.parent
    with local_workdir(scratch) as folder:
        words = mapped_array(folder, (sum(files.nodes for files in trees.values()), 2), np.uint64)
    firsts = np.cumsum([0, *(files.nodes for files in trees.values())]).tolist()

    def stretches(files: SplitFiles, first: int, name: str) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield some nodes at a time: words, thresholds, and another array."""
        threshold, array = files.arrays["threshold"].load(), files.arrays[name].load()
        for begin in range(0, files.nodes, _STRETCH):
            span = slice(begin, begin + _STRETCH)
            yield words[first : first + files.nodes][span], threshold[span], array[span]

    for files, first in zip(trees.values(), firsts, strict=False):
        for pairs, threshold, feature in stretches(files, first, "feature"):
            pairs[:, 0] = threshold.view(np.uint64)
            pairs[:, 1] = np.where(np.isnan(threshold), 0, feature.astype(np.uint64) << _PLACE | _ONE)
    links = words.reshape(-1)
    layout = NodeLayout(links.view(np.float64), links, _PLACE, np.uint64(0), np.uint64(0))
    replace_thresholds(layout, np.arange(len(store.spec.features)), store, 1)
    exact = {}
    for (tree, files), first in zip(trees.items(), firsts, strict=False):
        folder = files.arrays["below"].path.parent
        with appending(folder, f"cut-{tree}", _CUTS) as (arrays, add):
            for pairs, threshold, below in stretches(files, first, "below"):
                codes = np.nan_to_num(pairs[:, 0].view(np.float64))
                add(below=np.where(np.isnan(threshold), below, codes))
        others = {name: array for name, array in files.arrays.items() if name != "threshold"}
        exact[tree] = files._replace(arrays=others | arrays)
    return exact


def route_left_out(
    table: TableView,
    parts: Sequence[range],
    splits: Mapping[int, SplitFiles],
    folder: Path,
    blocks: range,
) -> dict[int, Path]:
    """Task: find the leaves of the out-of-bag rows of some blocks, and write them into a file for each part.

    Return the beginning of the names of these files, by the first block.
    """
    run = folder / f"leaves-{blocks.start}-{secrets.token_hex(8)}"
    store, sampler, projected = table.store, table.sampler, table.context.kind == PROJECTIONS
    features_read, step = range(len(store.spec.features)), leaf_chunk_rows(store.spec)
    features, levels = table.context.features, table.context.features.largest
    loaded = {tree: {name: array.load() for name, array in each.arrays.items()} for tree, each in splits.items()}
    shared = (store.dictionaries, features)
    kept = {tree: splits_of(each, *shared, projected=projected, decoded=projected) for tree, each in loaded.items()}
    with ExitStack() as stack:
        reader = stack.enter_context(table.reader(blocks, features_read, True))
        files = [stack.enter_context(writing_arrays(_leaves_path(run, part), LEAF_TYPES)) for part in parts]
        for block, cells in reader.each(blocks, features_read):
            view = block_view(cells, reader.size(block))
            for part, add in zip(parts, files, strict=True):
                left_out = [
                    find_left_out(
                        view, kept[tree], 0, sampler.block(tree, block), depth=splits[tree].depth, levels=levels
                    )
                    for tree in part
                ]
                for chunk in leaf_chunks(left_out, reader.size(block), step):
                    add(*chunk)
    return {blocks.start: run}


def join_runs(store: Store, directory: Path, runs: Sequence[Path], part: range) -> int:
    """Task: write the leaves of a part that were found in some runs of blocks; return its number of trees."""
    chunks = (LeafChunk(*chunk) for run in runs for chunk in ArrayFile.of(_leaves_path(run, part), LEAF_TYPES).each())
    write_leaves(leaves_path(directory, part.start), part, store.spec, chunks)
    return len(part)


def _leaves_path(run: Path, part: range) -> Path:
    return run.with_name(f"{run.name}-{part.start}.bin")


def block_view(cells: Codes | BlockValues, rows: int) -> CodeView:
    """Return the cells of a block for routing. Codes are also copied in row-major order, once for all trees.

    rows  number of rows of the block
    """
    if isinstance(cells, BlockValues):
        # A CodeView has float32 as `u16` and float64 as `u32`, so their widths become 2 and 4.
        place = cells.place.copy()
        place[:, 0] = np.where(place[:, 0] == 1, 1, place[:, 0] // 2)
        values: tuple[Any, ...] = cells.u8, cells.f32, cells.f64
        none = [np.empty((0, 0), matrix.dtype) for matrix in values]
        return code_view(Codes._make((*values, place)), RowMajorCodes._make(none))
    matrices: tuple[NDArray[Any], ...] = cells[:3]
    by_row = RowMajorCodes._make(np.empty((rows, len(matrix)), matrix.dtype) for matrix in matrices)
    fill_rows(cells, by_row, 0, rows)
    return code_view(cells, by_row)
