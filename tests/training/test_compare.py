"""Comparisons from the table to the forest of the winner, the same however they are run; and what is refused."""

from __future__ import annotations

import errno
import json
import math
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import bigforest as bf
from bigforest.errors import ClusterError, ConfigError, DataError, DiskFullError, FormatError, OutputExistsError
from bigforest.events import Event, Notice, StageStarted
from bigforest.storage.locks import create_locked_dir
from bigforest.storage.state_file import entries_checksum
from bigforest.store.store import Store
from bigforest.training import compare as race_run
from bigforest.training.candidates import Rows, measure_loss, row_scores
from bigforest.training.comparison import ComparisonState, announce
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]  # fixtures

CANDIDATES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stumps": {"max_depth": 1},
    "oblique": {"family": "sparse-oblique"},
}
OPTIONS = {"trees": 51, "seed": 3}  # three rounds


def table(rows: int = 240, regression: bool = False) -> pl.DataFrame:
    random = np.random.default_rng(rows)
    matrix = random.normal(size=(rows, 4))
    signal = matrix[:, 0] * matrix[:, 1] + 0.3 * random.normal(size=rows)
    target = signal if regression else np.where(signal > 0, "yes", "no")
    columns = {f"x{k}": matrix[:, k] for k in range(4)}
    return pl.DataFrame(
        {**columns, "w": random.choice([1.0, 2.5], rows), "g": random.integers(0, 60, rows), "y": target}
    )


def told(comparison: bf.Comparison) -> list[pl.DataFrame]:
    """What must be the same, however a comparison was run."""
    return [comparison.candidates.drop("seconds"), comparison.curve]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bf.Comparison:
    """The candidates of CANDIDATES on `table()`, by one thread."""
    out = tmp_path_factory.mktemp("race") / "c"
    return bf.compare(table(), "y", candidates=CANDIDATES, options=OPTIONS, exclude=["w", "g"], out=out, threads=1)


def test_compare__keeps_the_forest_that_train_grows(whole: bf.Comparison, tmp_path: Path) -> None:
    assert whole.winner in CANDIDATES
    alone = bf.train(table(), "y", exclude=["w", "g"], **OPTIONS, **CANDIDATES[whole.winner])
    assert whole.forest.nodes.collect().equals(alone.nodes.collect())
    assert whole.forest.oob.rows.collect().equals(alone.oob.rows.collect())
    assert whole.forest.shrinkage == alone.shrinkage
    assert whole.loss == pytest.approx(alone.oob.metrics["log_loss"][-1])
    assert sorted(path.name for path in whole.path.iterdir()) == [
        *("candidates.parquet", "curve.parquet", "race.json", "table.store", "winner.forest")
    ]
    assert pl.read_parquet(whole.path / "candidates.parquet").equals(whole.candidates)
    assert pl.read_parquet(whole.path / "curve.parquet").equals(whole.curve)
    whole.forest.write(tmp_path / "more.forest")
    assert bf.train(resume=tmp_path / "more.forest", trees=60).trees == 60


def test_compare__leaves_no_copy_of_a_table_that_is_not_read_by_column(tmp_path: Path) -> None:
    how: dict[str, Any] = {"candidates": {"one": {"mtry": 1}, "all": {"mtry": "all"}}, "options": {"trees": 2}}
    how |= {"target": "y", "out": tmp_path / "c"}
    table(60).drop("w", "g").write_csv(tmp_path / "t.csv")

    def interrupt(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "grow":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.compare(tmp_path / "t.csv", listener=interrupt, **how)
    for _ in ("begun", "finished"):
        bf.compare(tmp_path / "t.csv", **how)
        assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
            *("candidates.parquet", "curve.parquet", "race.json", "table.store", "winner.forest")
        ]
    with (tmp_path / "t.csv").open("a") as lines:
        lines.write((tmp_path / "t.csv").read_text().splitlines()[-1] + "\n")
    with pytest.raises(DataError, match=r"not the one that .*c compares candidates on"):
        bf.compare(tmp_path / "t.csv", **how)


