"""Probes, the requests of a node to a pass, and the answers to them.

    Histogram   statistics of the rows by bucket of a column    -> HistogramCounts
    Collect     the rows in some buckets of a histogram         -> CollectedRows, sorted, turned into cumulative
                                                                   statistics at each value by `boundaries`
    StepSums    sums of features by class                       -> int64 [features, classes]

A column is a feature (codes) or a direction (projections, float64). Outside of kernels they differ only in the buckets
of a Histogram and in their types (context.py ColumnKind).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.context import SUM, WEIGHT, ColumnKind, Counts, NodeStats
from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.common.layout import Terms

# Bounds of the rounding error of one product or sum: relative, four times the largest error; and absolute, near 0.
_ROUNDED = 2.0**-51
_TINY = 5e-324
_LOWEST = np.int64(-(2**63))
_NO_EDGE = np.empty(0)
# Largest number of counts that `boundaries` computes at a time, to limit memory.
_CELLS = 1 << 20


class Spans(NamedTuple):
    """Smallest and largest value of every column, float64 [columns]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Direction(NamedTuple):
    """Terms of a direction. A direction with a single term represents its feature, without the weight.

    feature  uint32 [terms], ascending
    weight   float64 [terms]
    line     True if even a single term is projected with its weight. The threshold is then the value that the search
             chose (NodeSplit.code), not the midpoint of the two neighbouring projections (families/projection.py)
    """

    feature: NDArray[np.uint32]
    weight: NDArray[np.float64]
    line: bool = False

    @property
    def is_feature(self) -> bool:
        """True if the direction represents a feature."""
        return self.feature.size == 1 and not self.line

    def range(self, spans: Spans) -> tuple[float, float]:
        """Return bounds of all finite projections, from the smallest and largest value of each feature."""
        low, high = spans.low[self.feature], spans.high[self.feature]
        if self.is_feature:
            return float(low[0]), float(high[0])
        with np.errstate(over="ignore", invalid="ignore"):
            ends = np.stack([self.weight * low, self.weight * high])
            room = (self.weight.size + 2) * (_ROUNDED * np.abs(ends).max(axis=0).sum() + _TINY)
            least, most = float(ends.min(axis=0).sum() - room), float(ends.max(axis=0).sum() + room)
        if not np.isfinite([least, most]).all():
            return -LARGEST, LARGEST
        return least, most


def feature_direction(feature: int) -> Direction:
    return Direction(np.array([feature], np.uint32), np.ones(1))


def terms_of(directions: Sequence[Direction]) -> Terms:
    """Return the terms of all directions; the weight of a single feature is 1."""
    weights = [np.ones(1) if direction.is_feature else direction.weight for direction in directions]
    return Terms(
        np.cumsum([0, *(direction.feature.size for direction in directions)]).astype(np.int64),
        np.concatenate([*(direction.feature for direction in directions), np.zeros(0, np.uint32)]).astype(np.int32),
        np.concatenate([*weights, np.zeros(0)]),
    )


