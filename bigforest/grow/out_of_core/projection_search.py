"""A node too large for memory that splits on projections: what it asks of the next pass (node_search.py).

It draws the directions that kernels/oblique/search.py draws, and asks for a histogram of the projections on each
(`ProjectionHistogram`). The histogram needs no look at them before: buckets of equal width over all that a direction
can come to on this table.
Where many rows fall into one of these, it is cut into ranges of equally many float64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.node_search import HistogramSearch
from bigforest.grow.out_of_core.node_stats import Counts, NodeStats
from bigforest.grow.out_of_core.probes import Answer, Histogram, HistogramCounts, Probe
from bigforest.grow.out_of_core.split_scorer import CollectedCodes, boundaries

_LARGEST = sys.float_info.max
_LOWEST = np.int64(-(2**63))
# Twice the largest relative error of one product or sum, and the error where they are next to 0.
_ROUNDED = 2.0**-51
_TINY = 5e-324


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


def single(feature: int) -> Direction:
    """A feature as a direction."""
    return Direction(np.array([feature], np.uint32), np.ones(1))


class DirectionLine(Direction):
    """A direction that is none of a feature even where it has a single one, and whose cut is the threshold itself."""

    __slots__ = ()

    @property
    def single(self) -> bool:
        """See Direction."""
        return False


class Spans(NamedTuple):
    """Smallest and largest value of every feature, float64 [features]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ProjectionHistogram:
    """Ask for class weights of the projections from low to high on a direction, see frontier.Histogram.

    edge   float64 [buckets], smallest projection of each bucket, ascending; the first is `low`
    slope  buckets per half unit where they are of equal width, else 0 (kernels/out_of_core/projections.py)
    """

    key_cells: ClassVar[int] = 1
    number: int
    direction: Direction
    low: float
    high: float
    edge: NDArray[np.float64]
    slope: float
    left: Counts | None = None

    @classmethod
    def first(cls, number: int, direction: Direction, spans: Spans, most: int) -> ProjectionHistogram:
        """All projections on a direction, in at most `most` buckets of equal width, if that can be."""
        low, high = direction.range(spans)
        with np.errstate(over="ignore", invalid="ignore"):
            edge = np.float64(low) + np.arange(most) * np.float64(high / most - low / most)
        if np.isfinite(edge).all() and (edge[1:] > edge[:-1]).all() and edge[-1] <= high:
            return cls(number, direction, low, high, edge, min(most / (high * 0.5 - low * 0.5), _LARGEST))
        return cls(number, direction, low, high, _edges(low, high, most), 0.0)

    @property
    def buckets(self) -> int:
        """See Histogram."""
        return self.edge.size

    def cells(self, parts: int) -> int:
        """See Probe; an edge takes 8 bytes, in the search and in the question."""
        return self.edge.size * (parts + 1)

    def ends(self) -> NDArray[np.float64]:
        """See Histogram."""
        with np.errstate(over="ignore"):  # below the lowest number lies -inf
            return np.append(np.nextafter(self.edge[1:], -np.inf), self.high)

    def bucket(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """See Histogram."""
        return self.edge.searchsorted(values, side="right") - 1

    def several(self) -> NDArray[np.bool_]:
        """See Histogram."""
        return self.edge < self.ends()

    def within(self, bucket: int, most: int, left: Counts) -> ProjectionHistogram:
        """See Histogram."""
        low, high = float(self.edge[bucket]), float(self.ends()[bucket])
        return ProjectionHistogram(self.number, self.direction, low, high, _edges(low, high, most), 0.0, left)

    def walk(self, keys: CollectedProjections, stats: NodeStats) -> Iterator[tuple[NDArray[np.float64], Counts]]:
        """See Histogram."""
        order = np.argsort(keys.value, kind="stable")
        value = keys.value[order]
        first = np.append(True, value[1:] != value[:-1])
        distinct = value[first]
        ranks = np.cumsum(first).astype(np.uint64) - np.uint64(1)
        sorted_keys = CollectedCodes((ranks << np.uint64(32)) | keys.tag[order], np.empty(0, np.int64))
        for codes, upto in boundaries(sorted_keys, stats):
            yield distinct[codes], upto


class CollectedProjections(NamedTuple):
    """The answer to a Collect of a Band: projections of rows, float64, and class << 16 | multiplicity, uint32."""

    value: NDArray[np.float64]
    tag: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class StepSums:
    """Ask for the steps of features, uint32, in the node by class, int64 [features, classes]
    (kernels/oblique/mean_difference.py)."""

    features: NDArray[np.uint32]

    def cells(self, parts: int) -> int:
        """See Probe."""
        return 2 * self.features.size * parts


def _edges(low: float, high: float, most: int) -> NDArray[np.float64]:
    """Low ends of at most `most` ranges of equally many float64 from low to high."""
    first, last = (int(key) for key in _keys(np.array([low, high])))
    shift = 0
    while (last - first) >> shift >= most:
        shift += 1
    steps = np.arange(((last - first) >> shift) + 1, dtype=np.uint64) << np.uint64(shift)
    return _values((steps + np.uint64(first % 2**64)).view(np.int64))


def _keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of float64, neighbours for neighbours."""
    bits = values.view(np.int64)
    return np.where(bits < 0, _LOWEST - bits, bits)


def _values(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(keys < 0, _LOWEST - keys, keys).view(np.float64)


@dataclass(slots=True)
class DirectionSearch(HistogramSearch):
    """The search for a split on a direction.

    spans       of the features
    directions  by number, that are not asked about yet
    numbers     of all directions that there may be
    fallback    features in the order in which they are drawn where no direction tells rows apart
    means       gives directions of class means from the sums of the node; None without such directions
    known       directions by number, that have been asked about
    """

    spans: Spans
    directions: dict[int, Direction]
    numbers: int
    fallback: list[int]
    means: Callable[[NDArray[np.int64]], dict[int, Direction]] | None
    known: dict[int, Direction] = field(default_factory=dict, init=False)
    _usable: bool = field(default=False, init=False)

    def begin(self) -> DirectionSearch:
        """Ask the first questions."""
        if self.means is not None:
            self.pending.append(StepSums(np.arange(self.spans.low.size, dtype=np.uint32)))
        self._draw()
        return self

    def _take(self, probe: Probe, answer: Answer) -> None:
        if isinstance(probe, StepSums):
            assert self.means is not None
            assert isinstance(answer, np.ndarray)
            self.directions = self.means(answer)
        else:
            HistogramSearch._take(self, probe, answer)

    def _draw(self) -> None:
        """Ask about all directions, and where none of them is usable about a feature, until one is."""
        self._ask(self.directions)
        self.directions = {}
        while not self.pending and not self._usable and self.fallback:
            feature = self.fallback.pop(0)
            self._ask({self.numbers + feature: single(feature)})

    def _ask(self, directions: dict[int, Direction]) -> None:
        most = self._most(self.scorer.rows)
        for number, direction in directions.items():
            if not (direction.single and self.constant[direction.feature[0]]):
                self.pending.append(ProjectionHistogram.first(number, direction, self.spans, most))
                self.known[number] = direction

    def _is_usable(self, probe: ProjectionHistogram, answer: HistogramCounts) -> bool:
        if answer.low < answer.high:
            self._usable = True
            return True
        if probe.direction.single:
            self.constant[probe.direction.feature[0]] = True
        return False


@dataclass(slots=True)
class AxisSearch(FeatureSearch):
    """The search for a split on a coordinate of a rotated table.

    spans  of the coordinates
    known  coordinates as directions, that have been asked about
    """

    spans: Spans
    known: dict[int, Direction] = field(default_factory=dict, init=False)

    def begin(self) -> AxisSearch:
        """Ask the first questions."""
        self._draw()
        return self

    def _histogram(self, feature: int, most: int) -> Histogram:
        self.known[feature] = single(feature)
        return ProjectionHistogram.first(feature, self.known[feature], self.spans, most)
