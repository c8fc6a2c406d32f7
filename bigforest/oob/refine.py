"""Grow the boosted stage of a forest on its out-of-bag predictions, and choose the number of its rounds.

1. Sample the rows that the stage uses, all rows of a small table (`_sampled_rows` in report.py). Their scores, which
   are predictions on the scale of a link (kernels/refine/link.py), begin with the out-of-bag predictions.
2. Grow several sequences of boosted trees, each without a third of the rows, one task for each (grow/refine.py).
3. For some numbers of rounds (_EVALUATED), evaluate each row by the sequences that do not use it.
4. Choose the number of rounds, and the factor 1 or 1/2 of the values, with the lowest loss. Keep the stage if the loss
   clearly decreases (`_choose`).

Two sequences evaluate a row, and all sequences predict new rows. The noise of m sequences adds c / m to the loss,
L(m) = L + c / m. The loss of all sequences is therefore extrapolated from L(2), the loss of the mean of two sequences,
and L(1), the mean loss of single ones. A stage that does not lower L(2), the loss of the report, is not kept.

Losses are added up in buckets of rows, from which `_best` computes a standard error. Pieces of rows have a fixed size
and are added in order, so the choice does not depend on the distribution of work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import FeatureSpec
from bigforest.errors import ConfigError, api
from bigforest.events import stage
from bigforest.execution.compile_stage import KernelKind, announced
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays, join_trees
from bigforest.forest.refinement import LEFT_OUT, SEQUENCES, Link, write_refinement
from bigforest.forest.run_file import Rounds
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import expected_visits
from bigforest.grow.refine import (
    COUNTED,
    LEAVES,
    READ_ROWS,
    StageSample,
    grow_sequence,
    held_out_rows,
    in_bags,
    most_counts,
    node_counts,
    row_random,
    row_truth,
    sample_share,
    unit_weights,
)
from bigforest.metrics.classes import log_losses
from bigforest.oob.accumulator import number_loss
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape, TableTraits
from bigforest.predict.refine import BoostedStage, StageRows
from bigforest.store.store import Store

# Most classes of a stage.
MAX_CLASSES = 256
# Numbers of rounds that are evaluated, up to the most that are grown.
_EVALUATED = (1, 2, 3, 4, 6, 8, 10, 13, 16, 20)
# Tried factors of the values of the stage. 1/2 is better if little can be corrected.
_SCALES = (1.0, 0.5)
# Fewest rows of a table with a stage by default. With fewer rows, the stage takes as long as all the rest of training,
# and gains little.
_LEAST_TABLE = 600
# Number of buckets of rows whose losses are compared, and its logarithm to base 2.
_BUCKET_BITS = 10
_BUCKETS = 1 << _BUCKET_BITS
# Standard errors by which the loss must decrease. With 1, stages that help are left out (benchmarks/refine.md).
_ERRORS = 0.5
# Nanoseconds for a row and feature in a round of all sequences, measured as in training/plan.py.
_CELL_NS = 14.0
# A row and feature in a round of the stage with one output takes as long as this many visits of growing the forest (a
# visit is one row read for one feature in one node). With more outputs the number is multiplied by their cube root.
# Measured on sets of benchmarks/refine.md with 2 to 100 classes and 9 to 166 features.
_CELL_VISITS = 2.2
# Number of counts and sums of a node that fit in the cache of a core, and the factor of the time if there are more,
# measured on MNIST.
_CACHED_COUNTS, _BEYOND_CACHE = 1 << 17, 1.5
# Predicting a row by a stage of several rounds takes at most _PREDICTION_SHARE of the time by the forest. Times in
# units of 0.2 ns:
#     a tree of the forest   the square of its levels (deep trees leave the caches) plus _FOREST_OUTPUT per output
#     a tree of the stage    _TREE_UNITS plus _STAGE_OUTPUT times the root of the outputs (they stay in the caches)
#     the link               _LINK_UNITS per output
# Measured on 13 sets of 22 to 2,000 leaves and 1 to 100 outputs.
_PREDICTION_SHARE = 0.25
_TREE_UNITS, _FOREST_OUTPUT, _STAGE_OUTPUT, _LINK_UNITS = 8.5, 1.25, 6.5, 15.0
# Limits of the rows that are evaluated at a time: most scores (for all numbers of rounds), most values of features, and
# fewest rows, even if they exceed the other limits.
_PIECE_SCORES, _PIECE_CELLS, _LEAST_PIECE = 1 << 19, 1 << 20, 512
# Random stream of the bucket of a row, see `row_random` in grow/refine.py.
_BUCKET_STREAM = 3


class SampledRows(NamedTuple):
    """Rows of the table that the stage uses, with their out-of-bag predictions.

    rows         int64 [rows], ascending; only rows that are out of bag for at least one tree
    predictions  float64 [rows, classes], probabilities; for regression [rows, 1], numbers
    """

    rows: NDArray[np.int64]
    predictions: NDArray[np.float64]


def refines(config: TrainConfig, rows: int, classes: int) -> bool:
    """Return True if a forest may get a boosted stage.

    rows     rows of the table
    classes  number of classes; 1 for regression

    Raises ConfigError if a stage is requested that is not possible.
    """
    possible = config.bootstrap and not config.boosts and classes <= MAX_CLASSES
    if isinstance(config.refine, int) and not possible:
        raise ConfigError(
            f"{api('refine')} supports up to {MAX_CLASSES} classes, and the target has {classes}; drop it"
        )
    # With balanced bags, only the smallest class is in all of them.
    in_all_bags = not config.replace and config.sample_fraction == 1.0
    if isinstance(config.refine, int) and in_all_bags and config.calibration is None:
        raise ConfigError(
            f"{api('refine')} corrects the out-of-bag predictions, and all rows, or all of a class, are in every bag; "
            f"sample fewer, or drop {api('refine')}"
        )
    # A stage would learn the shares of the classes in the table, which balanced bags leave out on purpose.
    chosen = config.refine == "auto" and config.sampling != "balanced" and rows >= _LEAST_TABLE
    return possible and (isinstance(config.refine, int) or chosen)


def refining_kernels(traits: TableTraits) -> KernelKind:
    """Return the kernels of the stage for tables with these traits (kernels/refine/grow.py)."""
    words = ["refine", *["mixed"] * bool(traits.non_plain_features), *["classes"] * traits.many]
    return KernelKind("-".join(words), "to correct forests", 4, 2.5)


def refine_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    fixed, task = _needs(shape, config)
    memory, without = fixed + _at_once(shape, config, resources) * task, f"set {api('refine')} to off"
    return MemoryEstimate("refine", memory, fixed + task, without=without)


def refine_nanoseconds(shape: Shape, config: TrainConfig) -> float:
    """Return the estimated time of growing the stage on one thread, an upper bound: with `_most_rounds` rounds."""
    share = sample_share(shape.rows, shape.features, _outputs(shape))
    rounds = _most_rounds(shape, config)
    return share * shape.rows * rounds * shape.features * max(1, shape.classes - 1) ** 0.5 * _CELL_NS


def _outputs(shape: Shape) -> int:
    return shape.classes if shape.classes > 2 else 1


def _needs(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Return the bytes that exist once (BASE_BYTES, the sampled rows and all trees), and the bytes of a task."""
    outputs = _outputs(shape)
    share = sample_share(shape.rows, shape.features, outputs)
    rows = min(shape.rows, int(share * shape.rows * 1.05) + 1_000)
    trees = SEQUENCES * _most_rounds(shape, config) * (2 * LEAVES - 1) * (100 + 8 * outputs)
    kept = 8 * rows * (2 * outputs + shape.classes + 1) + 3 * trees
    used = rows * (SEQUENCES - LEFT_OUT) // SEQUENCES + 1_000
    feature = 64 * used + 48 * min(shape.codes, max(shape.extras.category, COUNTED * used))
    task = rows * (shape.features + 80 * outputs + 48) + feature + 16 * min(shape.rows, READ_ROWS)
    task += 8 * most_counts(shape.features, outputs)
    piece = 8 * 4 * _PIECE_SCORES + 16 * (_PIECE_CELLS + _LEAST_PIECE * shape.features)
    return BASE_BYTES + kept, max(task, piece)


