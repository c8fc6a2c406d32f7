"""What a node that is too large for memory asks of a pass over the rows, and what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.node_stats import Counts, NodeStats


class Probe(Protocol):
    """A question of a node: a Histogram, a Collect, or another that its family has."""

    def cells(self, parts: int) -> int:
        """Room that the answer takes, in counts of a histogram; parts: of what is counted (node_stats.py)."""


class Histogram(Probe, Protocol):
    """A question for what rows with values in a range hold, cut into buckets. Codes are values, too.

    number   of the feature or direction; decides between equal splits.
    buckets  how many.
    left     int64 [parts] (node_stats.py), what rows below the range hold; None for what is looked at the first time.

    key_cells  `Probe.cells` of a row that is collected.
    """

    key_cells: ClassVar[int]

    @property
    def number(self) -> int: ...
    @property
    def buckets(self) -> int: ...
    @property
    def left(self) -> Counts | None: ...

    def ends(self) -> NDArray[Any]:
        """Largest value of each bucket, [buckets]."""

    def bucket(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The buckets of values of the range."""

    def several(self) -> NDArray[np.bool_]:
        """Whether a bucket is of more than one value, [buckets]."""

    def within(self, bucket: int, most: int, left: Counts) -> Histogram:
        """The same for one bucket, in `most` buckets or fewer."""

    def walk(self, keys: Any, stats: NodeStats) -> Iterator[tuple[NDArray[Any], Counts]]:
        """The distinct values of collected rows in ascending pieces, and what is up to each; see `boundaries`."""


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
        return self.count.key_cells * self.rows


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """The answer to a Histogram.

    counts     int64 [buckets, parts]
    low, high  smallest and largest value in the node
    alike      whether all numbers to predict of the node are the same
    """

    counts: Counts
    low: float
    high: float
    alike: bool = False


# To a Collect: what `Histogram.walk` takes.
Answer = HistogramCounts | Any
