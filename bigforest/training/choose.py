"""Options that are selected by trial trees between encoding and growing.

For regression, nodes draw half of the features and leaves have 2 rows, or nodes draw all and leaves have 1. The first
is best for most tables, the second if few features carry a signal with little noise. The second is chosen if trial
trees are better with it by more than chance. For rotation trees, see axes_choice.py.

For classification, nodes draw the square root of the features, four times as many, or half of them. The first is best
for most tables, the others if few of many features carry a signal, or if some carry one only together. They take
longer to grow, so a larger number is chosen if as many of its trees as take the time of 100 of the root have a lower
loss, by three standard errors: the error is too small, as rows share trees. Where there are more features than rows,
the root is rarely best, and few rows grow quickly: time does not count, and a larger number must be better than the one
chosen so far by two standard errors. The loss of a forest of B trees is that of very many, and the spread of single
trees divided by B (Breiman 2001).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bigforest.common.events import Listener, Notice
from bigforest.common.memory_estimate import Shape
from bigforest.execution.resources import Resources
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.schema.options import FeatureRule
from bigforest.schema.registered import base_family
from bigforest.schema.train_options import OPTIONS
from bigforest.store.store import Store
from bigforest.training.axes_choice import choose_axes, subset_sizes
from bigforest.training.trial_trees import (
    TASK_TREES,
    TREES,
    Errors,
    gain_of,
    row_count,
    spread_of,
    summed,
    trial_config,
    trial_errors,
    trial_weights,
    try_each,
)
from bigforest.training.weak_categories import choose_min_level

# Rows of trial trees below which no rule is chosen: for regression, where they are some of the rows of the table; and
# in general.
_FEWEST_OF_SOME = 1_000
_FEWEST = 20
# With fewer rows than this, few pairs of trees leave a row out, and the standard error is uncertain itself: more trees
# are grown, which costs little, and for regression the second rule must be better by two standard errors, unless there
# are more features than rows: the first rule is then rarely the better one.
_FEW = 250
_TREES_OF_FEW = 64
# Classification of more features than rows has as many trees, and two standard errors: the root of many features rarely
# has one that matters, so a larger number is rarely worse, and on few rows its gain is rarely above three errors. By
# its time half of very many features would hardly ever be chosen.
# Other classification: trees of the root and of the first larger rule after which it may be given up, which are a task
# each, as a task takes some milliseconds by itself; and trees of each rule.
_FIRST_TREES = 16
_TREES_OF_CLASSES = 32
# Trees of the forest that a larger rule is compared with at equal time.
_FOREST = 100
# min_leaf where a class weighs more than twice another: the second row is one of mean weight, so that no leaf of a few
# light rows votes like one of heavy rows (benchmarks/columns.md).
_LEAF_OF_UNEVEN = 2
# Errors of a trial tree at most, for every row and class: all trees have theirs in memory.
_MOST_ERRORS = 1 << 20


def most_of(config: TrainConfig, shape: Shape) -> TrainConfig:
    """The configuration that needs most memory among those that may be chosen."""
    if is_open(config, shape.features, shape.rows, shape.classes):
        config = rules_for(config, shape.features)[-1]
    return replace(config, axes_from=()) if config.chooses_axes else config


def complete_config(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The complete configuration for the target of the store, with defaults and choices. Raises ConfigError where no
    row is left to learn from."""
    if config.calibration is not None:
        Sampler(store, config)
    config, shape = choose_min_level(store, config), store.shape
    if config.min_leaf is None and store.spec.weight is not None and store.spec.weight.uneven:
        config = replace(config, min_leaf=_LEAF_OF_UNEVEN)
    if is_open(config, shape.features, shape.rows, shape.classes):
        config = choose_rule(store, config, resources, listener)
    config = config.with_defaults()
    return choose_axes(store, config, resources, listener) if config.chooses_axes else config


def visits_to_choose(shape: Shape, config: TrainConfig) -> float:
    """How often trial trees look at a feature of a row, about; for classification if no rule is given up."""
    rows = row_count(shape.rows, shape.features, config)
    looks = 0
    if config.chooses_axes:
        looks = TREES * (1 + len(subset_sizes(shape.features))) * shape.features
    elif is_open(config, shape.features, shape.rows, shape.classes):
        drawn = [rule.drawn_features(shape.features) for rule in rules_for(config, shape.features)]
        looks = _effort(config, shape.rows, shape.features).trees * sum(drawn)
    return looks * rows * math.log2(max(rows, 2))


def is_open(config: TrainConfig, features: int, rows: int, classes: int = 1) -> bool:
    """Whether a rule is to be chosen, by a configuration that has a task, for a table of this size."""
    given = config.mtry is not None or config.feature_fraction is not None
    if given or config.boosts or features < 2 or not OPTIONS["mtry"].of(base_family(config.family)):
        return False
    tried = row_count(rows, features, config)
    fewest = _FEWEST_OF_SOME if config.task == "regression" and tried < rows else _FEWEST
    return fewest <= tried and tried * classes <= _MOST_ERRORS


