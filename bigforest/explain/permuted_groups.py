"""Groups of features that are permuted together, for permutation importance (permutation.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import DataError, api
from bigforest.explain.job import ExplainJob, OutOfBagRows
from bigforest.metrics.classes import log_losses
from bigforest.oob.accumulator import loss_floor
from bigforest.options.values import several

# Nanoseconds on one thread for drawing a value. Measured.
DRAW_NS = 3.0


class PermutedGroup(NamedTuple):
    """Features that are permuted together.

    stream  number of the group. A single feature has its position in the dataspec; requested groups have the numbers
            after the last feature. The key of a random order is a hash of the seed, this number and the draw
            (PermutationRules.key).
    places  positions of the features in the dataspec.
    """

    name: str
    stream: int
    places: tuple[int, ...]


class PermutationRules(NamedTuple):
    """Rows, the groups of features that are permuted, the loss, and the seed of the orders."""

    oob: OutOfBagRows
    groups: list[PermutedGroup]
    loss: str
    seed: int

    def together(self, most: int) -> list[list[int]]:
        """Return lists of the numbers of groups. The groups of a list can be permuted at the same time.

        The groups of a list share no used feature, and have at most `most` used features together. A larger group has a
        list of its own. Groups without a used feature are left out, because permuting them changes nothing. The first
        list may be empty.
        """
        lists: list[list[int]] = [[]]
        used, taken = set(self.oob.table.used), set[int]()
        for number, group in enumerate(self.groups):
            places = used & set(group.places)
            if not places:
                continue
            if taken & places or (taken and len(taken) + len(places) > most):
                lists.append([])
                taken = set()
            lists[-1].append(number)
            taken |= places
        return lists

    def columns(self, numbers: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the columns that these disjoint groups permute, and the group of each, as an index in `numbers`."""
        column_of = self.oob.table.column_of
        pairs = [
            (column_of[place], index)
            for index, number in enumerate(numbers)
            for place in self.groups[number].places
            if place in column_of
        ]
        columns, indices = np.array(pairs, np.int64).reshape(-1, 2).T
        return columns.astype(np.uint64), indices

    def key(self, draw: int, number: int) -> np.uint64:
        """Return the key of the random order of a group; draw: number of the tree, or of the repetition."""
        from bigforest.kernels.common.rng import stream_key
        from bigforest.kernels.explain.replace import PURPOSE_PERMUTE

        return stream_key(self.seed, PURPOSE_PERMUTE, draw, self.groups[number].stream)

    def class_losses(self, answer: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the loss of each answer on a row of each class, float64 [answers, classes]."""
        if self.loss == "log_loss":
            return log_losses(answer)
        wrong = np.ones(answer.shape)
        wrong[np.arange(len(answer)), answer.argmax(axis=1)] = 0.0
        return wrong

    def raised_to_floor(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions, none of them below the floor of the Poisson deviance (`loss_floor`)."""
        table = self.oob.table
        return np.maximum(mean, loss_floor(float(table.target()[table.labelled_rows()].max(initial=0.0))))


def permuted_groups(job: ExplainJob) -> list[PermutedGroup]:
    """Return all features, each alone, and the requested groups. Raises ConfigError."""
    spec = job.forest.spec
    single = [PermutedGroup(feature.name, place, (place,)) for place, feature in enumerate(spec.features)]
    together = [
        PermutedGroup(
            name, len(single) + number, tuple(job.options.places(several(columns), spec, f"the group {name!r}"))
        )
        for number, (name, columns) in enumerate(job.options.groups.items())
    ]
    return single + together


def permutation_rules(job: ExplainJob, groups: list[PermutedGroup], loss: str) -> PermutationRules:
    """Return the inputs of a permutation importance.

    Raises DataError for a negative target with the Poisson deviance, and the errors of `ExplainJob.oob`.
    """
    table = job.oob.table
    if loss == "poisson_deviance" and (least := table.target()[table.labelled_rows()].min(initial=0.0)) < 0.0:
        raise DataError(
            f"target {job.forest.spec.target.name!r} has the value {float(least)!r}, and the Poisson deviance is for "
            f"numbers of which none is below 0; set the {api('loss')} to mse, or drop these rows"
        )
    return PermutationRules(job.oob, groups, loss, job.options.seed)
