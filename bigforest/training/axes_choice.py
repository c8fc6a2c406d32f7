"""Selecting the features that axes of rotation trees are built from, if `axes_from` is auto.

An irrelevant column is part of every axis and spoils it. Features are ranked by the out-of-bag gain of splits on them
in axis trees. The leading half, quarter and so on are tried, and the subset with the least error of trial trees is
taken, if it is better than all features by a standard error.

The gain of a split is that of Li, Wang, Basu, Kumbier and Yu 2019 (A debiased MDI feature importance measure for
random forests), section 3: predictions are those of the bag and the truth that of out-of-bag rows, so an irrelevant
feature gains nothing on average, for any number of values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import listed
from bigforest.common.events import Listener, Notice
from bigforest.execution.resources import Resources
from bigforest.schema.config import TrainConfig
from bigforest.schema.options import AUTO
from bigforest.schema.train_options import OPTIONS
from bigforest.store.store import Store
from bigforest.training.trial_trees import (
    TrialTrees,
    gain_of,
    summed,
    trial_config,
    trial_errors,
    trial_weights,
    trials,
    try_each,
)


def choose_axes(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The configuration with the names of the features that axes are made from; none for all."""
    names = store.spec.feature_names
    if len(names) == 1:
        return replace(config, axes_from=())
    # Axis trees on the same rows, with the defaults of what rotation trees alone have.
    plain = {name: OPTIONS[name].default for name in ("rotation", "axis_features", "axes", "orthogonal", "axes_from")}
    ranks = trial_config(replace(config, family="axis", mtry=None, **plain).with_defaults())
    gains: NDArray[np.float64] = np.sum(try_each(gains_of, [ranks], store, resources, listener)[0], axis=0)
    order = np.argsort(-gains, kind="stable").tolist()
    subsets = [sorted(order[:size]) for size in subset_sizes(len(names))]
    if config.axis_features is not None:
        subsets = [subset for subset in subsets if len(subset) >= config.axis_features]
    ways = [replace(config, axes_from=_named(names, subset)) for subset in subsets]
    errors = [
        summed(parts) for parts in try_each(trial_errors, list(map(trial_config, ways)), store, resources, listener)
    ]
    weight = trial_weights(store, config)
    gained = [gain_of(each, errors[0], weight) for each in errors]
    best = max(range(len(errors)), key=lambda place: gained[place][0])
    mean, error = gained[best]
    if mean <= error:
        return ways[0]
    kept = [names[place] for place in order[: len(subsets[best])]]
    told = listed(kept, 5)
    listener(Notice(f"axes are built from {told}: small forests have a lower out-of-bag error than with all features"))
    return ways[best]


def subset_sizes(features: int) -> list[int]:
    """How many of the leading features are tried: all, and half as many each time, down to one."""
    sizes = [features]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    return sizes


def gains_of(store: Store, config: TrainConfig, trees: range) -> NDArray[np.float64]:
    """Task: the out-of-bag gain of splits on each feature in some trees, float64 [features]."""
    gains = np.zeros(len(store.spec.features))
    for trial in trials(store, config, trees):
        answers, sums = trial.answers, _sums_below(trial)
        inner, left, right = trial.splits
        for child in (left, right):
            gain = ((answers[child] - answers[inner]) * sums[child]).sum(axis=1)
            np.add.at(gains, trial.trees.feature[inner], gain)
    return gains


def _sums_below(trial: TrialTrees) -> NDArray[np.float64]:
    """The sum of the truth of the out-of-bag rows that reach each node, float64 [nodes, outputs]."""
    depth = trial.trees.depth
    sums = np.zeros((depth.size, trial.truth.shape[1]))
    for root, out in zip(np.flatnonzero(depth == 0), trial.left_out, strict=True):
        np.add.at(sums, root + out.leaves, trial.truth[out.rows])
    inner, left, right = trial.splits
    for level in range(int(depth.max()) - 1, -1, -1):
        here = depth[inner] == level
        sums[inner[here]] = sums[left[here]] + sums[right[here]]
    return sums


def _named(names: list[str], subset: list[int]) -> tuple[str, ...]:
    """The names of a subset; none for all features, and never the word for automatic choice."""
    chosen = tuple(names[place] for place in subset)
    return () if len(chosen) == len(names) or chosen == (AUTO,) else chosen
