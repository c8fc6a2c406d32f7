"""Defaults that are chosen for regression: nodes draw half of the features and leaves have 2 rows, or nodes draw all
and leaves have 1.

The first is best for most tables, the second if few features carry a signal with little noise. The second is chosen if
trial trees are better with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from bigforest.common.events import Listener, Notice
from bigforest.execution.resources import Resources
from bigforest.schema.config import TrainConfig
from bigforest.schema.options import FeatureRule
from bigforest.schema.registered import base_family
from bigforest.schema.train_options import OPTIONS
from bigforest.store.store import Store
from bigforest.training.trial_trees import (
    is_better,
    row_count,
    summed,
    trial_config,
    trial_errors,
    try_each,
    weights_to_judge,
)

# Below this nothing is chosen.
_FEWEST_ROWS = 1_000


class Rule(NamedTuple):
    """Features that a node draws, and the fewest rows of a leaf."""

    mtry: FeatureRule
    min_leaf: int


def is_open(config: TrainConfig, features: int, rows: int) -> bool:
    """Whether there is something to choose, for a configuration that has a task, and a table of this size."""
    return (
        config.task == "regression"
        and config.mtry is None
        and config.feature_fraction is None
        and OPTIONS["mtry"].of(base_family(config.family))
        and features > 1
        and row_count(rows, features) >= _FEWEST_ROWS
    )


def rules_for(config: TrainConfig) -> tuple[Rule, Rule]:
    """The two rules, the default first; a given size of leaves is that of both."""
    return Rule("half", config.leaf_rule), Rule("all", config.min_leaf or 1)


def most_chosen(config: TrainConfig) -> TrainConfig:
    """The configuration that needs most memory among those that may be chosen."""
    return replace(config, **rules_for(config)[1]._asdict())


def choose_rule(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The configuration with the better rule."""
    rules = rules_for(config)
    configs = [trial_config(config, **rule._asdict()) for rule in rules]
    plain, other = map(summed, try_each(trial_errors, configs, store, resources, listener))
    chosen = rules[is_better(other, plain, weights_to_judge(store, config))]
    if chosen is not rules[0]:
        (usual, fewest), least = rules[0], chosen.min_leaf
        listener(
            Notice(
                f"mtry is all and min_leaf {least}, which has a lower out-of-bag error here than {usual} and {fewest}"
            )
        )
    return replace(config, **chosen._asdict())