def test_compare__the_winner_knows_its_table(tmp_path: Path) -> None:
    """So that it can be grown on and shrunk without being told, wherever the comparison has gone."""
    table().write_parquet(tmp_path / "t.parquet")
    options: dict[str, Any] = {"trees": 4, "max_depth": 4}
    two: dict[str, Any] = {"one": {"mtry": 1}, "all": {"mtry": "all"}}
    found = bf.compare(tmp_path / "t.parquet", "y", candidates=two, options=options, exclude=["w"], out=tmp_path / "c")
    options |= two[found.winner]
    alone = bf.train(tmp_path / "t.parquet", "y", exclude=["w"], out=tmp_path / "alone", **options)
    assert found.forest.origin == alone.origin
    found.forest.write(tmp_path / "f")
    shutil.rmtree(found.path)
    bf.shrink_forest(tmp_path / "f", tmp_path / "shrunk")
    assert bf.train(resume=tmp_path / "f", trees=6).trees == 6


def test_compare__retires_what_is_behind(whole: bf.Comparison) -> None:
    line = whole.candidates.row(by_predicate=pl.col("candidate") == "stumps", named=True)
    assert line["trees"] == 50
    assert line["difference"] > 3 * line["standard_error"] > 0
    assert f"{line['difference'] / line['standard_error']:.1f} standard errors" in line["retired"]
    assert whole.candidates["candidate"].to_list() == list(CANDIDATES)
    assert whole.candidates.filter("winner")["candidate"].to_list() == [whole.winner]
    assert whole.curve.filter(candidate="stumps")["trees"].to_list() == [25, 50]
    assert whole.curve.filter(candidate=whole.winner)["trees"].to_list() == [25, 50, 51]
    assert whole.cross_fitted is not None


