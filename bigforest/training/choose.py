"""Options that are selected by trial trees between encoding and growing.

For regression, nodes draw half of the features and leaves have 2 rows, or nodes draw all and leaves have 1. The first
is best for most tables, the second if few features carry a signal with little noise. The second is chosen if trial
trees are better with it by more than chance. For rotation trees, see axes_choice.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bigforest.common.events import Listener, Notice
from bigforest.common.memory_estimate import Shape
from bigforest.execution.resources import Resources
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.schema.registered import base_family
from bigforest.schema.train_options import OPTIONS
from bigforest.store.store import Store
from bigforest.training.axes_choice import choose_axes, subset_sizes
from bigforest.training.trial_trees import (
    TREES,
    gain_of,
    row_count,
    summed,
    trial_config,
    trial_errors,
    try_each,
    weights_to_judge,
)

# Cost of the two rules for regression, in scans of all features: half of them, and all.
_RULES = 1.5
# Rows of trial trees below which no rule is chosen: where they are some of the rows of the table, and where all.
_FEWEST_OF_SOME = 1_000
_FEWEST_OF_ALL = 20
# With fewer rows than this, few pairs of trees judge a row, and the standard error is uncertain itself: more trees are
# grown, which costs little, and the second rule must be better by two standard errors.
_FEW = 250
_TREES_OF_FEW = 64


def most_of(config: TrainConfig, features: int, rows: int) -> TrainConfig:
    """The configuration that needs most memory among those that may be chosen."""
    if is_open(config, features, rows):
        config = rules_for(config)[1]
    return replace(config, axes_from=()) if config.chooses_axes else config


def complete_config(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The complete configuration for the target of the store, with defaults and choices. Raises ConfigError where no
    row is left to learn from."""
    if config.calibration is not None:
        Sampler.of(store, config)
    if is_open(config, len(store.spec.features), store.rows):
        config = choose_rule(store, config, resources, listener)
    config = config.with_defaults()
    return choose_axes(store, config, resources, listener) if config.chooses_axes else config


def visits_to_choose(shape: Shape, config: TrainConfig) -> float:
    """How often trial trees look at a feature of a row, about."""
    ways = 1 + len(subset_sizes(shape.features)) if config.chooses_axes else _RULES
    rows = row_count(shape.rows, shape.features)
    trees = TREES if config.chooses_axes else _effort(rows)[0]
    return ways * trees * rows * math.log2(max(rows, 2)) * shape.features


def is_open(config: TrainConfig, features: int, rows: int) -> bool:
    """Whether a rule for regression is to be chosen, by a configuration that has a task, for a table of this size."""
    return (
        config.task == "regression"
        and config.mtry is None
        and config.feature_fraction is None
        and OPTIONS["mtry"].of(base_family(config.family))
        and features > 1
        and (tried := row_count(rows, features)) >= (_FEWEST_OF_ALL if tried == rows else _FEWEST_OF_SOME)
    )


def _effort(rows: int) -> tuple[int, float]:
    """Trial trees of each rule for this number of rows, and by how many standard errors the second must be better."""
    return (_TREES_OF_FEW, 2.0) if rows < _FEW else (TREES, 1.0)


def rules_for(config: TrainConfig) -> tuple[TrainConfig, TrainConfig]:
    """The configuration with each of the two rules, the default first; a given size of leaves is that of both."""
    return replace(config, mtry="half", min_leaf=config.leaf_rule), replace(
        config, mtry="all", min_leaf=config.min_leaf or 1
    )


def choose_rule(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The configuration with the better rule."""
    usual, rarer = rules_for(config)
    trees, errors = _effort(row_count(store.rows, len(store.spec.features)))
    trials = [trial_config(options, trees=trees) for options in (usual, rarer)]
    plain, other = map(summed, try_each(trial_errors, trials, store, resources, listener))
    mean, error = gain_of(other, plain, weights_to_judge(store, config))
    if mean <= errors * error:
        return usual
    listener(
        Notice(
            f"mtry is all and min_leaf {rarer.min_leaf}, which has a lower out-of-bag error here than {usual.mtry} and "
            f"{usual.min_leaf}"
        )
    )
    return rarer
