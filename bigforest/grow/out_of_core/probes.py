"""What a node that is too large for memory asks of a pass over the rows, and what it is told.

A column is a feature, and holds codes, or a direction, and holds projections, float64. All that the two differ in,
outside of kernels, is here: their types, and how a histogram cuts them into buckets.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.kernels.common.layout import Terms

_LARGEST = sys.float_info.max
# Twice the largest relative error of one product or sum, and the error where they are next to 0.
_ROUNDED = 2.0**-51
_TINY = 5e-324
_LOWEST = np.int64(-(2**63))
_NO_EDGE = np.empty(0)


class ColumnKind(NamedTuple):
    """The type of a column, and what none falls below and none exceeds."""

    dtype: Any
    least: float
    greatest: float


CODES = ColumnKind(np.uint32, 0, 0xFFFFFFFF)
PROJECTIONS = ColumnKind(np.float64, -np.inf, np.inf)


class Spans(NamedTuple):
    """Smallest and largest value of every feature, float64 [features]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Direction(NamedTuple):
    """Terms of a direction: feature uint32, ascending, and weight float64. One of a single feature is that feature, and
    its weight is forgotten."""

    feature: NDArray[np.uint32]
    weight: NDArray[np.float64]

    @property
    def single(self) -> bool:
        """Whether it is a feature."""
        return self.feature.size == 1

    def range(self, spans: Spans) -> tuple[float, float]:
        """Bounds of all its finite projections."""
        if self.single:
            feature = self.feature[0]
            return float(spans.low[feature]), float(spans.high[feature])
        return projection_range(self.weight, spans.low[self.feature], spans.high[self.feature])


class DirectionLine(Direction):
    """A direction that is none of a feature even where it has a single one, and whose cut is the threshold itself."""

    __slots__ = ()

    @property
    def single(self) -> bool:
        """See Direction."""
        return False


def single(feature: int) -> Direction:
    """A feature as a direction."""
    return Direction(np.array([feature], np.uint32), np.ones(1))