def _at_once(shape: Shape, config: TrainConfig, resources: Resources) -> int:
    """Return the number of tasks that run at a time."""
    fixed, task = _needs(shape, config)
    fitting = resources.workers if resources.memory is None else (resources.memory - fixed) // task
    return max(1, min(resources.workers, SEQUENCES, fitting))


def _most_rounds(shape: Shape, config: TrainConfig) -> int:
    """Return the requested number of rounds; by default about as many as take the time of growing the forest.

    The number depends only on the shape and the options. The default is one of _EVALUATED.
    """
    if isinstance(config.refine, int):
        return config.refine
    outputs = _outputs(shape)
    rows = sample_share(shape.rows, shape.features, outputs) * shape.rows
    cells = rows * shape.features
    if node_counts(int(rows), shape.features, outputs) > _CACHED_COUNTS:
        cells *= _BEYOND_CACHE
    return _evaluated_up_to(expected_visits(shape, config) / (_CELL_VISITS * cells * outputs ** (1 / 3)))


def _evaluated_up_to(most: float) -> int:
    """Return the largest number of _EVALUATED that is at most `most`; at least 1."""
    return max((number for number in _EVALUATED if number <= most), default=1)


def _fast_rounds(outputs: int, config: TrainConfig, leaves: float) -> int:
    """Return the most rounds with which predicting by the stage takes _PREDICTION_SHARE of the forest's time or less.

    The number is one of _EVALUATED, so at least 1 even if that takes longer.

    leaves  mean number of leaves of a tree of the forest
    """
    forest = config.trees * (math.log2(leaves) ** 2 + outputs * _FOREST_OUTPUT)
    stage_round = SEQUENCES * (_TREE_UNITS + math.sqrt(outputs) * _STAGE_OUTPUT)
    return _evaluated_up_to((_PREDICTION_SHARE * forest - outputs * _LINK_UNITS) / stage_round)