def test_compare__goes_on_after_interruptions(
    whole: bf.Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two threads: as the first candidate begins, and while each of the three rounds is evaluated."""
    out, original = tmp_path / "c", race_run.row_scores
    how: dict[str, Any] = {"candidates": CANDIDATES, "options": OPTIONS, "exclude": ["w", "g"], "out": out}

    def interrupt(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "grow":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        bf.compare(table(), "y", listener=interrupt, threads=2, **how)
    assert any("repeat the comparison" in note for note in caught.value.__notes__)
    (begun,) = (out / "forests").iterdir()
    shutil.rmtree(begun / "forest")  # a run makes it last of all, and until then it has nothing to go on with
    (out / ".race.json.0123456789abcdef.tmp").write_text("{")
    for stop_at in (3, 5, 4):  # evaluated candidates: of the first round are three, as of the second
        calls = 0

        def interrupted(*arguments: Any, stop_at: int = stop_at) -> Any:
            nonlocal calls
            calls += 1
            if calls == stop_at:
                raise KeyboardInterrupt
            return original(*arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(race_run, "row_scores", interrupted)
            bf.compare(table(), "y", threads=2, **how)
        with pytest.raises(ConfigError, match="not finished"):
            bf.Comparison(out)
    assert [each.trees for each in ComparisonState.read(out).rounds] == [25, 50]
    found = bf.compare(table(), "y", threads=2, **how)
    assert not list(out.glob(".*"))
    assert all(one.equals(two) for one, two in zip(told(whole), told(found), strict=True))
    assert found.forest.nodes.collect().equals(whole.forest.nodes.collect())
    assert bf.Comparison(out).winner == whole.winner


@pytest.mark.parametrize("begun", [False, True])
def test_compare__finds_what_it_set_aside_when_it_was_killed(begun: bool, tmp_path: Path) -> None:
    out, data = tmp_path / "c", table(60).drop("w", "g")
    first = bf.compare(data, "y", candidates=2, options={"trees": 2}, out=out)
    aside = create_locked_dir(tmp_path, ".c.")
    out.rename(aside.path / "replaced")
    if begun:  # killed while the table was encoded, or else between two renamings
        out.mkdir()
        announce(out)
    aside.lock.close()
    grown: list[Event] = []
    again = bf.compare(data, "y", candidates=2, options={"trees": 2}, out=out, listener=grown.append)
    assert again.candidates.drop("seconds").equals(first.candidates.drop("seconds"))
    assert any(isinstance(event, StageStarted) and event.stage == "grow" for event in grown) == begun
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("error", [ClusterError("lost"), DiskFullError("full"), KeyboardInterrupt()], ids=repr)
def test_compare__says_to_repeat_the_comparison_and_not_to_resume_a_candidate(
    error: BaseException, tmp_path: Path
) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "grow":
            raise error

    with pytest.raises(type(error)) as caught:
        bf.compare(table(60), "y", candidates=2, options={"trees": 2}, out=tmp_path / "c", listener=fail)
    kept = f"what is finished is kept: repeat the comparison into {tmp_path / 'c'}, and it goes on"
    assert caught.value.__notes__ == [kept]


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.EIO, "error: .*json.*; check its disk.*repeat"), (errno.ENOSPC, "no space left on .*repeat")],
)
def test_compare__names_the_file_or_the_disk_of_a_failed_write(
    number: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, "a disk")

    def break_disk(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "grow":
            monkeypatch.setattr(Path, "write_text", fail)

    with pytest.raises((OSError, DiskFullError)) as caught:
        bf.compare(table(60), "y", candidates=2, options={"trees": 2}, out=tmp_path / "c", listener=break_disk)
    assert re.search(told, "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])]))


def test_compare__refuses_another_table_and_other_settings(tmp_path: Path) -> None:
    how: dict[str, Any] = {"candidates": {"a": {}, "b": {"min_leaf": 5}}, "out": tmp_path / "c", "exclude": ["w", "g"]}
    data = tmp_path / "t.parquet"
    table(60).write_parquet(data)
    bf.compare(data, "y", options={"trees": 5}, **how)
    table(60).with_columns(pl.col("x0") + 1).write_parquet(data)
    with pytest.raises(DataError, match="not the one"):
        bf.compare(data, "y", options={"trees": 5}, **how)
    table(60).write_parquet(data)
    heard: list[Event] = []
    with pytest.raises(OutputExistsError, match="other candidates or options"):
        bf.compare(data, "y", options={"trees": 6}, listener=heard.append, **how)
    assert not heard  # the table was not encoded
    again = bf.compare(data, "y", options={"trees": 6}, overwrite=True, **how)
    assert again.forest.trees == 6
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine.txt").write_text("kept")
    with pytest.raises(OutputExistsError, match="is not a bigforest comparison"):
        bf.compare(table(60), "y", out=tmp_path / "d", overwrite=True)
    assert (tmp_path / "d" / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": {"a": {}}}, "from 2 to 50"),
        ({"candidates": {"a": {}, "b": {"trees": 4}}}, "all candidates share it; set it in options"),
        ({"candidates": {"a": {}, "b": {"mtri": 4}}}, "unknown option"),
        ({"candidates": {"a": {}, "b": {"mtry": -4}}}, "the candidate b: mtry"),
        ({"candidates": {"a": {}, "b": {"mtry": 99}}}, "the candidate b: the table has . features and a node cannot"),
        ({"candidates": {"a": {}, "b": {"impurity": "poisson"}}}, "the candidate b: the impurity poisson is for"),
        ({"candidates": {"a": {}, "../b": {}}}, "cannot be the name"),
        ({"candidates": {"a": {}, "A": {"min_leaf": 2}}}, "upper and lower case; rename one"),
        ({"candidates": {"a": {}, "b": {"family": "tree"}}}, "no row is out of bag"),
        ({"candidates": {"a": {}, "b": {"sampling": "arc-x4"}}}, "cannot be evaluated on out-of-bag rows"),
        ({"candidates": 1}, "from 2 to 7"),
        ({"candidates": "nowhere.toml"}, "no such file of candidates"),
        ({"metric": "mse"}, "metric must be log_loss or error or auc"),
        ({"budget": "soon"}, "budget must be a time"),
        ({"budget": "0s"}, "budget must be a time"),
        ({"options": {"tree": 4}}, "no option 'tree'"),
        ({"trees": 4}, "trees is an option of training; give options={'trees': 4}"),
        ({"n_estimators": 4}, "n_estimators is an option of training; give options={'trees': 4}"),
        ({"candidate": 4}, "no option 'candidate'; did you mean candidates"),
        ({"options": {"stop_oob": 0.1}}, "stop_oob cannot be used"),
        ({"options": {"trees": 0}}, "trees"),
        ({"out": "nowhere/at/all"}, "does not exist"),
        ({"memory": "1MB"}, "needs at least"),
    ],
)
def test_compare__says_what_is_wrong(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    out, heard = tmp_path / "c", list[Event]()
    with pytest.raises(ConfigError, match=message):
        bf.compare(table(60), "y", **{"out": out, "listener": heard.append, **arguments})
    assert not out.exists()
    assert not heard or "the candidate b: the" in message  # the table is encoded only to check candidates on it


def test_compare__memory_is_that_of_the_candidates(tmp_path: Path) -> None:
    """Options that every candidate replaces need no memory. If no candidate fits, nothing is encoded."""
    store, shared = bf.encode_store(table(60).drop("w", "g"), tmp_path / "s", target="y"), {"trees": 2}
    budget = bf.plan_training(store, **shared).smallest
    shared["family"] = "rotation"
    assert budget < bf.plan_training(store, **shared).smallest
    candidates = {"a": {"family": "axis"}, "b": {"family": "axis", "min_leaf": 5}}
    assert bf.compare(store, candidates=candidates, options=shared, memory=budget).forest.trees == 2
    with pytest.raises(ConfigError, match="needs at least"):
        bf.compare(store, candidates={"a": {}, "b": {"min_leaf": 5}}, options=shared, memory=budget)
    heard: list[Event] = []
    classes = pl.DataFrame({"x": range(20_000), "y": [str(row) for row in range(20_000)]})
    with pytest.raises(ConfigError, match="needs at least"):
        bf.compare(classes, "y", memory="1GB", listener=heard.append)
    assert not heard


def test_comparison__there_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(ConfigError, match="is not a comparison; check the path"):
            bf.Comparison(path)


def test_compare__time_ends_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 40))  # looked at when the race begins, and before each round
    patched = SimpleNamespace(monotonic=lambda: float(next(clock)), perf_counter=time.perf_counter)
    monkeypatch.setattr(race_run, "time", patched)
    found = bf.compare(table(60), "y", candidates={"a": {}, "b": {"min_leaf": 5}}, budget="1.5m", options={"trees": 75})
    assert found.forest.trees == 50
    assert found.stopped == "the time of 90 s was over after 50 trees"
    assert "stopped" in found.facts()


def test_compare__no_further_round_once_the_winner_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The time is over after the first round, and the process is killed before it moves the forest of the winner."""
    candidates, options = {"a": {}, "b": {"min_leaf": 5}}, {"trees": 75}

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(race_run, "sync_all", killed)
        with pytest.raises(KeyboardInterrupt):
            bf.compare(table(60), "y", candidates=candidates, budget=1e-9, options=options, out=tmp_path / "c")
    found = bf.compare(table(60), "y", candidates=candidates, options=options, out=tmp_path / "c")
    assert found.forest.trees == 25 and found.stopped is not None
    assert found.candidates["trees"].to_list() == [25, 25]


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        *(("log_loss", "g"), ("error", "w"), ("auc", None), ("auc", "w"), ("auc of three", "w")),
        *(("mse", "w"), ("poisson_deviance", "g")),
    ],
)
def test_compare__losses_are_those_of_the_report(metric: str, column: str | None, tmp_path: Path) -> None:
    frame = table(100, metric in ("mse", "poisson_deviance")).drop({"w", "g"} - {column})
    if metric == "auc of three":
        metric, frame = "auc", frame.with_columns(y=pl.when(pl.col("x0") > 0.5).then(pl.lit("third")).otherwise("y"))
    shared: dict[str, Any] = {} if column is None else {"weight" if column == "w" else "group": column}
    if metric == "poisson_deviance":
        shared["impurity"] = "poisson"
        frame = frame.with_columns(pl.col("y").clip(0.0))
    found = bf.compare(
        frame, "y", candidates={"a": {}, "b": {"min_leaf": 5}}, metric=metric, out=tmp_path / "c",
        options={"trees": 6, **shared},
    )  # fmt: skip
    oob = found.forest.oob
    expected = oob.error if metric == "error" else oob.metrics[metric][-1]
    assert found.loss == pytest.approx(1 - expected if metric == "auc" else expected, rel=1e-6)
    rows = Rows.of(Store.open(tmp_path / "c" / "table.store"))
    assert (rows.group is not None) == (column == "g")
    assert (rows.weight is not None) == (column == "w")
    assert measure_loss(row_scores(found.forest, metric), rows).loss == found.loss


