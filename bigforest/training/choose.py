"""Options that are selected by trial trees between encoding and growing."""

from __future__ import annotations

import math
from dataclasses import replace

from bigforest.common.events import Listener
from bigforest.common.memory_estimate import Shape
from bigforest.execution.resources import Resources
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store
from bigforest.training.axes_choice import choose_axes, subset_sizes
from bigforest.training.number_defaults import choose_rule, is_open, most_chosen
from bigforest.training.trial_trees import TREES, row_count

# Cost of the two rules for regression, in scans of all features: half of them, and all.
_RULES = 1.5


def chooses(config: TrainConfig, features: int, rows: int) -> bool:
    """Whether there is something to choose, for a configuration that has a task, and a table of this size."""
    return config.chooses_axes or is_open(config, features, rows)


def most_of(config: TrainConfig, features: int, rows: int) -> TrainConfig:
    """The configuration that needs most memory among those that may be chosen."""
    if is_open(config, features, rows):
        config = most_chosen(config)
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
    return ways * TREES * rows * math.log2(max(rows, 2)) * shape.features
