"""Requests of a node that is too large for memory to a pass over the rows, and their answers.

A column is a feature, with codes, or a direction, with projections, float64. All differences of the two outside of
kernels are here: their types, and how a histogram divides them into buckets.
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
# Twice the largest relative error of one product or sum, and the absolute error next to 0.
_ROUNDED = 2.0**-51
_TINY = 5e-324
_LOWEST = np.int64(-(2**63))
_NO_EDGE = np.empty(0)


class ColumnKind(NamedTuple):
    """The type of a column, its smallest and largest possible value, and the types of the cells of a block."""

    dtype: Any
    least: float
    greatest: float
    cells: tuple[str, str, str]


CODES = ColumnKind(np.uint32, 0, 0xFFFFFFFF, ("<u1", "<u2", "<u4"))
PROJECTIONS = ColumnKind(np.float64, -np.inf, np.inf, ("<f4", "<f8", "<u1"))


class Spans(NamedTuple):
    """Smallest and largest value of every feature, float64 [features]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Direction(NamedTuple):
    """Terms of a direction: feature uint32, ascending, and weight float64. One of a single feature is that feature, and
    its weight is dropped.

    line  whether it is no feature even with a single term, and its cut is the threshold itself
    """

    feature: NDArray[np.uint32]
    weight: NDArray[np.float64]
    line: bool = False

    @property
    def is_feature(self) -> bool:
        """Whether it is a feature."""
        return self.feature.size == 1 and not self.line

    def range(self, spans: Spans) -> tuple[float, float]:
        """Bounds of all its finite projections."""
        low, high = spans.low[self.feature], spans.high[self.feature]
        if self.is_feature:
            return float(low[0]), float(high[0])
        with np.errstate(over="ignore", invalid="ignore"):
            ends = np.stack([self.weight * low, self.weight * high])
            room = (self.weight.size + 2) * (_ROUNDED * np.abs(ends).max(axis=0).sum() + _TINY)
            least, most = float(ends.min(axis=0).sum() - room), float(ends.max(axis=0).sum() + room)
        if not np.isfinite([least, most]).all():
            return -_LARGEST, _LARGEST
        return least, most


def feature_direction(feature: int) -> Direction:
    """A feature as a direction."""
    return Direction(np.array([feature], np.uint32), np.ones(1))


def terms_of(directions: Sequence[Direction]) -> Terms:
    """The terms of all directions; the weight of a feature that stands alone is 1."""
    weights = [np.ones(1) if direction.is_feature else direction.weight for direction in directions]
    return Terms(
        np.cumsum([0, *(direction.feature.size for direction in directions)]).astype(np.int64),
        np.concatenate([*(direction.feature for direction in directions), np.zeros(0, np.uint32)]).astype(np.int32),
        np.concatenate([*weights, np.zeros(0)]),
    )


class Probe(Protocol):
    """A request of a node: one of those below, or one of its family."""

    def cells(self, parts: int) -> int:
        """Size of the answer, in counts of a histogram; parts: of NodeStats."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Request the statistics of the rows with low..high in a column, by bucket.

    number     of the feature or direction; decides ties
    direction  of projections; None of codes
    scale, buckets, edge  of kernels/out_of_core/blocks.py Probes
    left       int64 [parts] (node_stats.py), statistics of the rows below the range; None for the first request of a
               column
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
        """All projections on a direction, in at most `most` buckets of equal width, if possible.

        The buckets cover all values that the direction can have on this table, so no earlier pass is needed.
        """
        low, high = direction.range(spans)
        with np.errstate(over="ignore", invalid="ignore"):
            edge = np.float64(low) + np.arange(most) * np.float64(high / most - low / most)
        if np.isfinite(edge).all() and (edge[1:] > edge[:-1]).all() and edge[-1] <= high:
            return cls(number, direction, low, high, min(most / (high * 0.5 - low * 0.5), _LARGEST), most, edge)
        return cls.ranges(number, direction, low, high, most)

    def cells(self, parts: int) -> int:
        """See Probe; an edge takes 8 bytes, in the search and in the request."""
        return self.buckets * parts + self.edge.size

    def starts(self) -> NDArray[Any]:
        """Smallest value of each bucket, [buckets]."""
        return self.edge if self.edge.size else int(self.low) + (np.arange(self.buckets) << int(self.scale))

    def ends(self) -> NDArray[Any]:
        """Largest value of each bucket, [buckets]."""
        following = self.starts()[1:]
        with np.errstate(over="ignore"):  # below the lowest number is -inf
            before = following - 1 if self.direction is None else np.nextafter(following, -np.inf)
        return np.append(before, self.high)

    def bucket(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The buckets of values of the range."""
        if self.direction is None:
            return (values.astype(np.int64) - int(self.low)) >> int(self.scale)
        return self.edge.searchsorted(values, side="right") - 1

    def within(self, bucket: int, most: int, left: Counts) -> Histogram:
        """The same for one bucket, in `most` buckets or fewer."""
        low, high = self.starts()[bucket].item(), self.ends()[bucket].item()
        return Histogram.ranges(self.number, self.direction, low, high, most, left)


def _keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of float64, consecutive for adjacent numbers."""
    bits = values.view(np.int64)
    return np.where(bits < 0, _LOWEST - bits, bits)


def _values(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(keys < 0, _LOWEST - keys, keys).view(np.float64)


@dataclass(frozen=True, slots=True)
class Collect:
    """Request the rows in the buckets that are `wanted`, bool [buckets], of `count`.

    left int64 [wanted buckets, parts]: statistics before each of them. rows: the most rows there can be.
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
    """Request the steps of features, uint32, in the node by class, int64 [features, classes]
    (kernels/oblique/mean_difference.py)."""

    features: NDArray[np.uint32]

    def cells(self, parts: int) -> int:
        """See Probe."""
        return 2 * self.features.size * parts


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """The answer to a Histogram.

    counts     int64 [buckets, parts]
    low, high  smallest value in the node, of codes that is not below the range, and largest
    mark       0 if all regression targets of the node are equal, or all projections are finite
    """

    counts: Counts
    low: float
    high: float
    mark: int = 0


# To a Collect: CollectedRows (collected_rows.py); to StepSums: the sums.
Answer = HistogramCounts | Any
