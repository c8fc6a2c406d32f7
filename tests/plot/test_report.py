"""The report: slices and rows against plain recomputation, and the page."""

from __future__ import annotations

import gc
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import mean_poisson_deviance

import bigforest as bf
from bigforest.errors import ConfigError, DataError
from bigforest.events import Event, StageStarted
from bigforest.report import page as made
from bigforest.report.report import command, slices, worst_rows
from bigforest.source.open import open_source
from tests.commands import Run, run
from tests.plot.conftest import Report
from tests.plot.test_pictures import heard, table

__all__ = ["run"]  # a fixture
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Reader(HTMLParser):
    """Checks that elements close, and keeps what could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in ("src", "href", "xlink:href", "data", "action") and not (value or "").startswith("#"):
                self.loads.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(path: Path) -> Reader:
    reader, text = Reader(), path.read_text(encoding="utf-8")
    reader.feed(text)
    assert not reader.open and not reader.loads
    assert reader.tags.count("script") == 1 and "<i>" not in text and "://" not in text
    return reader


def test_pieces__are_text_whatever_they_say(tmp_path: Path) -> None:
    evil = """"'><b onload="x"></script><!-- &lt;"""
    svg = made.inline_svg("<svg ></svg>", evil)
    tables = [made.html_table([evil], [[evil]] * rows) for rows in (1, 3)]  # a table of three rows can be sorted
    pieces = [made.text(evil), made.heading(evil), made.code(evil), made.folded(evil, svg), made.facts([(evil, evil)])]
    (tmp_path / "page.html").write_text(made.page(evil, [(evil, [*pieces, *tables])]), encoding="utf-8")
    reader = read(tmp_path / "page.html")
    assert "b" not in reader.tags
    assert reader.texts.count(evil) == 16


def test_page__of_any_names_escapes_loads_nothing_and_closes(report: Report, tmp_path: Path) -> None:
    other = table(classes=2).rename({"y": "count"})
    forest = bf.train(other, target="count", trees=8, threads=1)
    made = forest.report(other, tmp_path / "r.html", threads=1)
    for own, frame, file in (report, Report(forest, other, made)):
        page = read(file)
        assert page.tags.count("svg") >= 14 and page.tags.count("details") == 5
        assert "viewport" in file.read_text(encoding="utf-8")
        assert slices(own, open_source(frame, scratch=tmp_path)).height


def test_page__of_numbers_oblique_and_without_report(tmp_path: Path) -> None:
    frame = table().with_columns(y=pl.col("a<b>") * 2)
    read(bf.train(frame, target="y", trees=5, threads=1).report(frame, tmp_path / "a.html", trees=1, threads=1))
    flat = table().drop("c")
    forest = bf.train(flat, target="y", trees=5, family="sparse-oblique", threads=1)
    read(forest.report(out=tmp_path / "b.html", trees=1))
    alone = bf.train(table(), target="y", family="tree", threads=1)
    read(alone.report(table().drop("y"), tmp_path / "c.html", threads=1))


def test_page__the_command_of_a_revised_forest_grows_it_without_the_revision(tmp_path: Path) -> None:
    forest = bf.train(table(), "y", trees=2, threads=1)
    for number, (drawn, said) in enumerate(((forest, False), (forest.shrink(5.0), True))):
        page = drawn.report(out=tmp_path / f"{number}.html", trees=0).read_text(encoding="utf-8")
        assert ("This command grows it as it was before it was shrunk." in page) == said


