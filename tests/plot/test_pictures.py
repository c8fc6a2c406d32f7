"""What pictures show, against plain recomputation, and the files they are written to."""

from __future__ import annotations

import json
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

import bigforest as bf
import bigforest.plot.draw
from bigforest.errors import ConfigError
from bigforest.plot.accuracy import (
    RISKS,
    area_of,
    confusion_table,
    error_table,
    limits_table,
    ranking_table,
    rejection_table,
    reliability_table,
    rounds_table,
)
from bigforest.plot.draw import FAINT, OTHERS, html_of_chart, labels_of, moment_text, number_text
from bigforest.plot.explanations import (
    MOST_LEVELS,
    coordinates,
    dependence_chart,
    dependence_table,
    map_table,
    pairs_table,
    surface_table,
    swarm_table,
    waterfall_table,
)
from bigforest.plot.forest import depth_table, leaves_table, time_table, tree_tables
from bigforest.plot.plot import PICTURES
from tests.commands import Run, run
from tests.naive import conformal as naive
from tests.thorough import cases

__all__ = ["run"]  # a fixture
EVIL = "</script><script>alert(1)</script>"


# Pictures that are drawn only when asked for.
UNASKED = ("surface", "interactions")


def table(rows: int = 240, classes: int = 3) -> pl.DataFrame:
    """Numbers, a category with missing values, and classes with hostile names."""
    random = np.random.default_rng(7)
    a, b = random.normal(size=(2, rows)).round(2)
    names = np.array([EVIL, 'b"&', "c", "d"])[:classes]
    c = [None if r < 0.1 else "<i>" if r < 0.5 else "z" for r in random.random(rows)]
    y = np.digitize(a + random.normal(0, 0.7, rows), np.linspace(-0.7, 0.7, classes - 1))
    return pl.DataFrame({"a<b>": a, "b.[0]\\x": b, "c": c, "y": names[y]})


@pytest.fixture(scope="module", params=[2, 3])
def grown(request: Any) -> tuple[bf.Forest, pl.DataFrame]:
    frame = table(classes=request.param)
    return bf.train(frame, target="y", trees=12, threads=1), frame


@pytest.fixture(scope="module")
def numbers() -> tuple[bf.Forest, pl.DataFrame]:
    frame = table().with_columns(y=pl.col("a<b>") * 2.5 + pl.col("b.[0]\\x"))
    return bf.train(frame, target="y", trees=12, threads=1), frame


def heard(forest: bf.Forest) -> list[dict[str, Any]]:
    return [row for row in forest.oob.rows.collect().to_dicts() if row["trees"]]


def test_error__of_classes_is_that_of_the_report(grown: Any) -> None:
    forest, _ = grown
    rows, last = heard(forest), error_table(forest).row(-1, named=True)
    wrong = np.array([row["truth"] != row["prediction"] for row in rows])
    assert last["rows"] == len(rows) and last["error"] == pytest.approx(wrong.mean())
    assert last["standard_error"] == pytest.approx(wrong.std() / len(rows) ** 0.5)


def test_error__of_numbers_has_the_spread_of_squared_errors(numbers: Any) -> None:
    squares = np.array([(row["truth"] - row["prediction"]) ** 2 for row in heard(numbers[0])])
    last = error_table(numbers[0]).row(-1, named=True)
    assert last["error"] == pytest.approx(squares.mean())
    assert last["standard_error"] == pytest.approx(squares.std(ddof=1) / squares.size**0.5)


def test_error__of_rows_in_groups_has_no_standard_error() -> None:
    frame = table(60, classes=2)
    frame = pl.concat([frame] * 5).with_columns(group=pl.int_range(300) % 60)  # five copies are one observation
    forest = bf.train(frame, target="y", group="group", trees=6, threads=1)
    assert error_table(forest)["standard_error"].is_null().all()
    assert "not independent" in forest.plot.error().to_dict()["title"]["subtitle"][0]


@pytest.mark.parametrize("weight", [None, "w"])
def test_curves__say_that_rows_are_unweighted(weight: str | None) -> None:
    frame = table(60, classes=2).with_columns(w=1 + pl.int_range(60) % 3)
    forest = bf.train(frame, target="y", weight=weight, trees=6, threads=1)
    for drawn in (forest.plot.roc(), forest.plot.precision_recall()):
        assert ("unweighted" in " ".join(drawn.to_dict()["title"]["subtitle"])) == (weight is not None)


