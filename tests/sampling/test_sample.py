"""Bags: exact in size, the same whichever block is asked for first, and distributed as a bootstrap is."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import BigForestError, ConfigError, DataError, FormatError
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler, bag_size, left_out_share, max_bag_rows, stratum_draws, uniform_bag
from bigforest.store.store import Store
from tests.naive.bag import bag as naive_bag
from tests.naive.bag import bag_by_class
from tests.thorough import examples

BLOCK = 65_536
COMPILED = not numba.config.DISABLE_JIT
many_draws = pytest.mark.skipif(not COMPILED, reason="too many draws for uncompiled kernels")
# Uncompiled kernels take seconds for each block.
SEVERAL_BLOCKS = (2 if COMPILED else 1) * BLOCK + 300
many_rows = pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")


def options(**changes: Any) -> TrainConfig:
    return TrainConfig(seed=5, **changes)


def draws(rows: int, fraction: float) -> int:
    return rows if fraction == 1.0 else max(1, int(fraction * rows + 0.5))


FRACTIONS = st.sampled_from([1.0, 0.632, 0.5, 0.01, 1e-9, 0.999999])
BAGS = st.one_of(
    st.fixed_dictionaries({"sample_fraction": FRACTIONS, "replace": st.booleans()}),
    st.fixed_dictionaries({"sample_fraction": st.sampled_from([1.5, 5.0])}),
)
ROWS = st.one_of(
    st.integers(1, 300),
    st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17] if COMPILED else [BLOCK + 1]),
)


@settings(max_examples=examples(100) if COMPILED else 5)
@given(ROWS, BAGS, st.integers(0, 5))
def test_bag__has_the_draws_asked_for_in_blocks_that_are_made_alone(rows: int, how: dict[str, Any], tree: int) -> None:
    config = options(**how)
    counts = uniform_bag(rows, tree, config)
    assert counts.dtype == np.uint16
    assert counts.shape == (rows,)
    assert counts.sum() == bag_size(rows, config) == draws(rows, how["sample_fraction"])
    assert how.get("replace", True) or counts.max() <= 1
    made, blocks = sampler(np.zeros(rows), config), range(math.ceil(rows / BLOCK))
    parts = {block: made.block(tree, block) for block in reversed(blocks)}
    assert np.array_equal(np.concatenate([parts[block] for block in blocks]), counts)


@settings(max_examples=examples(40 if COMPILED else 5))
@given(ROWS, BAGS, st.integers(0, 5), st.sampled_from([0, 1, 2**63 - 1]))
@example(SEVERAL_BLOCKS, {"sample_fraction": 1.0, "replace": True}, 0, 1)  # few examples are of several blocks
@example(SEVERAL_BLOCKS, {"sample_fraction": 0.5, "replace": False}, 0, 1)
def test_bag__equals_the_naive_one(rows: int, how: dict[str, Any], tree: int, seed: int) -> None:
    config = TrainConfig(seed=seed, **how)
    assert uniform_bag(rows, tree, config).tolist() == naive_bag(rows, tree, config)


def test_bag__without_bootstrap_is_every_row_once() -> None:
    made = sampler(np.zeros(BLOCK + 5), options(bootstrap=False))
    assert (made.bag(3) == 1).all()
    assert made.block(0, 1).tolist() == [1] * 5


def test_bag__all_rows_without_replacement_is_every_row_once() -> None:
    assert (uniform_bag(BLOCK + 1000, 3, options(replace=False)) == 1).all()


def test_bag__depends_on_seed_and_tree_alone() -> None:
    first = uniform_bag(2000, 1, options())
    assert np.array_equal(first, uniform_bag(2000, 1, options(trees=3, mtry="all", impurity="entropy", max_depth=2)))
    assert not np.array_equal(first, uniform_bag(2000, 2, options()))
    assert not np.array_equal(first, uniform_bag(2000, 1, TrainConfig(seed=6)))
    many = np.array([uniform_bag(2000, tree, options()) for tree in range(50)], np.float64)
    correlation = np.corrcoef(many) - np.eye(50)
    assert np.abs(correlation).max() < 5 / math.sqrt(2000)


@many_draws
@pytest.mark.parametrize(("rows", "fraction"), [(24, 0.5), (1000, 1.0)])
def test_bag__moments_with_replacement(rows: int, fraction: float) -> None:
    trees = 4000
    size = draws(rows, fraction)
    counts = np.array([uniform_bag(rows, tree, options(sample_fraction=fraction)) for tree in range(trees)], np.float64)
    mean, variance = size / rows, size / rows * (1 - 1 / rows)
    assert chi_square_fits((counts.sum(axis=0) - trees * mean) ** 2 / (trees * variance), rows - 1)
    assert abs(counts.var(axis=0).mean() - variance) < 4 * variance * math.sqrt(2 / rows / trees) + 1e-3
    left_out = (1 - 1 / rows) ** size
    assert abs((counts == 0).mean() - left_out) < 5 * math.sqrt(left_out / rows / trees)
    # Two rows of one bag: their counts sum to a fixed number, so they are slightly opposed.
    joint = np.mean(counts[:, 0::2][:, : rows // 2] * counts[:, 1::2][:, : rows // 2])
    assert abs(joint - size * (size - 1) / rows**2) < 5 * mean / math.sqrt(trees * rows / 2)


@many_draws
def test_bag__subsets_without_replacement_are_equally_likely() -> None:
    seen: dict[bytes, int] = {}
    for tree in range(6000):
        key = uniform_bag(5, tree, options(replace=False, sample_fraction=0.4)).tobytes()
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 10
    assert sum((n - 600) ** 2 / 600 for n in seen.values()) < 27.9  # 9 degrees of freedom, p = 0.001


@many_draws
@pytest.mark.parametrize("replace", [True, False])
def test_bag__blocks_share_the_draws_as_chance_would(replace: bool) -> None:
    rows, trees = 2 * BLOCK + 20_000, 60
    fraction = 0.5
    config = options(sample_fraction=fraction, replace=replace)
    made = sampler(np.zeros(rows), config)
    per_block = np.array([[made.block(tree, block).sum() for block in range(3)] for tree in range(trees)], np.float64)
    size = draws(rows, fraction)
    assert (per_block.sum(axis=1) == size).all()
    share = np.array([BLOCK, BLOCK, 20_000]) / rows
    variance = size * share * (1 - share) * (1.0 if replace else (rows - size) / (rows - 1))
    assert (np.abs(per_block.mean(axis=0) - size * share) < 4 * np.sqrt(variance / trees)).all()
    ratio = per_block.var(axis=0, ddof=1) / variance
    assert (np.abs(ratio - 1) < 4 * math.sqrt(2 / (trees - 1))).all()


# Bags drawn class by class.


class Table(NamedTuple):
    """What a sampler asks of a store."""

    target: np.ndarray
    rows: int
    spec: Any

    @property
    def shape(self) -> Shape:
        return Shape(rows=self.rows, widths=(), codes=0, classes=len(self.spec.target.classes))

    def labels(self, start: int, stop: int) -> np.ndarray:
        return self.target[start:stop]


def sampler(target: Any, config: TrainConfig) -> Sampler:
    target = np.asarray(target, np.uint16)
    classes = tuple(range(int(target.max()) + 1))
    spec = SimpleNamespace(target=SimpleNamespace(classes=classes))
    return Sampler(cast(Store, Table(target, target.size, spec)), config)


BY_CLASS = st.sampled_from(["stratified", "balanced"])
TARGETS = st.lists(st.integers(0, 4), min_size=2, max_size=200).map(
    lambda labels: np.unique(labels, return_inverse=True)[1].tolist()
)


@settings(max_examples=examples(60 if COMPILED else 8))
@given(TARGETS, BY_CLASS, BAGS, st.integers(0, 5))
def test_sampler__equals_the_naive_one(target: list[int], sampling: Any, how: dict[str, Any], tree: int) -> None:
    config = options(sampling=sampling, **how)
    assert sampler(target, config).bag(tree).tolist() == bag_by_class(target, tree, config)


@many_draws
@pytest.mark.parametrize(("sampling", "replace"), [("stratified", True), ("balanced", False)])
def test_sampler__several_blocks_of_sorted_and_of_mixed_classes(sampling: Any, replace: bool) -> None:
    random = np.random.default_rng(1)
    config = options(sampling=sampling, replace=replace, sample_fraction=0.7)
    mixed = random.choice(3, 2 * BLOCK + 1000, p=[0.7, 0.295, 0.005])
    for target in (mixed, np.sort(mixed)):
        made = sampler(target, config)
        counts = made.bag(2)
        assert counts.tolist() == bag_by_class(target.tolist(), 2, config)
        assert np.array_equal(counts[BLOCK : 2 * BLOCK], made.block(2, 1))  # a block alone
        drawn = np.bincount(target, counts, 3)
        assert drawn.tolist() == stratum_draws(np.bincount(target), config).tolist()


@many_draws
@pytest.mark.parametrize("sampling", ["uniform", "stratified", "balanced"])
@pytest.mark.parametrize("how", [{}, {"sample_fraction": 0.4, "replace": False}, {"calibration": 0.3}], ids=str)
def test_left_out_share__is_that_of_the_bags(sampling: Any, how: dict[str, Any]) -> None:
    """Balanced bags leave out nearly all rows of a large class, and all bags the rows that are held out."""
    config = options(sampling=sampling, **how)
    made = sampler(np.repeat([0, 1, 2], [2000, 900, 100]), config)
    found = np.mean([np.mean(made.bag(tree) == 0) for tree in range(20)])
    assert left_out_share(made.store, config) == pytest.approx(found, abs=0.01)


def test_stratum_draws__share_or_equal() -> None:
    rows = np.array([100, 7, 1])
    assert stratum_draws(rows, options(sampling="stratified", sample_fraction=0.5)).tolist() == [50, 4, 1]
    assert stratum_draws(rows, options(sampling="balanced")).tolist() == [1, 1, 1]
    # Rows of a class may all be held out.
    assert stratum_draws(np.array([0, 40, 9]), options(sampling="balanced")).tolist() == [0, 9, 9]
    assert stratum_draws(np.array([100, 40]), options(sampling="balanced", sample_fraction=0.25)).tolist() == [10, 10]


@many_rows
@pytest.mark.parametrize("sampling", ["uniform", "stratified", "balanced"])
def test_train__rows_sorted_by_class_learn_as_well(sampling: Any) -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(1500, 4))
    y = (x.sum(axis=1) + random.normal(size=1500) > 1.5).astype(int)
    mixed = pl.DataFrame(x).with_columns(y=pl.Series(y))
    errors = []
    for frame in (mixed, mixed.sort("y")):
        forest = bigforest.train(frame, "y", trees=40, sampling=sampling, refine="off", threads=1)
        recall = forest.oob.metrics["recall"].to_list()
        errors.append(forest.oob.error)
        assert (recall[1] > 0.75) == (sampling == "balanced")
    assert abs(errors[0] - errors[1]) < 0.025


@pytest.mark.skipif(not COMPILED, reason="too many trees for uncompiled kernels")
def test_train__sampling_in_passes_and_threads_gives_the_same() -> None:
    data = pl.DataFrame({"x": np.arange(500) % 37, "z": np.arange(500) % 11, "y": np.arange(500) % 5 == 0})
    for sampling in ("stratified", "balanced"):
        made = [bigforest.train(data, "y", trees=6, sampling=sampling, threads=threads) for threads in (1, 2)]
        assert made[0].nodes.collect().equals(made[1].nodes.collect())
        assert made[0].oob.rows.collect().equals(made[1].oob.rows.collect())


# Bags of whole groups.


def grouped(rows: int = 400, groups: int = 60) -> pl.DataFrame:
    """Repeated measurements: the class is the group's, and features tell the group, not the class."""
    random = np.random.default_rng(rows)
    of_row = random.integers(0, groups, rows)
    x = random.normal(size=(groups, 3))[of_row] + random.normal(size=(rows, 3)) * 0.01
    who = [f"p{number:03}" for number in of_row]
    return pl.DataFrame(x).with_columns(who=pl.Series(who), y=pl.Series(random.integers(0, 2, groups)[of_row]))


