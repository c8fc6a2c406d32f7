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
    joined = [np.empty(sum(own.size for own in several), several[0].dtype) for several in arrays]
    for piece, begin, size, end in zip(pieces, begins, sizes, ends, strict=True):
        place = np.repeat(begin - end + size, size)
        place += np.arange(place.size)
        for out, own in zip(joined, piece[:3], strict=True):
            if out.size:
                out[place] = own
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
        held = _held(tag[piece], number[piece], here - here[0], stats)
        upto = carried + np.cumsum(held, axis=0)
        carried = upto[-1]
        yield value[here[:-1]], upto


def _held(tags: NDArray[np.uint32], numbers: NDArray[np.int64], starts: NDArray[np.int64], stats: NodeStats) -> Counts:
    """The statistics of the rows of each run, [runs, parts]; run r is starts[r] to before starts[r + 1]."""
    runs = np.diff(starts)
    multiplicity = (tags & np.uint32(0xFFFF)).astype(np.int64)
    held = np.zeros((runs.size, stats.parts), np.int64)
    if stats.regression:
        held[:, WEIGHT] = np.add.reduceat(multiplicity, starts[:-1])
        held[:, SUM] = np.add.reduceat(numbers, starts[:-1])
    else:
        np.add.at(held, (np.repeat(np.arange(runs.size), runs), tags >> np.uint32(16)), multiplicity)
    if stats.weighted:
        held[:, -1] = runs
    return held
