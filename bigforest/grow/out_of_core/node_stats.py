"""Statistics of the rows of a node, of a side of a split or of a bucket, while trees grow by passes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import Shape
from bigforest.kernels.tree.bags import count_classes

# int64 [parts], or one such row for each of some buckets.
Counts = NDArray[np.int64]

# Parts of the statistics for regression.
WEIGHT, SUM, ABOVE = range(3)


class NodeStats(NamedTuple):
    """The parts of a total.

    classes   the weights of this many classes come first. 0 for regression: first come the weight, the weighted sum of
              the targets and, for a bucket, the sum of those above zero; targets are relative to a centre
    weighted  whether rows have weights. Then the number of rows comes last
    """

    classes: int
    weighted: bool

    @classmethod
    def of(cls, shape: Shape) -> NodeStats:
        """The statistics for a table."""
        return cls(0 if shape.extras.regression else shape.classes, shape.extras.weighted)

    @property
    def regression(self) -> bool:
        """Whether the target is a regression."""
        return self.classes == 0

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return (self.classes or ABOVE + 1) + self.weighted

    @property
    def judged(self) -> int:
        """How many parts of a side, the first ones, enter the score of a split."""
        return self.classes or SUM + 1

    @property
    def cell(self) -> Any:
        """Type of a count. The weight of a bag has 32 bits; sums of numbers have 62."""
        return np.int64 if self.regression else np.uint32

    def weight(self, total: Counts) -> Any:
        """The weight in `total` [..., parts]: an int64, or an array [...]."""
        return total[..., WEIGHT] if self.regression else total[..., : self.classes].sum(axis=-1)

    def rows(self, total: Counts) -> Any:
        """The number of rows in `total`, like `weight`; without weights repeats count."""
        return total[..., -1] if self.weighted else self.weight(total)

    def centre(self, total: Counts) -> int:
        """The mean of the targets of a node, rounded down; 0 for classes."""
        return int(total[SUM] // total[WEIGHT]) if self.regression else 0

    def moved(self, total: Counts, by: int) -> Counts:
        """`total` [parts] with all targets increased by `by`; the sum above zero is dropped."""
        total = total.copy()
        if self.regression:
            total[SUM] += by * total[WEIGHT]
            total[ABOVE] = 0
        return total


def total_of(target: NDArray[Any], weight: NDArray[np.uint16], stats: NodeStats) -> Counts:
    """The statistics of rows with these targets and weights, int64 [parts]."""
    total = np.zeros(stats.parts, np.int64)
    if stats.regression:
        total[WEIGHT] = weight.sum(dtype=np.int64)
        total[SUM] = (target * weight.astype(np.int64)).sum()
    else:
        count_classes(target, weight, total)
    if stats.weighted:
        total[-1] = np.count_nonzero(weight)
    return total