def test_scores__are_those_of_the_rows_out_of_bag(grown: Any) -> None:
    forest, _ = grown
    for code, label in enumerate(forest.classes):
        score = np.array([row[f"p_{label}"] for row in heard(forest)])
        hit = np.array([row["truth"] == label for row in heard(forest)])
        for row in reliability_table(forest, code).to_dicts():
            own = np.minimum(np.floor(score * 10), 9) == row["bin"]
            assert row["rows"] == own.sum()
            assert (row["score"], row["share"]) == pytest.approx((score[own].mean(), hit[own].mean()))
        steps, ranking = np.floor(score * 10_000), ranking_table(forest, code)
        assert area_of(ranking) == pytest.approx(roc_auc_score(hit, steps))
        for row in ranking.to_dicts():
            chosen = steps >= round(row["score"] * 10_000)
            assert row["precision"] == pytest.approx(hit[chosen].mean())
            assert row["found"] == pytest.approx((hit & chosen).sum() / hit.sum())
            assert row["false_alarms"] == pytest.approx((~hit & chosen).sum() / (~hit).sum())


@pytest.mark.parametrize("refine", ["auto", 3, "off"])
def test_rounds__are_those_that_were_tried(refine: Any) -> None:
    forest = bf.train(table(600), target="y", trees=6, threads=1, refine=refine)
    if refine == "off":
        with pytest.raises(ConfigError, match="train it with refine"):
            forest.plot.rounds()
        return
    rows = rounds_table(forest).rows()
    assert [row[:2] for row in rows] == list(zip(forest.rounds.tried, forest.rounds.losses, strict=True))
    assert [row[0] for row in rows if row[2]] == [forest.rounds.amount]
    assert len(forest.plot.rounds().to_dict()["layer"]) == 2


def test_waterfall__of_a_boosted_stage_is_of_scores() -> None:
    frame = table(classes=2)
    forest = bf.train(frame, target="y", trees=6, threads=1, refine=3)
    drawn = forest.plot.waterfall(frame, row=3).to_dict()
    assert drawn["layer"][0]["encoding"]["x"]["title"] == "log odds"
    share = forest.predict_proba(frame)[3, 1]
    end = drawn["layer"][0]["data"]["values"][-1]["end"]
    assert end == pytest.approx(np.log(share / (1 - share)), abs=1e-9)


def test_waterfall__before_the_power_is_of_shares() -> None:
    frame = table(classes=2)
    forest = bf.train(frame, target="y", trees=6, threads=1, refine="off", power=2.0)
    drawn = forest.plot.waterfall(frame, row=3).to_dict()
    assert drawn["layer"][0]["encoding"]["x"]["title"] == "share of votes"
    share = forest.sharpen(1.0).predict_proba(frame)[3, 1]
    assert drawn["layer"][0]["data"]["values"][-1]["end"] == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(("refine", "sample"), [(3, "rows"), ("off", "trees")])
def test_permutation__says_over_what_its_errors_are(refine: Any, sample: str) -> None:
    frame = table(classes=2)
    forest = bf.train(frame, target="y", trees=6, threads=1, refine=refine)
    titles = [
        drawn.to_dict()["title"]["subtitle"][0] for drawn in (forest.plot.permutation(frame), forest.plot.importance())
    ]
    assert [title.split()[-1] for title in titles] == [sample, "trees"]


@pytest.mark.parametrize("name", ["roc", "precision_recall", "reliability"])
def test_scores__of_the_positive_class_that_was_chosen(grown: Any, name: str) -> None:
    forest, _ = grown
    for code in (0, 1):
        drawn = getattr(forest.plot, name)(label=forest.classes[code]).to_dict()
        sets = [part["data"]["values"] for part in (drawn, *drawn["layer"]) if "data" in part]
        labels = {row["label"] for rows in sets for row in rows if "label" in row}
        assert len(labels) == 1 and labels.pop().startswith(str(forest.classes[code]))
    with pytest.raises(ConfigError, match="'none' is no class of the target"):
        getattr(forest.plot, name)(label="none")


