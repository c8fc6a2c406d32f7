"""The values of columns with many distinct values, by columns, for projections.

Codes of four bytes have a large dictionary, so looking up a value misses the core's cache: 5 to 10 ns a row. Reading
values stored in the order of the rows takes 0.5 to 2.5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import Codes

# Dictionaries of narrower codes mostly stay in the cache.
WIDE_CODE = 4
# Values of a dictionary read at a time.
_CHUNK = 1 << 16


class DecodedColumns(NamedTuple):
    """Values of the rows of the columns with codes of WIDE_CODE bytes.

    f32    float32 [columns whose values are all float32, rows]
    f64    float64 [other columns, rows]
    place  uint32 [features, 2]: bytes of a value and row in the matrix of that width; 0 bytes where values are looked
           up
    """

    f32: NDArray[np.float32]
    f64: NDArray[np.float64]
    place: NDArray[np.uint32]


def no_decoded_columns(features: int) -> DecodedColumns:
    """Return DecodedColumns without columns, for `features` features: all values are looked up."""
    return DecodedColumns(np.empty((0, 0), np.float32), np.empty((0, 0)), np.zeros((features, 2), np.uint32))


def empty_decoded_columns(codes: Codes, offsets: NDArray[np.int64], low: NDArray[np.float64]) -> DecodedColumns:
    """Allocate space for the values of a table; feature f has the values of low[offsets[f]:offsets[f + 1]]."""
    place = no_decoded_columns(codes.place.shape[0]).place
    columns = {4: 0, 8: 0}
    for feature in np.flatnonzero(codes.place[:, 0] == WIDE_CODE).tolist():
        width = 4 if is_float32(low[offsets[feature] : offsets[feature + 1]]) else 8
        place[feature] = width, columns[width]
        columns[width] += 1
    rows = codes.u32.shape[1]
    return DecodedColumns(np.empty((columns[4], rows), np.float32), np.empty((columns[8], rows)), place)


def fill_decoded_columns(
    codes: Codes, offsets: NDArray[np.int64], low: NDArray[np.float64], wide: DecodedColumns, start: int, stop: int
) -> None:
    """Write the values of the rows from `start` to before `stop`; about 5 ns each."""
    for feature in np.flatnonzero(wide.place[:, 0]).tolist():
        width, slot = wide.place[feature].tolist()
        column = codes.u32[codes.place[feature, 1], start:stop]
        values = low[offsets[feature] : offsets[feature + 1]]
        (wide.f32 if width == 4 else wide.f64)[slot, start:stop] = values.take(column)


def is_float32(values: NDArray[np.float64]) -> bool:
    """Return whether float32 represents all values, float64 [values], exactly. Reads chunks, as the array may be
    mapped."""
    chunks = (values[first : first + _CHUNK] for first in range(0, values.size, _CHUNK))
    with np.errstate(over="ignore"):
        return all((chunk.astype(np.float32) == chunk).all() for chunk in chunks)
