"""Data that all nodes of a forest share while it grows by passes: statistics, kind of columns, limits of memory.

The statistics of the rows of a node, of a side of a split, or of a bucket are int64 [slots]:

    classes      [weight of class 0, weight of class 1, ..., (rows)]
    regression   [weight, weighted sum of targets, weighted sum of the targets above 0, (rows)]

The number of rows is present only if rows have weights. The third entry of regression is filled only in buckets.
Targets in buckets, and in the scores of splits, are relative to the centre of the node: its mean target, rounded down.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.criteria import Criterion, criterion_of
from bigforest.grow.feature_kinds import Features
from bigforest.kernels.out_of_core.blocks import Steps
from bigforest.kernels.tree.builder import Rules
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.store.store import Store

# Statistics, int64 [slots], or [buckets, slots].
Counts = NDArray[np.int64]

# Slots of regression.
WEIGHT, SUM, ABOVE = range(3)


class NodeStats(NamedTuple):
    """Layout of statistics.

    classes   number of classes; 0 for regression
    weighted  True if rows have weights
    """

    classes: int
    weighted: bool

    @classmethod
    def of(cls, shape: Shape) -> NodeStats:
        """Return the layout for a table."""
        return cls(0 if shape.extras.regression else shape.classes, shape.extras.weighted)

    @property
    def regression(self) -> bool:
        return self.classes == 0

    @property
    def slots(self) -> int:
        return (self.classes or ABOVE + 1) + self.weighted

    @property
    def scored(self) -> int:
        """Number of leading slots that the score of a split depends on."""
        return self.classes or SUM + 1

    @property
    def cell_type(self) -> Any:
        """Type of a slot in histograms: the weight of a bag has 32 bits, a sum of targets 62 bits."""
        return np.int64 if self.regression else np.uint32

    def weight(self, total: Counts) -> Any:
        """Return the weight in `total` [..., slots]: an int64, or an array [...]."""
        return total[..., WEIGHT] if self.regression else total[..., : self.classes].sum(axis=-1)

    def rows(self, total: Counts) -> Any:
        """Return the number of rows in `total`. Without weights, a row counts as often as it is in the bag."""
        return total[..., -1] if self.weighted else self.weight(total)

    def centre(self, total: Counts) -> int:
        """Return the mean of the targets of a node, rounded down; 0 for classes."""
        return int(total[SUM] // total[WEIGHT]) if self.regression else 0

    def moved(self, total: Counts, by: int) -> Counts:
        """Return `total` [slots] with all targets increased by `by`, and with the slot ABOVE set to 0."""
        total = total.copy()
        if self.regression:
            total[SUM] += by * total[WEIGHT]
            total[ABOVE] = 0
        return total


def total_of(target: NDArray[Any], weight: NDArray[np.uint16], stats: NodeStats) -> Counts:
    """Return the statistics of rows with these targets and weights, int64 [slots]."""
    total = np.zeros(stats.slots, np.int64)
    if stats.regression:
        total[WEIGHT] = weight.sum(dtype=np.int64)
        total[SUM] = (target * weight.astype(np.int64)).sum()
    else:
        total[: stats.classes] = np.bincount(target, weight, stats.classes)
    if stats.weighted:
        total[-1] = np.count_nonzero(weight)
    return total


class ColumnKind(NamedTuple):
    """Kind of the columns that nodes are split on.

    dtype            type of a value
    least, greatest  smallest and largest possible value
    cell_types       types of the matrices of a block; each column is in one of them
    bucket_rows      determines the number of buckets (node_search.py)
    """

    dtype: Any
    least: float
    greatest: float
    cell_types: tuple[str, str, str]
    bucket_rows: int


CODES = ColumnKind(np.uint32, 0, 0xFFFFFFFF, ("<u1", "<u2", "<u4"), 12)
# More buckets, because buckets of projections have equal widths, and a few of them may have most rows.
PROJECTIONS = ColumnKind(np.float64, -np.inf, np.inf, ("<f4", "<f8", "<u1"), 6)


class MemoryLimits(NamedTuple):
    """Memory limits of growing by passes.

    rows      most rows of a node that is grown in memory, see NodeStats.rows; larger nodes are split by passes
    collects  most rows of a node that are collected in a pass, to open buckets
    cells     most counts of the histogram of one column, or of all histograms of single buckets that a node requests
              at once
    room      most counts of all histograms of a pass, each collected row counted as one, unless a single node has more
    nodes     most nodes whose thresholds are looked up together
    routed    most nodes that out-of-bag rows are routed through together
    values    most values of a dictionary in memory at a time, float64
    training  bytes of rows that perceptrons are trained on together
    """

    rows: int
    collects: int
    cells: int
    room: int
    nodes: int = 1 << 20
    routed: int = 1 << 20
    values: int = 1 << 16
    training: int = 1 << 24


class GrowContext(NamedTuple):
    """Data that all nodes of a forest share.

    zero    see Criterion.zero; 0 if the criterion does not need it
    kind    kind of the columns that nodes split on
    values  store whose values determine random thresholds; None for best splits
    steps   steps in which features are summed; None if no node requests sums
    """

    rules: Rules
    stats: NodeStats
    features: Features
    criterion: Criterion
    zero: float
    limits: MemoryLimits
    kind: ColumnKind
    values: Store | None
    steps: Steps | None = None

    @classmethod
    def of(cls, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, kind: ColumnKind) -> GrowContext:
        """Return the data that the nodes of a forest on a store share."""
        stats, features, criterion = NodeStats.of(store.shape), Features.of(store, config), criterion_of(config)
        zero = criterion.zero(store.spec.target) or 0.0
        values = store if config.splitter == "random" else None
        return cls(rules, stats, features, criterion, zero, limits, kind, values)
