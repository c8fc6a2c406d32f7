"""Levels survive their file, and a file that is not theirs is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigforest.columns.dataspec import DataSpec, FeatureSpec, TargetSpec
from bigforest.errors import FormatError, damaged_store
from bigforest.store import levels
from bigforest.store.levels import LEVELS, LevelsFile, checked_levels, level_tables, read_levels

NAMES = {
    0: pl.Series(["", "a", "b", "ä"]),
    2: pl.Series(["false", "true"]),
    3: pl.Series(["-10", "-9", "0", "9", "10", str(2**100)]),
}
SPEC = DataSpec(
    10,
    0,
    (
        FeatureSpec("text", "category", "String", 5, 1, 0, missing=True),
        FeatureSpec("number", "numeric", "Float64", 3, 1, 1),
        FeatureSpec("flag", "category", "Boolean", 2, 1, 2),
        FeatureSpec("whole", "category", "Int128", 7, 1, 3, missing=True),
        FeatureSpec("none", "category", "Enum", 1, 1, 4, missing=True),
    ),
    TargetSpec("y", "Boolean", (False, True)),
)


def table() -> pa.Table:
    """What levels.parquet holds."""
    first = {0: 1, 2: 0, 3: 1}
    return pa.concat_tables(
        piece for feature, names in NAMES.items() for piece in level_tables(feature, first[feature], names)
    )


@pytest.mark.parametrize("rows", [1, 3, 1 << 16])
def test_levels__survive_their_file(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "GROUP_LEVELS", rows)
    file = LevelsFile(tmp_path / "levels.parquet")
    file.add(checked_levels(table(), SPEC, tmp_path, damaged_store).tables(SPEC))
    file.close()
    assert pq.ParquetFile(tmp_path / "levels.parquet").num_row_groups == sum(-(-len(n) // rows) for n in NAMES.values())
    found = read_levels(tmp_path / "levels.parquet", SPEC)
    for feature in range(5):
        assert found.of(feature).to_list() == (NAMES[feature].to_list() if feature in NAMES else [])
    assert pl.from_arrow(table()).rows()[:6] == [(0, 1, ""), (0, 2, "a"), (0, 3, "b"), (0, 4, "ä"), *_FLAG]  # type: ignore[union-attr]


_FLAG = [(2, 0, "false"), (2, 1, "true")]


def test_levels__none_is_no_file(tmp_path: Path) -> None:
    file = LevelsFile(tmp_path / "levels.parquet")
    file.add([])
    assert file.close() is None
    assert not (tmp_path / "levels.parquet").exists()


def changed(column: str, row: int, value: object) -> pa.Table:
    """The table with another value in one cell."""
    cells = table()[column]
    type_ = cells.type
    new = pa.chunked_array([cells[:row].combine_chunks(), pa.array([value], type_), cells[row + 1 :].combine_chunks()])
    return table().set_column(LEVELS.get_field_index(column), LEVELS.field(column), new)


DAMAGE: dict[str, Callable[[], pa.Table]] = {
    "a level less": lambda: table().slice(1),
    "a level more": lambda: pa.concat_tables([table(), table().slice(11)]),
    "another feature": lambda: changed("feature", 4, 1),
    "another code": lambda: changed("code", 0, 0),
    "the same level twice": lambda: changed("level", 2, "a"),
    "text out of order": lambda: changed("level", 3, "aa"),
    "no boolean": lambda: changed("level", 5, "yes"),
    "numbers in the order of text": lambda: changed("level", 9, "11"),
    "no number": lambda: changed("level", 8, "nought"),
    "a number in other words": lambda: changed("level", 8, "-0"),
    "null": lambda: changed("level", 8, None),
    "other columns": lambda: table().rename_columns(["feature", "code", "name"]),
    "other types": lambda: table().cast(
        pa.schema([("feature", pa.int64()), ("code", pa.uint32()), ("level", pa.string())])
    ),
}


def test_levels__bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    level = table()["level"].combine_chunks()
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    level = pa.chunked_array([level[:3], broken, level[4:]])
    with pytest.raises(FormatError, match="invalid text"):
        checked_levels(table().set_column(2, LEVELS.field(2), level), SPEC, tmp_path, damaged_store)


@pytest.mark.parametrize("case", DAMAGE)
def test_levels__damage_is_refused(case: str, tmp_path: Path) -> None:
    checked_levels(table(), SPEC, tmp_path, damaged_store)
    with pytest.raises(FormatError, match=f"{tmp_path}: .*; the store is damaged: encode the table again"):
        checked_levels(DAMAGE[case](), SPEC, tmp_path, damaged_store)


def test_levels__no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "levels.parquet").write_bytes(b"levels")
    with pytest.raises(FormatError, match=r"levels\.parquet: not readable Parquet"):
        read_levels(tmp_path / "levels.parquet", SPEC)