def test_rejection__is_the_error_of_the_rows_that_are_predicted(grown: Any) -> None:
    forest, _ = grown
    rows = heard(forest)
    votes = [max(row[f"p_{label}"] for label in forest.classes) for row in rows]
    wrong = [row["truth"] != row["prediction"] for row in rows]
    expected = naive.rejections(votes, wrong)
    parts = [(share, Fraction(many, len(rows)), Fraction(bad, many)) for share, many, bad in expected]
    assert rejection_table(forest).rows() == [(share, float(many), float(bad)) for share, many, bad in parts]
    limits = limits_table(forest)
    assert limits["reject_above"].to_list() == [risk for risk in RISKS if len(rows) * risk >= 1]
    assert limits["predicted"].n_unique() > 1
    for risk, share, predicted, error in limits.rows():
        own = [bad for bad, kept in zip(wrong, naive.answered(votes, wrong, str(risk), votes), strict=True) if kept]
        assert predicted == len(own) / len(rows)
        assert error == (sum(own) / len(own) if own else None)
        assert (share is None) == (not own)


def test_rejection__where_no_row_is_sure_enough(tmp_path: Path) -> None:
    noise = pl.DataFrame({"a": np.random.default_rng(1).random(400), "y": ["n", "o"] * 200})
    forest = bf.train(noise, target="y", trees=12, threads=1)
    assert limits_table(forest, [0.01]).rows() == [(0.01, None, 0.0, None)]
    assert limits_table(forest, [0.0001]).height == 0
    assert forest.plot.rejection().to_dict()["layer"]
    forest.report(out=tmp_path / "r.html", trees=0)
    assert "reject above" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_confusion__counts_rows_and_puts_rare_classes_together(grown: Any) -> None:
    forest, _ = grown
    names = dict(zip(forest.classes, labels_of(forest.classes), strict=True))
    pairs = [(names[row["truth"]], names[row["prediction"]]) for row in heard(forest)]
    found = confusion_table(forest).to_dicts()
    assert {(row["truth"], row["prediction"]): row["rows"] for row in found} == {p: pairs.count(p) for p in pairs}
    for row in found:
        assert row["share"] == pytest.approx(row["rows"] / sum(p[0] == row["truth"] for p in pairs))
    few = confusion_table(forest, 1)
    assert set(few["truth"]) - {OTHERS} and few["rows"].sum() == len(pairs) and few["truth"].n_unique() == 2


def test_shape__counts_leaves(grown: Any) -> None:
    forest, _ = grown
    leaves = [row for row in forest.nodes.collect().to_dicts() if row["left"] is None]
    depths = [row["depth"] for row in leaves]
    deepest = [max(row["depth"] for row in leaves if row["tree"] == tree) for tree in range(forest.trees)]
    for row in depth_table(forest).to_dicts():
        assert (row["leaves"], row["trees"]) == (depths.count(row["depth"]), deepest.count(row["depth"]))
    sizes = leaves_table(forest)
    assert sizes["leaves"].sum() == len(leaves)
    for row in sizes.to_dicts():
        assert row["leaves"] == sum(row["from"] <= leaf["weight"] < row["to"] for leaf in leaves)
    assert time_table(forest)["seconds"].to_list() == forest.run["seconds"].to_list()


def test_tree__shows_its_nodes(grown: Any) -> None:
    forest, _ = grown
    nodes, bars, edges = tree_tables(forest, 3, 2)
    own = {row["node"]: row for row in forest[3].nodes.to_dicts() if row["depth"] <= 2}
    assert nodes["node"].to_list() == list(own) and edges.height == len(own) - 1
    names = labels_of(forest.classes)
    for bar in bars.to_dicts():
        counts = own[bar["node"]]["counts"]
        share = counts[names.index(bar["label"])] / sum(counts)
        assert bar["end"] - bar["begin"] == pytest.approx(0.8 * share)


def test_tree__counts_rows_or_their_weight() -> None:
    frame = pl.DataFrame({"x": [1, 2, 2], "w": [1.0, 1.5, 1.5], "y": ["a", "b", "b"]})
    told = {None: ["3 rows", "1 row", "2 rows"], "w": ["4 by weight", "1 by weight", "3 by weight"]}
    for weight, sizes in told.items():
        names = frame.drop("w") if weight is None else frame
        forest = bf.train(names, "y", family="tree", weight=weight, min_leaf=1, threads=1)
        assert tree_tables(forest, 0, 1)[0]["rows"].to_list() == sizes