@pytest.mark.parametrize(
    ("replace", "kind"), [(True, pl.String), (False, pl.Categorical), (True, pl.Int64), (False, pl.Date)]
)
def test_sampler__whole_groups_are_drawn_as_rows_are(replace: bool, kind: Any, tmp_path: Path) -> None:
    frame = grouped().with_columns(y=pl.when(pl.int_range(pl.len()) % 7 > 0).then("y"))
    numbers = frame["who"].str.slice(1).cast(pl.Int32)
    frame = frame.with_columns(who=numbers.cast(kind) if kind in (pl.Int64, pl.Date) else pl.col("who").cast(kind))
    store = bigforest.encode_store(frame, tmp_path / "s", target="y", group="who")
    kept = frame.filter(pl.col("y").is_not_null())["who"]
    ranks = [sorted(set(kept.to_list())).index(value) for value in kept.to_list()]
    assert store.groups is not None and store.groups.tolist() == ranks
    assert store.spec.group is not None and store.spec.group.groups == len(set(ranks))
    assert store.spec.group.largest == max(map(ranks.count, ranks))
    assert store.spec.feature_names == ["column_0", "column_1", "column_2"]
    config = options(group="who", replace=replace, sample_fraction=0.6)
    made = Sampler(store, config)
    of_group = naive_bag(store.spec.group.groups, 3, config)
    assert made.bag(3).tolist() == [of_group[rank] for rank in ranks]
    assert made.bag(3).sum() <= max_bag_rows(store, config)
    assert pickle.loads(pickle.dumps(made)).bag(3).tolist() == made.bag(3).tolist()
    damaged = np.fromfile(tmp_path / "s" / "groups.bin", np.uint32)
    damaged[5] += 1
    damaged.tofile(tmp_path / "s" / "groups.bin")
    with pytest.raises(FormatError, match=r"groups\.bin: the checksum differs"):
        Store.open(tmp_path / "s")