def grow_refinement(job: ForestJob, sampled: SampledRows, leaves: float) -> tuple[TreeArrays | None, Rounds]:
    """Grow the stage of a forest, and write its file if the stage is kept.

    leaves  mean number of leaves of a tree of the forest

    Returns the trees of the stage, and the choice of rounds. There are no trees (None) if the stage is not kept, the
    target has a single class, or a sequence has no row to use.
    """
    store, config, directory, resources, listener = job
    link, fixed = Link(store.spec, config), isinstance(config.refine, int)
    used = sampled
    if config.calibration is not None and sampled.rows.size:
        kept = ~held_out_rows(store, config, sampled.rows)
        used = SampledRows(sampled.rows[kept], sampled.predictions[kept])
    if len(store.spec.target.classes) == 1 or not used.rows.size:
        return None, Rounds()
    if not in_bags(store, config, used.rows).any(axis=1).all():
        return None, Rounds()
    sample = StageSample(used.rows, link.start(used.predictions), link.loss)
    executor = resources.executor(_at_once(store.shape, config, resources))
    rounds = _most_rounds(store.shape, config)
    rounds = rounds if fixed else min(rounds, _fast_rounds(link.outputs, config, leaves))
    tried = (0, rounds) if fixed else (0, *(number for number in _EVALUATED if number <= rounds))
    with (
        announced(refining_kernels(store.shape.extras), listener),
        stage("refine", SEQUENCES * rounds, "trees", listener) as progress,
    ):
        sequences = [(number,) for number in range(SEQUENCES)]
        shared = (store, config, sample, rounds)
        grown = executor.gather(grow_sequence, sequences, lambda _: progress.advance(rounds), shared)
        evaluated = (store, config, used, with_code_thresholds(store, _first_rounds(grown, rounds)), tried)
        losses = np.sum(executor.gather(bucket_losses, _pieces(store, sample), None, evaluated), axis=0)
    weight = float(unit_weights(store, used.rows).sum())
    chosen, scale = _choose(tried, losses, weight, number_loss(store, config).unit, fixed=fixed)
    if not chosen.amount:
        return None, chosen
    boosted = _first_rounds(grown, int(chosen.amount))
    assert boosted.value is not None
    boosted = boosted._replace(value=scale * boosted.value)
    write_refinement(directory, boosted, job.header())
    return boosted, chosen