def test_compare__goes_by_the_deviance_where_trees_do() -> None:
    frame = table(100, True).drop("w", "g")
    candidates = {"a": {"impurity": "variance"}, "b": {"impurity": "poisson"}}
    with pytest.raises(DataError, match="and the Poisson deviance needs numbers of at least 0"):
        bf.compare(frame, "y", candidates={"a": {}, "b": {"min_leaf": 5}}, metric="poisson_deviance")
    counts = frame.with_columns(pl.col("y").clip(0.0))
    with pytest.raises(ConfigError, match="metric must be mse or poisson_deviance here"):
        bf.compare(counts, "y", candidates=candidates, metric="auc", options={"trees": 3})
    assert bf.compare(counts, "y", candidates=candidates, options={"trees": 3}).metric == "mse"
    given = {"trees": 3, "impurity": "poisson"}
    found = bf.compare(counts, "y", candidates={"a": {}, "b": {"min_leaf": 5}}, options=given)
    assert found.metric == "poisson_deviance" and found.loss == pytest.approx(found.forest.oob.error)


def test_compare__default_candidates_of_any_table(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.message)

    frame = table(80).with_columns(pl.Series("word", ["a", "b", None, "c"] * 20))
    found = bf.compare(pl.concat([frame, frame]), "y", options={"trees": 2}, listener=listen)
    reasons = dict(found.candidates.select("candidate", "retired").iter_rows())
    assert not any("cannot be grown here" in (reason or "") for reason in reasons.values())
    assert reasons["default"] is None
    with monkeypatch.context() as patch:
        ranks = {"default": {}, "ranks": {"ranks": True}}
        patch.setattr("bigforest.training.compare.default_candidates", lambda *_: ranks)
        found = bf.compare(frame, "y", options={"trees": 2})
    assert "cannot be grown here" in dict(found.candidates.select("candidate", "retired").iter_rows())["ranks"]
    assert any("80 of 160 rows equal an earlier row" in notice for notice in notices)
    assert sum(notice.startswith("projections need numbers") for notice in notices) == 1  # of two candidates
    assert any(notice.startswith("2 trees: ") for notice in notices)
    numbers = bf.compare(table(80, regression=True), "y", options={"trees": 2}, candidates=3)
    assert numbers.candidates["candidate"].to_list() == ["default", "larger-leaves", "without-replacement"]