def projection_range(
    weight: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[float, float]:
    """Bounds of all finite sums of weight * value, whose values are from low to high; float64 [terms]."""
    with np.errstate(over="ignore", invalid="ignore"):
        ends = np.stack([weight * low, weight * high])
        room = (weight.size + 2) * (_ROUNDED * np.abs(ends).max(axis=0).sum() + _TINY)
        least, most = float(ends.min(axis=0).sum() - room), float(ends.max(axis=0).sum() + room)
    if not np.isfinite([least, most]).all():
        return -_LARGEST, _LARGEST
    return least, most


def terms_of(directions: Sequence[Direction]) -> Terms:
    """The terms of all directions; the weight of a feature that stands alone is 1."""
    weights = [np.ones(1) if direction.single else direction.weight for direction in directions]
    return Terms(
        np.cumsum([0, *(direction.feature.size for direction in directions)]).astype(np.int64),
        np.concatenate([*(direction.feature for direction in directions), np.zeros(0, np.uint32)]).astype(np.int32),
        np.concatenate([*weights, np.zeros(0)]),
    )


class Probe(Protocol):
    """A question of a node: one of those below, or another that its family has."""

    def cells(self, parts: int) -> int:
        """Room that the answer takes, in counts of a histogram; parts: of what is counted (node_stats.py)."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Ask what the rows with low..high in a column hold, cut into buckets.

    number     of the feature or direction; decides between equal splits
    direction  of projections; None of codes
    scale, buckets, edge  of kernels/out_of_core/blocks.py Probes
    left       int64 [parts] (node_stats.py), what rows below the range hold; None for what is looked at the first time
    """

    number: int
    direction: Direction | None
    low: float
    high: float
    scale: float
    buckets: int
    edge: NDArray[np.float64]
    left: Counts | None = None

    @classmethod
    def ranges(
        cls, number: int, direction: Direction | None, low: float, high: float, most: int, left: Counts | None = None
    ) -> Histogram:
        """In at most `most` ranges of equally many values: codes, or float64."""
        codes = direction is None
        first, last = (int(low), int(high)) if codes else _keys(np.array([low, high])).tolist()
        shift = 0
        while (last - first) >> shift >= most:
            shift += 1
        buckets = ((last - first) >> shift) + 1
        if codes:
            return cls(number, None, first, last, shift, buckets, _NO_EDGE, left)
        steps = np.arange(buckets, dtype=np.uint64) << np.uint64(shift)
        edge = _values((steps + np.uint64(first % 2**64)).view(np.int64))
        return cls(number, direction, low, high, 0.0, buckets, edge, left)

    @classmethod
    def on(cls, number: int, direction: Direction, spans: Spans, most: int) -> Histogram:
        """All projections on a direction, in at most `most` buckets of equal width, if that can be.

        It needs no look at them before: the buckets are of all that the direction can come to on this table.
        """
        low, high = direction.range(spans)
        with np.errstate(over="ignore", invalid="ignore"):
            edge = np.float64(low) + np.arange(most) * np.float64(high / most - low / most)
        if np.isfinite(edge).all() and (edge[1:] > edge[:-1]).all() and edge[-1] <= high:
            return cls(number, direction, low, high, min(most / (high * 0.5 - low * 0.5), _LARGEST), most, edge)
        return cls.ranges(number, direction, low, high, most)

    def cells(self, parts: int) -> int:
        """See Probe; an edge takes 8 bytes, in the search and in the question."""
        return self.buckets * parts + self.edge.size

    def starts(self) -> NDArray[Any]:
        """Smallest value of each bucket, [buckets]."""
        return self.edge if self.edge.size else int(self.low) + (np.arange(self.buckets) << int(self.scale))

    def ends(self) -> NDArray[Any]:
        """Largest value of each bucket, [buckets]."""
        following = self.starts()[1:]
        with np.errstate(over="ignore"):  # below the lowest number lies -inf
            before = following - 1 if self.direction is None else np.nextafter(following, -np.inf)
        return np.append(before, self.high)

    def bucket(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The buckets of values of the range."""
        if self.direction is None:
            return (values.astype(np.int64) - int(self.low)) >> int(self.scale)
        return self.edge.searchsorted(values, side="right") - 1

    def several(self) -> NDArray[np.bool_]:
        """Whether a bucket is of more than one value, [buckets]."""
        found: NDArray[np.bool_] = self.starts() < self.ends()
        return found

    def within(self, bucket: int, most: int, left: Counts) -> Histogram:
        """The same for one bucket, in `most` buckets or fewer."""
        low, high = self.starts()[bucket].item(), self.ends()[bucket].item()
        return Histogram.ranges(self.number, self.direction, low, high, most, left)


def _keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of float64, neighbours for neighbours."""
    bits = values.view(np.int64)
    return np.where(bits < 0, _LOWEST - bits, bits)


def _values(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(keys < 0, _LOWEST - keys, keys).view(np.float64)


@dataclass(frozen=True, slots=True)
class Collect:
    """Ask for the rows in the buckets that are `wanted`, bool [buckets]; the buckets are of `count`.

    left int64 [wanted buckets, parts]: what lies before each of them. rows: most rows there can be.
    """

    count: Histogram
    wanted: NDArray[np.bool_]
    left: Counts
    rows: int

    def cells(self, parts: int) -> int:
        """See Probe."""
        return self.rows


@dataclass(frozen=True, slots=True)
class StepSums:
    """Ask for the steps of features, uint32, in the node by class, int64 [features, classes]
    (kernels/oblique/mean_difference.py)."""

    features: NDArray[np.uint32]

    def cells(self, parts: int) -> int:
        """See Probe."""
        return 2 * self.features.size * parts


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """The answer to a Histogram.

    counts     int64 [buckets, parts]
    low, high  smallest value in the node that is not below the range, and largest
    mark       0 if all numbers to predict of the node are the same, or all projections are finite
    """

    counts: Counts
    low: float
    high: float
    mark: int = 0


# To a Collect: CollectedRows (collected_rows.py); to StepSums: the sums.
Answer = HistogramCounts | Any
