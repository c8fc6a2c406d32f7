"""Rows of a node that a pass has collected: from the kernels, over blocks and tasks, to the cumulative statistics at
each value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.node_stats import SUM, WEIGHT, Counts, NodeStats
from bigforest.grow.out_of_core.probes import ColumnKind

# Rows are counted in groups of at most this many counts, to limit memory.
_CELLS = 1 << 20


class CollectedRows(NamedTuple):
    """Rows that were collected.

    value   [n], uint32 codes or float64 projections
    tag     uint32 [n], class << 16 | multiplicity
    number  int64 [n], their regression targets, from the node's centre and by weight; empty for classes
    """

    value: NDArray[Any]
    tag: NDArray[np.uint32]
    number: NDArray[np.int64]

    @classmethod
    def empty(cls, kind: ColumnKind, rows: int, numbers: bool) -> CollectedRows:
        """Room for some rows."""
        return cls(np.empty(rows, kind.dtype), np.empty(rows, np.uint32), np.empty(rows if numbers else 0, np.int64))

    def sorted(self) -> CollectedRows:
        """The same by ascending values."""
        if self.value.dtype == np.uint32 and not self.number.size:  # integers are sorted faster than they are ranked
            key = np.sort((self.value.astype(np.uint64) << np.uint64(32)) | self.tag)
            return CollectedRows((key >> np.uint64(32)).astype(np.uint32), key.astype(np.uint32), self.number)
        order = np.argsort(self.value, kind="stable")
        number = self.number[order] if self.number.size else self.number
        return CollectedRows(self.value[order], self.tag[order], number)


class Runs(NamedTuple):
    """The rows of some Collects, one Collect after the other: those of Collect c are before ends[c], int64."""

    rows: CollectedRows
    ends: NDArray[np.int64]

    @classmethod
    def copied(cls, rows: CollectedRows, ends: NDArray[np.uint64]) -> Runs:
        """A copy of what kernels have written up to the last of `ends`."""
        return cls(CollectedRows._make(array[: int(ends[-1])].copy() for array in rows), ends.astype(np.int64))

    def of(self, number: int) -> CollectedRows:
        """The rows of one Collect."""
        here = slice(int(self.ends[number - 1]) if number else 0, int(self.ends[number]))
        return CollectedRows._make(array[here] for array in self.rows)


def gathered(pieces: Sequence[Runs]) -> Runs:
    """The rows of all pieces, one at least. A Collect has few rows in a block, so all are handled together."""
    ends = np.stack([piece.ends for piece in pieces])
    sizes = np.diff(ends, axis=1, prepend=0)
    stops = np.cumsum(sizes.sum(axis=0))
    begins = stops - sizes.sum(axis=0) + np.cumsum(sizes, axis=0) - sizes
    several = list(zip(*(piece.rows for piece in pieces), strict=True))
    arrays = [np.empty(sum(array.size for array in own), own[0].dtype) for own in several]
    for number, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        place = np.arange(ends[number, -1]) + np.repeat(begin - ends[number] + size, size)
        for out, own in zip(arrays, several, strict=True):
            if out.size:
                out[place] = own[number]
    return Runs(CollectedRows(*arrays), stops)


def each_collect(several: Sequence[Runs]) -> Iterator[CollectedRows]:
    """The rows of one Collect after the other, those of all runs together."""
    for number in range(several[0].ends.size if several else 0):
        arrays = zip(*(runs.of(number) for runs in several), strict=True)
        yield CollectedRows._make(np.concatenate(own) for own in arrays)


def boundaries(rows: CollectedRows, stats: NodeStats) -> Iterator[tuple[NDArray[Any], Counts]]:
    """The distinct values of collected rows in ascending pieces, and the statistics of the rows up to each.

    Yields values [n] and totals [n, parts] of all rows up to and with that value.
    """
    value, tag, number = rows.sorted()
    first = np.append(True, value[1:] != value[:-1])[: value.size]
    starts = np.append(np.flatnonzero(first), value.size)
    step = max(1, _CELLS // stats.parts)
    carried = np.zeros(stats.parts, np.int64)
    for begin in range(0, starts.size - 1, step):
        here = starts[begin : begin + step + 1]
        piece = slice(int(here[0]), int(here[-1]))
        held = _held(tag[piece], number[piece], here - here[0], stats)
        upto = carried + np.cumsum(held, axis=0)
        carried = upto[-1]
        yield value[here[:-1]], upto


def _held(tags: NDArray[np.uint32], numbers: NDArray[np.int64], starts: NDArray[np.int64], stats: NodeStats) -> Counts:
    """The statistics of the rows of each run, [runs, parts]; run r is starts[r] to before starts[r + 1]."""
    runs = np.diff(starts)
    multiplicity = (tags & np.uint32(0xFFFF)).astype(np.int64)
    held = np.zeros((runs.size, stats.parts), np.int64)
    if stats.numbers:
        held[:, WEIGHT] = np.add.reduceat(multiplicity, starts[:-1])
        held[:, SUM] = np.add.reduceat(numbers, starts[:-1])
    else:
        np.add.at(held, (np.repeat(np.arange(runs.size), runs), tags >> np.uint32(16)), multiplicity)
    if stats.weighted:
        held[:, -1] = runs
    return held