def test_contributions__go_from_base_to_prediction(grown: Any) -> None:
    forest, frame = grown
    found = forest.explain(frame, parts="contributions", classes=[forest.classes[1]], threads=1)["contributions"]
    steps = waterfall_table(found.filter(pl.col("row") == 5), frame.row(5, named=True), 2)
    first = found.filter(pl.col("row") == 5).row(0, named=True)
    assert steps["begin"][0] == pytest.approx(first["base"])
    assert steps["end"][-1] == pytest.approx(first["prediction"])
    assert steps["begin"].to_list()[1:] == pytest.approx(steps["end"].to_list()[:-1])
    swarm = swarm_table(found.sort("row"), frame, {"c"})
    assert swarm.height == 3 * frame.height
    sums = {name: swarm.filter(pl.col("feature") == name)["change"].sum() for name in ("a<b>", "b.[0]\\x", "c")}
    assert sums == pytest.approx({name: found[f"c_{name}"].sum() for name in sums})
    assert swarm.filter(pl.col("feature") == "c")["level"].null_count() == frame.height


def test_interactions__show_both_orders_of_a_pair(grown: Any) -> None:
    forest, frame = grown
    found = forest.explain(frame, parts="interactions", classes=[forest.classes[1]], threads=1)["interaction-pairs"]
    table = pairs_table(found)
    cells = {(row["feature"], row["other"]): row["interaction"] for row in table.to_dicts()}
    expected = {(a, b): value for *_, a, b, value in found.rows() if a != b}
    assert cells == expected | {(b, a): value for (a, b), value in expected.items()}
    sums = table.group_by("feature", maintain_order=True).agg(pl.sum("interaction"))["interaction"].to_list()
    assert sums == sorted(sums, reverse=True) and len(sums) == 3
    first = pairs_table(found, 2)
    assert first["feature"].to_list() == table["feature"].unique(maintain_order=True).to_list()[:2]


def test_surface__has_a_cell_for_each_pair_of_values(grown: Any) -> None:
    forest, frame = grown
    names = ("a<b>", "c")
    found = forest.explain(frame, parts="dependence", features=[names], classes=[forest.classes[1]], grid=4, threads=1)
    own = found["dependence-pairs"]
    cells = surface_table(own, *names)
    assert cells["prediction"].to_list() == own["prediction"].to_list()
    assert set(cells["y"]) == {"missing", "<i>", "z"}
    grid = own["value_a"].unique().sort().to_list()
    for cell, value in zip(cells.to_dicts(), own["value_a"].to_list(), strict=True):
        at = grid.index(value)
        assert cell["x"] == (grid[0] if at == 0 else pytest.approx((grid[at - 1] + value) / 2))
        assert cell["right"] == (grid[-1] if at == len(grid) - 1 else pytest.approx((grid[at + 1] + value) / 2))
    with pytest.raises(bf.ConfigError, match="needs two features"):
        forest.plot.surface(frame, ["a<b>"])


def test_map__keeps_the_distances_that_two_dimensions_can() -> None:
    """Three groups of rows without a common neighbor of two groups: an equilateral triangle of sides sqrt(2)."""
    own = {0: {0: 0.5, 1: 0.5}, 1: {0: 0.5, 1: 0.5}, 4: {5: 1.0}, 7: {9: 0.2, 6: 0.8}}
    lines = [(row, other, share) for row, near in own.items() for other, share in near.items()]
    neighbors = pl.DataFrame(lines, schema=["row", "neighbor", "proximity"], orient="row")
    rows, place, share = coordinates(neighbors)
    assert rows.to_list() == [0, 1, 4, 7] and share == pytest.approx(1.0)
    distance = np.linalg.norm(place[:, None] - place[None], axis=2)
    group = np.array([0, 0, 1, 2])
    np.testing.assert_allclose(distance, np.where(group[:, None] == group, 0.0, np.sqrt(2)), atol=1e-7)


