"""Finding the leaves of the rows of a store with the trees of its forest, read back from parts.

Growing writes the leaves of out-of-bag rows as it goes (grow/forest.py, grow/out_of_core/passed_leaves.py). Here
they are found in a run that was killed between a part and its leaves, and those of rows in bags for what needs them.

If all nodes split on features, rows are not decoded: thresholds are replaced by codes (forest/votes/) and
compared with the codes of the store. So a pass reads the codes once from end to end, and each dictionary in ascending
order. Where some are oblique, codes are replaced by the values they were projected by in growing. Categories are
compared by codes in any case, and the code of a missing value becomes NaN, so that rows go as in prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.execution.executor import map_on_threads
from bigforest.forest.format.parts import first_tree, part_paths, read_span
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.forest.load.groups import Trees
from bigforest.forest.load.router import RowRouter, chunk_rows
from bigforest.forest.load.row_batch import RowBatch
from bigforest.forest.votes.ballots import ballots_of_pieces
from bigforest.forest.votes.leaf_files import (
    LeafChunk,
    LeafFile,
    LeftOut,
    found_leaves,
    leaf_chunk_rows,
    leaf_chunks,
    leaves_path,
    write_ballots,
    write_leaves,
)
from bigforest.forest.votes.thresholds_to_codes import replace_thresholds
from bigforest.grow.forest import ForestJob
from bigforest.kernels.predict.accumulate import Places, place_leaves
from bigforest.kernels.predict.route import new_scratch
from bigforest.sampling.bags import Sampler
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store

# Codes that float32 holds exactly.
_NARROW_CODES = 1 << 24


class CodeTrees(NamedTuple):
    """Trees whose thresholds are codes, or values where some node is oblique or missing values are filled; narrow if
    float32 holds all codes."""

    trees: range
    packed: FlatTrees


def load_group(sampler: Sampler, trees: Trees, entries: range, workers: int) -> CodeTrees:
    """Entries of the trees."""
    packed = trees.load(entries, workers)
    pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
    return code_trees(packed, trees.numbers(entries), sampler.store, workers)


def code_trees(packed: FlatTrees, trees: range, store: Store, workers: int) -> CodeTrees:
    """Packed trees, which must not be used any more, in the form for rows of the store."""
    by_code = packed.directions is None and store.spec.fills is None
    if by_code:
        assert packed.wide is not None
        replace_thresholds(packed.wide, packed.used, store, workers)
    packed = packed._replace(counts=packed.counts[:0].copy())
    if by_code and max(store.spec.features[int(feature)].codes for feature in packed.used) <= _NARROW_CODES:
        packed = packed.narrowed()
    return CodeTrees(trees, packed)


def known_leaves(job: ForestJob, parts: Sequence[range] | None = None) -> tuple[list[LeafFile], list[range]]:
    """The files of leaves of the trees of a forest, in their order, and the parts whose trees they lack.

    parts  the trees of each part to look at, which follow each other, of a forest that is growing; None for all.
    """
    store, config, directory, _, _ = job
    if parts is None:
        starts = [first_tree(path) for path in part_paths(directory)]
        parts = [range(start, stop) for start, stop in zip(starts, [*starts[1:], config.trees], strict=True)]
    files: list[LeafFile] = []
    covered = np.zeros(config.trees, np.bool_)
    covered[: parts[0].start] = True
    for file in found_leaves(directory, store.rows, store.spec.target.answer_width):
        own = covered[file.trees.start : min(file.trees.stop, parts[-1].stop)]
        if own.size and not own.any():
            own[:] = True
            files.append(file)
    return files, [part for part in parts if not covered[part.start : part.stop].all()]


def runs_of(parts: Sequence[range]) -> list[list[range]]:
    """Parts that follow each other, together."""
    runs: list[list[range]] = []
    for part in parts:
        if runs and runs[-1][-1].stop == part.start:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def write_leaf_files(sampler: Sampler, trees: Trees, directory: Path, workers: int, entries: range) -> int:
    """Task: write the files of leaves of some entries; returns the number of trees."""
    store = sampler.store
    path, classes = leaves_path(directory, trees.numbers(entries).start), store.spec.target.answer_width
    pieces = (piece for span in trees.spans(entries) for piece in read_span(span, trees.header))
    write_ballots(path, ballots_of_pieces(pieces, store.spec.wide_weights))
    group = load_group(sampler, trees, entries, workers)
    store.fetch(group.packed.used.tolist(), range(block_count(store.rows)))
    write_leaves(path, group.trees, store.rows, classes, _chunks(sampler, group, workers))
    return len(group.trees)


def _chunks(sampler: Sampler, group: CodeTrees, workers: int) -> Iterator[LeafChunk]:
    """The leaves of all out-of-bag rows, some blocks at a time."""
    blocks = range(block_count(sampler.store.rows))
    for first in range(0, len(blocks), workers):
        tasks = [(sampler, group, block) for block in blocks[first : first + workers]]
        for chunks in map_on_threads(_block_leaves, tasks, workers):
            yield from chunks


def _block_leaves(sampler: Sampler, group: CodeTrees, block: int) -> list[LeafChunk]:
    """The chunks of a block."""
    store = sampler.store
    span = block_span(store.rows, block)
    bags = np.array([sampler.block(tree, block) for tree in group.trees])
    leaves = leaves_of_rows(store, group, group.packed.roots, span, bags)
    rows = [np.flatnonzero(bag == 0).astype(np.uint32) for bag in bags]
    left_out = [LeftOut(numbers, leaves[numbers, own]) for own, numbers in enumerate(rows)]
    return list(leaf_chunks(left_out, len(span), leaf_chunk_rows(store.rows, store.spec.target.answer_width)))


def leaves_of_rows(
    store: Store,
    group: CodeTrees,
    roots: NDArray[np.uint64],
    span: range,
    bags: NDArray[np.uint16] | None = None,
) -> NDArray[np.uint32]:
    """Number of the leaf, within its tree, in which each of the rows `span` of one block ends in each of some trees of
    a group, uint32 [rows, trees].

    bags  uint16 [trees, rows], how often a row is in the bag of a tree, in which its leaf is not looked for then; None
          to find all leaves.
    """
    found = np.empty((len(span), roots.size), np.uint32)

    def place(inputs: Any, scratch: Any, here: slice) -> None:
        place_leaves(inputs, Places(roots, found[here], None if bags is None else bags[:, here]), scratch)

    route_span(store, group, span, place)
    return found


def route_span(store: Store, group: CodeTrees, span: range, use: Callable[[Any, Any, slice], None]) -> None:
    """Call `use` with some rows at a time of the rows `span` of one block.

    use  calls a kernel of kernels/predict/accumulate.py; takes inputs, scratch, and which of these rows they are.
    """
    router = RowRouter(group.packed, store.spec)
    start, stop = span.start, span.stop
    step = min(chunk_rows(_columns(store, group, start, start)), len(span))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        inputs = router.inputs(_columns(store, group, first, last), 0, last - first)
        use(inputs, new_scratch(inputs), slice(first - start, last - start))


def _columns(store: Store, group: CodeTrees, first: int, last: int) -> RowBatch:
    """The rows from `first` to before `last` in the form of the trees of a group."""
    columns: list[NDArray[Any]] = []
    kind = np.float64 if group.packed.narrow is None else np.float32
    block = first // BLOCK_ROWS
    blocks = range(block, block + 1)
    for place in group.packed.used.tolist():
        feature = store.spec.features[place]
        cells = store.feature_codes(place, blocks)[first:last]
        if feature.splits_on_levels:
            columns.append(cells)
        elif group.packed.directions is not None or store.spec.fills is not None:
            columns.append(store.low(place)[cells])
        elif feature.missing:
            columns.append(np.where(cells == 0, np.nan, cells).astype(kind))
        else:
            columns.append(cells)
    return RowBatch.of(columns)
