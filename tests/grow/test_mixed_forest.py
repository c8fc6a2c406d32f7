"""Forests on categories, missing values, regression targets and weights, from the table on: the oracle's trees, and
the same ones in every kind of run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest
from bigforest.errors import BigForestError, ConfigError, DataError
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.files import Header
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.grow.feature_kinds import Features
from bigforest.grow.forest import ForestJob, grow_tree, grow_trees, rules_of
from bigforest.grow.memory import GrowPlan, choose_grow_plan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape, TableTraits
from bigforest.sampling import bags
from bigforest.sampling.bags import Sampler
from bigforest.source.open import open_source
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.encoded import encode
from tests.grow.test_invariance import assert_equal, rows_of
from tests.grown import terms_of
from tests.kernel import lone
from tests.naive.split import Table
from tests.naive.tree import Node, grow
from tests.strategies import Data, configs, mixed_tables
from tests.thorough import examples

GAIN_TOLERANCE = 1e-9


def frame_of(data: Data, target: pl.Series, weight: NDArray[np.float64] | None) -> pl.DataFrame:
    """The table as a user has it: categories as text whose order is that of their numbers."""
    columns = []
    for feature, column in enumerate(data.values.T):
        series = pl.Series(f"x{feature}", column).fill_nan(None)
        if feature in data.categories:
            distinct = np.unique(column[~np.isnan(column)])
            names = {float(value) + 0.0: f"level {place:04}" for place, value in enumerate(distinct)}
            cells = [None if value is None else names[value + 0.0] for value in series.to_list()]
            series = pl.Series(f"x{feature}", cells, pl.String)
        columns.append(series)
    table = pl.DataFrame([*columns, target.alias("y")])
    return table if weight is None else table.with_columns(w=pl.Series(weight))


def store_of(
    data: Data, config: TrainConfig, folder: Path, *, numbers: bool, weighted: bool, seed: int
) -> tuple[Store, TrainConfig]:
    """The encoded table, with random weights and with random regression targets if asked for, and the configuration of
    a forest on it: of numbers by the Poisson deviance in place of `error`."""
    random = np.random.default_rng(seed)
    rows = len(data.target)
    target = pl.Series(data.target)
    config = replace(config, weight="w" if weighted else None)
    if numbers:
        number = np.round(data.target + random.normal(size=rows) * random.choice([0.0, 0.3, 1e6]), 3)
        counts = config.impurity == "error" and config.family == "axis"
        target = pl.Series(np.maximum(number, 0.0) if counts else number)
        config = replace(config, task="regression", impurity="poisson" if counts else None, sampling="uniform")
    weight = random.choice([0.5, 1.0, 1.0, 3.0, 0.1], rows) if weighted else None
    source = open_source(frame_of(data, target, weight), scratch=folder)
    # Of the options drawn, some ask for more features than there are.
    task = "regression" if numbers else "classification"
    own = TrainConfig(task=task, weight=config.weight, max_bins=config.max_bins)
    store = encode(source, "y", folder / "s", config=own, resources=Resources(threads=1), listener=silent)
    return store, config


def table_of(store: Store, config: TrainConfig) -> Table:
    """What the oracle learns from."""
    features = store.spec.features
    codes = [store.feature_codes(feature) for feature in range(len(features))]
    low = np.column_stack([store.low(feature)[column] for feature, column in enumerate(codes)])
    high = np.column_stack([store.high(feature)[column] for feature, column in enumerate(codes)])
    categories = frozenset(place for place, feature in enumerate(features) if feature.kind == "category")
    return Table(
        low,
        high,
        store.target.tolist(),
        len(store.spec.target.classes),
        categories,
        lone(config, len(store.spec.features)),
        -store.spec.target.offset / store.spec.target.step,
    )


def assert_same(found: TreeArrays, expected: list[Node], store: Store, config: TrainConfig) -> None:
    """The two trees are equal node for node; gains may differ by rounding."""
    target = store.spec.target
    for number, node in enumerate(expected):
        assert number < found.feature.size, f"{found.feature.size} nodes instead of {len(expected)}"
        got = (found.feature[number], found.depth[number], found.weight[number])
        assert got == (node.feature, node.depth, node.weight), f"node {number} is {got}, but should be {node}"
        if target.classes:
            assert found.counts[number].tolist() == node.counts
        else:
            assert found.counts.shape[1] == 0
            assert found.value is not None
            mean = np.float64(node.counts[1]) / node.counts[0]
            assert found.value[number] == target.offset + mean * target.step
        assert terms_of(found, number) == node.terms
        if node.feature == -1:
            continue
        assert (number + 1, found.right[number]) == (node.left, node.right)
        assert node.default_left in (None, found.default_left[number])
        scale = target.step if config.criterion == "poisson" else target.step**2
        assert abs(found.gain[number] - node.gain * scale) <= GAIN_TOLERANCE * max(1.0, node.gain * scale)
        if node.levels is None:
            assert found.threshold[number] == node.threshold
            continue
        assert found.levels is not None
        listed = found.levels.code[found.levels.start[number] : found.levels.start[number + 1]].tolist()
        missing = store.spec.features[node.feature].missing
        assert {None if code == 0 and missing else float(code) for code in listed} == node.levels
    assert found.feature.size == len(expected)


@settings(max_examples=examples(60))
@given(
    data=mixed_tables(max_rows=40),
    config=configs(),
    numbers=st.booleans(),
    weighted=st.booleans(),
    max_bins=st.sampled_from(["exact", "exact", 3]),
    splitter=st.sampled_from(["best", "random"]),
    seed=st.integers(0, 2**32 - 1),
    least=st.none() | st.lists(st.sampled_from([1, 2, 6, 1000]), min_size=20, max_size=20),
)
def test_kernel_grow_tree__of_any_table(
    data: Data,
    config: TrainConfig,
    numbers: bool,
    weighted: bool,
    max_bins: str | int,
    splitter: str,
    seed: int,
    least: list[int] | None,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = replace(config, max_bins=max_bins, splitter=splitter)
        store, config = store_of(data, config, Path(folder), numbers=numbers, weighted=weighted, seed=seed)
        if least is not None:
            config = replace(config, min_level=",".join(map(str, least[: len(store.spec.features)])))
        found = grow_tree(store, config, 0)
        sampler = Sampler(store, config)
        weights = sampler.search_weights(0, 0, sampler.bag(0))
        rules = rules_of(store, config)
        least = ",".join(map(str, Features.of(store, config).min_level.tolist()))
        scaled = replace(config, min_split=rules.min_split, min_leaf=rules.min_leaf, min_level=least)
        assert_same(found, grow(table_of(store, scaled), weights.tolist(), scaled, 0), store, config)


@settings(max_examples=examples(30))
@given(
    data=mixed_tables(max_rows=40),
    config=configs(),
    numbers=st.booleans(),
    splitter=st.sampled_from(["best", "random"]),
    cuts=st.sets(st.integers(1, 6)),
    first=st.integers(0, 5),
)
def test_kernel_grow_trees__several_in_a_call_as_each_alone(
    data: Data, config: TrainConfig, numbers: bool, splitter: str, cuts: set[int], first: int
) -> None:
    trees = range(first, first + 7)
    with tempfile.TemporaryDirectory() as folder:
        config = replace(config, splitter=splitter, trees=trees.stop)
        store, config = store_of(data, config, Path(folder), numbers=numbers, weighted=False, seed=first)
        calls = [trees[begin:end] for begin, end in pairwise([0, *sorted(cuts), 7])]
        together = (grown.trees for call in calls for grown in grow_trees(store, config, call))
        ways = [together, (grow_tree(store, config, tree) for tree in trees)]
        for way in range(2):
            (Path(folder) / str(way)).mkdir()
        one, other = (
            write_part(Path(folder) / str(way), first, grown, Header(store.spec, config, store.levels())).read_bytes()
            for way, grown in enumerate(ways)
        )
        assert one == other


def test_rules__count_weight_in_rows_of_the_mean(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": range(4), "w": [1, 2, 3, 6], "y": [0, 1, 0, 1]})
    store = bigforest.encode_store(frame, tmp_path / "s", weight="w")
    config = TrainConfig(min_split=5, min_leaf=3, min_level=6)
    rules = rules_of(store, config)
    assert (rules.min_split, rules.min_leaf) == (2 + 3 * 3, 1 + 2 * 3)
    assert Features.of(store, config).min_level.tolist() == [1 + 5 * 3]
    rules = rules_of(store, TrainConfig())
    assert (rules.min_split, rules.min_leaf) == (2, 1)
    numbers = bigforest.encode_store(frame, tmp_path / "n", task="regression")
    assert rules_of(numbers, TrainConfig()).min_leaf == 2


def test_weighed__a_weight_is_a_row_so_often(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    times = random.integers(1, 4, 60)
    frame = pl.DataFrame({"x": random.normal(size=60), "z": random.integers(0, 9, 60), "y": random.integers(0, 3, 60)})
    config = TrainConfig(bootstrap=False)
    weighted = bigforest.encode_store(frame.with_columns(w=times), tmp_path / "w", weight="w")
    repeated = bigforest.encode_store(frame[np.repeat(np.arange(60), times)], tmp_path / "r")
    one, two = grow_tree(weighted, config, 0), grow_tree(repeated, config, 0)
    for name in ("feature", "threshold", "depth", "counts", "gain", "weight", "default_left"):
        assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True), name


def test_weighed__too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"x": range(4), "w": [1, 1023, 3, 6], "y": [0, 1, 0, 1]})
    store = bigforest.encode_store(frame, tmp_path / "s", weight="w")
    with pytest.raises(DataError, match="a row is in a bag 65 times and weighs 66495 there"):
        Sampler(store, TrainConfig()).search_weights(0, 0, np.array([100, 65, 1, 1], np.uint16))
    monkeypatch.setattr(bags, "max_bag_weight", lambda spec: 1_000)
    config = TrainConfig(bootstrap=False, weight="w")
    for limits in (None, MemoryLimits(1, 2, 8, 500)):
        with pytest.raises(DataError, match="a bag weighs 1033, more than the possible 1000"):
            grow_forest(
                ForestJob(store, config, tmp_path, Resources(threads=1), silent), plan=GrowPlan(1, limits, 1, 0)
            )


@pytest.mark.parametrize("limits", [None, MemoryLimits(rows=500, collects=1_000, cells=1 << 8, room=1 << 12)])
def test_bags__of_numbers_whose_sums_would_overflow(limits: MemoryLimits | None, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": range(2_040), "y": [float(row % 51 > 0) for row in range(2_040)]})
    store = bigforest.encode_store(frame, tmp_path / "s", task="regression")
    job = ForestJob(store, TrainConfig(sample_fraction=2.0), tmp_path, Resources(threads=1), silent)
    grow_forest(job, plan=GrowPlan(1, limits, 1, 0))
    root = pl.read_parquet(tmp_path / "trees").row(0, named=True)
    assert root["value"] == pytest.approx(0.98, abs=0.02)
    (tmp_path / "more").mkdir()
    job = job._replace(config=replace(job.config, sample_fraction=5.0), directory=tmp_path / "more")
    with pytest.raises(DataError, match="a bag weighs 10200, more than the possible 4080: lower sample_fraction"):
        grow_forest(job, plan=GrowPlan(1, limits, 1, 0))


# The same forest in every kind of run.

ROWS = 3_000
CONFIG: dict[str, Any] = {"trees": 5, "seed": 3, "categories": ["zip"], "weight": "w"}


def table() -> pl.DataFrame:
    """A column of every kind, some with gaps, a class and a number to learn."""
    random = np.random.default_rng(23)
    carrier = random.integers(0, 30, ROWS)
    delay = np.where(random.random(ROWS) < 0.2, np.nan, random.gamma(2.0, 10.0, ROWS))
    late = (np.nan_to_num(delay, nan=30.0) / 20 + (carrier % 3) + random.normal(0, 0.7, ROWS)) * 4
    gaps = pl.int_range(ROWS)
    return pl.DataFrame(
        {
            "carrier": [f"carrier {number}" for number in carrier],
            "delay": delay,
            "zip": random.integers(0, 400, ROWS),
            "night": random.random(ROWS) < 0.4,
            "month": random.integers(1, 13, ROWS).astype(np.int8),
            "w": random.choice([0.0, 0.5, 1.0, 2.0], ROWS),
            "kind": np.array(["no", "a little", "very"])[np.digitize(late, [5.0, 9.0])],
            "minutes": late,
        }
    ).with_columns(
        carrier=pl.when(gaps % 13 > 0).then("carrier"),
        night=pl.when(gaps % 7 > 0).then("night"),
        month=pl.when(gaps % 5 > 0).then("month"),
    )


def options_of(target: str) -> dict[str, Any]:
    other = "minutes" if target == "kind" else "kind"
    balanced = {"class_weight": "balanced"} if target == "kind" else {}
    return CONFIG | balanced | {"target": target, "exclude": [other]}


@pytest.fixture(scope="module", params=["kind", "minutes"])
def expected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The forest that every other run must write."""
    out: Path = tmp_path_factory.mktemp("expected") / str(request.param)
    bigforest.train(table(), out=out, threads=1, scheduler="threads", **options_of(request.param))
    return out


