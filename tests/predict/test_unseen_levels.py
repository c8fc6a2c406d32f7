"""Notices of batches with many levels that training did not see."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import bigforest
from bigforest import Forest
from bigforest.events import Event, Notice
from tests.commands import Run

TOWNS = ["oslo", "rome", "bern", "kiel"] * 15


@pytest.fixture(scope="module")
def forest() -> Forest:
    table = pl.DataFrame({"town": TOWNS, "day": [1, 2, 3] * 20, "y": ["u", "u", "v", "v"] * 15})
    return bigforest.train(table, "y", categories=["day"], trees=3, mtry=2)


def rows(new: int, count: int = 50) -> pl.DataFrame:
    """Return rows of which the last `new` have unknown towns and the last, too, an unknown day."""
    town = TOWNS[: count - new] + ["Oslo", "BERN"] * (new // 2) + ["Kiel"] * (new % 2)
    return pl.DataFrame({"town": town, "day": [1] * (count - 1) + [9], "y": "u"})


ENTRIES: dict[str, Callable[[Forest, pl.DataFrame], Any]] = {
    "predict": lambda forest, table: forest.predict(table),
    "proba": lambda forest, table: forest.predict_proba(table.to_pandas()),
    "score": lambda forest, table: forest.score(table),
    "array": lambda forest, table: forest.predict(table.drop("y").to_numpy()),
    "budget": lambda forest, table: forest.predict(table, memory="1GB"),
    "apply": lambda forest, table: forest.apply(table),
    "apply, array": lambda forest, table: forest.apply(table.drop("y").to_numpy()),
    "explain": lambda forest, table: forest.explain(table, parts="contributions", new_rows=True),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_predict__logs_columns_with_many_unseen_levels(
    entry: str, forest: Forest, caplog: pytest.LogCaptureFixture
) -> None:
    ENTRIES[entry](forest, rows(6))
    (told,) = [record.getMessage() for record in caplog.records if record.name == "bigforest"]
    assert "'town' in 12% of the rows ('Oslo', 'BERN')" in told and "'day'" not in told
    caplog.clear()
    ENTRIES[entry](forest, rows(5))  # a tenth
    ENTRIES[entry](forest, rows(9, 9))  # few rows
    assert not caplog.records


def test_lazy__logs_the_first_piece_with_many_unseen_levels(forest: Forest, caplog: pytest.LogCaptureFixture) -> None:
    for engine in ("in-memory", "streaming"):
        caplog.clear()
        forest.predict(pl.concat([rows(40)] * 50).lazy()).collect(engine=engine)
        (told,) = [record.getMessage() for record in caplog.records if record.name == "bigforest"]
        share, of = re.search(r"'town' in (\d+)% of a batch of ([\d,]+) rows", told).groups()  # type: ignore[union-attr]
        assert "'day'" not in told and int(share) >= 10 and int(of.replace(",", "")) >= 10


def test_revision__tells_the_listener(forest: Forest, tmp_path: Path) -> None:
    plain = {"shrink": "off", "power": "off", "refine": "off"}
    table = rows(0).with_columns(y=pl.Series(["u", "v"] * 25))
    revised = {
        bigforest.calibrate_forest: bigforest.train(table, "y", trees=2, **plain),
        bigforest.prune_forest: bigforest.train(table, "y", family="tree"),
    }
    for number, (revise, made) in enumerate(revised.items()):
        for new in (6, 5):
            heard: list[Event] = []
            revise(made, rows(new), tmp_path / f"{number}-{new}", listener=heard.append)
            told = [event.message for event in heard if isinstance(event, Notice)]
            assert ["'town' in 12% of the rows" in text for text in told] == [True] * (new == 6)


def test_files__tell_the_listener(forest: Forest, tmp_path: Path) -> None:
    """Shares are of the whole file, so many rows at the end of a file are few."""
    for name, new, many in (("few", 300, False), ("many", 700, True)):
        known, odd = pl.concat([rows(0).with_columns(day=1)] * 100).head(5_000 - new), rows(2).tail(2).head(1)
        pl.concat([known, *[odd.with_columns(day=1)] * new]).write_csv(tmp_path / f"{name}.csv")
        heard: list[Event] = []
        for call in (
            lambda data, hear: bigforest.predict_file(forest, data, tmp_path / "p.csv", overwrite=True, listener=hear),
            lambda data, hear: bigforest.validate_forest(forest, data, listener=hear),
        ):
            heard.clear()
            call(tmp_path / f"{name}.csv", heard.append)
            told = [event.message for event in heard if isinstance(event, Notice)]
            assert ["'town' in 14% of the rows ('Oslo')" in text for text in told] == [True] * many


def test_command_line__notes_unseen_levels_unless_quiet(
    forest: Forest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys)
    forest.write(tmp_path / "f.forest")
    rows(20).write_parquet(tmp_path / "new.parquet")
    given = [str(tmp_path / "f.forest"), str(tmp_path / "new.parquet")]
    for command in ("predict", "validate"):
        out = ["--out", str(tmp_path / command), "--overwrite"]
        assert "'town' in 40% of the rows ('Oslo', 'BERN')" in run(command, *given, *out).err
        assert not run(command, *given, *out, "--quiet").err
        (told,) = run.json(command, *given, *out)["notices"]
        assert "'Oslo'" in told


def test_coverage_by__logs_many_unseen_categories(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They get the intervals of all rows. The column is no feature."""
    codes = pl.DataFrame({"code": ["1", "2"] * 60})
    table = codes.with_columns(x=pl.int_range(120), y=pl.int_range(120) * 7 % 50 / 1)
    forest = bigforest.train(table, "y", trees=9, exclude=["code"])
    asked = {"coverage": 0.5, "coverage_by": table["code"]}
    new = table.with_columns(code=pl.col("code") + ".0").drop("y")
    new.write_parquet(tmp_path / "new.parquet")
    entries: list[Callable[[], Any]] = [
        lambda: forest.predict(new, **asked),
        lambda: forest.predict(new, **asked, memory="1GB"),
        lambda: new.select(forest.expr(**asked)),
        lambda: bigforest.predict_file(forest, tmp_path / "new.parquet", tmp_path / "p.parquet", **asked),
    ]
    for entry in entries:
        caplog.clear()
        entry()
        (told,) = [record.getMessage() for record in caplog.records if record.name == "bigforest"]
        assert "'code' in 100% of" in told and "('1.0', '2.0')" in told
    caplog.clear()
    forest.predict(new)
    forest.predict(table, **asked)
    assert not caplog.records
