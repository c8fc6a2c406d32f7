"""From Arrow to Polars, with bytes that nobody has looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from bigforest.errors import DataError
from bigforest.storage.arrow import frame_of

# Views of 16 bytes: a length, then up to 12 bytes of text, or the place of a longer one.
SHORT, ASTRAY, NEGATIVE = (3, 0x616161, 0, 0), (100, 7, 99, 12_345_678), (-(2**31), 0, 0, 0)


def views(*, of_bytes: bool = False) -> pa.Array:
    """A text, two missing ones whose views lead nowhere, and a text; the rest of an array with one more before them."""
    data = np.array([SHORT, SHORT, ASTRAY, NEGATIVE, SHORT], np.int32)
    buffers = [pa.py_buffer(bytes([0b10011])), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view() if of_bytes else pa.string_view(), 5, buffers)[1:]


KINDS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "plain": lambda text: text,
    "in a struct": lambda text: pa.StructArray.from_arrays([text], ["a"], mask=pa.array([False] * 3 + [True])),
    "in lists": lambda text: pa.ListArray.from_arrays([0, 1, 3, 4], text),
    "in large lists": lambda text: pa.LargeListArray.from_arrays([0, 1, None, 4], text),
    "in arrays": lambda text: pa.FixedSizeListArray.from_arrays(text, 2),
    "in a dictionary": lambda text: pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 3]), text),
    "deep": lambda text: pa.ListArray.from_arrays([0, 1, 4], pa.StructArray.from_arrays([text], ["a"])),
}


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_frame_of__missing_text_whose_view_leads_nowhere(kind: str, begin: int) -> None:
    """Polars ends the process where it follows one."""
    column = KINDS[kind](views())[begin:]
    found = frame_of(pa.table({"t": column}), "t")
    sound = KINDS[kind](pa.array(["aaa", None, None, "aaa"]))[begin:]
    assert found["t"].to_list() == sound.to_pylist()
    assert found.write_ipc(None).getbuffer()


def test_frame_of__missing_bytes_whose_view_leads_nowhere() -> None:
    assert frame_of(pa.table({"t": views(of_bytes=True)}), "t")["t"].to_list() == [b"aaa", None, None, b"aaa"]


def test_frame_of__keeps_what_polars_has_written() -> None:
    text = pl.Series(["u", None, "a text of more than twelve bytes"])
    levels = pl.Enum(["v", "u", "a text of more than twelve bytes"])
    frame = pl.DataFrame({"text": text, "enum": text.cast(levels), "category": text.cast(pl.Categorical)})
    frame = frame.with_columns(pair=pl.struct("text", "enum"))
    for table in (frame.to_arrow(), frame.to_arrow().to_batches()[0]):
        assert_frame_equal(frame_of(table, "t"), frame)


def test_frame_of__intervals_are_durations() -> None:
    """DuckDB has intervals for the differences of times."""
    parts = [(0, 1, 5_000), None, (0, -3, -2_000), (0, 0, 86_400 * 10**9), (0, 10**8, 0)]
    lengths = [86_400_000_005, None, -3 * 86_400_000_000 - 2, 86_400_000_000, 10**8 * 86_400_000_000]
    intervals = pa.array(parts, pa.month_day_nano_interval())
    for column in (intervals[1:], pa.chunked_array([intervals[:1], intervals[1:2], intervals[2:]])):
        found = frame_of(pa.table({"t": column}), "t")["t"]
        assert found.dtype == pl.Duration("us") and found.to_physical().to_list() == lengths[-len(column) :]
    for other in ((1, 0, 0), (0, 0, 1), (0, 10**8 + 1, 0)):
        table = pa.table({"t": pa.array([*parts, other], pa.month_day_nano_interval())})
        with pytest.raises(DataError, match=r"the table: column 't' cannot be read .*intervals of months"):
            frame_of(table, "the table")
        assert frame_of(table, "the table", lambda name: name != "t")["t"].null_count() == 6