def test_compare__no_candidate_is_left_out_because_its_folder_cannot_be_written(tmp_path: Path) -> None:
    forest = tmp_path / "c" / "forests" / "larger-leaves.forest"

    def block(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "grow" and not forest.is_symlink():
            forest.symlink_to(tmp_path / "gone" / "larger-leaves.forest")

    how: dict[str, Any] = {"candidates": 2, "options": {"trees": 3}, "out": tmp_path / "c"}
    with pytest.raises(ConfigError, match=r"the output larger-leaves\.forest does not exist"):
        bf.compare(table(80), "y", listener=block, **how)
    forest.unlink()
    assert bf.compare(table(80), "y", **how).candidates["loss"].null_count() == 0


def test_compare__tells_of_bags_that_leave_out_other_shares() -> None:
    notices: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.message)

    candidates: dict[str, Any] = {"all": {}, "few": {"replace": False, "sample_fraction": 0.3}}
    bf.compare(table(60), "y", candidates=candidates, options={"trees": 3}, listener=listen)
    assert any(notice.startswith("bags of few leave out 70% of the rows, bags of all 37%") for notice in notices)
    notices.clear()
    bf.compare(table(60), "y", candidates={"a": {}, "b": {"min_leaf": 5}}, options={"trees": 3}, listener=listen)
    assert not any("leave out" in notice for notice in notices)
    uneven = table(60).with_columns(y=pl.Series(["rare"] * 6 + ["usual"] * 54))
    candidates = {"all": {}, "even": {"sampling": "balanced"}}
    bf.compare(uneven, "y", candidates=candidates, options={"trees": 3}, listener=listen)
    assert any(notice.startswith("bags of even leave out 84% of the rows, bags of all 37%") for notice in notices)


