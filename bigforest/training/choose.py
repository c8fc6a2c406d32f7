"""Options that are chosen between encoding and growing. `choose_options` has the order.

mtry and min_leaf (`choose_rule`), by the out-of-bag error of trial trees:

    regression       half of the features, leaves of 2 rows; or all features, leaves of 1 row
    classification   the square root of the features; or four times as many (at most all); or half of the features, if
                     that is more

The first rule is best for most tables. The other rules are best if few features carry a signal, or if features carry a
signal only together. For regression, the second rule is chosen if trial trees are better with it by a standard error
(on few rows by two, see `_FEW`). On few rows with more features than rows, it is chosen without trial trees: half of
the features often lacks the important ones.

For classification, trees that draw more features take longer to grow. A larger number is therefore compared at equal
time: 100 trees of the square root with as many trees of the larger number as grow in the same time. The loss must be
lower by three standard errors, because the standard error is too small: rows share trees. The loss of B trees is the
loss of very many trees, plus the spread of single trees divided by B (Breiman 2001).

For classification with more features than rows, the square root is rarely best, and trees grow quickly. A larger number
must then be better than the number chosen so far by two standard errors, and time does not count.

axes_from = "auto" (`choose_axes`), the features that axes of rotation trees are built from: an irrelevant feature is
part of every axis and spoils it. Features are ranked by the out-of-bag gain of splits on them in axis trees. The
leading half, quarter and so on are tried. The subset with the lowest error of trial trees is taken if its error is
lower than the error of all features by more than a standard error. The gain of a split is defined by Li, Wang, Basu,
Kumbier and Yu 2019 (A debiased MDI feature importance measure for random forests, section 3): predictions come from bag
rows, the truth from out-of-bag rows. The mean gain of an irrelevant feature is therefore 0, for any number of values.

min_level (`choose_min_level`), larger for categories whose levels differ little more than by chance. Let k be the
variance within levels divided by the variance between levels. There are two estimates of a level with n rows: the mean
of these rows, and the mean of all rows. The first is better if n is above k (Buehlmann 1967: the credibility
n / (n + k) is then above one half). Both variances are estimated by analysis of variance with levels of different sizes
(Searle, Casella and McCulloch 1992, section 3.6); for classes, from the shares of all classes together. Variances are
also used with the impurity poisson, because levels are compared by their means. min_level is half of k, because a
forest averages many trees, so noise harms less than in one tree. benchmarks/columns.md has the measurements.
Oracle: tests/naive/weak_categories.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import api, counted, listed
from bigforest.events import Listener, Notice
from bigforest.execution.resources import Resources
from bigforest.options.names import known_family
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from bigforest.options.values import AUTO, MIN_LEVEL, FeatureRule
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler, held_out_of
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store
from bigforest.training.trial_trees import (
    TASK_TREES,
    TREES,
    Errors,
    TrialTrees,
    gain_of,
    row_count,
    spread_of,
    summed,
    trial_config,
    trial_errors,
    trial_weights,
    trials,
    try_each,
)


def choose_axes(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """Return the configuration with the names of the features that axes are built from; empty for all features."""
    names = store.spec.feature_names
    if len(names) == 1:
        return replace(config, axes_from=())
    # Axis trees on the same rows rank the features. They do not take the options of rotation trees.
    unset = {name: OPTIONS[name].default for name in ("rotation", "axis_features", "axes", "orthogonal", "axes_from")}
    axis = trial_config(replace(config, family="axis", mtry=None, **unset).with_defaults())
    gains: NDArray[np.float64] = try_each(gains_of, [axis], store, resources, listener, join=np.add)[0]
    order = np.argsort(-gains, kind="stable").tolist()
    subsets = [sorted(order[:size]) for size in subset_sizes(len(names))]
    if config.axis_features is not None:
        subsets = [subset for subset in subsets if len(subset) >= config.axis_features]
    chosen = [tuple(names[place] for place in subset) for subset in subsets]
    # Empty for all features, and for a single feature named `auto`.
    configs = [replace(config, axes_from=() if each in (tuple(names), (AUTO,)) else each) for each in chosen]
    errors = try_each(trial_errors, list(map(trial_config, configs)), store, resources, listener, join=summed)
    weight = trial_weights(store, config)
    decreases = [gain_of(each, errors[0], weight) for each in errors]
    best = max(range(len(errors)), key=lambda place: decreases[place][0])
    mean, error = decreases[best]
    if mean <= error:
        return configs[0]
    kept = listed([names[place] for place in order[: len(subsets[best])]], 5)
    listener(Notice(f"axes are built from {kept}: small forests have a lower out-of-bag error than with all features"))
    return configs[best]


def subset_sizes(features: int) -> list[int]:
    """Return the numbers of leading features to try: all, half, a quarter and so on, down to one."""
    sizes = [features]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    return sizes


def gains_of(store: Store, config: TrainConfig, trees: range) -> NDArray[np.float64]:
    """Task: return the out-of-bag gain of splits on each feature in some trees, float64 [features]."""
    gains = np.zeros(len(store.spec.features))
    for trial in trials(store, config, trees):
        predictions, sums = trial.predictions, _sums_below(trial)
        inner, left, right = trial.trees.splits
        for child in (left, right):
            gain = ((predictions[child] - predictions[inner]) * sums[child]).sum(axis=1)
            np.add.at(gains, trial.trees.feature[inner], gain)
    return gains


def _sums_below(trial: TrialTrees) -> NDArray[np.float64]:
    """Return the sum of the truth of the out-of-bag rows that reach each node, float64 [nodes, outputs]."""
    depth = trial.trees.depth
    sums = np.zeros((depth.size, trial.truth.shape[1]))
    for root, out in zip(trial.trees.roots, trial.left_out, strict=True):
        np.add.at(sums, root + out.leaves, trial.truth[out.rows])
    inner, left, right = trial.trees.splits
    for level in range(int(depth.max()) - 1, -1, -1):
        at_level = depth[inner] == level
        sums[inner[at_level]] = sums[left[at_level]] + sums[right[at_level]]
    return sums


# Largest min_level, and min_level divided by k.
_LARGEST_MIN_LEVEL = 1_000
_SHARE_OF_K = 0.5
# Number of blocks of a large table that are read, at most. They are spread evenly.
_BLOCKS = 4


def choose_min_level(store: Store, config: TrainConfig) -> TrainConfig:
    """Return the configuration with `min_level`: one number, or a number per feature if a category needs more rows."""
    if config.min_level is not None:
        return config
    features = store.spec.features
    categories = [place for place, feature in enumerate(features) if feature.kind == "category"]
    if not categories:
        return replace(config, min_level=MIN_LEVEL)
    rows = _LevelRows(store, config)
    chosen = [MIN_LEVEL] * len(features)
    total = sum_of_squares(rows.outputs, rows.weight)
    for place in categories:
        ratio = variance_ratio(rows.codes(place), rows.outputs, rows.weight, total)
        chosen[place] = round(min(max(_SHARE_OF_K * ratio, MIN_LEVEL), _LARGEST_MIN_LEVEL))
    return replace(config, min_level=",".join(map(str, chosen)) if max(chosen) > MIN_LEVEL else MIN_LEVEL)


class _LevelRows:
    """Rows that are not held out: of all blocks of a small table, of at most _BLOCKS blocks of a large one.

    outputs  for each class a pair: its rows, and their weights. For regression one pair: all rows, and for each row its
             target, scaled to the range from 0 to 1, times its weight
    weight   float64 [rows], 1 on average
    """

    def __init__(self, store: Store, config: TrainConfig) -> None:
        self._store = store
        blocks = block_count(store.rows)
        spans = [block_span(store.rows, block) for block in range(0, blocks, -(-blocks // _BLOCKS))]
        held_out = [held_out_of(store, config, span.start, span.stop) for span in spans]
        self._kept = [
            (span, np.arange(len(span)) if held is None else np.flatnonzero(~held))
            for span, held in zip(spans, held_out, strict=True)
        ]
        target = np.concatenate([store.labels(span.start, span.stop)[kept] for span, kept in self._kept])
        self.weight = np.ones(target.size)
        if store.weight is not None:
            parts = [store.weights_of(span.start, span.stop)[kept] for span, kept in self._kept]
            self.weight = np.concatenate(parts).astype(np.float64)
            self.weight /= math.fsum(self.weight) / target.size
        if store.spec.target.is_regression:
            numbers = target.astype(np.float64) - float(target.min())
            self.outputs = [(np.arange(target.size), self.weight * (numbers / (numbers.max() or 1.0)))]
        else:
            order = np.argsort(target, kind="stable")
            ends = np.searchsorted(target[order], np.arange(1, len(store.spec.target.classes)))
            self.outputs = [(rows, self.weight[rows]) for rows in np.split(order, ends)]

    def codes(self, feature: int) -> NDArray[np.int64]:
        """Return the level of each row for a category, int64 [rows]."""
        levels: NDArray[np.int64] = np.empty(self.weight.size, np.int64)
        most, end = self._store.spec.features[feature].codes - 1, 0
        for span, kept in self._kept:
            block = span.start // BLOCK_ROWS
            column = self._store.feature_codes(feature, range(block, block + 1))[span.start : span.stop]
            begin, end = end, end + kept.size
            levels[begin:end] = column[kept]
        return np.minimum(levels, most)  # a code is above `most` only if another process writes to the store


# For each output a pair: the rows where the output is not 0, and its values in these rows (0 to 1, times the weight).
# The outputs are the shares of the classes, or the scaled target of a regression.
Outputs = Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]


def sum_of_squares(outputs: Outputs, weight: NDArray[np.float64]) -> float:
    """Return the sum of the squares of all outputs, times the weights."""
    return math.fsum(math.fsum(values**2 / weight[places]) for places, values in outputs)


def variance_ratio(codes: NDArray[np.int64], outputs: Outputs, weight: NDArray[np.float64], total: float) -> float:
    """Return the variance within levels divided by the variance between levels.

    It is inf if the variance between levels is not above 0, for a single level, and if each row has a level of its own.

    codes    int64 [rows], levels from 0 on
    weight   [rows], 1 on average
    total    result of `sum_of_squares`
    """
    sizes, rows = np.bincount(codes, weight), codes.size
    present = np.flatnonzero(sizes)
    levels = present.size
    if levels == 1 or levels == rows:
        return math.inf
    sums = [np.bincount(codes[places], values, sizes.size)[present] for places, values in outputs]
    sizes = sizes[present]
    explained = math.fsum(math.fsum(each**2 / sizes) for each in sums)
    mean = math.fsum(math.fsum(each) ** 2 for each in sums) / rows
    within = max(total - explained, 0.0) / (rows - levels)
    size = (rows - math.fsum(sizes**2) / rows) / (levels - 1)
    between = ((explained - mean) / (levels - 1) - within) / size
    return within / between if between > 0.0 else math.inf


# With fewer rows for trial trees than the limit, the default rule is used. The limit is _FEWEST_OF_SOME for regression
# if the rows are a sample of the table, and _FEWEST otherwise.
_FEWEST_OF_SOME = 1_000
_FEWEST = 20
# With fewer rows than _FEW, the standard error itself is uncertain. More trees are grown, which costs little. For
# regression the second rule must then be better by two standard errors.
_FEW = 250
_TREES_OF_FEW = 64
# Classification with more features than rows: _TREES_OF_FEW trees, and two standard errors. A node that draws the
# square root of many features rarely draws a feature that matters. A larger number is therefore rarely worse, and on
# few rows its gain is rarely above three standard errors. Rules are not compared at equal time; otherwise half of very
# many features would never be chosen.
# Other classification: all larger rules are given up if the first of them is not better after _FIRST_TREES trees.
# These trees are one task for each rule, because starting a task takes some milliseconds. A rule that is not given up
# has _TREES_OF_CLASSES trees in all, on few rows _TREES_OF_FEW.
_FIRST_TREES = 16
_TREES_OF_CLASSES = 32
# Trees of the default rule with which a larger rule is compared at equal time.
_FOREST = 100
# min_leaf if a class weighs more than twice another. Every leaf then weighs more than a row of mean weight. Otherwise
# the vote of a leaf of a few light rows would count like the vote of heavy rows (benchmarks/columns.md).
_LEAF_OF_UNEVEN = 2
# Most sums of errors of a rule (rows times classes). The sums of all rules are in memory together.
_MOST_ERRORS = 1 << 20


def choose_options(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """Return the final configuration: options that were not set are chosen by trial trees, or have their defaults.

    A final configuration does not change. Raises ConfigError if no row is left to learn from.
    """
    if config.calibration is not None:
        Sampler(store, config)  # raises ConfigError
    if config.min_leaf is None and store.spec.weight is not None and store.spec.weight.uneven:
        config = replace(config, min_leaf=_LEAF_OF_UNEVEN)
    rules = rules_for(config, store.shape)
    if len(rules) > 1:
        config = choose_rule(store, rules, resources, listener)
    elif rules != [config]:
        [config] = rules
        rule = f"{api('mtry')} is all and {api('min_leaf')} {config.min_leaf}"
        listener(Notice(f"{rule}: there are more features than rows, and half of them often lacks those that matter"))
    config = config.with_defaults()
    return choose_axes(store, config, resources, listener) if config.chooses_axes else config


def visits_to_choose(shape: Shape, config: TrainConfig) -> float:
    """Estimate the visits of trial trees (a visit is one row read for one feature), if no rule is given up early."""
    rows = row_count(shape, config)
    rules, drawn = rules_for(config, shape), 0
    if config.chooses_axes:
        drawn = TREES * (1 + len(subset_sizes(shape.features))) * shape.features
    elif len(rules) > 1:
        drawn = _effort(config, shape).trees * sum(rule.drawn_features(shape.features) for rule in rules)
    return drawn * rows * math.log2(max(rows, 2))


def rules_for(config: TrainConfig, shape: Shape) -> list[TrainConfig]:
    """Return the configuration with each rule for `mtry` that may be chosen: the default first, the largest last.

    Trial trees choose among several rules. If there is nothing to choose, the result is the configuration itself. For
    regression on few rows with more features, it is the configuration with all features. An explicit `min_leaf` is kept
    in all rules. `config.task` must be known.
    """
    features, rows, regression = shape.features, shape.rows, config.task == "regression"
    is_set = config.mtry is not None or config.feature_fraction is not None
    if is_set or config.boosts or features < 2 or not known_family(config.family).has(OPTIONS["mtry"]):
        return [config]
    if regression and rows < min(_FEW, features):
        return [replace(config, mtry="all", min_leaf=config.min_leaf or 1)]
    tried = row_count(shape, config)
    fewest = _FEWEST_OF_SOME if regression and tried < rows else _FEWEST
    if tried < fewest or tried * shape.classes > _MOST_ERRORS:
        return [config]
    if regression:
        usual = replace(config, mtry="half", min_leaf=config.leaf_rule)
        return [usual, replace(config, mtry="all", min_leaf=config.min_leaf or 1)]
    more = 4 * math.isqrt(features)
    rules: list[FeatureRule | int] = ["sqrt", more if more < features else "all"]
    if 2 * more < features:
        rules.append("half")
    return [replace(config, mtry=rule) for rule in rules]


class _Effort(NamedTuple):
    """Trial trees spent on a choice.

    first   trees of the default rule and of the next. If the next is then no better, the default is chosen.
    size    trees of a task.
    trees   trees of each rule in total.
    errors  number of standard errors by which a rule must be better.
    timed   True to compare each rule with the default at equal time, until a rule is not better.
            False to compare each rule with the rule chosen so far.
    """

    first: int
    size: int
    trees: int
    errors: float
    timed: bool


def _effort(config: TrainConfig, shape: Shape) -> _Effort:
    few = row_count(shape, config) < _FEW
    if config.task == "classification" and shape.features > shape.rows:
        return _Effort(first=_TREES_OF_FEW, size=_FIRST_TREES, trees=_TREES_OF_FEW, errors=2.0, timed=False)
    if config.task == "classification":
        trees = _TREES_OF_FEW if few else _TREES_OF_CLASSES
        return _Effort(first=_FIRST_TREES, size=_FIRST_TREES, trees=trees, errors=3.0, timed=True)
    trees = _TREES_OF_FEW if few else TREES
    errors = 2.0 if few else 1.0
    return _Effort(first=trees, size=TASK_TREES, trees=trees, errors=errors, timed=False)


def choose_rule(store: Store, rules: Sequence[TrainConfig], resources: Resources, listener: Listener) -> TrainConfig:
    """Return the best of the configurations with rules for `mtry` (`rules_for`)."""
    features, weight = len(store.spec.features), trial_weights(store, rules[0])
    first, size, trees, errors, timed = _effort(rules[0], store.shape)
    trials = [trial_config(rule, trees=trees) for rule in rules]

    def grown(configs: list[TrainConfig], numbers: range, before: Sequence[Errors] = ()) -> list[Errors]:
        return try_each(trial_errors, configs, store, resources, listener, numbers, size, join=summed, before=before)

    def lead(place: int, reference: int) -> tuple[float, float]:
        """Compare two rules by their places in `rules`, as `_lead` does. Grow the trees of `place` if necessary."""
        if place == len(measured):
            measured.extend(grown([trials[place]], range(trees)))
        return _lead(trials[reference], measured[reference], trials[place], measured[place], features, weight, timed)

    measured = grown(trials[:2], range(first))
    if lead(1, 0)[0] <= 0.0:
        return rules[0]
    if first < trees:
        measured = grown(trials[:2], range(first, trees), measured)
    best, chosen = 0.0, 0
    for place in range(1, len(trials)):
        mean, error = lead(place, 0 if timed else chosen)
        if mean > max(best, errors * error):
            best, chosen = mean if timed else 0.0, place
        elif timed:  # larger numbers are not tried
            break
    if chosen:
        listener(Notice(_notice_text(rules[0], rules[chosen], features)))
    return rules[chosen]


def _lead(
    usual: TrainConfig,
    usual_errors: Errors,
    config: TrainConfig,
    errors: Errors,
    features: int,
    weight: NDArray[Any] | None,
    timed: bool,
) -> tuple[float, float]:
    """Return the decrease of the loss by `config` compared with `usual`, and the standard error of the decrease.

    usual_errors, errors  errors of the trial trees of `usual` and of `config`
    timed                 True to compare at equal time. The decrease is then at most the decrease with very many trees.
    """
    mean, error = gain_of(errors, usual_errors, weight)
    if not timed:
        return mean, error
    usual_reads = usual_errors.split * usual.drawn_features(features)
    longer = errors.split * config.drawn_features(features) / max(usual_reads, 1.0)
    behind = (longer * spread_of(errors, weight) - spread_of(usual_errors, weight)) / _FOREST
    return mean - max(behind, 0.0), error


def _notice_text(usual: TrainConfig, chosen: TrainConfig, features: int) -> str:
    if chosen.task == "regression":
        usual_rule = f"{usual.mtry} and {usual.min_leaf}"
        return (
            f"{api('mtry')} is all and {api('min_leaf')} {chosen.min_leaf}: small forests have a lower out-of-bag "
            f"error than with {usual_rule}"
        )
    drawn, few = chosen.drawn_features(features), counted(usual.drawn_features(features), "feature")
    return (
        f"{api('mtry')} is {chosen.mtry} ({drawn} of {features} features): small forests have a clearly lower "
        f"out-of-bag error than with sqrt ({few}), but growing may take longer"
    )
