"""Files are what other readers of Parquet expect, whatever the columns hold."""

from __future__ import annotations

import io
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.forest import chunks
from bigforest.forest.files import CHECKSUM_KEY
from bigforest.forest.parquet import TableWriter
from bigforest.forest.table import LEAF_TARGETS, NODES

BLANK = b"00000000"

FLOATS = st.floats(width=64)
WORDS = st.sampled_from(["", "a", "é", "feature 1", "x" * 40])
ELEMENTS = pa.field("element", pa.uint32(), nullable=False)
# Cells of a column of each type.
KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.uint32(), st.integers(0, 2**32 - 1) | st.integers(0, 9)),
    (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 9)),
    (pa.float64(), FLOATS),
    (pa.bool_(), st.booleans()),
    (pa.string(), WORDS),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.dictionary(pa.int8(), pa.string()), WORDS),
    (pa.dictionary(pa.int32(), pa.string()), WORDS),
    (pa.list_(ELEMENTS), st.lists(st.integers(0, 2**32 - 1), max_size=3)),
    (pa.list_(ELEMENTS), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    (pa.list_(pa.field("element", pa.string())), st.lists(st.none() | WORDS, max_size=3)),
    (
        pa.list_(pa.field("element", pa.struct([("feature", pa.string()), ("weight", pa.float64())]))),
        st.lists(st.fixed_dictionaries({"feature": WORDS, "weight": FLOATS}), max_size=3),
    ),
]


def written(tables: list[pa.Table], schema: pa.Schema) -> bytes:
    """A file of these row groups."""
    file = io.BytesIO()
    writer = TableWriter(file, schema, {CHECKSUM_KEY: BLANK})
    for table in tables:
        writer.write(table)
    writer.finish(CHECKSUM_KEY + bytes([0x18, len(BLANK)]) + BLANK)
    return file.getvalue()


def check(content: bytes, expected: pa.Table) -> None:
    """Arrow and Polars read `expected`, and the checksum is right."""
    file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    assert file.schema_arrow.equals(expected.schema)
    assert (file.schema_arrow.metadata or {}).get(b"bigforest") == (expected.schema.metadata or {}).get(b"bigforest")
    found = file.read()
    found.validate(full=True)
    assert _cells(found) == _cells(expected)
    assert _cells(pl.read_parquet(io.BytesIO(content), use_pyarrow=False).to_arrow()) == _cells(expected)
    digits = file.metadata.metadata[CHECKSUM_KEY]
    assert content.count(digits) == 1
    assert digits == b"%08x" % zlib.crc32(content.replace(digits, BLANK))


def _cells(table: pa.Table) -> str:
    """All cells as text, for NaN and the sign of zero."""
    return repr(table.to_pydict())


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    fields, arrays = [], []
    for place, (kind, cells) in enumerate(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))):
        nullable = draw(st.booleans())
        own = draw(st.sampled_from([cells, st.none() | cells, st.none()])) if nullable else cells
        values = draw(st.lists(own, min_size=rows, max_size=rows))
        fields.append(pa.field(f"column {place}.x", kind, nullable))
        if pa.types.is_dictionary(kind):
            words = sorted({value for value in values if value is not None} | {"more"})
            index = pa.array([None if value is None else words.index(value) for value in values], kind.index_type)
            arrays.append(pa.DictionaryArray.from_arrays(index, pa.array(words)))
        else:
            arrays.append(pa.array(values, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@given(tables(), st.data())
def test_table_writer__any_table_in_any_pieces(table: pa.Table, data: st.DataObject) -> None:
    edges = sorted({0, table.num_rows, *data.draw(st.lists(st.integers(0, table.num_rows), max_size=3))})
    groups = [table.slice(begin, end - begin) for begin, end in pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "PAGE_VALUES", data.draw(st.sampled_from([1, 8, 13, 1 << 16])))
        content = written(groups, table.schema)
        assert content == written([pa.concat_tables([group]).combine_chunks() for group in groups], table.schema)
    check(content, table)


def test_table_writer__no_rows() -> None:
    check(written([NODES.empty_table()], NODES), NODES.empty_table())


def test_table_writer__metadata_of_each_file() -> None:
    schemas = [NODES.with_metadata({b"bigforest": text}) for text in (b"one", b"other")]
    for schema in schemas:
        check(written([], schema), schema.empty_table())


def test_table_writer__many_rows_and_row_groups() -> None:
    random = np.random.default_rng(1)
    rows = 3 * chunks.PAGE_VALUES // 2
    there = random.random(rows) < 0.5
    fields = [pa.field("tree", pa.uint32(), nullable=False), ("x", pa.uint64()), ("threshold", pa.float64())]
    columns = [
        pa.array(np.arange(rows, dtype=np.uint32) // 50_000),
        pa.array(random.integers(0, 2**40, rows).astype(np.uint64), mask=there),
        pa.array(random.normal(size=rows), mask=there),
    ]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    content = written([table, table.slice(0, 100)], table.schema)
    file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    assert file.read().equals(pa.concat_tables([table, table.slice(0, 100)]))
    assert pl.read_parquet(io.BytesIO(content)).equals(pl.DataFrame(pl.from_arrow(file.read())))
    ranges = [file.metadata.row_group(group).column(0).statistics for group in range(2)]
    assert [(known.min, known.max) for known in ranges] == [(0, 1), (0, 0)]
    assert file.metadata.row_group(0).column(1).statistics is None


def test_table_writer__lists_of_leaves() -> None:
    cells = {"tree": [0, 0], "node": [1, 2], "targets": [[1, 5], [0]], "weights": [[1, 1], [7]]}
    check(written([pa.Table.from_pydict(cells, LEAF_TARGETS)], LEAF_TARGETS), pa.table(cells, LEAF_TARGETS))
