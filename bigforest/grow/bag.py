"""Bags of rows that may have weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.encode.dataspec import MOST_BAG_WEIGHT
from bigforest.errors import DataError
from bigforest.grow.tally import SUM, WEIGHT, Counts, Tally
from bigforest.kernels.draw import count_classes
from bigforest.sample import Sampler


def weighed(multiplicity: NDArray[np.uint16], weight: NDArray[np.uint16] | None) -> NDArray[np.uint16]:
    """How much each row of a bag weighs, uint16 [rows], where each has a `weight`.

    Raises DataError where one weighs too much.
    """
    if weight is None:
        return multiplicity
    found = multiplicity.astype(np.uint32) * weight
    if found.max() > np.iinfo(np.uint16).max:
        raise DataError(
            f"a row is in a bag {multiplicity.max()} times and weighs up to {found.max()} then, more than 65535 that "
            "are possible: lower sample_fraction"
        )
    return found.astype(np.uint16)


def check_bag(weight: int) -> None:
    """Raise DataError where a bag of weighted rows weighs too much for the sums of kernels."""
    if weight > MOST_BAG_WEIGHT:
        raise DataError(f"a bag weighs {weight}, more than {MOST_BAG_WEIGHT} that are possible: lower sample_fraction")


def weighed_block(sampler: Sampler, tree: int, block: int) -> NDArray[np.uint16]:
    """How much each row of a block weighs in the bag of a tree, uint16 [rows of the block]; raises as `weighed`."""
    store = sampler.store
    start = block * store.block_rows
    weight = None if store.weight is None else store.weight[start : start + store.block_rows]
    return weighed(sampler.block(tree, block), weight)


def total_of(target: NDArray[Any], weight: NDArray[np.uint16], tally: Tally) -> Counts:
    """What rows with these targets, classes or numbers, and weights hold, int64 [parts]."""
    total = np.zeros(tally.parts, np.int64)
    if tally.numbers:
        total[WEIGHT] = weight.sum(dtype=np.int64)
        total[SUM] = (target * weight.astype(np.int64)).sum()
    else:
        count_classes(target, weight, total)
    if tally.weighted:
        total[-1] = np.count_nonzero(weight)
    return total