def test_comparison__says_why_its_winner_has_not_the_lowest_loss() -> None:
    candidates: dict[str, Any] = {"a": {}, "b": {"min_leaf": 2}}
    said = []
    for names in ("ab", "ba"):  # the losses are within a standard error, so the first wins
        order = {name: candidates[name] for name in names}
        found = bf.compare(table(80), "y", candidates=order, options={"trees": 5})
        said.append(found.facts()["winner"])
    why = ", the first within a standard error of the lowest loss"
    assert sorted(said) in (
        [f"a, of 2 candidates{why}", "b, of 2 candidates"],
        ["a, of 2 candidates", f"b, of 2 candidates{why}"],
    )


def test_comparison__shows_itself(whole: bf.Comparison) -> None:
    assert repr(whole).startswith(f"Comparison({whole.winner} of 3 candidates, log_loss 0.")
    page = whole._repr_html_()
    assert all(f"<td>{name}</td>" in page for name in CANDIDATES)
    assert "cross-fitted" in page
    pytest.importorskip("altair")
    assert whole.plot().to_dict()["title"]


@pytest.fixture(scope="module")
def stored() -> str:
    """race.json of a comparison of a and b."""
    found = bf.compare(table(60), "y", candidates={"a": {}, "b": {"min_leaf": 5}}, options={"trees": 4})
    return (found.path / "race.json").read_text()


@pytest.mark.parametrize(
    ("change", "seal"),
    [
        (lambda raw: raw.update(rounds=[]), True),
        (lambda raw: raw["rounds"][0].update(trees=math.inf), True),
        *[(lambda raw, of=of: raw["seconds"].update(a=of), True) for of in ("x", 10**400, None)],
        (lambda raw: raw["grown"].update(a=2**63), True),
        (lambda raw: raw["size"].update(a="3"), True),
        (lambda raw: raw.update(cross_fitted="low"), True),
        (lambda raw: raw.update(stopped=5), True),
        (lambda raw: raw.update(options=[]), True),
        (lambda raw: raw.update(version=0), True),
        (lambda raw: raw.update(version=3), True),
        (lambda raw: raw.update(winner="../../x"), True),
        (lambda raw: raw["candidates"].update({"../x": {}}), True),
        (lambda raw: raw["rounds"][0]["losses"].update({"other": [1, 2, 3]}), True),
        (lambda raw: raw["rounds"][0]["losses"].update({"a": [1, 2]}), True),
        (lambda raw: raw["run"]["config"].update(trees="many"), True),
        (lambda raw: raw.update(more=1), True),
        (lambda raw: raw.update(winner="b"), False),
    ],
)
def test_race_state__damaged_ones_are_refused(stored: str, change: Any, seal: bool, tmp_path: Path) -> None:
    (tmp_path / "race.json").write_text(stored)
    assert bf.Comparison(tmp_path).winner in "ab"
    raw = json.loads(stored)
    change(raw)
    if seal:
        raw.pop("crc32")
        raw["crc32"] = entries_checksum(raw)
    (tmp_path / "race.json").write_text(json.dumps(raw))
    expected = {0: "of an older bigforest; start again", 3: "of a newer bigforest; upgrade, or start again"}
    with pytest.raises(FormatError, match=expected.get(raw["version"], "damaged .*; start again with overwrite")):
        ComparisonState.read(tmp_path)
    with pytest.raises(FormatError):
        bf.Comparison(tmp_path)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> bf.Forest:
    """The best of three default candidates of 5 trees on 120 rows."""
    frame = table(120).drop("w", "g")
    return bf.train(frame, "y", trees=5, tune=3, out=tmp_path_factory.mktemp("tuned") / "t")


