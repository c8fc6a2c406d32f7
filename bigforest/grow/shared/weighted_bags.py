"""Bags of rows that may have weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.kernels.common.rng import PURPOSE_WEIGHT, draw_rows, stream_key
from bigforest.sampling.bags import Sampler
from bigforest.schema.dataspec import MOST_BAG_WEIGHT
from bigforest.store.format import BLOCK_ROWS


def weighed(sampler: Sampler, tree: int, first: int, multiplicity: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The weight of each row of a bag in the search for splits, uint16 [rows].

    first         number of the first of the rows
    multiplicity  how often each is in the bag

    Wide weights are in units of WeightSpec.search, rounded up or down at random, so that they are right on average
    over trees, and from 1 to 65,535. Others are exact: raises DataError where one weighs too much.
    """
    store = sampler.store
    if store.spec.weight is None:
        return multiplicity
    weight = store.weights_of(first, first + multiplicity.size)
    if store.spec.weight.wide:
        return _rounded(multiplicity, weight, store.spec.weight.search, sampler.config.seed, tree, first)
    total: NDArray[np.uint32] = multiplicity.astype(np.uint32) * weight
    if total.max() > np.iinfo(np.uint16).max:
        raise DataError(
            f"a row is in a bag {multiplicity.max()} times and weighs up to {total.max()} then, more than 65535 that "
            "are possible: lower sample_fraction"
        )
    return total.astype(np.uint16)


def _rounded(
    multiplicity: NDArray[np.uint16], weight: NDArray[np.uint64], search: float, seed: int, tree: int, first: int
) -> NDArray[np.uint16]:
    rounded = np.zeros(multiplicity.size, np.uint16)
    there = np.flatnonzero(multiplicity)
    random = np.empty(there.size, np.uint64)
    with np.errstate(over="ignore"):  # plain Python wraps too, with a warning
        key = np.uint64(stream_key(np.uint64(seed), PURPOSE_WEIGHT, np.uint64(tree), np.uint64(0)))
        draw_rows(key, (there + first).astype(np.uint64), random)
    exact = multiplicity[there] * (weight[there] / search)
    rounded[there] = np.floor(exact + (random >> np.uint64(11)) * 2.0**-53).clip(1.0, np.iinfo(np.uint16).max)
    return rounded


def check_bag(weight: int) -> None:
    """Raise DataError if the weight of a bag is too large for the sums of kernels."""
    if weight > MOST_BAG_WEIGHT:
        raise DataError(f"a bag weighs {weight}, more than {MOST_BAG_WEIGHT} that are possible: lower sample_fraction")


def weighed_block(sampler: Sampler, tree: int, block: int) -> NDArray[np.uint16]:
    """The weight of each row of a block in the bag of a tree, uint16 [rows of the block]; raises as `weighed`."""
    return weighed(sampler, tree, block * BLOCK_ROWS, sampler.block(tree, block))