class Probe(Protocol):
    """A request of a node: a class of this module, or of a family (grow/families/)."""

    def cells(self, slots: int) -> int:
        """Return the size of the answer, in counts of a histogram; slots: see NodeStats."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """A request for statistics by bucket of a column, of the rows with values from `low` up to and including `high`.

        codes         bucket = (code - low) >> scale
        projections   bucket b has the values from edge[b] to before edge[b + 1], the last one up to high

    number     number of the feature or direction
    direction  None for codes
    scale      see kernels/out_of_core/blocks.py Probes
    edge       float64 [buckets], smallest value of each bucket; empty for codes
    left       int64 [slots], statistics of the rows below the range; None for the first request of a column
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
        """Return a histogram of at most `most` buckets, all but the last with the same number of possible codes or
        floats."""
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
        """Return a histogram of all projections on a direction, in at most `most` buckets, of equal width if possible.

        The buckets cover all possible finite projections of the table, so no earlier pass has to find their range.
        """
        low, high = direction.range(spans)
        with np.errstate(over="ignore", invalid="ignore"):
            edge = np.float64(low) + np.arange(most) * np.float64(high / most - low / most)
        if np.isfinite(edge).all() and (edge[1:] > edge[:-1]).all() and edge[-1] <= high:
            return cls(number, direction, low, high, min(most / (high * 0.5 - low * 0.5), LARGEST), most, edge)
        return cls.ranges(number, direction, low, high, most)

    def cells(self, slots: int) -> int:
        # Each edge takes 8 bytes in the request, as much as a count.
        return self.buckets * slots + self.edge.size

    def starts(self) -> NDArray[Any]:
        """Return the smallest value of each bucket, [buckets]."""
        return self.edge if self.edge.size else int(self.low) + (np.arange(self.buckets) << int(self.scale))

    def ends(self) -> NDArray[Any]:
        """Return the largest value of each bucket, [buckets]."""
        following = self.starts()[1:]
        with np.errstate(over="ignore"):  # below the lowest number is -inf
            before = following - 1 if self.direction is None else np.nextafter(following, -np.inf)
        return np.append(before, self.high)

    def bucket(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bucket of each of `values`, which are in the range of the histogram."""
        if self.direction is None:
            return (values.astype(np.int64) - int(self.low)) >> int(self.scale)
        return self.edge.searchsorted(values, side="right") - 1

    def within(self, bucket: int, most: int, left: Counts) -> Histogram:
        """Return a histogram of the values of one bucket, in at most `most` buckets."""
        low, high = self.starts()[bucket].item(), self.ends()[bucket].item()
        return Histogram.ranges(self.number, self.direction, low, high, most, left)


def _keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return integers in the order of float64, consecutive for adjacent numbers."""
    bits = values.view(np.int64)
    return np.where(bits < 0, _LOWEST - bits, bits)


def _values(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(keys < 0, _LOWEST - keys, keys).view(np.float64)


@dataclass(frozen=True, slots=True)
class Collect:
    """A request for the rows in some buckets of a histogram.

    wanted  bool [buckets of `count`]
    left    int64 [wanted buckets, slots], statistics before each wanted bucket
    rows    upper bound of the number of rows
    """

    count: Histogram
    wanted: NDArray[np.bool_]
    left: Counts
    rows: int

    def cells(self, slots: int) -> int:
        return self.rows


@dataclass(frozen=True, slots=True)
class StepSums:
    """A request for the sums of features, counted in steps (kernels/oblique/mean_difference.py), by class.

    features  uint32 [features]
    """

    features: NDArray[np.uint32]

    def cells(self, slots: int) -> int:
        return 2 * self.features.size * slots


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """The answer to a Histogram.

    counts     int64 [buckets, slots]
    low, high  smallest and largest value in the node. For codes, `low` is the smallest one not below Histogram.low
    mark       DIFFERS, NOT_FINITE of kernels/out_of_core/blocks.py
    """

    counts: Counts
    low: float
    high: float
    mark: int = 0


class CollectedRows(NamedTuple):
    """Rows that were collected for some Collects, one Collect after the other.

    value   [rows], uint32 codes or float64 projections
    tag     uint32 [rows], class << 16 | multiplicity * weight; class 0 for regression
    number  int64 [rows], (regression target - centre of the node) * multiplicity * weight; empty for classes
    ends    uint64 [collects], end of the rows of each Collect
    """

    value: NDArray[Any]
    tag: NDArray[np.uint32]
    number: NDArray[np.int64]
    ends: NDArray[np.uint64]

    @classmethod
    def empty(cls, kind: ColumnKind, rows: int, regression: bool) -> CollectedRows:
        """Return buffers for some rows."""
        room = np.empty(rows, kind.dtype), np.empty(rows, np.uint32), np.empty(rows if regression else 0, np.int64)
        return cls(*room, np.empty(0, np.uint64))

    def copied(self, ends: NDArray[np.uint64]) -> CollectedRows:
        """Return a copy of the rows that a kernel has written; ends: see CollectedRows."""
        return CollectedRows._make([*(array[: int(ends[-1])].copy() for array in self[:3]), ends])

    def each(self) -> Iterator[CollectedRows]:
        """Yield the rows of each Collect, sorted by their values."""
        begin = 0
        for end in self.ends.tolist():
            value, tag, number = self.value[begin:end], self.tag[begin:end], self.number[begin:end]
            if value.dtype == np.uint32 and not number.size:  # faster than argsort
                key = np.sort((value.astype(np.uint64) << np.uint64(32)) | tag)
                value, tag = (key >> np.uint64(32)).astype(np.uint32), key.astype(np.uint32)
            else:
                order = np.argsort(value, kind="stable")
                value, tag, number = value[order], tag[order], number[order] if number.size else number
            yield CollectedRows(value, tag, number, np.array([end - begin], np.uint64))
            begin = end


def joined_pieces(pieces: Sequence[CollectedRows]) -> CollectedRows:
    """Join one or more pieces with rows of the same Collects.

    A Collect has few rows in a block, so one assignment places the rows of all Collects of a piece. Memory: a copy of
    the rows, and 16 bytes for each row of the largest piece; nothing for a single piece.
    """
    if len(pieces) == 1:
        return pieces[0]
    ends = np.stack([piece.ends for piece in pieces]).astype(np.int64)
    sizes = np.diff(ends, axis=1, prepend=0)
    stops = ends.sum(axis=0)
    begins = stops - sizes.sum(axis=0) + np.cumsum(sizes, axis=0) - sizes
    arrays = zip(*(piece[:3] for piece in pieces), strict=True)
    joined = [np.empty(sum(values.size for values in several), several[0].dtype) for several in arrays]
    for piece, begin, size, end in zip(pieces, begins, sizes, ends, strict=True):
        place = np.repeat(begin - end + size, size)
        place += np.arange(place.size)
        for out, values in zip(joined, piece[:3], strict=True):
            if out.size:
                out[place] = values
    return CollectedRows._make([*joined, stops.astype(np.uint64)])


def boundaries(rows: CollectedRows, stats: NodeStats) -> Iterator[tuple[NDArray[Any], Counts]]:
    """Yield the distinct values of the sorted rows of a Collect, in pieces, with cumulative statistics.

        value    3  3  5  8  8            values   [3, 5, 8]
        class    0  1  1  0  0            totals   [[1, 1], [1, 2], [3, 2]]

    Yields values [n], and totals int64 [n, slots]: statistics of all rows up to and including each value.
    """
    value, tag, number, _ = rows
    first = np.append(True, value[1:] != value[:-1])[: value.size]
    starts = np.append(np.flatnonzero(first), value.size)
    step = max(1, _CELLS // stats.slots)
    carried = np.zeros(stats.slots, np.int64)
    for begin in range(0, starts.size - 1, step):
        run_starts = starts[begin : begin + step + 1]
        piece = slice(int(run_starts[0]), int(run_starts[-1]))
        run_counts = _counts(tag[piece], number[piece], run_starts - run_starts[0], stats)
        upto = carried + np.cumsum(run_counts, axis=0)
        carried = upto[-1]
        yield value[run_starts[:-1]], upto


def _counts(
    tags: NDArray[np.uint32], numbers: NDArray[np.int64], starts: NDArray[np.int64], stats: NodeStats
) -> Counts:
    """Return the statistics of each run of rows, [runs, slots]; run r has the rows starts[r]:starts[r + 1]."""
    runs = np.diff(starts)
    multiplicity = (tags & np.uint32(0xFFFF)).astype(np.int64)
    counts = np.zeros((runs.size, stats.slots), np.int64)
    if stats.regression:
        counts[:, WEIGHT] = np.add.reduceat(multiplicity, starts[:-1])
        counts[:, SUM] = np.add.reduceat(numbers, starts[:-1])
    else:
        np.add.at(counts, (np.repeat(np.arange(runs.size), runs), tags >> np.uint32(16)), multiplicity)
    if stats.weighted:
        counts[:, -1] = runs
    return counts


# HistogramCounts, CollectedRows, int64 [features, classes] of StepSums, or the answer to a probe of a family.
Answer = Any