def test_map__colours_rows_by_their_class(grown: Any, numbers: Any) -> None:
    forest, frame = grown
    near = forest.explain(frame, parts="proximities", neighbors=30, threads=1)["neighbors"]
    shown, share = map_table(near, frame["y"], True)
    names = dict(zip(sorted(frame["y"].unique()), labels_of(sorted(frame["y"].unique())), strict=True))
    assert shown["target"].to_list() == [names[frame["y"][row]] for row in shown["row"].to_list()]
    assert 0 < share < 1
    forest, frame = numbers
    near = forest.explain(frame, parts="proximities", neighbors=30, threads=1)["neighbors"]
    shown, _ = map_table(near, frame["y"], False)
    assert shown["target"].to_list() == frame["y"].gather(shown["row"]).to_list()


@pytest.mark.parametrize(
    ("value", "digits", "sign", "told"),
    [
        (0.0, 4, "", "0"),
        (-1386.4, 3, "+", "-1,386"),
        (224.0, 3, "+", "+224"),
        (528312.4, 4, "", "528,312"),
        (1e15, 4, "", "1e+15"),
        (0.00012345, 4, "", "0.0001234"),
        (1e-9, 3, "", "1e-09"),
        (0.5, 4, "", "0.5"),
        (9999.96, 4, "", "10,000"),
        (float("inf"), 4, "", "inf"),
    ],
)
def test_numbers__are_told_without_powers_of_ten(value: float, digits: int, sign: str, told: str) -> None:
    assert number_text(value, digits, sign) == told