@many_rows
def test_train__out_of_bag_of_groups_is_honest(tmp_path: Path) -> None:
    frame = grouped()
    settings: dict[str, Any] = {"trees": 60, "seed": 1, "threads": 1}
    blind = bigforest.train(frame.drop("who"), "y", **settings)
    honest = bigforest.train(frame, "y", group="who", **settings)
    assert blind.oob.error < 0.1  # it knows the group of a row, and so its class
    assert honest.oob.error > 0.3  # there is nothing to learn
    assert honest.config.group == "who"
    out = honest.oob.rows.collect().with_columns(who=frame["who"])
    assert out.group_by("who").agg(pl.col("trees").n_unique())["trees"].to_list() == [1] * frame["who"].n_unique()
    store = bigforest.encode_store(frame, tmp_path / "s", target="y", group="who")
    again = bigforest.train(store, trees=60, seed=1, threads=2)
    assert again.nodes.collect().equals(honest.nodes.collect())
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=4)
    order = bigforest.train(shuffled, "y", group="who", **settings)
    assert order.nodes.filter(pl.col("node") == 0).collect().equals(honest.nodes.filter(pl.col("node") == 0).collect())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": "y"}, "'y' is the target and cannot also be the group"),
        ({"group": "column_9"}, "there is no column 'column_9' for group; did you mean"),
        ({"group": "raw"}, "group 'raw' has type Binary; groups must be text, numbers, dates or booleans"),
        ({"group": "gap"}, "group 'gap' has 1 missing value; give every row a group"),
        ({"group": "nan"}, "group 'nan' has 1 missing value; give every row a group"),
        ({"group": "one"}, "all rows are of the one group 1"),
        ({"group": "who", "sampling": "balanced"}, "whole groups cannot be drawn by class"),
        ({"group": "who", "bootstrap": False}, "group needs bags"),
        ({"group": 3}, "group must be the name of a column, as text, or its values, not 3"),
    ],
)
def test_train__unusable_groups(changes: dict[str, Any], words: str) -> None:
    frame = grouped(50).with_columns(one=pl.lit(1), gap=pl.when(pl.int_range(50) > 0).then(1), raw=pl.lit(b"x"))
    frame = frame.with_columns(nan=pl.col("gap").cast(pl.Float64).fill_null(math.nan))
    frame = frame.drop({"one", "gap", "raw", "nan", "who"} - {str(changes["group"])})
    with pytest.raises(BigForestError, match=words):
        bigforest.train(frame, "y", **changes, trees=1)


