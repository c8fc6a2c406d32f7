"""What all nodes of a forest share while it grows by passes: the kind of its columns, the limits of memory, and the
parts of the statistics of the rows of a node, of a side of a split or of a bucket."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.criteria import Criterion, criterion_of
from bigforest.grow.feature_kinds import Features
from bigforest.kernels.tree.bags import count_classes
from bigforest.kernels.tree.builder import Rules
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.store.store import Store

# int64 [parts], or one such row for each of some buckets.
Counts = NDArray[np.int64]

# Parts of the statistics for regression.
WEIGHT, SUM, ABOVE = range(3)


class NodeStats(NamedTuple):
    """The layout of the statistics of a node, a bag or a bucket, int64 [parts]; see Counts.

    classes   for classification the weight of each class comes first. 0 for regression: first come the weight, the
              weighted sum of the targets and, for a bucket, the sum of those above 0; targets are relative to a centre
    weighted  whether rows have weights; the number of rows then comes last
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
    def scored(self) -> int:
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


class ColumnKind(NamedTuple):
    """The type of a column, its smallest and largest possible value, and the types of the cells of a block."""

    dtype: Any
    least: float
    greatest: float
    cells: tuple[str, str, str]


CODES = ColumnKind(np.uint32, 0, 0xFFFFFFFF, ("<u1", "<u2", "<u4"))
PROJECTIONS = ColumnKind(np.float64, -np.inf, np.inf, ("<f4", "<f8", "<u1"))


class MemoryLimits(NamedTuple):
    """Limits of memory.

    rows   rows of a node that is grown in memory, see NodeStats.rows; larger ones are split by passes
    keys   rows of a node that are collected at once, to open buckets
    cells  counts of the histogram of one feature
    room   counts of all histograms of a pass, and keys
    nodes  nodes whose thresholds are looked up together
    values of a dictionary in memory at a time, float64
    training  bytes of rows that perceptrons are trained on together
    """

    rows: int
    keys: int
    cells: int
    room: int
    nodes: int = 1 << 20
    values: int = 1 << 16
    training: int = 1 << 24


class GrowContext(NamedTuple):
    """Data that all nodes of a forest share.

    zero    the number of a target of zero, where the criterion asks for it, else 0
    kind    of the columns that nodes split on
    values  the store between whose values random splits are drawn; None for the best splits
    """

    rules: Rules
    stats: NodeStats
    features: Features
    criterion: Criterion
    zero: float
    limits: MemoryLimits
    kind: ColumnKind
    values: Store | None

    @classmethod
    def of(cls, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, kind: ColumnKind) -> GrowContext:
        """What the nodes of a forest on a store share."""
        stats, features, criterion = NodeStats.of(store.shape), Features.of(store, config), criterion_of(config)
        zero = criterion.zero(store.spec.target) or 0.0
        values = store if config.splitter == "random" else None
        return cls(rules, stats, features, criterion, zero, limits, kind, values)
