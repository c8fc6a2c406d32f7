"""Choosing lambda out of bag, against a recomputation row by row; and that it changes nothing else."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError, DataError
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.ballots import LAMBDAS, MOST_CELLS, MOST_CLASSES, lambdas_to_try
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.run_file import Shrinkage
from bigforest.grow.forest import ForestJob
from bigforest.oob import plan
from bigforest.oob.choice import STEPS, ChoiceLosses, choose, in_second_half
from bigforest.oob.leaves import entry_bytes
from bigforest.oob.plan import choose_oob
from bigforest.oob.report import write_oob
from bigforest.options.train_config import TrainConfig
from bigforest.predict import groups
from bigforest.sampling.bags import uniform_bag
from bigforest.store.store import Store
from tests.naive.shrinkage import chosen, cross_fitted, half, losses, mean_loss, out_of_bag
from tests.oob.test_oob import CLASSES, FILES, data, forest_in, store_of, trees
from tests.thorough import examples

AUTO = TrainConfig(shrink="auto")


def numbers_table(rows: int) -> pl.DataFrame:
    return data(rows).with_columns(y=pl.Series(np.random.default_rng(rows).choice([0.5, 2.25, -7.0, 3e4], rows)))


def of_numbers(grown: list[TreeArrays]) -> list[TreeArrays]:
    random = np.random.default_rng(3)
    return [
        tree._replace(counts=tree.counts[:, :0].copy(), value=random.choice([0.0, 1.5, -2.0, 900.0], tree.feature.size))
        for tree in grown
    ]


def both_stores(rows: int, home: Path) -> dict[str, Store]:
    return {
        "classes": store_of(data(rows), home / "classes"),
        "numbers": store_of(numbers_table(rows), home / "numbers"),
    }


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    return both_stores(300, tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def large_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """Tables of two row groups of a report."""
    return both_stores(70_000, tmp_path_factory.mktemp("large"))


def grown_for(kind: str, count: int) -> list[TreeArrays]:
    return of_numbers(trees(count)) if kind == "numbers" else trees(count)


def options_of(kind: str) -> dict[str, Any]:
    return {"task": "regression", "impurity": "variance"} if kind == "numbers" else {}


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_write_oob__chooses_as_a_recomputation_does(kind: str, stores: dict[str, Store], tmp_path: Path) -> None:
    store, grown = stores[kind], grown_for(kind, 7)
    config = forest_in(tmp_path / "f", store, grown, [2, 6], seed=3, shrink="auto", **options_of(kind))
    found = write_oob(ForestJob(store, config, tmp_path / "f", Resources(threads=2), silent)).shrinkage
    rows = store.values(0, store.rows).tolist()
    bags = [uniform_bag(store.rows, tree, config).tolist() for tree in range(len(grown))]
    truth = store.target.tolist() if kind == "classes" else store.numbers(0, store.rows).tolist()
    by_lambda = {amount: out_of_bag(grown, bags, rows, amount) for amount in LAMBDAS}
    each = [losses(means, truth, classes=kind == "classes") for means in by_lambda.values()]
    ones = [1.0] * store.rows
    means = [mean_loss(own, ones) for own in each]
    assert found.tried == LAMBDAS
    assert found.losses == pytest.approx(means, rel=1e-9)
    assert found.amount == LAMBDAS[chosen(each, ones)]
    assert found.amount > 0  # else nothing is shown: leaves of random trees are no answers
    assert found.cross_fitted == pytest.approx(cross_fitted(each, ones), rel=1e-9)
    report = pl.read_parquet(tmp_path / "f" / "oob" / "rows.parquet")
    names = [f"p_{label}" for label in CLASSES] if kind == "classes" else ["prediction"]
    for row, expected in zip(report.select(names).rows(), by_lambda[found.amount], strict=True):
        assert row == (pytest.approx(expected, rel=1e-12, abs=1e-12) if expected else (None,) * len(names))


@settings(max_examples=examples(10))
@given(draws=st.data())
def test_write_oob__the_choice_does_not_depend_on_threads_ranges_or_groups(
    large_stores: dict[str, Store], draws: st.DataObject
) -> None:
    """Equal reports, byte for byte, also where the votes of ranges wait in files."""
    kind = draws.draw(st.sampled_from(["classes", "numbers"]))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "FITTING_BYTES", draws.draw(st.sampled_from([1, 500, 1 << 12])))  # most are mapped
        store, grown = large_stores[kind], grown_for(kind, 6)
        shrink = draws.draw(st.sampled_from(["auto", "off"]))
        tried = len(LAMBDAS) if shrink == "auto" else 0
        config = forest_in(Path(name) / "whole", store, grown, [3, 4], shrink=shrink, power="auto", **options_of(kind))
        forest_in(Path(name) / "small", store, grown, [3, 4], shrink=shrink, power="auto", **options_of(kind))
        whole = write_oob(ForestJob(store, config, Path(name) / "whole", Resources(threads=1), silent))
        sizes = entry_bytes(groups.survey(Path(name) / "small", 1), tried)
        threads = draws.draw(st.sampled_from([1, 2]))
        least = choose_oob(store.shape, config, sizes, Resources(threads=threads, memory=1), tried).need
        more = draws.draw(st.sampled_from([0, 600, 5_000_000, 10**9]))
        resources = Resources(threads=threads, memory=least.smallest + more)
        way = choose_oob(store.shape, config, sizes, resources, tried)
        assert more > 600 or way.rows < store.rows
        assert write_oob(ForestJob(store, config, Path(name) / "small", resources, silent)) == whole
        for file in FILES if kind == "classes" else ("rows", "curve", "metrics"):
            found, expected = (Path(name) / own / "oob" / f"{file}.parquet" for own in ("small", "whole"))
            assert found.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize(
    ("target", "options"),
    [
        *(
            ("y", own)
            for own in ({}, {"weight": "w"}, {"weight": "wide"}, {"family": "sparse-oblique"}, {"ranks": True})
        ),
        *(("number", own) for own in ({}, {"weight": "w"}, {"weight": "wide"}, {"family": "rotation"})),
    ],
)
def test_auto__is_the_forest_that_its_lambda_gives(target: str, options: dict[str, Any]) -> None:
    frame = noisy(140).drop("number" if target == "y" else "y")
    kept = {options.get("weight")} if options else {"level"}
    frame = frame.drop({"w", "wide", "level"} - kept)
    options = {"trees": 12, "power": "off", "refine": "off", **options}
    chosen = bf.train(frame, target, shrink="auto", **options)
    assert chosen.shrinkage.amount > 0 or options.get("weight") == "wide"
    given = bf.train(frame, target, shrink=chosen.shrinkage.amount, **options)
    assert chosen.predict(frame).equals(given.predict(frame))
    for name in ("curve", "metrics"):
        assert getattr(chosen.oob, name).equals(getattr(given.oob, name))
    assert chosen.oob.rows.collect().equals(given.oob.rows.collect())
    place = chosen.shrinkage.tried.index(chosen.shrinkage.amount)
    loss = chosen.oob.metrics["log_loss" if target == "y" else "mse"][-1]
    assert chosen.shrinkage.losses[place] == pytest.approx(loss, rel=1e-9)
    plain = bf.train(frame, target, **options, shrink="off")
    assert chosen.nodes.collect().equals(plain.nodes.collect())
    assert chosen.shrinkage.losses[0] == pytest.approx(
        plain.oob.metrics["log_loss" if target == "y" else "mse"][-1], rel=1e-9
    )


def noisy(rows: int) -> pl.DataFrame:
    draw = np.random.default_rng(rows)
    a, b = draw.random((2, rows))
    signal = a + draw.normal(0, 0.5, rows)
    weight = draw.integers(1, 9, rows)
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "level": draw.choice(["p", "q", "r"], rows),
            "w": weight,
            "wide": weight * 10.0 ** draw.integers(-4, 4, rows),
            "y": np.where(signal > 0.5, "u", "v"),
            "number": signal,
        }
    )


def test_lambda_is_in_rows__whatever_the_unit_of_weights() -> None:
    frame = noisy(120).drop("number", "wide")
    first, second = (
        bf.train(frame.with_columns(pl.col("w") * unit), "y", weight="w", trees=9, shrink="auto") for unit in (1, 64)
    )
    assert first.shrinkage == second.shrinkage
    assert first.predict_proba(frame).equals(second.predict_proba(frame))
    ones = frame.with_columns(w=pl.lit(7))
    alike = bf.train(ones, "y", weight="w", trees=9, shrink="auto")
    plain = bf.train(ones.drop("w"), "y", trees=9, shrink="auto")
    assert alike.shrinkage == plain.shrinkage


def test_auto__learns_nothing_from_the_rows_it_is_evaluated_by() -> None:
    """Categories of many levels that say nothing: rows out of bag find the error of chance, by any lambda."""
    draw = np.random.default_rng(8)
    rows = 1500
    levels = {f"c{i}": draw.integers(0, 300, rows).astype(str) for i in range(3)}
    for classes in (2, 3):
        frame = pl.DataFrame(levels | {"y": draw.permutation(np.arange(rows) % classes).astype(str)})
        forest = bf.train(frame, "y", trees=30, shrink="auto")
        chance = 1 - 1 / classes
        error = math.sqrt(chance * (1 - chance) / rows)
        assert abs(forest.oob.error - chance) < 4 * error
        assert forest.shrinkage.amount == LAMBDAS[-1]
        assert min(forest.shrinkage.losses) > math.log(classes) - 0.02
        assert forest.shrinkage.cross_fitted > math.log(classes) - 0.02
    frame = pl.DataFrame(levels | {"y": draw.normal(size=rows)})
    forest = bf.train(frame, "y", trees=30, shrink="auto")
    assert forest.oob.metrics["r2"][0] < 4 / math.sqrt(rows)


@pytest.mark.parametrize(
    ("options", "tried"),
    [
        ({}, LAMBDAS),
        ({"vote": "hard"}, ()),
        ({"bootstrap": False}, ()),
        ({"shrink": "off"}, ()),
        ({"shrink": 0}, ()),
        ({"shrink": 2}, (2.0,)),
        ({"shrink": 2, "bootstrap": False}, (2.0,)),
    ],
)
def test_lambdas_to_try(options: dict[str, Any], tried: tuple[float, ...]) -> None:
    assert lambdas_to_try(replace(AUTO, **options), 1000, 2) == tried


def test_lambdas_to_try__none_of_tables_too_large() -> None:
    assert lambdas_to_try(AUTO, 1000, MOST_CLASSES) == LAMBDAS
    assert lambdas_to_try(AUTO, 1000, MOST_CLASSES + 1) == ()
    assert lambdas_to_try(AUTO, MOST_CELLS // 2, 2) == LAMBDAS
    assert lambdas_to_try(AUTO, MOST_CELLS // 2 + 1, 2) == ()


def test_halves__are_halves_of_any_table() -> None:
    rows = np.arange(10_000, dtype=np.uint64)
    sides = in_second_half(rows)
    assert sides.tolist() == [half(row) == 1 for row in range(10_000)]
    for step in range(1, 20):
        assert abs(sides[::step].mean() - 0.5) < 0.1


def test_shrink_forest__is_what_training_would_have_chosen(tmp_path: Path) -> None:
    frame = noisy(140).drop("number", "w", "wide", "level")
    frame.write_parquet(tmp_path / "table.parquet")
    for options in ({}, {"ranks": True}):
        asked = bf.train(tmp_path / "table.parquet", "y", trees=12, shrink="auto", **options)
        plain = bf.train(tmp_path / "table.parquet", "y", trees=12, shrink="off", out=tmp_path / "f", **options)
        found = bf.shrink_forest(tmp_path / "f", tmp_path / "g", threads=1)
        assert found.shrinkage == asked.shrinkage
        assert found.shrinkage.amount > 0
        assert found.oob.rows.collect().equals(asked.oob.rows.collect())
        assert found.predict(frame).equals(asked.predict(frame))
        for part in (tmp_path / "f" / "trees").iterdir():
            assert (tmp_path / "g" / "trees" / part.name).read_bytes() == part.read_bytes()
        assert plain.config == found.config
        assert (found.revised, found.has_oob) == (None, True)
        with pytest.raises(ConfigError, match="was shrunk after training, so no trees can be added"):
            bf.train(resume=tmp_path / "g", trees=13)
        again = bf.shrink_forest(found, tmp_path / "g", data=frame, overwrite=True)
        assert again.shrinkage == found.shrinkage
        for name in ("f", "g"):
            bf.shrink_forest(bf.read_forest(tmp_path / name), tmp_path / "h", amount=0, overwrite=True)
            assert bf.read_forest(tmp_path / "h").predict(frame).equals(plain.predict(frame))
        with pytest.raises(DataError, match="the table is not the one that the forest was grown on"):
            bf.shrink_forest(tmp_path / "f", tmp_path / "x", data=frame.with_columns(a=pl.col("a").reverse()))
        assert not (tmp_path / "x").exists()
        for name in ("f", "g"):
            shutil.rmtree(tmp_path / name)


def test_shrink_forest__says_what_it_cannot_choose_by(tmp_path: Path) -> None:
    frame = noisy(60).drop("number", "w", "wide")
    memory = bf.train(frame, "y", trees=4)
    with pytest.raises(ConfigError, match=r"grown on a table in memory .*; give it again as data, or set amount"):
        bf.shrink_forest(memory, tmp_path / "x")
    assert bf.shrink_forest(memory, tmp_path / "x", data=frame).shrinkage.tried == LAMBDAS
    whole = bf.train(frame, "y", trees=4, bootstrap=False)
    with pytest.raises(ConfigError, match="grown without bootstrap, so no row is out of bag to choose by; set am"):
        bf.shrink_forest(whole, tmp_path / "y", data=frame)
    hard = bf.train(frame, "y", trees=4, vote="hard")
    with pytest.raises(ConfigError, match="lambda cannot be chosen where votes are hard; set amount"):
        bf.shrink_forest(hard, tmp_path / "y", data=frame)
    pruned = bf.prune_forest(memory, frame, tmp_path / "pruned")
    with pytest.raises(ConfigError, match="the forest was pruned, so its out-of-bag rows are not known; set amount"):
        bf.shrink_forest(pruned, tmp_path / "y", data=frame)
    assert not (tmp_path / "y").exists()


def test_shrink_forest__needs_the_memory_of_its_own_stages(tmp_path: Path) -> None:
    """Neither of growing the boosted stage nor of keeping the targets, which `shrink` has no option to leave out."""
    frame = numbers_table(400)
    options: dict[str, Any] = {"trees": 3, "refine": 20, "keep_targets": True}
    forest = bf.train(frame, "y", **options)
    plan = bf.plan_training(frame, "y", memory="1GB", threads=1, **options)
    smallest = {stage.stage: stage.need.smallest for stage in plan.stages}
    enough = max(smallest["encode"], smallest["oob"])
    assert enough < min(smallest["refine"], smallest["targets"])
    with pytest.raises(ConfigError, match=r"the stage (encode|oob) needs at least"):
        bf.shrink_forest(forest, tmp_path / "x", data=frame, memory=enough - 1, threads=1)
    shrunk = bf.shrink_forest(forest, tmp_path / "x", data=frame, memory=enough, threads=1)
    assert shrunk.shrinkage.tried == LAMBDAS


def test_shrunk_forests__can_be_added_to_merged_and_revised(tmp_path: Path) -> None:
    frame = noisy(140).drop("number", "w", "wide")
    frame.write_parquet(tmp_path / "table.parquet")
    bf.train(tmp_path / "table.parquet", "y", trees=6, shrink="auto", out=tmp_path / "f")
    whole = bf.train(tmp_path / "table.parquet", "y", trees=9, shrink="auto")
    more = bf.train(resume=tmp_path / "f", trees=9)
    assert more.shrinkage == whole.shrinkage
    assert more.predict_proba(frame).equals(whole.predict_proba(frame))
    other = bf.train(tmp_path / "table.parquet", "y", trees=3, seed=9, shrink="auto").shrink(1.0)
    merged = bf.merge([whole.shrink(5.0), other], tmp_path / "m")
    assert merged.shrinkage == Shrinkage(4.0)
    own = 9 * whole.shrink(4.0).predict_proba(frame).to_numpy()
    expected = (own + 3 * other.shrink(4.0).predict_proba(frame).to_numpy()) / 12
    np.testing.assert_allclose(merged.predict_proba(frame).to_numpy(), expected, atol=1e-12)
    for revised in (
        bf.prune_forest(whole.shrink(5.0), frame, tmp_path / "p"),
        bf.calibrate_forest(whole.shrink(5.0), frame, tmp_path / "c"),
    ):
        assert revised.shrinkage == Shrinkage(5.0)


def test_auto__with_trees_until_the_error_has_settled_and_a_validation_set() -> None:
    frame = noisy(140).drop("number", "w", "wide")
    options: dict[str, Any] = {"trees": 60, "stop_oob": 0.5, "power": "off", "refine": "off"}
    forest = bf.train(frame, "y", shrink="auto", validate=frame, **options)
    plain = bf.train(frame, "y", shrink="off", **options)
    assert forest.trees == plain.trees < 60
    assert forest.shrinkage.amount > 0
    wrong = (forest.predict(frame)["prediction"] != frame["y"]).mean()
    assert forest.validation["error"][-1] == pytest.approx(wrong)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 7.5])
def test_auto__of_one_number_alone(value: float) -> None:
    frame = pl.DataFrame({"x": [float(row % 7) for row in range(60)], "y": [value] * 60})
    forest = bf.train(frame, "y", trees=5, task="regression", shrink="auto")
    assert forest.shrinkage is not None and forest.shrinkage.amount == 0.0
    assert forest.predict(frame)["prediction"].to_list() == [value] * 60
    assert forest.shrinkage.losses and set(forest.shrinkage.losses) == {0.0}


def test_auto__of_large_numbers_with_weights_of_very_different_sizes() -> None:
    """Their sum is larger than float64 can be, and their mean is not."""
    random = np.random.default_rng(0)
    cells, numbers = random.normal(size=(60, 3)), random.normal(size=60)
    options: dict[str, Any] = {"weight": 10.0 ** np.linspace(-8.0, 8.0, 60), "trees": 7}
    losses = [bf.train(cells, y, **options).shrinkage.losses for y in (numbers, numbers * 2.0**495)]
    assert losses[1] == pytest.approx([loss * 2.0**990 for loss in losses[0]])


def test_no_row_out_of_bag__nothing_is_shrunk() -> None:
    frame = noisy(60).drop("number", "w", "wide")
    forest = bf.train(frame, "y", trees=3, replace=False, shrink="auto")
    assert forest.shrinkage == Shrinkage(0.0, LAMBDAS)


@pytest.mark.parametrize("shrink", ["auto", 2.0])
@pytest.mark.parametrize("target", ["y", "number"])
def test_trees_at_hand__answer_as_those_that_are_read(target: str, shrink: str | float, tmp_path: Path) -> None:
    frame = noisy(140).drop("number" if target == "y" else "y", "w", "wide")
    forest = bf.train(frame, target, trees=12, shrink=shrink, out=tmp_path / "f")
    assert forest.shrinkage.amount > 0
    read = bf.read_forest(tmp_path / "f").predict(frame)
    shutil.rmtree(tmp_path / "f" / "trees")
    assert forest.predict(frame).equals(read)


def test_votes_that_are_kept__stay_with_a_forest_that_is_shrunk(tmp_path: Path) -> None:
    frame = noisy(140).drop("number", "w", "wide")
    plain = bf.train(frame, "y", trees=6, keep_votes=True)
    votes = plain.oob_votes.collect()
    plain.shrink(3.0).write(tmp_path / "given")
    chosen = bf.shrink_forest(plain, tmp_path / "chosen", data=frame, memory="700MB")
    for other in (plain.shrink(3.0), bf.read_forest(tmp_path / "given"), chosen):
        assert other.oob_votes.collect().equals(votes)
    other = bf.train(frame, "y", trees=3, seed=9, keep_votes=True).shrink(1.0)
    merged = bf.merge([tmp_path / "given", other], tmp_path / "merged")
    assert merged.oob_votes.collect().height == votes.height + other.oob_votes.collect().height
    pruned = bf.prune_forest(plain, frame, tmp_path / "pruned").shrink(3.0)
    assert (pruned.revised, pruned.has_votes) == ("pruned", False)


@pytest.mark.parametrize(("error", "crossed"), [(5, 15), (6, 16)])
def test_choose__each_half_chooses_for_the_other_what_gains_more_than_its_error(error: int, crossed: int) -> None:
    losses = np.array([[10, 4, 6], [10, 9, 3]], object) * int(STEPS)
    squares = np.array([[0, error**2, 0], [0, 0, 0]], object) * int(STEPS) ** 2
    tried = (0.0, 1.0, 3.0)
    expected = Shrinkage(3.0, tried, (20 / 32, 13 / 32, 9 / 32), crossed / 32)
    assert choose(Shrinkage, tried, ChoiceLosses(losses, squares, 8), 2.0) == expected
