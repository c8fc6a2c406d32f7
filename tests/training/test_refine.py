"""Forests with a boosted stage: predictions and report against plain ones, all ways of training, and refusals."""

from __future__ import annotations

import math
import pickle
import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bigforest as bf
from bigforest.errors import ConfigError, FormatError
from bigforest.events import Event, StageAdvanced
from bigforest.forest.files import write_tables
from bigforest.forest.format import REFINEMENT
from bigforest.sampling.bags import are_held_out
from tests.naive import refine as naive

ROWS = 240


def table(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    """Numbers, levels and gaps, with targets of each kind whose signal is additive."""
    draw = np.random.default_rng(seed)
    x = draw.random((rows, 4)).round(2)
    level = draw.integers(0, 5, rows)
    signal = 2.0 * x[:, 0] + x[:, 1] - x[:, 2] + 0.4 * level
    noise = draw.normal(size=rows) * 0.2
    frame = pl.DataFrame({f"x{place}": x[:, place] for place in range(4)})
    return frame.with_columns(
        x3=pl.when(pl.Series(draw.random(rows) < 0.2)).then(None).otherwise(pl.col("x3")),
        level=pl.Series([None if one == 4 else f"l{one}" for one in level.tolist()]),
        number=pl.Series(signal + noise),
        count=pl.Series(draw.poisson(np.exp(signal / 2)).astype(float)),
        two=pl.Series(np.where(signal + noise > np.median(signal), "yes", "no")),
        three=pl.Series(np.digitize(signal + noise, np.quantile(signal, [0.3, 0.7]))),
        w=pl.Series(draw.integers(1, 5, rows)),
        g=pl.Series(draw.integers(0, 40, rows)),
    )


CASES: dict[str, dict[str, Any]] = {
    "numbers": {"target": "number", "calibration": 0.2},
    "numbers, poisson, groups": {"target": "count", "impurity": "poisson", "task": "regression", "group": "g"},
    "two classes, weights": {"target": "two", "weight": "w", "power": 3.0},
    "three classes, oblique": {"target": "three", "family": "sparse-oblique", "class_weight": "balanced"},
    "three classes, hard votes": {"target": "three", "vote": "hard", "task": "classification", "power": 2.5},
    "numbers, ranks": {"target": "number", "family": "rotation", "ranks": True},
    # No tree of the forest splits on x1, as the stage does.
    "three classes, shallow": {"target": "three", "max_depth": 1, "mtry": 2, "task": "classification"},
}
LOSSES = {"number": "squared", "count": "poisson", "two": "logistic", "three": "softmax"}
OPTIONS: dict[str, Any] = {"trees": 12, "refine": 3, "seed": 5, "threads": 1}


def of_case(name: str, rows: int = ROWS, **more: Any) -> tuple[pl.DataFrame, str, dict[str, Any]]:
    """The table, target and options of a case."""
    options = {**OPTIONS, **CASES[name], **more}
    target = options.pop("target")
    used = [target, "x0", "x1", "x2", *(options[own] for own in ("weight", "group") if own in options)]
    used += [] if options.get("ranks") else ["x3"]
    used += [] if "family" in options else ["level"]
    return table(rows).select(used), target, options


def predictions(forest: bf.Forest, data: Any) -> np.ndarray[Any, Any]:
    """Class probabilities, or numbers as a column, [rows, outputs]."""
    if forest.is_regression:
        return forest.predict(data)["prediction"].to_numpy()[:, None]
    return forest.predict_proba(data).select(f"p_{label}" for label in forest.classes).to_numpy()


def trees_of(forest: bf.Forest) -> list[list[naive.Tree]]:
    """The trees of each sequence, from the table of their nodes."""

    def made(nodes: list[dict[str, Any]], number: int) -> naive.Tree:
        node = nodes[number]
        if node["kind"] == "leaf":
            return naive.Tree(node["weight"], node["values"])
        feature = forest.spec.feature_names.index(node["feature"])
        rule = (feature, node["threshold"], node["default_left"], frozenset(node["levels"] or ()))
        children = made(nodes, node["left"]), made(nodes, node["right"])
        return naive.Tree(node["weight"], node["values"], *rule, *children)

    found: list[list[naive.Tree]] = []
    for (sequence, _), nodes in forest.refinement.group_by("sequence", "round", maintain_order=True):
        found += [[]] if sequence == len(found) else []
        found[-1].append(made(nodes.to_dicts(), 0))
    return found


def cells(forest: bf.Forest, data: pl.DataFrame) -> tuple[list[list[Any]], list[bool]]:
    """Rows as trees see them, and which features have levels: filled, or as ranks, if the forest has these."""
    category = [feature.splits_on_levels for feature in forest.spec.features]
    columns = []
    for place, feature in enumerate(forest.spec.features):
        own = data[feature.name].to_list()
        if feature.is_filled:
            own = [feature.fill if cell is None else cell for cell in own]
        if forest.ranks is not None:
            own = forest.ranks.of(place, np.array(own, float)).tolist()
        columns.append(own)
    return [list(row) for row in zip(*columns, strict=True)], category


@pytest.mark.parametrize("name", CASES)
def test_refined__predictions_and_report_are_those_of_the_plain_stage(name: str) -> None:
    data, target, options = of_case(name)
    forest = bf.train(data, target, **options)
    plain = forest.unrefined()
    assert (forest.rounds.amount, plain.rounds.amount, plain.unrefined()) == (3.0, 0.0, plain)
    loss, sequences = LOSSES[target], trees_of(forest)
    rows, category = cells(forest, data)
    least = 2.0**-16 * forest.spec.target.offset if loss == "poisson" else 2.0**-10
    expected = [
        naive.refined(loss, share, least, sequences, row, category)
        for share, row in zip(predictions(plain, data).tolist(), rows, strict=True)
    ]
    assert predictions(forest, data).tolist() == expected
    # The report: its rows are of the sequences that leave them out.
    before = bf.train(data, target, **options | {"refine": "off"}).oob.rows.collect()
    after = forest.oob.rows.collect()
    shares = [name for name in after.columns if name.startswith("p_")] or ["prediction"]
    held = np.zeros(ROWS, np.bool_)
    if "calibration" in options:
        held = are_held_out(np.arange(ROWS, dtype=np.uint64), options["calibration"])
    numbers = np.unique(data["g"], return_inverse=True)[1] if "group" in options else np.arange(ROWS)
    for place, (one, two) in enumerate(zip(before.iter_rows(named=True), after.iter_rows(named=True), strict=True)):
        assert one["trees"] == two["trees"]
        if not one["trees"]:
            assert [two[share] for share in shares] == [None] * len(shares)
            continue
        own = sequences if held[place] else [sequences[out] for out in naive.left_out(5, int(numbers[place]))]
        corrected = naive.refined(loss, [one[share] for share in shares], least, own, rows[place], category)
        assert [two[share] for share in shares] == corrected
    used = (after["trees"] > 0).to_numpy()
    after = after.filter(used)
    if not forest.is_regression:
        wrong = (after["prediction"] != after["truth"]).to_numpy()
        assert after["prediction"].to_list() == [forest.classes[p] for p in after.select(shares).to_numpy().argmax(1)]
        weight = data["w"].to_numpy()[used] if "weight" in options else None
        if "class_weight" not in options:
            assert forest.oob.error == pytest.approx(np.average(wrong, weights=weight), rel=1e-12)
    elif loss == "squared":
        assert forest.oob.error == pytest.approx(((after["truth"] - after["prediction"]) ** 2).mean(), rel=1e-12)


@pytest.mark.parametrize("name", ["numbers, poisson, groups", "three classes, oblique"])
def test_refined__is_the_same_forest_by_any_way(name: str, tmp_path: Path) -> None:
    data, target, options = of_case(name, rows=600, refine="auto", trees=20)
    expected = bf.train(data, target, out=tmp_path / "f", **options)

    def files(folder: Path) -> dict[str, bytes]:
        return {
            str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.parquet") if p.name != "run.parquet"
        }

    memory = bf.plan_training(data, target, **options).smallest
    assert bf.train(data, target, out=tmp_path / "memory", **options | {"memory": memory}).rounds == expected.rounds
    assert files(tmp_path / "memory") == files(tmp_path / "f")

    def stop(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "refine":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.train(data, target, out=tmp_path / "killed", listener=stop, **options | {"threads": 2})
    bf.train(data, resume=tmp_path / "killed", threads=2)
    assert files(tmp_path / "killed") == files(tmp_path / "f")
    bf.train(data, target, out=tmp_path / "longer", **options | {"trees": 12})
    bf.train(data, resume=tmp_path / "longer", trees=20)
    assert files(tmp_path / "longer") == files(tmp_path / "f")


def test_refined__predicts_the_same_by_any_way(tmp_path: Path) -> None:
    data, target, options = of_case("numbers")
    forest = bf.train(data, target, out=tmp_path / "f", **options)
    expected = forest.predict(data)
    assert forest.predict(data, threads=2, memory="1GB").equals(expected)
    assert forest.predict(data.lazy()).collect().equals(expected)
    assert forest.predict(data[:1]).equals(expected[:1])
    for other in (pickle.loads(pickle.dumps(forest)), bf.read_forest(tmp_path / "f")):
        assert other.predict(data).equals(expected)
    bf.predict_file(forest, data, tmp_path / "p.parquet", memory="1GB")
    assert pl.read_parquet(tmp_path / "p.parquet")["prediction"].equals(expected["prediction"])
    forest.write(tmp_path / "copy")
    forest.unrefined().write(tmp_path / "plain")
    assert bf.read_forest(tmp_path / "copy").predict(data).equals(expected)
    plain = bf.read_forest(tmp_path / "plain")
    assert not REFINEMENT.at(tmp_path / "plain").exists()
    assert plain.predict(data).equals(forest.unrefined().predict(data))
    assert not plain.predict(data).equals(expected)
    assert plain.revised == "unrefined"
    assert not plain.has_oob
    assert forest.predict(data, trees=range(12)).equals(plain.predict(data))  # trees alone


def test_auto__keeps_a_stage_where_it_helps_and_none_for_noise() -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(900, 10))
    frame = pl.DataFrame({f"x{place}": x[:, place] for place in range(10)})
    signal = x[:, :5].sum(axis=1)
    options: dict[str, Any] = {"trees": 60, "refine": "auto", "task": "regression"}
    learnt = bf.train(frame.with_columns(y=signal)[:600], "y", **options)
    assert learnt.rounds.amount >= 8
    of_report = dict(zip(learnt.rounds.tried, learnt.rounds.losses, strict=True))[learnt.rounds.amount]
    assert of_report == pytest.approx(learnt.oob.error, rel=1e-9)
    assert learnt.rounds.losses[0] > 1.5 * of_report
    truth, plain = signal[600:], learnt.unrefined()
    errors = [float(((predictions(own, frame[600:])[:, 0] - truth) ** 2).mean()) for own in (learnt, plain)]
    assert errors[0] < 0.7 * errors[1]
    assert 0.7 < learnt.oob.error / errors[0] < 1.6
    noise = bf.train(frame.with_columns(y=draw.normal(size=900)), "y", **options)
    assert noise.rounds.amount == 0.0
    assert noise.rounds.tried[0] == 0.0
    with pytest.raises(ConfigError, match="no boosted stage"):
        _ = noise.refinement


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("target", ["number", "two"])
def test_losses__are_means_over_the_rows_that_are_evaluated(
    target: str, weight: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trees leave many rows without votes; large tables are sampled."""
    data = uncertain_table(3, 8).select("x0", "x1", "x2", target, "w")
    options: dict[str, Any] = {"trees": 2, "refine": 4, "exclude": [] if weight else ["w"], "weight": weight}
    forest = bf.train(data, target, **options)
    loss = forest.oob.error if target == "number" else forest.oob.metrics["log_loss"][-1]
    assert forest.rounds.losses[-1] == pytest.approx(loss, rel=1e-9)
    monkeypatch.setattr("bigforest.grow.refine._MAX_ROWS", 300)
    sampled = bf.train(data, target, **{**options, "trees": 60})
    monkeypatch.undo()
    whole = bf.train(data, target, **{**options, "trees": 60})
    assert sampled.rounds.losses[0] == pytest.approx(whole.rounds.losses[0], rel=0.25)


def uncertain_table(seed: int, levels: int) -> pl.DataFrame:
    """Groups with noise of their own and weights, so that little is known of the loss that rounds save."""
    draw = np.random.default_rng(seed)
    x, group = draw.integers(0, levels, (600, 3)), draw.integers(0, 9, 600)
    number = x @ [2, 1, -1] + 0.5 * (draw.normal(size=600) + draw.normal(size=9)[group])
    return pl.DataFrame({f"x{place}": x[:, place] for place in range(3)}).with_columns(
        number=pl.Series(number),
        two=pl.Series(np.where(number > np.median(number), 1, 0)),
        w=pl.Series(draw.integers(1, 15, 600) ** 2),
        g=pl.Series(group),
    )


@pytest.mark.parametrize(
    ("seed", "levels", "used", "amount"),
    [
        (87, 8, {"target": "number", "weight": "w"}, 1),  # the loss decreases by .57 of its standard error
        (7, 8, {"target": "number", "weight": "w"}, 0),  # .49
        (6, 8, {"target": "number", "weight": "w"}, 3),  # halves of the rows choose different factors
        (15, 8, {"target": "two", "weight": "w", "group": "g"}, 1),  # .57
        (5, 8, {"target": "two", "group": "g"}, 0),  # .47
        (53, 100, {"target": "two", "weight": "w", "group": "g"}, 0),  # .69, but that of the report increases
    ],
)
def test_auto__chooses_as_the_plain_rule(seed: int, levels: int, used: dict[str, str], amount: int) -> None:
    data = uncertain_table(seed, levels).select("x0", "x1", "x2", *used.values())
    options: dict[str, Any] = {"trees": 25, "seed": seed, "threads": 1, "task": None, **used}
    refined = bf.train(data, refine="auto", **options)
    chosen = refined.rounds
    tried = [int(number) for number in chosen.tried]
    forest = bf.train(data, refine=tried[-1], **options)
    before = bf.train(data, refine="off", **options).oob.rows.collect()
    plain = before.select([name for name in before.columns if name.startswith("p_")] or "prediction").rows()
    loss, sequences, (rows, category) = LOSSES[used["target"]], trees_of(forest), cells(forest, data)
    weight = data["w"].to_list() if "w" in data.columns else [1] * data.height
    numbers = np.unique(data["g"], return_inverse=True)[1] if "g" in data.columns else np.arange(data.height)
    by_factor: dict[float, list[naive.RowLosses]] = {1.0: [], 0.5: []}
    for (place, truth), factor in product(enumerate(data[used["target"]].to_list()), by_factor):
        own = [sequences[out] for out in naive.left_out(seed, int(numbers[place]))]

        def loss_of(
            *some: list[naive.Tree], number: int, place: int = place, truth: float = truth, factor: float = factor
        ) -> float:
            shares = plain[place]
            if number:
                given = [trees[:number] for trees in some]
                shares = naive.refined(loss, shares, 2.0**-10, given, rows[place], category, factor)
            return weight[place] * naive.row_loss(shares, truth)

        reported = [loss_of(*own, number=number) for number in tried]
        alone = [(loss_of(own[0], number=number) + loss_of(own[1], number=number)) / 2 for number in tried]
        # L(m) = L + c / m: L(6) from L(2) and L(1).
        extrapolated = [two - (one - two) * (1 - 2 / 6) for two, one in zip(reported, alone, strict=True)]
        losses = naive.RowLosses(naive.bucket_of(seed, int(numbers[place])), reported, extrapolated)
        by_factor[factor].append(losses)

    def mean(losses: Iterable[float]) -> Any:
        return pytest.approx(math.fsum(losses) / sum(weight), rel=1e-9)

    factor = min(by_factor, key=lambda each: naive.least_loss(by_factor[each]))
    found = by_factor[factor]
    assert chosen.amount == amount == tried[naive.choose(found)]
    if amount:
        assert trees_of(refined)[0][0].value == [factor * value for value in sequences[0][0].value]
    assert list(chosen.losses) == [mean(row.reported[place] for row in found) for place in range(len(tried))]
    # Each half of the buckets by the factor and the number of rounds that the other half chooses.
    crossed: list[float] = []
    for half in (0, 1):
        others = {each: [row for row in rows if row.bucket % 2 != half] for each, rows in by_factor.items()}
        best = min(others, key=lambda each: naive.least_loss(others[each]))
        place = naive.choose(others[best])
        crossed += [row.reported[place] for row in by_factor[best] if row.bucket % 2 == half]
    assert chosen.cross_fitted == mean(crossed)


def test_refined__stage_sees_no_targets_of_held_out_rows() -> None:
    data = table(600).select("x0", "x1", "two")
    held = are_held_out(np.arange(600, dtype=np.uint64), 0.3)
    target = data["two"].to_numpy().copy()
    target[held] = target[held][::-1]
    options: dict[str, Any] = {**OPTIONS, "calibration": 0.3, "refine": 2}
    stages = [bf.train(one, "two", **options).refinement for one in (data, data.with_columns(two=pl.Series(target)))]
    assert stages[0].equals(stages[1])


def test_auto__tries_fewer_rounds_where_they_cost_more_than_the_forest() -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(600, 60))
    frame = pl.DataFrame({f"x{place}": x[:, place] for place in range(60)}).with_columns(y=x[:, :3].sum(axis=1) > 0)
    tried = [bf.train(frame, "y", trees=trees, refine="auto").rounds.tried[-1] for trees in (4, 60)]
    assert 1 <= tried[0] < tried[1]
    assert bf.train(frame, "y", trees=4, refine=12).rounds.tried[-1] == 12


def test_auto__leaves_small_tables_as_they_are() -> None:
    assert bf.train(table(599).select("x0", "x1", "number"), "number", trees=12, refine="auto").rounds.tried == ()
    assert bf.train(table(599).select("x0", "x1", "number"), "number", trees=12, refine=2).rounds.amount == 2.0


def test_auto__does_not_undo_balanced_bags() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1000, 4))
    data = pl.DataFrame(x).with_columns(rare=pl.Series(x[:, 0] + draw.normal(size=1000) > 2.2))
    forest = bf.train(data, "rare", trees=20, sampling="balanced")
    assert forest.oob.confusion is not None
    found = forest.oob.confusion.filter(pl.col("truth")).group_by("prediction").agg(pl.col("rows").sum())
    rows = dict(found.iter_rows())
    assert rows[True] > 2 * rows[False]
    assert bf.train(data, "rare", trees=20, sampling="balanced", refine=3).rounds.amount == 3


def test_refined__is_revised_without_its_stage_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, target, options = of_case("two classes, weights")
    forest = bf.train(data, target, out=tmp_path / "f", keep_votes=True, **options)
    other = bf.train(data, target, out=tmp_path / "g", keep_votes=True, **{**options, "seed": 9})
    revisions: list[Callable[[bf.Forest, bf.Forest, Path], bf.Forest]] = [
        lambda forest, _, __: forest.shrink(1.0),
        lambda forest, _, __: forest.sharpen(2.0),
        lambda forest, _, out: bf.shrink_forest(forest, out, amount=1.0),
        lambda forest, _, out: bf.shrink_forest(forest, out, data=data),
        lambda forest, other, out: bf.merge([forest, other], out),
        lambda forest, _, out: bf.prune_forest(forest, data, out),
        lambda forest, _, out: bf.calibrate_forest(forest, data, out),
    ]
    for place, revise in enumerate(revisions):
        caplog.clear()
        revised = revise(forest, other, tmp_path / f"{place}")
        assert "so the boosted stage of the forest is left out" in caplog.text
        plain = revise(forest.unrefined(), other.unrefined(), tmp_path / f"{place} plain")
        assert revised.rounds.amount == 0.0
        assert revised.predict_proba(data).equals(plain.predict_proba(data))


def test_refined__refuses_by_name(tmp_path: Path) -> None:
    data, target, options = of_case("two classes, weights")
    forest = bf.train(data, target, **options)
    with pytest.raises(ConfigError, match=r"forest\.unrefined\(\)"):
        forest.to_treelite()
    for wrong in ({"bootstrap": False}, {"sampling": "adaboost"}, {"replace": False}):
        with pytest.raises(ConfigError, match="refine"):
            bf.train(data.drop("w"), target, refine=3, **wrong)


def test_read__refuses_a_damaged_stage(tmp_path: Path) -> None:
    data, target, options = of_case("numbers")
    forest = bf.train(data, target, out=tmp_path / "f", **options)
    nodes = forest.refinement.to_arrow().cast(REFINEMENT.columns)
    header = forest.files.header

    def damaged(**columns: Any) -> None:
        changed, schema = nodes, REFINEMENT.columns
        for name, values in columns.items():
            place = changed.schema.get_field_index(name)
            changed = changed.set_column(place, schema.field(name), pa.array(values, schema.field(name).type))
        folder = tmp_path / "d"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "f", folder)
        write_tables([changed], REFINEMENT.at(folder), REFINEMENT, header)
        with pytest.raises(FormatError):
            bf.read_forest(folder).predict(data)

    values = nodes["values"].to_pylist()
    damaged(values=[[float("nan")], *values[1:]])
    damaged(values=[[1.0, 2.0], *values[1:]])
    damaged(sequence=[sequence + 1 for sequence in nodes["sequence"].to_pylist()])
    damaged(round=[7] * nodes.num_rows)
    damaged(right=[None if right is None else right + 1 for right in nodes["right"].to_pylist()])
    nodes = nodes.slice(0, nodes.num_rows - 1)
    damaged()
    REFINEMENT.at(tmp_path / "f").unlink()
    with pytest.raises(FormatError):
        bf.read_forest(tmp_path / "f").check()
