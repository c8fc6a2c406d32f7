"""The dictionary of a feature, written while its distinct values are found in ascending order, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.encode.sortable_keys import Absent, Keys, Scale, in_chunks, with_gaps
from bigforest.kernels.presort.ranking import Bins, find_bins
from bigforest.schema.dataspec import MAX_CODES
from bigforest.store.writer import PartWriter

_NOTHING = np.empty(0, np.uint64)


def check_codes(name: str, codes: int) -> None:
    """Raise DataError when a feature has more values than codes can tell apart."""
    if codes > MAX_CODES:
        raise DataError(
            f"feature {name!r} has more than {MAX_CODES} distinct values, which codes of 32 bits cannot tell apart; "
            "round it or exclude it"
        )


class DictionaryWriter:
    """Takes the distinct offsets of a column, ascending, and writes their values as those of its codes.

    Without max_bins they are written as they come; with it, when all are known: until then there is no telling whether
    every value has a code of its own. Memory is then in proportion to max_bins, never to the values.
    """

    def __init__(
        self,
        name: str,
        scale: Scale,
        bins: Bins,
        part: PartWriter,
        *,
        missing: bool = False,
        last: NDArray[np.uint64] = _NOTHING,
    ) -> None:
        """missing: whether code 0 is that of rows without a value. last: the offset below all that will come, [0 or
        1]."""
        self.ranks = 0
        self.scale = scale
        self.bins = bins
        self.missing = missing
        self._name = name
        self._part = part
        self._last = last  # the largest offset so far
        most = len(bins.last)
        self._first = np.empty(most, np.uint64)  # the first distinct offsets, as many as codes are allowed
        self._low = np.empty(most, np.uint64)  # smallest and largest offset of each bin
        self._high = np.empty(most, np.uint64)
        if missing:
            nothing = np.array([np.nan])
            part.values(nothing, nothing if most else None)

    def add(self, offsets: NDArray[np.uint64]) -> None:
        """Add the next distinct offsets, which the bins have already.

        Raises DataError when there are too many, or two of them are the same float64.
        """
        check_codes(self._name, self.ranks + len(offsets) + self.missing)
        if self.scale.crowded:
            self._check_apart(offsets)
        if len(self._first):
            self._put(self._first, np.arange(len(self._first)), offsets)
            last = self.bins.last[: int(self.bins.state[0])].astype(np.int64)
            self._put(self._high, last, offsets)
            self._put(self._low, np.append(0, last[:-1] + 1), offsets)
        else:
            self._write(offsets)
        self.ranks += len(offsets)

    def finish(self) -> None:
        """Write what has waited."""
        if self.binned:
            used = int(self.bins.state[0])
            self._part.values(self.scale.values(self._low[:used]), self.scale.values(self._high[:used]))
        elif len(self._first):
            values = self.scale.values(self._first[: self.ranks])
            self._part.values(values, values)

    @property
    def binned(self) -> bool:
        """Whether the values are more than codes are allowed."""
        return 0 < len(self._first) < self.ranks

    def codes(self, ranks: Iterator[tuple[Keys, Absent | None]]) -> Iterator[Keys]:
        """The codes of cells, piece by piece; to be called when all values are known.

        ranks  those of the cells of each piece that have a value, and which cells have none.
        """
        last = self.bins.last[: int(self.bins.state[0])]
        for piece, absent in ranks:
            codes: Keys = piece
            if self.binned:
                codes = np.empty(len(piece), np.uint32)
                find_bins(piece, last, codes)
            yield with_gaps(codes, absent) if self.missing else codes

    def _put(self, place: NDArray[np.uint64], ranks: NDArray[np.int64], offsets: NDArray[np.uint64]) -> None:
        """place[i] = the offset of ranks[i], ascending, where that rank is among the ones just found."""
        begin, end = np.searchsorted(ranks, [self.ranks, self.ranks + len(offsets)])
        place[begin:end] = offsets[ranks[begin:end] - self.ranks]

    def _check_apart(self, offsets: NDArray[np.uint64]) -> None:
        """Raise DataError when neighbouring values are one in float64, so that no threshold lies between them."""
        for chunk in in_chunks(offsets):
            found = np.concatenate([self._last, chunk])
            values = self.scale.values(found)
            same = np.flatnonzero(values[1:] == values[:-1])
            if len(same):
                pair = self.scale.integers(found[same[0] : same[0] + 2]).tolist()
                one, two = (Decimal(number) / self.scale.divisor for number in pair)
                raise DataError(
                    f"feature {self._name!r} holds {one} and {two}, which are the same number in float64, where "
                    "thresholds are: subtract a constant, use a coarser unit, or exclude it"
                )
            self._last = found[-1:]

    def _write(self, offsets: NDArray[np.uint64]) -> None:
        for chunk in in_chunks(offsets):
            self._part.values(self.scale.values(chunk), None)
