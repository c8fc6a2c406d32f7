"""The out-of-bag report of forests with missing values, categories and regression targets, against oracles."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.forest import ForestJob
from bigforest.metrics.numbers import ExactSum, NumberSums
from bigforest.oob.report import write_oob
from bigforest.options.train_config import TrainConfig
from bigforest.planning.sizes import Limits
from bigforest.predict import predictor
from bigforest.sampling.bags import uniform_bag
from bigforest.source.open import open_source
from bigforest.store.store import Store
from tests.encoded import encode
from tests.mixed import CATEGORIES, Codes, mixed_rows, mixed_table, mixed_trees, write_mixed
from tests.naive.oob import number_report, report

ROWS = 300
RANGE = (0.0, 20.0)


def table(regression: bool) -> pl.DataFrame:
    random = np.random.default_rng(4)
    truth: Any = random.uniform(*RANGE, ROWS) if regression else random.choice([5, 7, 9], ROWS)
    return mixed_table(ROWS, 9, unseen=False).with_columns(y=pl.Series(truth))


def store_of(frame: pl.DataFrame, folder: Path) -> Store:
    folder.mkdir(parents=True, exist_ok=True)
    config = TrainConfig(categories=("c2",))
    source = open_source(frame, scratch=folder)
    return encode(source, "y", folder / "s", config=config, resources=Resources(threads=1), listener=silent)


def trees_for(store: Store, regression: bool) -> list[TreeArrays]:
    codes: Codes = (0, store.spec.features[1].codes, store.spec.features[2].codes)
    return mixed_trees(7, 2, regression, codes=codes)


def names_of(store: Store) -> dict[int, list[str | None]]:
    levels, features = store.levels(), store.spec.features
    missing: list[list[str | None]] = [[None] if feature.missing else [] for feature in features]
    return {place: [*missing[place], *levels.of(place).to_list()] for place in CATEGORIES}


@pytest.fixture(scope="module", params=[False, True], ids=["classes", "numbers"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_of(table(request.param), tmp_path_factory.mktemp("s"))


def test_write_oob__equals_a_recomputation(store: Store, tmp_path: Path) -> None:
    regression = store.spec.target.task == "regression"
    frame, trees = table(regression), trees_for(store, regression)
    assert [feature.missing for feature in store.spec.features] == [True] * 4
    forest = write_mixed(tmp_path, trees, store.spec, (3,), store.levels(), bootstrap=True, seed=5, shrink="off")
    write_oob(ForestJob(store, forest.config, tmp_path, Resources(threads=2), silent))
    bags = [uniform_bag(ROWS, tree, forest.config).tolist() for tree in range(len(trees))]
    rows = mixed_rows(frame.drop("y"))
    found = forest.oob.rows.collect()
    if not regression:
        truth = [(5, 7, 9).index(label) for label in frame["y"]]
        wanted = report(trees, bags, rows, truth, "soft", names_of(store))
        assert found["prediction"].to_list() == [None if p is None else (5, 7, 9)[p] for p in wanted.prediction]
        assert forest.oob.curve.rows() == [(m + 1, *point) for m, point in enumerate(wanted.curve)]
        return
    truth = frame["y"].to_numpy()  # and not the whole numbers that stand for them
    assert not store.spec.target.exact
    numbers = number_report(trees, bags, rows, truth.tolist(), names_of(store))
    assert found.columns == ["row", "truth", "prediction", "trees", "spread"]
    assert found["truth"].to_list() == truth.tolist()
    assert found["prediction"].to_list() == numbers.prediction
    assert found["trees"].to_list() == numbers.voters
    for spread, wanted_spread in zip(found["spread"], numbers.spread, strict=True):
        assert spread == (None if wanted_spread is None else pytest.approx(wanted_spread, rel=1e-9, abs=1e-9))
    assert forest.oob.curve.columns == ["trees", "mse", "rows"]
    for (trees_, mse, used), (wanted_mse, wanted_used) in zip(forest.oob.curve.rows(), numbers.curve, strict=True):
        assert used == wanted_used and mse == pytest.approx(wanted_mse, rel=1e-10), trees_
    _check_numbers(found.drop_nulls("prediction"), forest.oob.metrics)
    assert forest.oob.error == pytest.approx(forest.oob.metrics["mse"][0], rel=1e-10)
    assert forest.oob.confusion is None and "mean squared error" in repr(forest.oob)


def _check_numbers(found: pl.DataFrame, metrics: pl.DataFrame) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    given = (found["truth"].to_numpy(), found["prediction"].to_numpy())
    wanted = [f(*given) for f in (sklearn.r2_score, sklearn.mean_squared_error, sklearn.mean_absolute_error)]
    assert metrics.columns == ["rows", "r2", "mse", "mae"]
    assert metrics["rows"].to_list() == [found.height]
    np.testing.assert_allclose(metrics.select("r2", "mse", "mae").row(0), wanted, rtol=1e-12)


def test_write_oob__any_budget_and_pieces_give_the_same_files(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regression = store.spec.target.task == "regression"
    contents = []
    for number, (chunk, group, memory) in enumerate([(1 << 20, 1 << 20, None), (1, 16, None), (500, 40, 10**9)]):
        monkeypatch.setattr(predictor, "CHUNK_BYTES", chunk)
        home = tmp_path / str(number)
        forest = write_mixed(
            home, trees_for(store, regression), store.spec, (1, 4)[: number + 1], store.levels(), bootstrap=True
        )
        resources = Resources(threads=2, memory=memory, limits=Limits(group_bytes=group))
        write_oob(ForestJob(store, forest.config, home, resources, silent))
        contents.append({path.name: path.read_bytes() for path in (home / "oob").iterdir()})
    assert contents[0] == contents[1] == contents[2]
    assert ("confusion.parquet" in contents[0]) == (not regression)


def test_exact_sum__is_exact_in_any_order() -> None:
    random = np.random.default_rng(0)
    for numbers in (
        random.normal(size=1000) * 10.0 ** random.integers(-300, 300, 1000),
        np.array([1e308, -1e308, 5e-324, -5e-324, 2.0**-1060]),
        np.array([0.1] * 10),
    ):
        one, two = ExactSum(), ExactSum()
        one.add(numbers)
        for piece in np.array_split(random.permutation(numbers), 3):
            part = ExactSum()
            part.add(piece)
            two.join(part)
        assert one.value == two.value == sum(map(Fraction, numbers.tolist()))


@pytest.mark.parametrize(
    ("truth", "guess"), [([1.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, 2.0]), ([1e9, 1e9 + 1], [1e9, 1e9])]
)
def test_number_sums__are_scikit_learns(truth: list[float], guess: list[float]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    sums = NumberSums(1e9)
    sums.add(np.array(truth), np.array(guess))
    found = sums.result()
    assert found.r2 == metrics.r2_score(truth, guess)
    assert found.mse == metrics.mean_squared_error(truth, guess)
    assert found.mae == metrics.mean_absolute_error(truth, guess)


@pytest.mark.parametrize("weight", [None, np.array([3, 1, 2, 5])])
def test_poisson_deviance__is_scikit_learns(weight: Any) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    truth, guess = np.array([0.0, 2.0, 1e9, 0.5]), np.array([0.3, 2.0, 2e9, 1e-6])
    one, two = (NumberSums(7.0, None if weight is None else 11, poisson=True) for _ in range(2))
    for sums, rows in ((one, slice(3)), (two, slice(3, 4))):
        sums.add(truth[rows], guess[rows], None if weight is None else weight[rows])
    one.join(two)
    expected = metrics.mean_poisson_deviance(truth, guess, sample_weight=weight)
    assert one.result().poisson_deviance == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("truth", "guess"), [(0.0, 0.0), (1.0, 0.0), (-1.0, 1.0), (1.0, -1.0), (1e150, 1e-200)])
def test_poisson_deviance__is_none_where_one_row_has_none(truth: float, guess: float) -> None:
    for swapped in (False, True):
        sums, other = NumberSums(0.0, poisson=True), NumberSums(0.0, poisson=True)
        sums.add(np.array([1.0, truth]), np.array([2.0, guess]))
        other.add(np.array([1.0]), np.array([2.0]))
        if swapped:
            sums, other = other, sums
        sums.join(other)
        assert sums.result().poisson_deviance is None and sums.result().mae > 0.0