def test_train__tune(tuned: bf.Forest, tmp_path: Path) -> None:
    frame = table(120).drop("w", "g")
    compared = bf.compare(frame, "y", candidates=3, options={"trees": 5})
    assert tuned.nodes.collect().equals(compared.forest.nodes.collect())
    same = ["candidate", "options", "trees", "loss", "difference", "standard_error", "bytes", "retired", "winner"]
    assert tuned.tuning.select(same).equals(compared.candidates.select(same).cast(tuned.tuning.select(same).schema))
    assert tuned.tuning["metric"].unique().to_list() == [compared.metric]
    assert tuned.tuning.filter("winner")["cross_fitted"].item() == compared.cross_fitted
    tuned.write(tmp_path / "copy")
    assert bf.read_forest(tmp_path / "copy").tuning.equals(tuned.tuning)
    assert tuned.origin == bf.train(frame, "y", trees=5).origin  # names no table, as the comparison's is gone
    assert bf.train(frame, "y", trees=1, tune="9h").tuning.height == 7
    for wrong in ({"tune": 0}, {"tune": "x"}, {"tune": True}, {"tune": 3, "validate": frame}):
        with pytest.raises(ConfigError, match=r"tune|candidates"):
            bf.train(frame, "y", **wrong)
    with pytest.raises(OutputExistsError):
        bf.train(frame, "y", tune=2, out=tuned.directory)


def test_tuned_forest__says_what_it_was_chosen_from(tuned: bf.Forest, tmp_path: Path, run: Run) -> None:
    [winner] = tuned.tuning.filter("winner").to_dicts()
    told = f"{winner['candidate']}, of 3 candidates: {winner['metric'].replace('_', ' ')} {winner['loss']:.6g}"
    assert told in tuned._repr_html_()
    facts = run.json("inspect", tuned.directory)
    assert facts["chosen"].startswith(told) and facts["tuning"] == tuned.tuning.to_dicts()
    shown = run("inspect", tuned.directory).out
    assert all(name in shown for name in tuned.tuning["candidate"]) and "winner" in shown
    page = tuned.report(out=tmp_path / "t.html").read_text(encoding="utf-8")
    assert told in page and "The candidates" in page


def test_tuning__what_is_damaged_or_of_another_forest_is_refused(tuned: bf.Forest, tmp_path: Path) -> None:
    plain = bf.train(table(60), "y", trees=2)
    assert "chosen" not in plain._repr_html_()
    with pytest.raises(ConfigError, match="train it with tune"):
        plain.tuning  # noqa: B018, reads the file
    shutil.copytree(tuned.directory, tmp_path / "t")
    path = tmp_path / "t" / "tuning" / "candidates.parquet"
    intact = path.read_bytes()
    sound = pq.read_table(path)
    place = sound.schema.get_field_index("winner")
    twice = sound.set_column(place, sound.schema.field(place), [[True] * sound.num_rows])
    for broken in (twice, sound.drop_columns("loss"), sound.slice(0, 0)):
        pq.write_table(broken, path)
        with pytest.raises(FormatError):
            bf.read_forest(tmp_path / "t").tuning  # noqa: B018
    path.write_bytes(intact[:-20])
    with pytest.raises(FormatError):
        bf.read_forest(tmp_path / "t").tuning  # noqa: B018
    path.write_bytes(intact)
    assert bf.read_forest(tmp_path / "t").tuning.equals(tuned.tuning)


def test_tuning__is_gone_where_trees_were_added(tuned: bf.Forest, tmp_path: Path) -> None:
    shutil.copytree(tuned.directory, tmp_path / "t")
    grown = bf.train(table(120).drop("w", "g"), resume=tmp_path / "t", trees=10)
    assert grown.trees == 10
    assert not grown.is_tuned
    grown.write(tmp_path / "copy")


def test_cli__compare(run: Run, folder: Path) -> None:
    (folder / "c.toml").write_text("[plain]\n[deep]\nmtry = 'all'\n", encoding="utf-8-sig")  # as on Windows
    told = run.json("compare", "things.parquet", "--candidates", "c.toml", "--trees", "10", "--out", "c", "--quiet")
    assert [row["candidate"] for row in told["candidates"]] == ["plain", "deep"]
    assert (folder / told["forest"]).is_dir()
    assert run("compare", "things.parquet", "--candidates", "c.toml", "--trees", "10", "--out", "c").code == 0
    assert "winner" in run.out
    assert run("compare", "things.parquet", "--candidates", "2", "--trees", "10", "--out", "c").code == 2
    assert "--overwrite" in run.err
    assert run("train", "things.parquet", "--tune", "2", "--trees", "5", "--out", "t.forest").code == 0
    assert "winner" in run.err