def test_train__groups_named_by_floats() -> None:
    """As pandas names them where a value was missing."""
    frame = grouped(50).with_columns(pl.col("who").rank("dense").cast(pl.Int64))
    floats = frame.with_columns(pl.col("who") / 2)
    whole, halves = (bigforest.train(each, "y", group="who", trees=3) for each in (frame, floats))
    assert halves.nodes.collect().equals(whole.nodes.collect())
    assert halves.inbag(group=floats["who"]).equals(whole.inbag(group=frame["who"]))


def test_train__groups_of_a_store_are_those_it_was_made_with(tmp_path: Path) -> None:
    store = bigforest.encode_store(grouped(50), tmp_path / "s", target="y", exclude=["who"])
    with pytest.raises(ConfigError, match="was made without group, not with 'who'"):
        bigforest.train(store, group="who", trees=1)


def chi_square_fits(terms: np.ndarray, freedom: int) -> bool:
    """Whether the sum is within 4 standard deviations of what chance gives."""
    return bool(abs(terms.sum() - freedom) < 4 * math.sqrt(2 * freedom))


@many_draws
def test_bag__without_replacement_of_more_rows_than_numpy_draws_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigforest.sampling.bags._MAX_ROWS_WITHOUT_REPLACEMENT", 2 * BLOCK)
    half = options(replace=False, sample_fraction=0.5)
    assert uniform_bag(2 * BLOCK, 0, half).sum() == BLOCK
    with pytest.raises(
        DataError, match=f"from {2 * BLOCK + 1} rows, and at most {2 * BLOCK} are possible: set replace"
    ):
        uniform_bag(2 * BLOCK + 1, 0, half)
    assert uniform_bag(2 * BLOCK + 1, 0, options()).sum() == 2 * BLOCK + 1
