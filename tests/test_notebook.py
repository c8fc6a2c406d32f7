"""What users see: progress, tables of HTML, public names, and scores."""

from __future__ import annotations

import io
import logging
import re
import sys
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, r2_score

import bigforest as bf
from bigforest.errors import DataError
from bigforest.events import Notice, StageAdvanced, StageFinished, StageStarted, silent
from bigforest.progress import Bars, in_notebook, watching
from tests.streams import Streams

DRAW = np.random.default_rng(5)
FRAME = pl.DataFrame({"a": DRAW.normal(size=80), "b": DRAW.normal(size=80)}).with_columns(
    late=pl.when(pl.col("a") + pl.col("b") > 0).then(pl.lit("<yes>")).otherwise(pl.lit("no")),
    number=pl.col("a") * 2 - pl.col("b"),
)
CLASSES = FRAME.drop("number")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def run(listener: Any, seconds: float = 3.0) -> None:
    listener(StageStarted("grow", 10, "trees"))
    listener(StageAdvanced("grow", 4))
    listener(Notice("a row was left out"))
    listener(StageFinished("grow", seconds))


def test_watching__is_the_listener_that_was_given() -> None:
    heard: list[Any] = []
    with watching(heard.append) as listener:
        run(listener)
    assert len(heard) == 4


def test_watching__writes_the_log_where_nothing_can_be_drawn(
    caplog: pytest.LogCaptureFixture, streams: Streams
) -> None:
    streams(stderr=io.StringIO())
    with caplog.at_level(logging.INFO, "bigforest"), watching(None) as listener:
        run(listener)
        run(listener, seconds=0.5)
    told, took = ("bigforest", logging.WARNING, "a row was left out"), ("bigforest", logging.INFO, "grow took 3.0 s")
    assert caplog.record_tuples == [told, took, told]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_bars__wait_before_they_are_drawn(monkeypatch: pytest.MonkeyPatch, streams: Streams) -> None:
    monkeypatch.setenv("TERM", "xterm")
    streams(stderr=(terminal := Terminal()))
    patient = Bars(patience=1e9, notices=silent)
    run(patient)
    patient.close()
    assert terminal.getvalue() == ""
    bars = Bars()
    run(bars)
    bars.close()
    assert "4 of 10 trees" in terminal.getvalue() or "10 of 10 trees" in terminal.getvalue()
    assert "note:\x1b[0m a row was left out" in terminal.getvalue()


def test_bars__of_stages_that_run_again_on_a_terminal(monkeypatch: pytest.MonkeyPatch, streams: Streams) -> None:
    """As those of the commands compare and report, of which each runs many stages of one name."""
    monkeypatch.setenv("TERM", "xterm")
    streams(stderr=(terminal := Terminal()))
    bars = Bars()
    for total in (3, 3, 5):
        bars(StageStarted("grow", total, "trees"))
        bars(StageStarted("oob", 2, "rows"))
        bars(StageFinished("grow", 1.0))
        bars(StageFinished("oob", 1.0))
    bars.close()
    assert "5 of 5 trees" in terminal.getvalue()


class Cell:
    """Stands for IPython: what would be below the cell, drawing after drawing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: object) -> None:
        self.drawn: list[dict[str, str]] = []
        shell = SimpleNamespace(kernel=kernel)
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
        for name, members in (
            ("IPython", {"get_ipython": lambda: shell}),
            ("IPython.display", {"display": self.display}),
        ):
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw and display_id
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw and set(data) == {"text/html", "text/plain"}
        self.drawn.append(data)


def test_bars__are_drawn_below_the_cell_and_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch, kernel=object())
    bars = Bars(pause=0.0)
    run(bars)
    run(bars)
    bars(StageStarted("<oob>", 3, "rows"))
    bars.close()
    html = [drawing["text/html"] for drawing in cell.drawn]
    for text in html:
        tags = Tags()
        tags.feed(text)
        assert tags.open == [] and "<oob>" not in text
    plain = [drawing["text/plain"] for drawing in cell.drawn]
    assert any("4 of 10 trees" in text and "left" in text for text in plain)
    assert any("10 of 10 trees" in text and "taken" in text for text in plain)
    assert any("&lt;oob&gt;" in text and text.count("grow") == 1 for text in html)
    assert cell.drawn[0] == cell.drawn[-1] == {"text/html": "", "text/plain": ""}


def test_bars__of_a_shell_without_a_kernel_are_those_of_its_terminal(
    monkeypatch: pytest.MonkeyPatch, streams: Streams
) -> None:
    cell = Cell(monkeypatch, kernel=None)
    assert not in_notebook()
    streams(stderr=io.StringIO())
    with watching(None) as listener:
        run(listener)
    assert not cell.drawn and sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


class Tags(HTMLParser):
    """The tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("target", ["late", "number"])
