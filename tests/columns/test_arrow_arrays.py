"""Arrow arrays and numpy, as pyarrow itself turns one into the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.columns.arrow_arrays import arrow_array, as_numpy

KINDS = {
    "u8": (pa.uint8(), st.integers(0, 255)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f32": (pa.float32(), st.floats(allow_nan=False, width=32)),
    "f64": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
}


@given(st.sampled_from(list(KINDS)), st.data())
def test_as_numpy__of_any_slice(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    given_values = data.draw(st.lists(st.none() | values, max_size=40))
    begin = data.draw(st.integers(0, len(given_values)))
    stop = data.draw(st.integers(begin, len(given_values)))
    array = pa.array(given_values, kind)[begin:stop]
    wanted = [kind.to_pandas_dtype()(0) if value is None else value for value in given_values[begin:stop]]
    for column in (array, pa.chunked_array([array[:3], array[3:]])):
        found = as_numpy(column, kind.to_pandas_dtype()(0))
        assert found.dtype == kind.to_pandas_dtype() and found.tolist() == wanted
        assert not found.flags.writeable
        if column.null_count:
            with pytest.raises(ValueError, match="missing"):
                as_numpy(column)


@given(st.sampled_from(list(KINDS)), st.data())
def test_arrow_array__is_that_of_pyarrow(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    own: list[Any] = data.draw(st.lists(values, max_size=40))
    array = np.array(own, kind.to_pandas_dtype())[:: data.draw(st.sampled_from([1, 2, -1]))]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=array.size, max_size=array.size)), bool)
    for given_mask in (None, mask):
        assert arrow_array(array, mask=given_mask).equals(pa.array(array, mask=given_mask))
    assert arrow_array(pl.Series(own, dtype=pl.Float64).to_list(), pa.float64()).equals(pa.array(own, pa.float64()))


@pytest.mark.parametrize("values", [[0, 0.5], [None, 1, 2.5], [1.5, 2, None], [1, 2], [None, "a"], [True, None]])
def test_arrow_array__of_a_list_is_that_of_pyarrow(values: list[Any]) -> None:
    assert arrow_array(values).equals(pa.array(values))
