"""Rows that equal an earlier row are reported: a copy of a row out of bag may be in the bag."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.encode.rows import notice_repeats
from bigforest.events import Notice
from tests.encode.test_encode import encoded


def table(rows: int, width: int = 5) -> pl.DataFrame:
    """Rows of few values in each column, which are all different together."""
    cells = np.random.default_rng(1).integers(0, 9, (2 * rows, width))
    names = [f"x{place}" for place in range(width)]
    frame = pl.DataFrame(cells, schema=names, orient="row").unique(maintain_order=True).head(rows)
    return frame.with_columns(y=pl.int_range(rows) % 2)


@pytest.mark.parametrize("rows", [200, 300, 301])
def test_notice_repeats__as_many_as_there_are(rows: int, tmp_path: Any) -> None:
    frame = table(rows)
    repeats = pl.concat([frame, frame.head(30), frame.head(10)]).sample(fraction=1.0, shuffle=True, seed=2)
    told = notice_repeats(encoded(repeats, tmp_path))
    assert told is not None
    assert told.startswith(f"40 of {rows + 40} rows equal an earlier row in the target and all features; if they are")


def test_notice_repeats__not_of_few_nor_of_other_targets(tmp_path: Any) -> None:
    frame = table(300)
    others = frame.head(40).with_columns(y=1 - pl.col("y"))
    assert notice_repeats(encoded(pl.concat([frame, frame.head(15), others]), tmp_path)) is None


def test_notice_repeats__not_of_other_targets_next_to_other_values(tmp_path: Any) -> None:
    """The bits of class and value differ in the same places: they must not cancel."""
    frame = pl.DataFrame({"a": range(200), "b": [row // 2 for row in range(200)], "y": ["late", "early"] * 100})
    assert notice_repeats(encoded(frame, tmp_path)) is None


def test_notice_repeats__not_where_few_rows_can_differ(tmp_path: Any) -> None:
    frame = table(300).select("x0", "x1", "x2", "y")
    frame = pl.concat([frame, frame])
    assert notice_repeats(encoded(frame, tmp_path)) is None


def test_notice_repeats__of_large_tables_some_blocks_are_looked_at(tmp_path: Any) -> None:
    """Of five blocks the first, the third and the fifth; the second repeats the first unnoticed."""
    rows = pl.DataFrame({"a": pl.int_range(65_536, eager=True), "b": range(65_536), "y": [0.5, 1.5] * 32_768})
    others = rows.with_columns(pl.col("a", "b") + 100_000)
    table = pl.concat([rows, rows, rows.head(30_000), others.head(35_536), others, others.tail(10_000)])
    told = notice_repeats(encoded(table, tmp_path, task="regression"))
    assert told is not None
    assert told.startswith("30,000 of 141,072 rows that were looked at equal an earlier row")


@pytest.mark.parametrize(("options", "tells"), [({}, True), ({"bootstrap": False}, False), ({"group": "who"}, False)])
def test_train__tells_of_repeated_rows_once(options: dict[str, Any], tells: bool) -> None:
    notices: list[str] = []
    frame = pl.concat([table(100), table(100)]).with_columns(who=pl.int_range(200) % 100)
    data = frame if "group" in options else frame.drop("who")
    bigforest.train(
        data,
        "y",
        trees=2,
        **options,
        listener=lambda event: notices.append(event.message) if isinstance(event, Notice) else None,
    )
    assert [notice.startswith("100 of 200 rows equal an earlier") for notice in notices].count(True) == tells
