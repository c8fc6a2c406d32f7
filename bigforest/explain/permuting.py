"""Permuting features among rows: which features together, by which loss, and the random orders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import DataError, api
from bigforest.explain.job import ExplainJob, OutOfBagRows
from bigforest.options.values import several

# Bytes of permuted values that a task holds at a time.
DRAWN_BYTES = 32 << 20
# Shares are clipped to this and 1 minus this, so that logarithms are finite.
_LEAST_SHARE = float(np.finfo(np.float64).eps)
# Nanoseconds on one thread for drawing a value. Measured.
DRAW_NS = 3.0


class PermutedGroup(NamedTuple):
    """Features that are permuted together.

    stream  the key of the order, with seed and tree: the position of a single feature, and for groups the numbers
            after.
    places  positions in the dataspec.
    """

    name: str
    stream: int
    places: tuple[int, ...]


class Permuting(NamedTuple):
    """Rows, the features that are permuted among out-of-bag rows, the loss, and the seed of the orders."""

    oob: OutOfBagRows
    groups: list[PermutedGroup]
    loss: str
    seed: int


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


def permuting(job: ExplainJob, groups: list[PermutedGroup], loss: str) -> Permuting:
    """Return how to permute the rows. Raises DataError for rows without a deviance."""
    table = job.oob.table
    if loss == "poisson_deviance" and (least := table.target()[table.labelled_rows()].min(initial=0.0)) < 0.0:
        raise DataError(
            f"target {job.forest.spec.target.name!r} has the value {float(least)!r}, and the Poisson deviance is for "
            f"numbers of which none is below 0; set the {api('loss')} to mse, or drop these rows"
        )
    return Permuting(job.oob, groups, loss, job.options.seed)


def leaf_losses(answer: NDArray[np.float64], loss: str) -> NDArray[np.float64]:
    """Return the loss of each node on a row of each class, float64 [nodes, classes]; for regression its prediction."""
    if loss == "mse":
        return answer
    if loss == "log_loss":
        return -np.log(np.clip(answer, _LEAST_SHARE, 1.0 - _LEAST_SHARE))
    wrong = np.ones(answer.shape)
    wrong[np.arange(len(answer)), answer.argmax(axis=1)] = 0.0
    return wrong


def permuted_together(groups: list[PermutedGroup], used: tuple[int, ...], most: int) -> list[list[int]]:
    """Return lists of groups to permute at the same time: no feature is in two, and a list has at most `most` used
    features.

    Groups without a used feature are left out, because permuting them changes nothing; the first list may be empty.
    """
    found: list[list[int]] = [[]]
    known, taken = set(used), set[int]()
    for number, group in enumerate(groups):
        places = known & set(group.places)
        if not places:
            continue
        if taken & places or (taken and len(taken) + len(places) > most):
            found.append([])
            taken = set()
        found[-1].append(number)
        taken |= places
    return found


class PermutedColumns(NamedTuple):
    """The columns of rows that have other values, see kernels/explain/step.py Replaced.

    places  int64 [drawn columns], columns of the rows; groups: int64 [drawn columns], numbers of their groups
    column, member  fields `column` and `group` of Replaced
    """

    places: NDArray[np.int64]
    groups: NDArray[np.int64]
    column: NDArray[np.int32]
    member: NDArray[np.int32]


def permuted_columns(groups: list[PermutedGroup], used: tuple[int, ...]) -> PermutedColumns:
    """Return the columns of some groups, which share no feature, in rows with the features `used`."""
    place_of = {place: at for at, place in enumerate(used)}
    wanted = [
        (number, place_of[place]) for number, group in enumerate(groups) for place in group.places if place in place_of
    ]
    numbers, places = np.array(wanted, np.int64).reshape(-1, 2).T
    column, member = np.full(len(used) + 1, -1, np.int32), np.full(len(used) + 1, -1, np.int32)
    column[places], member[places] = np.arange(places.size), numbers
    return PermutedColumns(places, numbers, column, member)


def order_key(seed: int, draw: int, group: PermutedGroup) -> np.uint64:
    """Return the key of the random order of a group; draw: number of the tree, or of the repetition."""
    from bigforest.kernels.common.rng import stream_key
    from bigforest.kernels.explain.permute import PURPOSE_PERMUTE

    with np.errstate(over="ignore"):  # without compilation, numpy warns that hashes wrap around
        return np.uint64(stream_key(np.uint64(seed), PURPOSE_PERMUTE, np.uint64(draw), np.uint64(group.stream)))