def _pieces(store: Store, sample: StageSample) -> list[tuple[int, int]]:
    """Divide the sampled rows into ranges that are evaluated at a time: (first, after the last) of each."""
    size, outputs = sample.start.shape
    step = min(_PIECE_SCORES // (outputs * len(_EVALUATED)), _PIECE_CELLS // len(store.spec.features))
    step = max(_LEAST_PIECE, step)
    return [(first, min(first + step, size)) for first in range(0, size, step)]


def _first_rounds(grown: Sequence[TreeArrays], rounds: int) -> TreeArrays:
    return join_trees([trees.rows(0, int(trees.starts[rounds])) for trees in grown])


def bucket_losses(
    store: Store,
    config: TrainConfig,
    used: SampledRows,
    trees: TreeArrays,
    tried: tuple[int, ...],
    begin: int,
    end: int,
) -> NDArray[np.float64]:
    """Task: sum the losses of sampled rows in buckets. Return float64 [scales, 2, buckets, tried].

    used        all sampled rows
    trees       trees of the stage, converted by `with_code_thresholds`
    tried       numbers of rounds, from 0 on
    begin, end  range of the sampled rows to evaluate

    The second axis has two losses: of the mean of all sequences, extrapolated; and of the mean of the sequences that
    leave a row out, as in the report.
    """
    rows, predictions = used.rows[begin:end], used.predictions[begin:end]
    link, spec = Link(store.spec, config), store.spec
    boosted = BoostedStage(spec, config, trees, trees.used)
    truth, loss = row_truth(store, rows), number_loss(store, config)

    def losses(predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        if spec.target.is_regression:
            return loss.of(truth, predicted[:, 0])
        return log_losses(predicted[np.arange(truth.size), truth.astype(np.int64)])

    alone = np.zeros((len(tried), LEFT_OUT, rows.size, link.outputs))
    seen = np.zeros(rows.size, np.int64)  # number of sequences so far that leave the row out
    tiles = row_tiles(store, rows, trees.used)
    for sequence, in_bag in enumerate(in_bags(store, config, rows)):
        left_out = np.flatnonzero(~in_bag)
        rows_left_out, total = tiles.some(left_out), np.zeros((left_out.size, link.outputs))
        for place, (before, number) in enumerate(pairwise(tried), start=1):
            boosted.add(rows_left_out, total, range(sequence, sequence + 1), range(before, number))
            alone[place, seen[left_out], left_out] = total
        seen[left_out] += 1
    weight, most = unit_weights(store, rows), 2.0**61 / spec.rows
    bucket = row_random(store, config, rows, _BUCKET_STREAM) >> np.uint64(64 - _BUCKET_BITS)
    sums = np.zeros((len(_SCALES), 2, _BUCKETS, len(tried)))
    round_losses = np.empty((2, rows.size, len(tried)))
    round_losses[:, :, 0] = losses(predictions)
    for scale, by_scale in zip(_SCALES, sums, strict=True):
        for place in range(1, len(tried)):
            of = [alone[place].mean(axis=0), *alone[place]]
            both, *singles = (losses(link.corrected(predictions, scale * added)) for added in of)
            noise = np.mean(singles, axis=0) - both
            round_losses[0, :, place] = both - (1.0 - LEFT_OUT / SEQUENCES) / (LEFT_OUT - 1) * noise
            round_losses[1, :, place] = both
        for scale_sums, kind_losses in zip(by_scale, round_losses.clip(-most, most) * weight[:, None], strict=True):
            np.add.at(scale_sums, bucket.astype(np.int64), kind_losses)
    return sums


def with_code_thresholds(store: Store, trees: TreeArrays) -> TreeArrays:
    """Return the trees of a boosted stage with codes in place of thresholds, for `row_tiles`.

    A threshold becomes the largest code whose value is at most the threshold. The alternative, looking up the value of
    each cell, would read dictionaries, which may be larger than the memory, in random order.
    """
    threshold = trees.threshold.copy()
    for feature in trees.used.tolist():
        spec = store.spec.features[feature]
        if _is_by_code(spec):
            nodes, first = np.flatnonzero(trees.feature == feature), int(spec.has_gaps)
            values, node = np.unique(threshold[nodes], return_inverse=True)  # ascending: pages are read in order
            threshold[nodes] = np.searchsorted(store.low(feature)[first:], values, side="right")[node] + (first - 1)
    return trees._replace(threshold=threshold)


def row_tiles(store: Store, rows: NDArray[np.int64], features: NDArray[np.int64]) -> StageRows:
    """Return some rows in one tile, for the trees of `with_code_thresholds`.

    A cell is a code, or NaN for a missing number; for features with filled cells (FeatureSpec.fill) it is a value,
    because their codes are not in the order of the values.
    """
    tiles, gaps = np.empty((1, max(features.size, 1), rows.size)), False
    for place, feature in enumerate(features.tolist()):
        spec, codes = store.spec.features[feature], store.feature_codes(feature)[rows]
        tiles[0, place] = codes if spec.splits_on_levels or _is_by_code(spec) else store.low(feature)[codes]
        if spec.has_gaps and _is_by_code(spec):
            tiles[0, place, codes == 0], gaps = np.nan, True
    return StageRows(tiles, rows.size, by_level=False, missing=True if gaps else None)


def _is_by_code(spec: FeatureSpec) -> bool:
    """Return True for a feature of numbers whose codes are in the order of the values."""
    return not spec.splits_on_levels and spec.fill is None


def _choose(
    tried: Sequence[int], losses: NDArray[np.float64], weight: float, unit: float, *, fixed: bool
) -> tuple[Rounds, float]:
    """Choose the number of rounds and the scale from the sums of `bucket_losses`.

    weight  sum of the weights of the rows whose losses were added up
    unit    factor of the errors of regression, see NumberLoss
    fixed   True if the number of rounds is given: the last one is chosen, with scale 1

    Return the rounds, with the loss of the report for each number of rounds, and the scale. For the cross-fitted loss,
    each half of the buckets is evaluated with the choice of the other half.
    """

    def mean(loss: float) -> float:
        return max(0.0, loss / weight / unit / unit)

    def best(sums: NDArray[np.float64]) -> tuple[int, int]:
        if fixed:
            return 0, len(tried) - 1
        scale = int(sums[:, 0].sum(axis=1).min(axis=1).argmin())
        return scale, _best(sums[scale])

    def of_report(sums: NDArray[np.float64], scale: int, place: int) -> float:
        return float(sums[scale, 1, :, place].sum())

    first, second = losses[:, :, ::2], losses[:, :, 1::2]
    crossed = of_report(first, *best(second)) + of_report(second, *best(first))
    scale, place = best(losses)
    by_rounds = tuple(mean(of_report(losses, scale, number)) for number in range(len(tried)))
    return Rounds(float(tried[place]), tuple(map(float, tried)), by_rounds, mean(crossed)), _SCALES[scale]


def _best(losses: NDArray[np.float64]) -> int:
    """Return the index of the best number of rounds; 0 for no stage.

    losses  float64 [2, buckets, tried], of one scale, see `bucket_losses`

    The best number has the smallest extrapolated loss. The decrease of this loss must exceed _ERRORS standard errors,
    and the loss of the report must decrease, too. The standard error is computed from the decreases of the buckets. All
    rows of a group are in one bucket, so they do not count as independent.
    """
    best = int(losses[0].sum(axis=0).argmin())
    gains = losses[:, :, 0] - losses[:, :, best]
    gain, used = float(gains[0].sum()), np.count_nonzero(losses[0, :, 0])
    variance = float((gains[0] * gains[0]).sum()) - gain * gain / max(1, int(used))
    error = math.sqrt(max(0.0, variance))
    return best if gain > _ERRORS * error and gains[1].sum() > 0.0 else 0
