"""Leaves of the rows of a store in the trees of its forest.

Growing writes the leaves of out-of-bag rows to files (grow/forest.py, grow/out_of_core/out_of_bag.py). `OobTrees`
collects these files, and finds the leaves that are missing: a run may have been killed between writing a part and its
leaves, and the files of a finished forest are removed. Wide weights (weigh.py), the targets of leaves, and boosting
also need the leaves of bag rows (`route_span`, `leaves_of_rows`).

How rows are routed:

1. Read trees packed for prediction (`load_trees`). Unless nodes are oblique or missing cells filled, thresholds are
   replaced by the largest code that goes left (predict/packed_trees.py): dictionaries may be larger than memory.
2. Read the codes, block by block. If thresholds are values, replace codes by the values that growing compared.
   Categories are always compared by codes. The code of a missing value becomes NaN, as in prediction.
3. Route the rows by the kernels of prediction (`route_span`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.ballots import loaded_bytes
from bigforest.forest.leaf_votes import (
    LeafChunk,
    LeafFile,
    LeftOut,
    found_leaves,
    leaf_chunk_rows,
    leaf_chunks,
    leaves_path,
    write_ballots_of,
    write_leaves,
)
from bigforest.forest.parts import part_paths, part_ranges
from bigforest.grow.forest import ForestJob
from bigforest.kernels.predict.accumulate import TreeLeaves, place_leaves
from bigforest.kernels.predict.route import new_scratch
from bigforest.oob.plan import choose_oob, range_rows
from bigforest.planning.sizes import fitting, row_ranges
from bigforest.predict.groups import ENTRY_BYTES, Trees, outline, survey
from bigforest.predict.packed_trees import PackedTrees, replace_thresholds
from bigforest.predict.predictor import RowRouter, chunk_rows
from bigforest.predict.rows import RowBatch
from bigforest.sampling.bags import Sampler
from bigforest.storage.array_file import mapped_array
from bigforest.storage.paths import local_workdir
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store

# Codes below this number are exact in float32.
_NARROW_CODES = 1 << 24


def load_trees(
    store: Store, trees: Trees, entries: range, workers: int, make: Callable[..., NDArray[Any]] = np.empty
) -> PackedTrees:
    """Read some of the trees, packed for routing rows of the store.

    entries  which trees or files, see `Trees`
    make     function that makes the array of nodes from a shape and a type
    """
    packed = trees.load(entries, workers, make)
    pa.default_memory_pool().release_unused()  # Arrow keeps the memory that it read the parts into
    return for_store(packed, store, workers)


def for_store(packed: PackedTrees, store: Store, workers: int) -> PackedTrees:
    """Convert packed trees for routing rows of the store. The argument must not be used afterwards.

    Thresholds become codes, unless a node is oblique or missing values are filled. Counts of leaves are dropped:
    routing does not need them.
    """
    by_code = packed.directions is None and store.spec.fills is None
    if by_code:
        replace_thresholds(packed.layout, packed.used, store, workers)
    return packed._replace(counts=packed.counts[:0].copy())


def write_leaf_files(
    sampler: Sampler, trees: Trees, directory: Path, workers: int, scratch: Path, fitting: int, entries: range
) -> int:
    """Task: find the leaves of the out-of-bag rows in some trees, and write their file. Return the number of trees.

    scratch  folder for mapped trees
    fitting  trees of more bytes than this are mapped
    """
    store, numbers = sampler.store, trees.numbers(entries)
    path = leaves_path(directory, numbers.start)
    with local_workdir(scratch) as folder:
        write_ballots_of(path, trees.spans(entries), trees.header, folder)
        fits = trees.sizes()[entries.start : entries.stop].sum() <= fitting
        packed = load_trees(store, trees, entries, workers, np.empty if fits else partial(mapped_array, folder))
    store.fetch(packed.used.tolist(), range(block_count(store.rows)))
    write_leaves(path, numbers, store.spec, _chunks(sampler, packed, numbers, workers))
    return len(numbers)


def _chunks(sampler: Sampler, packed: PackedTrees, trees: range, workers: int) -> Iterator[LeafChunk]:
    blocks = range(block_count(sampler.store.rows))
    for first in range(0, len(blocks), workers):
        tasks = [(sampler, packed, trees, block) for block in blocks[first : first + workers]]
        for chunks in Executor(workers).gather(_block_leaves, tasks):
            yield from chunks


def _block_leaves(sampler: Sampler, packed: PackedTrees, trees: range, block: int) -> list[LeafChunk]:
    store = sampler.store
    span = block_span(store.rows, block)
    bags = np.array([sampler.block(tree, block) for tree in trees])
    leaves = leaves_of_rows(store, packed, packed.roots, span, bags)
    rows = [np.flatnonzero(bag == 0).astype(np.uint32) for bag in bags]
    left_out = [LeftOut(numbers, leaves[numbers, place]) for place, numbers in enumerate(rows)]
    return list(leaf_chunks(left_out, len(span), leaf_chunk_rows(store.spec)))


def leaves_of_rows(
    store: Store,
    packed: PackedTrees,
    roots: NDArray[np.uint64],
    span: range,
    bags: NDArray[np.uint16] | None = None,
) -> NDArray[np.uint32]:
    """Return the leaves of the rows `span` of one block in the trees with these roots, uint32 [rows, trees].

    packed  result of `for_store`
    bags    uint16 [trees, rows], how often each row is in each bag, to find only the leaves of out-of-bag rows; None to
            find all leaves.
    """
    leaves = np.empty((len(span), roots.size), np.uint32)

    def place(inputs: Any, scratch: Any, rows: slice) -> None:
        place_leaves(inputs, TreeLeaves(roots, leaves[rows], None if bags is None else bags[:, rows]), scratch)

    route_span(store, packed, span, place)
    return leaves


def route_span(store: Store, packed: PackedTrees, span: range, use: Callable[[Any, Any, slice], None]) -> None:
    """Call `use` for the rows `span` of one block, some rows at a time.

    use  function of inputs and scratch for kernels/predict/accumulate.py, and the slice of the rows within `span`
    """
    router = RowRouter(packed, store.spec)
    start, stop = span.start, span.stop
    step = min(chunk_rows(columns_to_route(store, packed, start, start)), len(span))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        inputs = router.inputs(columns_to_route(store, packed, first, last), 0, last - first)
        use(inputs, new_scratch(inputs), slice(first - start, last - start))


def columns_to_route(store: Store, packed: PackedTrees, first: int, last: int) -> RowBatch:
    """Return the rows from `first` to before `last` in the form of the trees: codes or values."""
    columns: list[NDArray[Any]] = []
    block = first // BLOCK_ROWS
    blocks = range(block, block + 1)
    for place in packed.used.tolist():
        feature = store.spec.features[place]
        cells = store.feature_codes(place, blocks)[first:last]
        if feature.splits_on_levels:
            columns.append(cells)
        elif packed.directions is not None or store.spec.fills is not None:
            columns.append(store.low(place)[cells])
        elif feature.missing:
            kind = np.float32 if feature.codes <= _NARROW_CODES else np.float64
            columns.append(np.where(cells == 0, np.nan, cells).astype(kind))
        else:
            columns.append(cells)
    return RowBatch.of(columns)


# Bytes of ballots (votes of leaves) that fit in the cache while they are added up.
_CACHED = 8 << 20


class OobTrees:
    """Trees of a forest to evaluate, with the files of their leaves.

    files    files of leaves, in the order of the trees
    missing  parts whose leaves are not all in files
    plan     groups of trees and ranges of rows that fit in memory
    """

    def __init__(self, job: ForestJob, lambdas: int, parts: Sequence[range] | None = None) -> None:
        self._job, self._lambdas, self._parts = job, lambdas, parts
        self._find_files()
        # Bytes of the smallest units that are loaded: the ballots of a file, or an entry of a missing part.
        sizes, entries = self._ballots, 0
        self._missing_trees: Trees | None = None
        if self.missing:
            self._missing_trees = trees = _trees_of(job, self.missing)
            sizes, entries = np.append(sizes, entry_bytes(trees, lambdas)), ENTRY_BYTES * int(trees.list_entries.max())
        self.plan = choose_oob(job.store.shape, job.config, sizes, job.resources, lambdas, entries)

    def find_missing(self, advance: Callable[[int], None], scratch: Path) -> None:
        """Find the leaves of the missing parts, and write their files.

        advance  is called with the number of trees that were finished
        scratch  folder for trees that do not fit in memory

        Existing files with leaves of some trees of these parts are removed first.
        """
        job, trees, plan = self._job, self._missing_trees, self.plan
        if trees is None:
            return
        for file in found_leaves(job.directory, job.store.spec):
            if _overlap(file.trees, self.missing):
                file.remove()
        # A tree takes at least its share of the room, so that a group has at most `group_trees` trees.
        shares = np.diff(trees.first) * (plan.group_bytes // plan.group_trees)
        sizes = np.maximum(entry_bytes(trees, self._lambdas), shares).tolist()
        groups = fitting(range(len(sizes)), sizes, plan.group_bytes)
        shared = (
            Sampler(job.store, job.config),
            trees,
            job.directory,
            job.resources.workers,
            scratch,
            plan.group_bytes,
        )
        for finished in job.resources.executor(1).map(write_leaf_files, [(entries,) for entries in groups], shared):
            advance(finished)
        self._find_files()

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of rows whose votes are added up together."""
        nodes = self._nodes // max(sum(len(file.trees) for file in self.files), 1)
        store, executor = self._job.store, self._job.resources.executor(1)
        return row_ranges(store.rows, range_rows(store.shape, self._job.config, self.plan.rows, nodes, executor))

    @property
    def leaves_per_tree(self) -> float:
        return (self._nodes / sum(len(file.trees) for file in self.files) + 1) / 2

    def groups(self) -> list[list[LeafFile]]:
        """Return groups of files whose ballots are loaded together: at least one file for each thread, if they fit."""
        most = min(self.plan.group_bytes, max(_CACHED, self._job.resources.workers * int(self._ballots.max())))
        return fitting(self.files, self._ballots.tolist(), most)

    def _find_files(self) -> None:
        """Find the files of leaves in the directory, and the parts whose leaves are not all in them.

        The missing parts are consecutive. Files with leaves of some trees of these parts are left out.
        """
        store, config, directory, _, _ = self._job
        parts = part_ranges(part_paths(directory), config.trees) if self._parts is None else self._parts
        self.files: list[LeafFile] = []
        covered = np.zeros(config.trees, np.bool_)
        covered[: parts[0].start] = True
        for file in found_leaves(directory, store.spec):
            part_covered = covered[file.trees.start : min(file.trees.stop, parts[-1].stop)]
            if part_covered.size and not part_covered.any():
                part_covered[:] = True
                self.files.append(file)
        while True:  # leaving out a file may uncover trees of a further part
            lacking = [place for place, part in enumerate(parts) if not covered[part.start : part.stop].all()]
            self.missing = parts[lacking[0] : lacking[-1] + 1] if lacking else []
            left_out = [file for file in self.files if _overlap(file.trees, self.missing)]
            if not left_out:
                break
            for file in left_out:
                covered[file.trees.start : file.trees.stop] = False
                self.files.remove(file)
        nodes, impure = np.array([file.ballot_sizes(store.spec) for file in self.files], np.int64).reshape(-1, 2).T
        self._nodes = int(nodes.sum())
        self._ballots = loaded_bytes(nodes, impure, store.spec.target.answer_width, self._lambdas)


def _overlap(trees: range, parts: Sequence[range]) -> bool:
    """Return True if some of the trees are in consecutive parts."""
    return bool(parts) and trees.start < parts[-1].stop and parts[0].start < trees.stop


def entry_bytes(trees: Trees, lambdas: int) -> NDArray[np.int64]:
    """Return the bytes of each entry while rows are routed, or while its ballots are converted if this takes more."""
    impure = trees.nodes if trees.header.spec.target.is_regression else trees.impure_leaves
    ballots = loaded_bytes(trees.nodes, impure, trees.header.spec.target.answer_width, lambdas)
    return np.maximum(trees.sizes(), ballots)


def _trees_of(job: ForestJob, parts: Sequence[range]) -> Trees:
    """Return the trees of parts. An entry is a part, or a single tree with a memory budget."""
    if job.resources.memory is None:
        return outline(job.directory, parts)
    return survey(job.directory, job.resources.workers, parts)
