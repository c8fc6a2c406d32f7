"""Prediction of rows by packed trees: put rows into tiles, spread chunks of rows over threads, decide by votes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.errors import damaged_forest
from bigforest.execution.executor import on_each_thread
from bigforest.forest.format import LEAF_TARGETS
from bigforest.forest.leaf_targets import LeafTargets
from bigforest.kernels.predict.accumulate import (
    LeafNumbers,
    SpreadVotes,
    TreeLeaves,
    Votes,
    new_spread,
    note_leaves,
    place_leaves,
    vote,
    vote_spread,
)
from bigforest.kernels.predict.flat_tree import TILE, RouteInputs
from bigforest.kernels.predict.route import RouteScratch, new_scratch
from bigforest.metrics.conformal import JackknifeIntervals
from bigforest.predict.packed_trees import PackedTrees
from bigforest.predict.refine import BoostedStage, StageRows
from bigforest.predict.rows import RowBatch, missing_error
from bigforest.predict.vote_rule import REJECTED, VoteRule, as_probabilities

# Bytes of tiles whose rows are routed through a tree before the next tree. The tiles stay in the shared cache, the tree
# in the cache of the core.
CHUNK_BYTES = 8 << 20
# Most bytes of a tile, and most rows: scratch takes 28 bytes per row. Smaller tiles would fetch the nodes of all trees
# more often.
_TILE_BYTES = 4 << 20
_TILE_ROWS = 1 << 15
# Rows go level by level if a tree has more nodes per row than this. The limit is lower if some nodes are on categories:
# going node by node then costs more.
_NODES_PER_ROW = 100
_NODES_PER_ROW_OF_LEVELS = 10


class RowRouter:
    """Router of rows: puts them into tiles and through trees. For one thread: each call overwrites the tiles."""

    def __init__(self, packed: PackedTrees, spec: DataSpec) -> None:
        self.packed = packed
        self._spec = spec
        self._tiles: dict[tuple[np.dtype[Any], bool], NDArray[Any]] = {}
        self._scratch: RouteScratch | None = None
        self._scratch_tiles: NDArray[Any] | None = None  # tiles that the scratch was made for

    def inputs(self, rows: RowBatch, start: int, stop: int) -> RouteInputs:
        """Return the inputs of routing kernels for the rows from `start` to before `stop`.

        Missing values are replaced if the forest has fill values. If it has none and some splits are on projections,
        missing values raise DataError.
        """
        packed, all_rows, rows = self.packed, rows, rows.cut(start, stop)
        narrow = self._spec.has_narrow_fills and rows.narrow
        # Few rows are routed faster level by level than node by node, a single row always.
        least = _NODES_PER_ROW if packed.sets is None else _NODES_PER_ROW_OF_LEVELS
        few = rows.rows == 1 or rows.rows * least < packed.nodes / packed.roots.size
        by_level = few and packed.directions is None
        tiles = self._empty(rows, narrow, by_level)
        by_rows = packed.directions is not None
        missing = None if rows.fill(tiles, by_rows=by_rows) else True
        if missing and self._spec.fills is not None:
            rows.fill_missing(tiles, self._spec.fills[packed.used], by_rows=by_rows)
            missing = None
        if missing and by_rows:
            raise missing_error(all_rows, [self._spec.features[int(place)].name for place in packed.used])
        return RouteInputs(tiles, rows.rows, by_level, packed.layout, packed.directions, packed.sets, missing)

    def stage_rows(self, inputs: RouteInputs) -> StageRows:
        """Return the rows of `inputs` in the tiles of a boosted stage, [tiles, features, rows of a tile]."""
        tiles = inputs.tiles
        if self.packed.directions is not None:
            tiles = np.ascontiguousarray(tiles[:, :, :-1].swapaxes(1, 2))
        return StageRows(tiles, inputs.rows, inputs.by_level, inputs.missing)

    def scratch(self, inputs: RouteInputs) -> RouteScratch:
        """Return the scratch of a kernel for these inputs."""
        if self._scratch is None or self._scratch_tiles is not inputs.tiles:
            self._scratch, self._scratch_tiles = new_scratch(inputs), inputs.tiles
        return self._scratch

    def vote(self, inputs: RouteInputs, roots: NDArray[np.uint64], mixed: NDArray[Any], votes: NDArray[Any]) -> None:
        """Add the ballots of the trees with these roots to `votes`; mixed, votes: see accumulate.py Votes."""
        scratch = self.scratch(inputs)
        vote(*inputs[:3], *inputs.layout, *inputs[4:], roots, mixed, votes, *scratch)

    def _empty(self, rows: RowBatch, narrow: bool, by_level: bool) -> NDArray[Any]:
        """Return tiles with room for the rows; kept ones if they are large enough."""
        kind, by_rows = rows.tile_type(narrow), self.packed.directions is not None
        tiles = self._tiles.get((kind, by_level))
        if tiles is None or len(tiles) * tiles.shape[1 if by_rows else 2] < rows.rows:
            width = rows.features + 1 if by_rows else rows.features
            tallest = min(_TILE_ROWS, max(TILE, _TILE_BYTES // (width * kind.itemsize)))
            count = max(1, -(-rows.rows // (TILE if by_level else tallest)))
            height = max(1, -(-rows.rows // count))
            height = 1 << (height - 1).bit_length() if by_level else height
            shape = (height, width) if by_rows else (width, height)
            tiles = self._tiles[kind, by_level] = np.empty((count, *shape), kind)
            if by_rows:
                tiles[:, :, rows.features] = 0
        return tiles


def chunk_rows(rows: RowBatch) -> int:
    """Return the number of rows that should pass all trees together: what fits in CHUNK_BYTES, at least one tile."""
    return max(1, CHUNK_BYTES // (rows.width * rows.features * TILE)) * TILE


def find_leaves(packed: PackedTrees, spec: DataSpec, rows: RowBatch, workers: int) -> NDArray[np.uint32]:
    """Return the leaf of each row in each tree, by its node number, uint32 [rows, trees].

    rows  must have the used features (packed.used)
    """
    leaves = np.empty((rows.rows, packed.roots.size), np.uint32)
    chunk = chunk_rows(rows)
    starts = iter(range(0, rows.rows, chunk))

    def place() -> None:
        router = RowRouter(packed, spec)
        for first in starts:
            inputs = router.inputs(rows, first, min(first + chunk, rows.rows))
            place_leaves(inputs, TreeLeaves(packed.roots, leaves[first : first + inputs.rows]), new_scratch(inputs))

    on_each_thread(place, workers if rows.rows > chunk else 1)
    return leaves


# Up to so many rows are one chunk, whatever the number of features: a tile that goes level by level holds them.
_FEW_ROWS = 512

# With fewer visits of a tree by a row than this, starting threads takes longer than the visits.
_FEW_VISITS = 30_000

# Most chunks per thread that rows are cut into: threads that are held up leave chunks to the others.
_MOST_PIECES = 8

# Most cells of a call whose tiles and scratch are kept for the next call.
_KEPT_CELLS = 1 << 8

# Most leaves of a chunk (rows times trees) if the leaf of each row in each tree is recorded.
LEAF_CELLS = 1 << 21


class Predictions(NamedTuple):
    """Predictions of rows, in order.

    codes  int32 [rows], class of each row or REJECTED; empty for regression, and if not requested.
    proba  float64 [rows, classes], probabilities: shares of the votes, raised to the power of the rule and corrected by
           the boosted stage; None if not requested.
    value  float64 [rows], mean prediction of the trees, corrected by the boosted stage; None for classification.
    quantiles  float64 [rows, quantiles of the rule]; None if the rule has none.
    spread  float64 [rows], standard deviation of the unshrunk predictions of the trees; None unless the rule needs it.
    bounds  float64 [rows, 2], ends of the intervals by the jackknife; None if the rule has none.
    """

    codes: NDArray[np.int32]
    proba: NDArray[np.float64] | None
    value: NDArray[np.float64] | None = None
    quantiles: NDArray[np.float64] | None = None
    spread: NDArray[np.float64] | None = None
    bounds: NDArray[np.float64] | None = None

    def of_rows(self, rows: NDArray[np.int64]) -> Predictions:
        return Predictions._make(array if array is None or not len(array) else array[rows] for array in self)


def deviation(sums: NDArray[np.float64], count: NDArray[Any] | int) -> NDArray[np.float64]:
    """Return standard deviations of `count` numbers from their sums (`new_spread`); 0 for fewer than two numbers."""
    _, total, squares = sums.T
    number = np.maximum(count, 1).astype(np.float64) if isinstance(count, np.ndarray) else float(max(count, 1))
    variance = (squares - total * total / number) / np.maximum(number - 1.0, 1.0)
    return np.sqrt(np.maximum(variance, 0.0))


class PartialVotes(NamedTuple):
    """Votes of some groups of trees on rows; the following groups of trees add to them.

    votes   float64 [rows, classes]; [rows, 1] for regression.
    leaves  uint32 [rows, trees], leaf of each row in each tree, for quantiles and the jackknife; None for other rules.
            The leaves of all trees are numbered together, in the order of the trees and nodes.
    spread  float64 [rows, 3], see kernels/predict/accumulate.py new_spread; None unless the rule needs the spread of
            the trees.
    """

    votes: NDArray[np.float64]
    leaves: NDArray[np.uint32] | None
    spread: NDArray[np.float64] | None

    def rows(self, start: int, stop: int) -> PartialVotes:
        """Return the votes on the rows from `start` to before `stop`."""
        return PartialVotes._make(None if array is None else array[start:stop] for array in self)


class GroupLeafTargets(NamedTuple):
    """Targets in the leaves of a group of trees.

    targets  targets in the leaves of all trees.
    first    number of the first tree of the group.
    leaf     number of the first leaf of the group.
    """

    targets: LeafTargets
    first: int
    leaf: int

    @classmethod
    def of(
        cls,
        targets: LeafTargets,
        trees: range,
        packed: PackedTrees,
        mean: NDArray[np.float64],
        step: float,
        directory: Path,
    ) -> GroupLeafTargets:
        """Check and return the targets of a group of packed trees.

        trees  numbers of the trees of the group
        mean   float64 [leaves], values of the leaves as grown
        step   step of the targets, see TargetSpec
        directory  folder of the forest

        Raises FormatError if the targets belong to other leaves, or their weighted mean in a leaf is not its value.
        """
        folder = LEAF_TARGETS.at(directory).parent
        begin, end = targets.first[[trees.start, trees.stop]].tolist()
        leaves = packed.leaf_nodes()
        counts = np.diff(targets.first[trees.start : trees.stop + 1])
        if counts.tolist() != [*map(len, leaves)] or not np.array_equal(
            np.concatenate(leaves), targets.node[begin:end]
        ):
            raise damaged_forest(f"{folder}: the leaves of the targets are not the leaves of the trees")
        if not targets.have_means(mean, begin, step):
            raise damaged_forest(f"{folder}: the mean of the targets of a leaf is not its value")
        return cls(targets, trees.start, begin)


class Predictor(NamedTuple):
    """A forest, or a group of its trees, packed, with the rule by which it predicts.

    leaf_votes  votes of the impure leaves, see PackedTrees.leaf_votes.
    trees  number of trees of all groups that vote.
    total_weight  sum of the weights of these trees; their number if all have the same weight.
    routers  routers of earlier calls with few cells, for further calls.
    group_leaf_targets  for quantiles; None if the rule has none.
    grown  float64 [leaves], values of the leaves as grown, minus the offset of the target; None unless the rule needs
           the spread of the trees.
    leaf_values  float64 [leaves], values of all leaves in whole units, and the unit, for intervals by the jackknife,
                 which takes all trees at once; None if the rule has no such intervals.
    stage  boosted stage that corrects the predictions; None without one.
    """

    packed: PackedTrees
    leaf_votes: NDArray[np.float64]
    rule: VoteRule
    spec: DataSpec
    trees: int
    total_weight: float
    routers: list[RowRouter]
    group_leaf_targets: GroupLeafTargets | None = None
    grown: NDArray[np.float64] | None = None
    leaf_values: tuple[NDArray[np.float64], float] | None = None
    stage: BoostedStage | None = None

    def no_votes(self, rows: int) -> PartialVotes:
        """Return the votes of this many rows before the first group of trees."""
        leaves = np.empty((rows, self.trees), np.uint32) if self._notes_leaves else None
        spread = None if self.grown is None else new_spread(rows)
        return PartialVotes(np.zeros((rows, self.leaf_votes.shape[1])), leaves, spread)

    def predict(
        self,
        rows: RowBatch,
        numbers: NDArray[np.uint64] | int,
        before: PartialVotes | None = None,
        *,
        proba: bool,
        labels: bool = True,
        workers: int = 1,
    ) -> Predictions:
        """Predict all rows, which must have the used features (packed.used).

        numbers  numbers of the rows for random draws, uint64 [rows]; or the number of the first row.
        before   votes of earlier groups of trees, to which these trees add; None if there are no other groups.
        proba, labels  True if probabilities, or classes, are requested.

        Predictions of a row depend neither on the other rows nor on the number of threads. Raises DataError if a value
        is missing, the forest has no fill values, and some splits are on projections.
        """
        count, target = rows.rows, self.spec.target
        if target.is_regression:
            quantile_count = len(self.rule.quantiles)
            quantiles = np.empty((count, quantile_count)) if quantile_count else None
            spread = None if self.grown is None else np.empty(count)
            bounds = None if self.leaf_values is None else np.empty((count, 2))
            predictions = Predictions(np.empty(0, np.int32), None, np.empty(count), quantiles, spread, bounds)
        else:
            wanted_shares = proba or self.rule.conformal is not None
            shares = np.empty((count, len(target.classes))) if wanted_shares else None
            predictions = Predictions(np.empty(count if labels else 0, np.int32), shares)
        self._vote(rows, numbers, before, predictions, workers)
        return predictions

    def add(self, rows: RowBatch, before: PartialVotes, workers: int) -> None:
        """Add the votes of these trees to the votes of earlier groups."""
        self._vote(rows, 0, before, None, workers)

    def _vote(
        self,
        rows: RowBatch,
        numbers: NDArray[np.uint64] | int,
        before: PartialVotes | None,
        predictions: Predictions | None,
        workers: int,
    ) -> None:
        """Divide the rows into chunks for threads, see `_vote_chunks`."""
        count = rows.rows
        if count <= _FEW_ROWS and not self._notes_leaves:
            self._vote_chunks(rows, numbers, before, predictions, _FEW_ROWS, iter((0,) if count else ()))
            return
        chunk = chunk_rows(rows)
        if self._notes_leaves:
            chunk = min(chunk, max(1, LEAF_CELLS // self.trees))
        if count * self.packed.roots.size < _FEW_VISITS:
            workers = 1
        if workers > 1:
            chunk = min(chunk, -(-count // (self._pieces(count // workers) * workers * TILE)) * TILE)
        starts = iter(range(0, count, chunk))
        on_each_thread(lambda: self._vote_chunks(rows, numbers, before, predictions, chunk, starts), workers)

    def _pieces(self, rows: int) -> int:
        """Return the number of chunks of a thread for its number of rows. Every chunk fetches the nodes of all trees.

        Measured: compared with one chunk, chunks with half as many rows as a tree has nodes take 1.5 times as long,
        chunks with as many rows 1.2 times, and chunks with twice as many rows 1.1 times.
        """
        nodes_per_tree = self.packed.nodes // self.packed.roots.size
        return max(1, min(_MOST_PIECES, rows // (2 * nodes_per_tree)))

    def _vote_chunks(
        self,
        rows: RowBatch,
        numbers: NDArray[np.uint64] | int,
        before: PartialVotes | None,
        predictions: Predictions | None,
        chunk: int,
        starts: Iterator[int],
    ) -> None:
        """Predict `chunk` rows from each of `starts` on; if `predictions` is None, only add to the votes `before`."""
        try:
            router = self.routers.pop()
        except IndexError:
            router = RowRouter(self.packed, self.spec)
        for first in starts:
            last = min(first + chunk, rows.rows)
            inputs = router.inputs(rows, first, last)
            sums = self.no_votes(last - first) if before is None else before.rows(first, last)
            self._add_votes(router, inputs, sums)
            if predictions is not None and predictions.value is None:
                self._put_classes(router, inputs, sums.votes, numbers, predictions, first)
            elif predictions is not None:
                self._put_numbers(router, inputs, sums, predictions, first)
        if rows.rows * rows.features <= _KEPT_CELLS:
            self.routers.append(router)

    def _add_votes(self, router: RowRouter, inputs: RouteInputs, sums: PartialVotes) -> None:
        """Add the votes of these trees on a chunk of rows, with the leaves and the spread if the rule needs them."""
        (votes, leaves, spread), roots = sums, self.packed.roots
        if leaves is None and spread is None:
            router.vote(inputs, roots, self.leaf_votes, votes)
            return
        scratch = router.scratch(inputs)
        if leaves is not None:
            _, tree, leaf = self.group_leaf_targets or (None, 0, 0)
            noted = LeafNumbers(Votes(self.leaf_votes, votes), np.uint32(leaf), np.uint64(tree), leaves)
            note_leaves(inputs, roots, noted, scratch)
        if spread is not None:
            assert self.grown is not None
            counted = votes if leaves is None else np.zeros_like(votes)  # note_leaves has added the votes already
            vote_spread(inputs, roots, SpreadVotes(Votes(self.leaf_votes, counted), self.grown, spread), scratch)

    def _put_numbers(
        self, router: RowRouter, inputs: RouteInputs, sums: PartialVotes, predictions: Predictions, first: int
    ) -> None:
        """Write the predictions of a chunk of rows, from row `first` on: numbers, spread, bounds and quantiles."""
        (votes, leaves, spread), last = sums, first + inputs.rows
        assert predictions.value is not None
        value = predictions.value[first:last]
        value[:] = votes[:, 0] / self.trees
        if self.stage is not None:
            self.stage.correct(value.reshape(-1, 1), router.stage_rows(inputs))
        if predictions.spread is not None:
            assert spread is not None
            predictions.spread[first:last] = deviation(spread, self.trees)
        if self.leaf_values is not None and predictions.bounds is not None:
            assert leaves is not None and isinstance(self.rule.conformal, JackknifeIntervals)
            values, unit = self.leaf_values
            predictions.bounds[first:last] = self.rule.conformal.bounds(values[leaves], unit)
        if self.group_leaf_targets is not None and predictions.quantiles is not None:
            from bigforest.kernels.predict.quantile import find_quantiles

            assert leaves is not None
            targets, shares = self.group_leaf_targets.targets, np.array(self.rule.quantiles)
            find_quantiles(leaves, *targets[2:], shares, predictions.quantiles[first:last])

    def _put_classes(
        self,
        router: RowRouter,
        inputs: RouteInputs,
        votes: NDArray[np.float64],
        numbers: NDArray[np.uint64] | int,
        predictions: Predictions,
        first: int,
    ) -> None:
        """Write the predictions of a chunk of rows, from row `first` on: probabilities and classes, as requested."""
        last = first + inputs.rows
        proba = None if predictions.proba is None else predictions.proba[first:last]
        if proba is not None or self.stage is not None or self.rule.least_share > 0.0:
            proba = as_probabilities(np.divide(votes, self.total_weight, proba), self.rule.power)
        if proba is not None and self.stage is not None:
            self.stage.correct(proba, router.stage_rows(inputs))
            votes = proba
        if predictions.codes.size:
            codes = predictions.codes[first:last]
            codes[:] = self.rule.decide(votes, self._numbers(numbers, first, last))
            if proba is not None and self.rule.least_share > 0.0:
                codes[proba.max(axis=1) < self.rule.least_share] = REJECTED

    @property
    def _notes_leaves(self) -> bool:
        """True if the leaf of each row is recorded."""
        return self.group_leaf_targets is not None or self.leaf_values is not None

    def _numbers(self, numbers: NDArray[np.uint64] | int, first: int, last: int) -> NDArray[np.uint64] | None:
        """Return the numbers of the rows from `first` to before `last`, see `predict`; None if nothing is drawn."""
        if not self.rule.draws:
            return None
        if isinstance(numbers, int):
            return np.arange(numbers + first, numbers + last, dtype=np.uint64)
        return numbers[first:last]