def many_files(folder: Path) -> Path:
    for number, start in enumerate(range(0, ROWS, 1_100)):
        table()[start : start + 1_100].write_parquet(folder / f"part-{number}.parquet", row_group_size=300)
    return folder / "part-*.parquet"


FORMS: dict[str, Callable[[Path], Any]] = {
    "one frame": lambda folder: table(),
    "chunks": lambda folder: pl.concat([table()[start : start + 777] for start in range(0, ROWS, 777)], rechunk=False),
    "categorical": lambda folder: table().reverse().cast({"carrier": pl.Categorical}).reverse(),
    "lazy": lambda folder: table().lazy(),
    "many files": many_files,
}


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("expected", "form"),
    [*(("kind", form) for form in FORMS), ("minutes", "chunks"), ("minutes", "many files")],
    indirect=["expected"],
)
def test_train__same_forest_of_any_form(form: str, expected: Path, tmp_path: Path) -> None:
    data = FORMS[form](tmp_path)
    out = tmp_path / "f"
    bigforest.train(data, out=out, threads=2, scheduler="threads", **options_of(expected.name))
    found, known = rows_of(out), rows_of(expected)
    if form == "categorical":  # the type is told, and nothing else
        assert found["features.parquet"]["dtype"].to_list()[0] == "Categorical"
        found["features.parquet"] = known["features.parquet"]
    assert_equal(found, known)
    assert (out / "levels.parquet").exists()
    assert bigforest.read_forest(out).predict(table()).equals(bigforest.read_forest(expected).predict(table()))


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("expected", ["kind"], indirect=True)
def test_train__resumed_from_a_store_and_merged(expected: Path, tmp_path: Path) -> None:
    options = options_of(expected.name)
    told = {
        name: options.pop(name)
        for name in ("target", "exclude", "categories", "weight", "class_weight")
        if name in options
    }
    store = bigforest.encode_store(table(), tmp_path / "s", **told)
    out = tmp_path / "f"
    bigforest.train(store, out=out, threads=2, scheduler="threads", **(options | {"trees": 3}))
    bigforest.train(resume=out, trees=5, threads=2, scheduler="threads")
    known = rows_of(expected)
    assert_equal(rows_of(out), known)
    bigforest.train(store, out=tmp_path / "g", scheduler="threads", **(options | {"trees": 2, "seed": 9}))
    both = bigforest.merge([out, tmp_path / "g"], tmp_path / "both")
    assert both.trees == 7
    assert both.nodes.filter(pl.col("tree") < 5).collect().equals(known["trees"])


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
def test_train__out_of_bag_agrees_with_prediction(expected: Path) -> None:
    """A forest of one tree predicts the rows it has not seen as its report says."""
    options = options_of(expected.name) | {"trees": 1, "refine": "off"}
    forest = bigforest.train(table(), threads=1, scheduler="threads", **options)
    rows = forest.oob.rows.collect().filter(pl.col("trees") == 1)
    assert len(rows) > 500
    assert forest.predict(table())["prediction"].gather(rows["row"]).equals(rows["prediction"])


# What cannot be.


def shape(**extras: Any) -> Shape:
    return Shape(10**6, (4,) * 4, 10**6, 2, extras=TableTraits(**extras))


@pytest.mark.parametrize(
    ("extras", "options", "words"),
    [
        (
            {"non_plain_features": ("zip", "name")},
            {"family": "rotation", "ranks": True},
            "unlike 'zip', 'name': exclude",
        ),
        ({"non_plain_features": ("zip",)}, {"ranks": True}, "ranks need numbers .* 'zip'"),
        ({"weighted": True}, {"family": "subspace-perceptron"}, "has no weights of rows"),
    ],
)
def test_choose_way__families_that_take_no_such_table(extras: Any, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_grow_plan(shape(**extras), TrainConfig.of(**options), Resources(threads=1))


def test_train__ranks_take_no_category(tmp_path: Path) -> None:
    with pytest.raises(BigForestError, match="ranks need numbers without missing values, unlike 'carrier'"):
        options = {"family": "sparse-oblique", "ranks": True}
        bigforest.train(table(), "kind", out=tmp_path / "f", exclude=["minutes"], **options)
    assert list(tmp_path.iterdir()) == []