def test_dates__are_told_as_dates() -> None:
    days = pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 3, 31), eager=True)
    times = days.shuffle(seed=1).cast(pl.Datetime("us"))
    frame = pl.DataFrame({"day": days, "at": times, "y": days.dt.month() + 4 * times.dt.month()})
    forest = bf.train(frame, target="y", task="classification", trees=3, mtry="all", threads=1)
    nodes, _, _ = tree_tables(forest, 0, 1)
    root = forest[0].nodes.row(0, named=True)
    day = pl.Series([int(root["threshold"] // (1 if root["feature"] == "day" else 86_400_000_000))]).cast(pl.Date)[0]
    assert nodes["text"][0].startswith(f"≤ {day}")
    assert moment_text(20_000.5, 86_400_000.0) == "2024-10-04" and moment_text(1e300, 1.0) == "1e+300"
    assert moment_text(1e15, 1e-3) == "2001-09-09 01:46:40"
    charts = [part.to_dict() for part in forest.plot.dependence(frame, features=["day", "at"]).concat]
    for chart in charts:
        first = chart["data"]["values"][0]["value"]
        assert chart["encoding"]["x"]["type"] == "temporal" and first == 1_767_225_600_000
    surface = forest.plot.surface(frame, ["day", "at"]).to_dict()
    assert surface["encoding"]["x"]["type"] == surface["encoding"]["y"]["type"] == "temporal"
    assert all(point["level"] is not None for point in forest.plot.swarm(frame).to_dict()["layer"][1]["data"]["values"])


def test_dependence__shows_some_of_many_levels() -> None:
    levels = [None, *(f"l{number}" for number in range(99))]
    answers = [0.9, *(number / 100 for number in range(99))]
    found = pl.DataFrame({"feature": "f", "value": None, "level": levels, "prediction": answers, "class": "late"})
    found = found.with_columns(pl.col("value").cast(pl.Float64))
    table = dependence_table(found, "f")
    assert table.height == MOST_LEVELS and set(table["prediction"]) == {*sorted(answers)[:8], *sorted(answers)[-8:]}
    assert "f, 16 of 100 levels" in str(dependence_chart(found, regression=False, steps={}).to_dict())


def test_swarm__is_grey_where_there_is_no_level(grown: Any) -> None:
    layers = grown[0].plot.swarm(grown[1]).to_dict()["layer"][1:]
    grey, coloured = (layer["data"]["values"] for layer in layers)
    assert all(point["level"] is None for point in grey)
    assert all(point["level"] is not None for point in coloured)
    assert layers[0]["encoding"]["color"] == {"value": FAINT} and "c" in {point["feature"] for point in grey}


def test_swarm__levels_are_those_of_numbers_whatever_their_type() -> None:
    draw = np.random.default_rng(4)
    code, flag, day = draw.integers(0, 4, 200), draw.random(200) < 0.4, draw.integers(0, 900, 200)
    frame = pl.DataFrame({"code": code, "flag": flag, "day": pl.Series(day).cast(pl.Int32).cast(pl.Date)})
    frame = frame.with_columns(y=pl.Series(np.where(flag ^ (code > 1), "u", "v")))
    forest = bf.train(frame, "y", trees=5, categories=["code"], threads=1)
    layers = forest.plot.swarm(frame).to_dict()["layer"][1:]
    grey, coloured = ({point["feature"] for point in layer["data"]["values"]} for layer in layers)
    assert (grey, coloured) == ({"code"}, {"flag", "day"})


def test_labels__differ_where_values_do() -> None:
    long = ["x" * 50 + "1", "x" * 50 + "2", "a\x00b", None]
    assert len(set(labels_of(long))) == 4 and all(text.isprintable() for text in labels_of(long))


BEGINS = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!DOCTYPE"}


@pytest.mark.parametrize(
    ("grown", "kind"),
    cases([(3, "svg"), (2, "png"), (3, "html"), (2, "svg"), (3, "png"), (2, "html")], quick=1),
    indirect=["grown"],
)
def test_files__are_all_that_can_be_drawn(grown: Any, tmp_path: Path, kind: str) -> None:
    forest, frame = grown
    files = bf.plot_forest(forest, frame, out=tmp_path / "out", format=kind, threads=1)
    asked = bf.plot_forest(forest, frame, out=tmp_path / "out", what=UNASKED, format=kind, threads=1)
    files = sorted([*files, *asked], key=lambda file: PICTURES.index(file.stem))
    assert [file.stem for file in files] == [name for name in PICTURES if name != "rounds" or forest.rounds.tried]
    assert sorted(files) == sorted((tmp_path / "out").iterdir())  # and nothing half made
    for file in files:
        content = file.read_bytes()
        assert content.startswith(BEGINS[kind]) and b"<script>alert" not in content, file
    with pytest.raises(bf.OutputExistsError):
        bf.plot_forest(forest, out=tmp_path / "out", what="time", format=kind)


def test_files__of_a_failed_call_do_not_refuse_its_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = bf.train({"x": [1.0, 2.0] * 9, "y": ["a", "b"] * 9}, "y", trees=2, threads=1)
    out, staged = tmp_path / "out", bigforest.plot.draw.staged

    def fail(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.stem == "tree":
            raise OSError("full")
        return staged(path, *arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(bigforest.plot.draw, "staged", fail)
        bf.plot_forest(forest, out=out, what=["depth", "tree"], format="html", threads=1)
    assert not out.exists()
    assert len(bf.plot_forest(forest, out=out, what=["depth", "tree"], format="html", threads=1)) == 2


@pytest.mark.parametrize("grown", [2], indirect=True)
@pytest.mark.parametrize("kind", ["png", "html"])
def test_files__of_other_kinds(grown: Any, tmp_path: Path, kind: str) -> None:
    forest, frame = grown
    names = ["confusion", "swarm", "tree"]
    files = bf.plot_forest(forest, frame, tmp_path, what=names, format=kind, threads=1)
    assert [file.name for file in files] == [f"{name}.{kind}" for name in names]
    for file in files:
        content = file.read_bytes()
        assert content.startswith(BEGINS[kind]) and b"<script>alert" not in content, file


def test_plot_forest__takes_features_from_a_generator(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [float(k % 7) for k in range(40)], "y": [k % 2 > 0 for k in range(40)]})
    forest = bf.train(frame, "y", trees=2, threads=1)
    drawn = [
        bf.plot_forest(forest, frame, out=tmp_path / name, what="dependence", features=features, format="html")
        for name, features in (("list", ["x"]), ("generator", iter(["x"])))
    ]
    assert drawn[0][0].read_text() == drawn[1][0].read_text()


@pytest.mark.parametrize("regression", [False, True])
def test_charts__follow_the_schema_of_vega_lite(regression: bool) -> None:
    """Files are written without this check, which takes as long as drawing."""
    frame = table(classes=2)
    frame = frame.with_columns(y=pl.col("a<b>") * 2.5) if regression else frame
    forest = bf.train(frame, target="y", trees=12, threads=1, refine=2)
    plot = forest.plot
    charts = [plot.error(), plot.rounds(), plot.tree()]
    charts += [draw(frame) for draw in (plot.unbiased, plot.permutation, plot.dependence, plot.waterfall, plot.swarm)]
    charts += [draw(frame) for draw in (plot.surface, plot.interactions, plot.map)]
    if not regression:
        charts += [plot.importance(), plot.depth(), plot.leaves(), plot.time(), plot.confusion()]
        charts += [plot.reliability(), plot.roc(), plot.precision_recall(), plot.rejection()]
    for chart in charts:
        chart.to_dict(validate=True)


def test_files__of_numbers_and_of_forests_without_report(numbers: Any, tmp_path: Path) -> None:
    forest, frame = numbers
    for draw in (forest.plot.swarm, lambda data, label: bf.plot_forest(forest, data, out=tmp_path / "n", label=label)):
        with pytest.raises(ConfigError, match="label does not apply to this forest"):
            draw(frame, label="a")
    names = {file.stem for file in bf.plot_forest(forest, frame, out=tmp_path / "n", format="html", threads=1)}
    classes = {"confusion", "reliability", "roc", "precision-recall", "rejection"}
    assert names == set(PICTURES) - {*UNASKED, *classes, *([] if forest.rounds.tried else ["rounds"])}
    target = frame.drop("c").with_columns(y=pl.col("y") > 0)
    other = bf.train(target, target="y", trees=1, family="sparse-oblique", bootstrap=False, threads=1)
    files = bf.plot_forest(other, target, out=tmp_path / "o", format="html", threads=1)
    assert {"tree", "swarm", "depth"} <= {file.stem for file in files} and not other.has_oob


@pytest.mark.parametrize("grown", [3], indirect=True)
def test_html__keeps_data_within_its_script(grown: Any) -> None:
    chart = grown[0].plot.confusion()
    page = html_of_chart(chart)
    assert page.count("</script>") == 2 and " src=" not in page.split("<body>")[1]
    data = re.findall(r'vegaEmbed\("#picture", (.*), \{"mode"', page)[0]
    assert "<" not in data  # `<!--<script` too would keep the script open
    assert EVIL in json.dumps(json.loads(data)) and json.loads(data) == chart.to_dict()


@pytest.mark.parametrize("grown", [3], indirect=True)
def test_wrong_input__is_one_line(grown: Any, tmp_path: Path, run: Run) -> None:
    forest, _ = grown
    forest.write(tmp_path / "a.forest")
    for words, told in (
        (["--what", "nonsense"], "--what must be some of"),
        (["--format", "gif"], "--format must be one of"),
        (["--what", "dependence"], "set DATA"),
        (["--what", "tree", "--tree", "99"], "--tree must be a number from 0 to 11"),
        (["--what", "tree", "--depth", "9"], "--depth must be"),
        (["--feature", "nope"], "--feature must list features, each once: 'nope' is not a feature of the forest"),
        (["--class", "nope"], "'nope' is no class of the target; the classes are "),
    ):
        assert run("plot", tmp_path / "a.forest", "--out", tmp_path / "o", *words).code == 2
        assert told in run.err and run.err.count("\n") == 1, run.err
        assert not (tmp_path / "o").exists()
    with pytest.raises(ConfigError, match="row must be"):
        forest.plot.waterfall(grown[1], row=10**6)


@pytest.mark.parametrize("draw", [bf.plot_forest, bf.report_forest])
def test_missing_extra__is_told_after_what_is_wrong_with_the_forest(
    draw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(bf.FormatError, match="nothing"):
        draw(tmp_path / "nothing", out=tmp_path / "out.html")


@pytest.mark.skipif(bigforest.plot.draw.resource is None, reason="needs limits of address space")
@pytest.mark.parametrize("draw", [bf.plot_forest, bf.report_forest])
def test_limited_address_space__is_an_error_before_the_library_of_charts_aborts(
    draw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = bf.train({"x": [1.0, 2.0] * 9, "y": ["a", "b"] * 9}, "y", trees=2, threads=1)
    monkeypatch.setattr(bigforest.plot.draw.resource, "getrlimit", lambda _: (32_000_000_000, -1))
    with pytest.raises(
        ConfigError, match=r"limited to 32.0 GB \(ulimit -v\), and the library that draws charts .*raise"
    ):
        draw(forest, out=tmp_path / "out.html")
    assert not list(tmp_path.iterdir())