class _Effort(NamedTuple):
    """What is spent on a choice.

    first   trial trees of the default and of the next rule after which the others may be given up.
    size    trees of a task.
    trees   trees of each rule in all.
    errors  by how many standard errors another rule than the default must be better.
    timed   whether rules are compared at equal time, and each is tried only if the one before was chosen; else each is
            compared with the one chosen so far.
    """

    first: int
    size: int
    trees: int
    errors: float
    timed: bool


def _effort(config: TrainConfig, rows: int, features: int) -> _Effort:
    """The effort for trial trees of a table of this size."""
    few = row_count(rows, features, config) < _FEW
    if config.task == "classification" and features > rows:
        return _Effort(first=_TREES_OF_FEW, size=_FIRST_TREES, trees=_TREES_OF_FEW, errors=2.0, timed=False)
    if config.task == "classification":
        trees = _TREES_OF_FEW if few else _TREES_OF_CLASSES
        return _Effort(first=_FIRST_TREES, size=_FIRST_TREES, trees=trees, errors=3.0, timed=True)
    trees = _TREES_OF_FEW if few else TREES
    errors = 2.0 if few and features <= rows else 1.0
    return _Effort(first=trees, size=TASK_TREES, trees=trees, errors=errors, timed=False)


def rules_for(config: TrainConfig, features: int) -> list[TrainConfig]:
    """The configuration with each of the rules, the default first; a given size of leaves is that of all."""
    if config.task == "regression":
        usual = replace(config, mtry="half", min_leaf=config.leaf_rule)
        return [usual, replace(config, mtry="all", min_leaf=config.min_leaf or 1)]
    more = 4 * math.isqrt(features)
    rules: list[FeatureRule | int] = ["sqrt", more if more < features else "all"]
    if 2 * more < features:
        rules.append("half")
    return [replace(config, mtry=rule) for rule in rules]


def choose_rule(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The configuration with the best rule."""
    features, weight = len(store.spec.features), trial_weights(store, config)
    rules = rules_for(config, features)
    first, size, trees, errors, timed = _effort(config, store.rows, features)
    trials = [trial_config(rule, trees=trees) for rule in rules]

    def grown(some: list[TrainConfig], numbers: range) -> list[list[Errors]]:
        return try_each(trial_errors, some, store, resources, listener, numbers, size)

    def lead(place: int, over: int = 0) -> tuple[float, float]:
        plain, other = summed(found[over]), summed(found[place])
        return _lead(trials[over], plain, trials[place], other, features, weight, timed)

    found = grown(trials[:2], range(first))
    if lead(1)[0] <= 0.0:
        return rules[0]
    if first < trees:
        found = [few + more for few, more in zip(found, grown(trials[:2], range(first, trees)), strict=True)]
    best, chosen = 0.0, 0
    for place in range(1, len(trials)):
        if place == len(found):
            found += grown([trials[place]], range(trees))
        mean, error = lead(place, 0 if timed else chosen)
        if mean > max(best, errors * error):
            best, chosen = mean if timed else 0.0, place
        elif timed:
            break
    if chosen:
        listener(Notice(_told(rules[0], rules[chosen], features)))
    return rules[chosen]


def _lead(
    usual: TrainConfig,
    plain: Errors,
    config: TrainConfig,
    other: Errors,
    features: int,
    weight: NDArray[Any] | None,
    timed: bool,
) -> tuple[float, float]:
    """By how much the loss of `config` is lower, and its standard error; if `timed`, the first at equal time, and never
    by more than that of very many trees."""
    mean, error = gain_of(other, plain, weight)
    if not timed:
        return mean, error
    read = [own.split * one.drawn_features(features) for one, own in ((usual, plain), (config, other))]
    longer = read[1] / max(read[0], 1.0)
    behind = (longer * spread_of(other, weight) - spread_of(plain, weight)) / _FOREST
    return mean - max(behind, 0.0), error


def _told(usual: TrainConfig, chosen: TrainConfig, features: int) -> str:
    """What users are told of a choice."""
    if chosen.task == "regression":
        other = f"{usual.mtry} and {usual.min_leaf}"
        return (
            f"mtry is all and min_leaf {chosen.min_leaf}: small forests have a lower out-of-bag error than with {other}"
        )
    drawn, few = (config.drawn_features(features) for config in (chosen, usual))
    return (
        f"mtry is {chosen.mtry} ({drawn} of {features} features): small forests have a clearly lower out-of-bag error "
        f"than with sqrt ({few} features), but growing may take longer"
    )
