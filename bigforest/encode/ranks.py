"""Presorting one column: its distinct values in ascending order, and every cell's rank among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGIT_BITS = 16

Keys = NDArray[np.unsignedinteger[Any]]


def dense_ranks(values: NDArray[Any]) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[Any]]:
    """Ranks of `values` among their distinct values, from 0, and those values in ascending order.

    values      [rows], at least one row, integers or float32 or float64 without NaN. Not changed.
    returns     ranks [rows], unsigned, and distinct [codes] of the type of `values`: distinct[ranks] equals
                values. -0.0 and 0.0 are one value, written 0.0; infinities are values like any other.

    Anonymous memory: at most 40 bytes per row, `values` included. Oracle: tests/naive/encode.py.
    """
    keys, bits = _ordered_keys(values)
    if bits <= DIGIT_BITS:
        ranks, distinct = _ranks_by_counting(values, keys, bits)
    else:
        order = _ascending_order(keys, bits)
        first = _first_of_equals(keys, order)
        del keys
        ranks, distinct = _ranks_by_order(order, first), values.take(order[first])
    if distinct.dtype.kind == "f":
        distinct += distinct.dtype.type(0.0)
    return ranks, distinct


def quantile_bins(counts: NDArray[np.int64], max_bins: int) -> NDArray[np.int64]:
    """Bin of every distinct value when at most `max_bins` bins are wanted, of about equally many rows each.

    counts   [codes] rows per distinct value, in ascending order of the values, all positive.
    returns  [codes] ascending bins from 0 without gaps; every value its own when there are few enough.

    A value falls in the bin in which the middle one of its rows lies. This depends on the values and their
    counts only, never on how the table was cut into pieces. A value more frequent than a whole bin leaves the
    bins it covers unused.
    """
    if len(counts) <= max_bins:
        return np.arange(len(counts), dtype=np.int64)
    upto = np.cumsum(counts)
    wanted = (2 * upto - counts) * max_bins // (2 * upto[-1])
    return np.cumsum(np.diff(wanted, prepend=wanted[0]) > 0, dtype=np.int64)


def _ordered_keys(values: NDArray[Any]) -> tuple[Keys, int]:
    """Unsigned keys from 0 on, ordered and equal as the values are, and the bits the largest of them needs.

    The bits of a positive float are ordered as the floats are, and of two negative ones the other way round:
    with the magnitude subtracted from the lowest integer all are in order, and -0.0 meets 0.0. Trailing bits
    that no key uses (a float32 kept as float64, thousands) are shifted away.
    """
    if values.dtype.kind == "f":
        integer = np.dtype(f"i{values.dtype.itemsize}")
        raw = values.view(integer)
        signed = np.where(raw < 0, integer.type(np.iinfo(integer).min) - raw, raw)
        signed -= signed.min()
    else:
        signed = values - values.min()  # wraps around for wide ranges, which the unsigned view undoes
    keys = signed.view(f"u{signed.dtype.itemsize}")
    used = int(np.bitwise_or.reduce(keys))
    shift = max((used & -used).bit_length() - 1, 0)
    if shift:
        keys >>= keys.dtype.type(shift)
    return keys, used.bit_length() - shift


# numpy gathers and scatters by arrays of its own index type three times as fast as by others, and `take`
# converts.


def _ranks_by_counting(values: NDArray[Any], keys: Keys, bits: int) -> tuple[Keys, NDArray[Any]]:
    """Ranks through a table of all possible keys: about 3 ns per row for keys of up to 16 bits."""
    index = keys.astype(np.intp)
    value_of = np.empty(1 << bits, values.dtype)
    value_of[index] = values
    present = np.zeros(1 << bits, np.bool_)
    present[index] = True
    distinct = value_of[present]
    rank_of = np.cumsum(present, dtype=np.uint32) - np.uint32(1)
    ranks: Keys = rank_of.astype(np.min_scalar_type(len(distinct) - 1)).take(index)
    return ranks, distinct


def _ascending_order(keys: Keys, bits: int) -> NDArray[Any]:
    """The rows in ascending order of their keys, equal ones as they stand, found digit by digit from the lowest.

    numpy sorts 16-bit integers in linear time when asked for a stable sort. With 200,000 random float64 values
    the ranks take 7 ms so, against 16 by argsort of the values (whose vector instructions help on some processors
    only), 19 by Polars' rank and 44 by sorting and searching. From some millions of rows on, all but the last are
    equally slow, waiting for memory.
    """
    rows = len(keys)
    order = np.arange(rows, dtype=np.min_scalar_type(rows - 1))
    for shift in range(0, bits, DIGIT_BITS):
        digit = (keys >> keys.dtype.type(shift)).astype(np.uint16).take(order)
        order = order.take(np.argsort(digit, kind="stable"))
    return order


def _first_of_equals(keys: Keys, order: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row, taken in ascending order, has another key than the one before it."""
    ascending = keys.take(order)
    first = np.empty(len(order), np.bool_)
    first[0] = True
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return first


def _ranks_by_order(order: NDArray[Any], first: NDArray[np.bool_]) -> Keys:
    """Ranks of the rows, of the type of the row numbers, which is wide enough."""
    running = np.cumsum(first, dtype=order.dtype)
    running -= running.dtype.type(1)
    ranks: Keys = np.empty_like(order)
    ranks[order.astype(np.intp)] = running
    return ranks