def test_page__of_a_regression_without_errors_has_no_row_weights(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": np.arange(40.0) % 4, "w": np.arange(40.0) % 3, "y": [2.5] * 40})
    for weight, said in ((None, False), ("w", True)):
        forest = bf.train(frame, "y", trees=5, weight=weight, threads=1)
        page = forest.report(out=tmp_path / f"{weight}.html").read_text(encoding="utf-8")
        assert ("with row weights" in page) == ("without a target or of weight 0 left out" in page) == said


@pytest.mark.parametrize(
    ("draw", "out", "options"),
    [
        (bf.report_forest, "html", {"trees": 0}),
        (bf.plot_forest, "pictures", {"what": ["permutation", "dependence", "waterfall", "swarm", "map"]}),
    ],
    ids=["page", "pictures"],
)
def test_pages_and_pictures__are_of_one_version_of_the_table(
    tmp_path: Path, draw: Any, out: str, options: dict[str, Any]
) -> None:
    frame = pl.DataFrame({"x": np.arange(60.0) % 11, "z": np.arange(60.0) % 7, "y": ["a", "b", "b"] * 20})
    forest, file = bf.train(frame, "y", trees=4, threads=1), tmp_path / "t.csv"
    other = frame.with_columns(pl.col("x") * 100, pl.col("z").reverse())  # of the same classes
    frame.write_csv(file)

    def replace(event: Event) -> None:
        if isinstance(event, StageStarted):
            other.write_csv(tmp_path / "new")
            (tmp_path / "new").replace(file)

    drawn = []
    for data, listener in ((frame, None), (frame.to_arrow().to_reader(), None), (file, replace)):
        made = draw(forest, data, out=tmp_path / f"{len(drawn)}.{out}", threads=1, listener=listener, **options)
        texts = [one.read_text(encoding="utf-8") for one in ([made] if isinstance(made, Path) else made)]
        drawn.append([re.sub(r"(clip|gradient_)\d+", "", text) for text in texts])  # numbered across pictures
    assert drawn[0] == drawn[1] == drawn[2]


def test_page__of_a_boosted_stage_includes_it(report: Report, tmp_path: Path) -> None:
    text = report.page.read_text(encoding="utf-8")
    for title in (
        "Loss by rounds of the boosted stage",
        "Importance by permutation",
        "Partial dependence",
        "before scaling",
    ):
        assert title in text
    oob = report.forest.oob
    assert oob.error != oob.curve["error"][-1]
    assert f"The out-of-bag error is {oob.error:.4g} on" in text
    plain, without_target = report.forest.unrefined(), report.frame[:, :-1]
    read(plain.report(without_target, tmp_path / "b.html", trees=0, threads=1))
    assert "Partial dependence" in (tmp_path / "b.html").read_text(encoding="utf-8")


def test_page__where_all_rows_are_in_all_bags(tmp_path: Path) -> None:
    forest = bf.train(table(), target="y", trees=3, replace=False, threads=1)
    read(forest.report(table(), tmp_path / "a.html", trees=0, threads=1))
    with pytest.raises(ConfigError, match="nothing out of bag to draw"):
        forest.plot.map(table())


def test_page__with_the_rows_of_a_forest_whose_bags_are_not_known(tmp_path: Path) -> None:
    forest = bf.train(table(), target="y", trees=3, sampling="adaboost", threads=1)
    with pytest.raises(ConfigError, match="the forest was grown with boosting"):
        forest.plot.rejection()
    forest.report(table(), tmp_path / "a.html", trees=0, threads=1)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Partial dependence" in page
    assert "Map of rows by proximity" not in page and "reject above" not in page
    for other, told in (
        (table().head(50), "the table has 50 rows, and in training there were 240; give the table of training"),
        (table().reverse(), "the values of 'y' are not those of training; give the table of training"),
        (table().drop("y"), "the table has no column 'y', which tells its rows from others"),
    ):
        with pytest.raises(DataError, match=told):
            forest.report(other, tmp_path / "b.html", threads=1)


def test_page__its_folders_are_removed_at_once(tmp_path: Path) -> None:
    """Without waiting for garbage collection: Altair keeps the frames of its callers."""
    frame, scratch = table(), tmp_path / "scratch"
    scratch.mkdir()
    forest = bf.train(frame, "y", trees=4)
    gc.collect()
    gc.disable()
    try:
        bf.report_forest(forest, None, tmp_path / "report.html", scratch=scratch)
        assert not list(scratch.iterdir())
    finally:
        gc.enable()


def test_slices__and_worst_rows_are_those_of_the_rows(tmp_path: Path) -> None:
    frame = table(400).with_columns(y=pl.when(pl.int_range(400) % 9 == 0).then(None).otherwise(pl.col("y")))
    forest = bf.train(frame, target="y", trees=12, threads=1)
    rows = heard(forest)
    wrong = {row["row"]: row["truth"] != row["prediction"] for row in rows}
    found = slices(forest, open_source(frame, scratch=tmp_path), 50).filter(pl.col("feature") == "c")
    for row in found.to_dicts():
        value = None if row["slice"] == "missing" else row["slice"].removeprefix("is ")
        own = [error for at, error in wrong.items() if frame["c"][at] == value]
        assert (row["rows"], row["error"]) == (len(own), pytest.approx(np.mean(own)))
        assert row["error"] > np.mean(list(wrong.values()))
    numbers = slices(forest, open_source(frame, scratch=tmp_path), 50)
    assert numbers.height and numbers["rows"].min() >= 20  # type: ignore[operator]
    worst = worst_rows(forest, 3)
    with np.errstate(divide="ignore"):
        losses = sorted((float(-np.log(row[f"p_{row['truth']}"])) for row in rows), reverse=True)
    assert worst["loss"].to_list() == pytest.approx(losses[:3])
    assert all(frame["y"][row["row"]] == row["truth"] for row in worst.to_dicts())


def test_slices__and_worst_rows_go_by_the_deviance(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    frame = table(400).with_columns(y=pl.Series(random.poisson(np.where(random.random(400) < 0.5, 0.5, 20.0))))
    forest = bf.train(frame, target="y", trees=6, threads=1, task="regression", impurity="poisson")
    truth, guess = (forest.oob.rows.filter(pl.col("trees") > 0).collect()[name] for name in ("truth", "prediction"))
    losses = [mean_poisson_deviance([own], [other]) for own, other in zip(truth, guess, strict=True)]
    worst = worst_rows(forest, 5)
    assert worst["loss"].to_list() == pytest.approx(sorted(losses, reverse=True)[:5])
    found = slices(forest, open_source(frame, scratch=tmp_path), 50)
    mean, deviation = np.mean(losses), np.std(losses)
    assert (found["error"] > mean).all() and found["error"].max() < mean + deviation  # type: ignore[operator]


@pytest.mark.parametrize(
    "options",
    [
        {"exclude": ["b.[0]\\x"], "class_weight": {"c": 2.0}, "min_leaf": 3, "replace": False, "trees": 4},
        {"family": "tree"},
        {"family": "rotation", "trees": 2},
    ],
    ids=["axis", "tree", "rotation"],
)
def test_command__grows_the_same_forest(options: dict[str, Any], tmp_path: Path, run: Run) -> None:
    table().write_parquet(tmp_path / "t.parquet")
    forest = bf.train(tmp_path / "t.parquet", target="y", seed=5, threads=1, **options)
    words = shlex.split(shlex.join(command(forest)))[1:]
    assert run(*words, "--out", tmp_path / "again.forest", "--quiet").code == 0, run.err
    again = bf.read_forest(tmp_path / "again.forest")
    assert again.config == forest.config and again.nodes.collect().equals(forest.nodes.collect())


def test_command__has_the_separator_that_the_user_named(tmp_path: Path, run: Run) -> None:
    lines = ["a|b,c;y|2", *(f"{k % 7}|{k % 3};{'pq'[k % 2]}" for k in range(40))]  # one of three separators
    (tmp_path / "t.csv").write_text("\n".join(lines))
    first = ("train", tmp_path / "t.csv", "--target", "y|2", "--separator", ";", "--trees", 2)
    assert run(*first, "--out", tmp_path / "t.forest", "--quiet").code == 0, run.err
    words = command(bf.read_forest(tmp_path / "t.forest"))[1:]
    assert run(*words, "--out", tmp_path / "again.forest", "--quiet").code == 0, run.err
    assert bf.read_forest(tmp_path / "again.forest").spec.feature_names == ["a|b,c"]


def test_command_line__writes_and_refuses(tmp_path: Path, run: Run) -> None:
    frame = table()
    bf.train(frame, target="y", trees=4, threads=1, out=tmp_path / "f.forest")
    frame.head(50).write_parquet(tmp_path / "half.parquet")
    out = ("--out", tmp_path / "r.html")
    for words, told in (
        ((tmp_path / "half.parquet", *out), "training"),
        (("--out", tmp_path / "r.pdf"), "ends in .html"),
        ((*out, "--trees", "-1"), "--trees must be"),
    ):
        assert run("report", tmp_path / "f.forest", *words).code == 2 and told in run.err, run.err
        assert not list(tmp_path.glob("*r.*"))
    assert run("report", tmp_path / "f.forest", *out, "--trees", "1").code == 0, run.err
    assert read(tmp_path / "r.html").tags.count("details") == 3
    assert run("report", tmp_path / "f.forest", *out).code == 2
