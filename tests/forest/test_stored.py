"""Forests of every format that was released are read, and answer as they did."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import FormatError
from bigforest.forest.files import VERSION
from tests.forest.make_stored import KINDS, STORED, answers, rows_of

# Formats before the first release: no bigforest that anybody installed wrote them. Of format 1 nothing is left.
UNRELEASED = 2
FOLDERS = sorted(set(STORED.glob("format-*/*/")) - set(STORED.glob(f"format-{UNRELEASED}/*/")))


def test_stored__has_every_format_from_the_first_released() -> None:
    found = {folder.parent.name for folder in FOLDERS}
    assert found == {f"format-{version}" for version in range(UNRELEASED + 1, VERSION + 1)}
    assert {folder.name for folder in FOLDERS if folder.parent.name == f"format-{VERSION}"} == set(KINDS)


@pytest.mark.parametrize("folder", FOLDERS, ids=[f"{folder.parent.name}-{folder.name}" for folder in FOLDERS])
def test_stored_forest__answers_as_it_did(folder: Path, tmp_path: Path) -> None:
    forest = bf.read_forest(folder)
    forest.check()
    known = pl.read_parquet(folder.with_suffix(".parquet"))
    rows = rows_of(folder.name, known)
    expected = known.drop(rows.columns)
    assert answers(forest, rows).equals(expected)
    assert forest.trees == 5 and forest.nodes.select(pl.len()).collect().item() > 15
    assert forest.oob.error >= 0 and forest.feature_importances.size == rows.width
    forest.write(tmp_path / "copy")
    assert answers(bf.read_forest(tmp_path / "copy"), rows).equals(expected)


def test_format_before_the_first_release__is_refused_in_a_line() -> None:
    with pytest.raises(FormatError, match=r"has format version 2, of an older bigforest, .*; train it again") as told:
        bf.read_forest(STORED / f"format-{UNRELEASED}" / "classes")
    assert "\n" not in str(told.value)
