"""Requests of a node that is too large for memory to a pass over the rows, and their answers. Rows that are collected
come from the kernels, over blocks and tasks, and become the cumulative statistics at each value.

A column is a feature, with codes, or a direction, with projections, float64. All differences of the two outside of
kernels are how a histogram divides them into buckets, here, and their types (context.py ColumnKind).
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

# Twice the largest relative error of one product or sum, and the absolute error next to 0.
_ROUNDED = 2.0**-51
_TINY = 5e-324
_LOWEST = np.int64(-(2**63))
_NO_EDGE = np.empty(0)
# Rows are counted in groups of at most this many counts, to limit memory.
_CELLS = 1 << 20


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
            return -LARGEST, LARGEST
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
    left       int64 [parts] (context.py), statistics of the rows below the range; None for the first request of a
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
            return cls(number, direction, low, high, min(most / (high * 0.5 - low * 0.5), LARGEST), most, edge)
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
    mark       DIFFERS, NOT_FINITE of kernels/out_of_core/blocks.py
    """

    counts: Counts
    low: float
    high: float
    mark: int = 0


class CollectedRows(NamedTuple):
    """The rows of some Collects, one Collect after the other.

    value   [n], uint32 codes or float64 projections
    tag     uint32 [n], class << 16 | multiplicity
    number  int64 [n], their regression targets, from the node's centre and by weight; empty for classes
    ends    uint64 [collects], where the rows of each end
    """

    value: NDArray[Any]
    tag: NDArray[np.uint32]
    number: NDArray[np.int64]
    ends: NDArray[np.uint64]

    @classmethod
    def empty(cls, kind: ColumnKind, rows: int, regression: bool) -> CollectedRows:
        """Room for some rows of no Collect."""
        room = np.empty(rows, kind.dtype), np.empty(rows, np.uint32), np.empty(rows if regression else 0, np.int64)
        return cls(*room, np.empty(0, np.uint64))

    def copied(self, ends: NDArray[np.uint64]) -> CollectedRows:
        """A copy of what kernels have written up to the last of `ends`."""
        return CollectedRows._make([*(array[: int(ends[-1])].copy() for array in self[:3]), ends])

    def each(self) -> Iterator[CollectedRows]:
        """The rows of one Collect after the other, by ascending values."""
        begin = 0
        for end in self.ends.tolist():
            value, tag, number = self.value[begin:end], self.tag[begin:end], self.number[begin:end]
            if value.dtype == np.uint32 and not number.size:  # integers are sorted faster than they are ranked
                key = np.sort((value.astype(np.uint64) << np.uint64(32)) | tag)
                value, tag = (key >> np.uint64(32)).astype(np.uint32), key.astype(np.uint32)
            else:
                order = np.argsort(value, kind="stable")
                value, tag, number = value[order], tag[order], number[order] if number.size else number
            yield CollectedRows(value, tag, number, np.array([end - begin], np.uint64))
            begin = end


def joined_pieces(pieces: Sequence[CollectedRows]) -> CollectedRows:
    """The rows of all pieces, one at least, of the same Collects.

    A Collect has few rows in a block, so all of a piece are placed together. Memory: the rows twice, and 16 bytes for
    each of the largest piece; nothing for a single one.
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
    """The distinct values of the rows of a Collect, which are sorted, in pieces, and the statistics of the rows up to
    each.

    Yields values [n] and totals [n, parts] of all rows up to and with that value.
    """
    value, tag, number, _ = rows
    first = np.append(True, value[1:] != value[:-1])[: value.size]
    starts = np.append(np.flatnonzero(first), value.size)
    step = max(1, _CELLS // stats.parts)
    carried = np.zeros(stats.parts, np.int64)
    for begin in range(0, starts.size - 1, step):
        here = starts[begin : begin + step + 1]
        piece = slice(int(here[0]), int(here[-1]))
        run_counts = _counts(tag[piece], number[piece], here - here[0], stats)
        upto = carried + np.cumsum(run_counts, axis=0)
        carried = upto[-1]
        yield value[here[:-1]], upto


def _counts(
    tags: NDArray[np.uint32], numbers: NDArray[np.int64], starts: NDArray[np.int64], stats: NodeStats
) -> Counts:
    """The statistics of the rows of each run, [runs, parts]; run r is starts[r] to before starts[r + 1]."""
    runs = np.diff(starts)
    multiplicity = (tags & np.uint32(0xFFFF)).astype(np.int64)
    counts = np.zeros((runs.size, stats.parts), np.int64)
    if stats.regression:
        counts[:, WEIGHT] = np.add.reduceat(multiplicity, starts[:-1])
        counts[:, SUM] = np.add.reduceat(numbers, starts[:-1])
    else:
        np.add.at(counts, (np.repeat(np.arange(runs.size), runs), tags >> np.uint32(16)), multiplicity)
    if stats.weighted:
        counts[:, -1] = runs
    return counts


# HistogramCounts to a Histogram, CollectedRows to a Collect, the sums to StepSums, and what a family says to its own.
Answer = Any