def test_html__is_of_tags_that_close_and_escapes_names(target: str) -> None:
    forest = bf.train(FRAME.select("a", "b", target), target, trees=5)
    for shown in (forest, forest.oob, bf.plan_training(FRAME, target)):
        html = shown._repr_html_()
        tags = Tags()
        tags.feed(html)
        assert tags.open == []
        assert "<yes>" not in html
    assert "&lt;yes&gt;" in bf.train(CLASSES, "late", trees=5).oob._repr_html_()
    assert "no limit" in bf.plan_training(FRAME, target)._repr_html_()


def test_public_names__are_all_there_is() -> None:
    assert dir(bf) == sorted(bf.__all__)
    assert not hasattr(bf, "Any") and not hasattr(bf, "importlib")
    forest = bf.train(CLASSES, "late", trees=2)
    names = [name for name in dir(forest) if not name.startswith("_")]
    assert not {"passes", "predictor", "rule", "take"} & set(names)
    assert {"predict", "score", "oob", "nodes", "write"} <= set(names)


def test_score__is_that_of_scikit_learn() -> None:
    forest = bf.train(CLASSES, "late", trees=5)
    found = forest.predict(CLASSES)["prediction"]
    wanted = accuracy_score(CLASSES["late"], found)
    X, y = CLASSES.drop("late"), CLASSES["late"]
    for score in (
        forest.score(CLASSES),
        forest.score(CLASSES.lazy()),
        forest.score(CLASSES.to_pandas()),
        forest.score(X, y),
        forest.score((X, y.to_list())),
        forest.score(X.to_numpy(), y.to_numpy()),
        forest.score(X.to_pandas(), pd.DataFrame({"y": y.to_list()})),
        forest.score(CLASSES, trees=range(5)),
    ):
        assert score == pytest.approx(wanted)
    numbers = bf.train(FRAME.drop("late"), "number", trees=5)
    assert numbers.score(FRAME) == pytest.approx(r2_score(FRAME["number"], numbers.predict(FRAME)["prediction"]))


def test_score__of_a_target_named_like_a_pattern() -> None:
    table = pl.DataFrame({"x": [1, 2, 3, 4] * 9, "^y$": ["a", "a", "b", "b"] * 9})
    forest = bf.train(table, target="^y$", trees=3)
    assert forest.score(table) == forest.score(table.select("x"), table.get_column("^y$")) == 1.0


def test_score__of_missing_and_unknown_labels(caplog: pytest.LogCaptureFixture) -> None:
    forest = bf.train(CLASSES, "late", trees=5)
    found = forest.predict(CLASSES)["prediction"]
    truth = [None, "never", *found[2:].to_list()]
    assert forest.score(CLASSES, truth) == pytest.approx(78 / 79)
    assert "1 of 79 rows counts as wrong, because of labels that the forest does not know" in caplog.text
    for y, message in (([None] * 80, "no row has a true value"), (["no"], "y has 1 row, and the table has 80")):
        with pytest.raises(DataError, match=message):
            forest.score(CLASSES, y)
    with pytest.raises(DataError, match="no column 'late' to score against; give y"):
        forest.score(CLASSES.drop("late"))


def test_score__refuses_text_for_numbers() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [0.5, 1.5, 2.5]})
    with pytest.raises(DataError, match="the true values are String, and the forest predicts numbers; convert them"):
        bf.train(frame, "y", trees=1).score(frame, ["1", "2", "3"])


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e200])
def test_score__refuses_true_values_whose_squares_are_not_finite(value: float) -> None:
    matrix = np.random.default_rng(0).normal(size=(50, 2))
    forest = bf.train((matrix, matrix[:, 0]), trees=2)
    truth = matrix[:, 0].copy()
    truth[3] = value
    with pytest.raises(DataError, match="a true value is infinite, or of a size above 1e"):
        forest.score(matrix, truth)


def test_score__of_decimals_and_booleans() -> None:
    matrix = np.random.default_rng(0).normal(size=(50, 2))
    label = pl.Series((matrix[:, 0] > 0).astype(np.int64))
    forest = bf.train((matrix, label.to_numpy()), trees=5, task="classification")
    assert forest.score(matrix, label.cast(pl.Decimal(10, 2))) == forest.score(matrix, label) > 0.9
    assert forest.score(matrix, label.cast(pl.Boolean)) == forest.score(matrix, label)


def test_score__whole_numbers_are_classes_of_any_width() -> None:
    kinds = CLASSES.with_columns(late=(pl.col("late") == "no").cast(pl.Int8))
    forest = bf.train(kinds, "late", trees=5)
    assert forest.score(kinds, kinds["late"].cast(pl.Float64)) == forest.score(kinds) > 0.9
    assert re.fullmatch(r"<table>.*</table>", forest._repr_html_())
