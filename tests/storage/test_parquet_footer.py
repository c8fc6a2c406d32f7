"""What the footer of a Parquet file says: as Arrow reads it, and nothing but ValueError where it is damaged."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigforest.storage.parquet_footer import row_groups
from tests.thorough import examples


def table() -> pl.DataFrame:
    """Columns of many types, some nested, with missing values."""
    number = pl.Series("a", [None if n % 5 == 0 else n - 20 for n in range(60)])
    day = datetime.date(2020, 1, 1)
    return pl.DataFrame(
        {
            "a": number.cast(pl.Int8),
            "b": number.cast(pl.Int64) * 10**15,
            "c": (number + 20).cast(pl.UInt32) + 2**31,
            "d": number.cast(pl.Float64),
            "e": number.cast(pl.String),
            "f": [day + datetime.timedelta(days=n) for n in range(60)],
            "g": [n % 2 == 0 for n in range(60)],
            "h": [[n] * (n % 3) for n in range(60)],
            "i.j": [{"k": n, "l": str(n)} for n in range(60)],
            "m": [None] * 60,
        }
    )


def write(path: Path, kind: str) -> None:
    if kind == "polars":
        table().write_parquet(path, row_group_size=25)
    elif kind == "silent":
        table().write_parquet(path, statistics=False)
    else:
        arrow = table().to_arrow(compat_level=pl.CompatLevel.oldest())
        pq.write_table(arrow, path, row_group_size=7, version="1.0" if kind == "old" else "2.6", write_page_index=True)


@pytest.mark.parametrize("kind", ["polars", "silent", "arrow", "old"])
def test_row_groups__are_those_of_arrow(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "t.parquet", kind)
    known, found = pq.read_metadata(tmp_path / "t.parquet"), row_groups(tmp_path / "t.parquet")
    assert len(found) == known.num_row_groups
    for number, chunks in enumerate(found):
        assert len(chunks) == known.num_columns
        for place, chunk in enumerate(chunks):
            column = known.row_group(number).column(place)
            said = column.statistics
            assert (chunk.name, chunk.values) == (column.path_in_schema, column.num_values)
            assert chunk.nulls == (said.null_count if said is not None and said.has_null_count else None)
            if said is not None and said.has_min_max and type(said.min) is int:
                size = 4 if column.physical_type == "INT32" else 8
                assert chunk.low == (said.min % 2 ** (8 * size)).to_bytes(size, "little")
                assert chunk.high == (said.max % 2 ** (8 * size)).to_bytes(size, "little")
    if kind == "silent":
        assert {(chunk.nulls, chunk.low, chunk.high) for chunk in found[0]} == {(None, None, None)}


def test_row_groups__of_a_table_without_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int8())}), tmp_path / "t.parquet")
    assert sum(len(group) for group in row_groups(tmp_path / "t.parquet")) <= 1


def test_row_groups__of_damaged_footers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, "arrow")
    sound, draw, refused = path.read_bytes(), random.Random(3), 0
    length = int.from_bytes(sound[-8:-4], "little")
    cases = examples(1_500)
    for case in range(cases):
        content = bytearray(sound)
        for _ in range(draw.randint(1, 4)):
            content[len(sound) - 8 - draw.randrange(length) - 1] = draw.randrange(256)
        path.write_bytes(content[: draw.randrange(len(sound))] if case % 10 == 0 else content)
        try:
            row_groups(path)
        except ValueError:
            refused += 1
    assert refused > cases / 5


@pytest.mark.parametrize("footer", [b"\x1c" * 5_000, b""], ids=["deep", "longer than the file"])
def test_row_groups__of_impossible_footers(tmp_path: Path, footer: bytes) -> None:
    """Structures within structures, and a length of a footer that would begin before the file."""
    length = len(footer) or 4
    (tmp_path / "t.parquet").write_bytes(footer + length.to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"footer is damaged|does not end as a Parquet file"):
        row_groups(tmp_path / "t.parquet")
