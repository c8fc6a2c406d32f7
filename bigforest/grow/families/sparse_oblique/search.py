"""A node too large for memory that splits on projections: what it asks of the next pass
(grow/out_of_core/node_search.py). It draws the directions that kernels/oblique/search.py draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.node_search import HistogramSearch, NodeSplit
from bigforest.grow.out_of_core.probes import (
    Answer,
    Direction,
    Histogram,
    HistogramCounts,
    Probe,
    Spans,
    StepSums,
    single,
)


@dataclass(slots=True)
class DirectionSearch(HistogramSearch):
    """The search for a split on a direction.

    spans       of the features
    directions  by number, that are not asked about yet
    numbers     of all directions that there may be
    fallback    features in the order in which they are drawn where no direction tells rows apart
    means       gives directions of class means from the sums of the node; None without such directions
    """

    spans: Spans
    directions: dict[int, Direction]
    numbers: int
    fallback: list[int]
    means: Callable[[NDArray[np.int64]], dict[int, Direction]] | None
    _known: dict[int, Direction] = field(default_factory=dict, init=False)  # those that have been asked about
    _usable: bool = field(default=False, init=False)

    def begin(self) -> DirectionSearch:
        """Ask the first questions."""
        if self.means is not None:
            self.pending.append(StepSums(np.arange(self.spans.low.size, dtype=np.uint32)))
        self._draw()
        return self

    def cut(self) -> NodeSplit | None:
        """See HistogramSearch."""
        cut = HistogramSearch.cut(self)
        return None if cut is None else cut._replace(direction=self._known[cut.feature])

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
                self.pending.append(Histogram.on(number, direction, self.spans, most))
                self._known[number] = direction

    def _is_usable(self, probe: Histogram, answer: HistogramCounts) -> bool:
        direction = self._known[probe.number]
        if direction.single:
            self.constant[direction.feature[0]] |= answer.low >= answer.high
        elif answer.mark:  # a row without a finite projection: it tells no rows apart
            return False
        usable = answer.low < answer.high
        self._usable |= usable
        return usable
