"""Every tree equals the oracle's, node for node: random small tables with every kind of difficulty.

Large tables, where the kernels change their algorithm, are in kernels/test_exact_large.py.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigforest.kernels.llvm.exact import compare_gini
from bigforest.options.train_config import TrainConfig
from tests.grown import check_tree
from tests.naive.split import SCORES
from tests.strategies import EXTREMES, Data, configs, tables
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 400 if COMPILED else 40
ALL_ROWS = {"bootstrap": False, "mtry": "all"}


@settings(max_examples=examples(EXAMPLES))
@given(data=tables(), config=configs(), tree=st.integers(0, 2))
def test_grow_tree__random_tables_and_options(data: Data, config: TrainConfig, tree: int) -> None:
    check_tree(data, config, tree)


@settings(max_examples=examples(EXAMPLES))
@given(data=tables(max_rows=30, max_features=3), impurity=st.sampled_from(sorted(SCORES)))
def test_grow_tree__all_rows_and_features(data: Data, impurity: str) -> None:
    check_tree(data, TrainConfig(impurity=impurity, **ALL_ROWS))


@settings(max_examples=examples(EXAMPLES // 4))
@given(data=tables(max_rows=200, max_features=2, max_classes=3), config=configs())
def test_grow_tree__a_few_hundred_rows(data: Data, config: TrainConfig) -> None:
    check_tree(data, config)


@settings(max_examples=examples(EXAMPLES // 4))
@given(data=tables(), config=configs(), bins=st.sampled_from([2, 3, 7]))
def test_grow_tree__capped_codes(data: Data, config: TrainConfig, bins: int) -> None:
    check_tree(data, replace(config, max_bins=bins))


@pytest.mark.parametrize("impurity", SCORES)
def test_grow_tree__xor_on_a_grid_is_solved_at_depth_2(impurity: str) -> None:
    values = np.array(list(product((-1.0, 1.0), (-1.0, 1.0))) * 6)
    target = ((values[:, 0] > 0) ^ (values[:, 1] > 0)).astype(np.int64)
    nodes = check_tree(Data(values, target), TrainConfig(impurity=impurity, **ALL_ROWS))
    first = nodes[0].feature  # of two that are as good
    assert [(node.feature, node.threshold, node.depth) for node in nodes if node.feature >= 0] == [
        (first, 0.0, 0),
        (1 - first, 0.0, 1),
        (1 - first, 0.0, 1),
    ]
    assert all(max(node.counts) == node.weight for node in nodes if node.feature < 0)


@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("sides", [2, 3, 4, 5])
def test_grow_tree__checkerboard_has_nothing_but_ties(impurity: str, sides: int) -> None:
    values = np.array(list(product(range(sides), repeat=3)), np.float64)
    target = values.sum(axis=1).astype(np.int64) % 2
    check_tree(Data(values, target), TrainConfig(impurity=impurity, **ALL_ROWS))


@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_grow_tree__palindromes_tie_from_both_ends(impurity: str, classes: int) -> None:
    half = np.arange(24) * 5 % classes
    target = np.unique(np.concatenate([half, half[::-1]]), return_inverse=True)[1]
    up = np.arange(48.0)
    values = np.column_stack([-up, up, up])
    nodes = check_tree(Data(values, target), TrainConfig(impurity=impurity, **ALL_ROWS))
    assert len({node.feature for node in nodes if node.feature >= 0}) == 3  # none is preferred for its number


@pytest.mark.parametrize("impurity", SCORES)
def test_grow_tree__classes_renamed_leave_the_shape(impurity: str) -> None:
    draw = np.random.default_rng(5)
    values = draw.integers(0, 9, (60, 3)).astype(np.float64)
    target = np.concatenate([np.arange(5), draw.integers(0, 5, 55)])
    one = check_tree(Data(values, target), TrainConfig(impurity=impurity, **ALL_ROWS))
    other = check_tree(Data(values, 4 - target), TrainConfig(impurity=impurity, **ALL_ROWS))
    assert [node[:5] for node in one if node.feature >= 0] == [node[:5] for node in other if node.feature >= 0]


def test_grow_tree__extreme_values_are_ordinary() -> None:
    values = np.array([EXTREMES, EXTREMES[::-1]]).T
    for shift in range(3):
        target = (np.arange(len(EXTREMES)) + shift) % 3
        nodes = check_tree(Data(values, target), TrainConfig(**ALL_ROWS))
        assert not any(node.feature >= 0 and np.isnan(node.threshold) for node in nodes)


def test_grow_tree__last_bit_is_enough() -> None:
    value = np.nextafter(1.0, [0, 2])
    data = Data(value.reshape(-1, 1), np.array([0, 1]))
    assert check_tree(data, TrainConfig(**ALL_ROWS))[0].threshold == 1.0
    neighbours = Data(np.array([[1.0], [np.nextafter(1.0, 2)]]), np.array([0, 1]))
    assert check_tree(neighbours, TrainConfig(**ALL_ROWS))[0].threshold == 1.0


def test_grow_tree__signed_zeros_are_one_value() -> None:
    data = Data(np.array([[-0.0, 1.0], [0.0, 2.0]]), np.array([0, 1]))
    assert check_tree(data, TrainConfig(**ALL_ROWS))[0].feature == 1


@pytest.mark.parametrize("dtype", [pl.Float32(), pl.Int8(), pl.UInt16(), pl.Int32(), pl.Int64(), pl.UInt64()])
def test_grow_tree__numbers_of_any_type(dtype: pl.DataType) -> None:
    draw = np.random.default_rng(3)
    whole = draw.integers(0 if str(dtype).startswith("U") else -100, 100, (80, 3)).astype(np.float64)
    neighbours = np.nextafter(np.float32(0.1), np.float32(draw.integers(-1, 2, (80, 3)))).astype(np.float64)
    values = neighbours if dtype == pl.Float32 else whole
    target = np.concatenate([[0, 1, 2], draw.integers(0, 3, 77)])
    for max_bins in ("exact", 5):
        check_tree(Data(values, target), TrainConfig(max_bins=max_bins), dtype=dtype)


def test_grow_tree__rows_alike_stay_together() -> None:
    values = np.array([[1.0, 2.0]] * 5 + [[1.0, 3.0]] * 4)
    nodes = check_tree(Data(values, np.array([0, 1, 2, 0, 1, 2, 2, 2, 1])), TrainConfig(**ALL_ROWS))
    assert [node.counts for node in nodes] == [[2, 3, 4], [2, 2, 1], [0, 1, 3]]


def test_grow_tree__a_bag_of_one_row_is_a_leaf() -> None:
    data = Data(np.arange(6.0).reshape(3, 2), np.array([0, 1, 1]))
    for tree in range(6):
        nodes = check_tree(data, TrainConfig(sample_fraction=1e-9), tree)
        assert [node.weight for node in nodes] == [1]


@pytest.mark.parametrize("constants", ["redraw", "count"])
def test_grow_tree__constant_features(constants: str) -> None:
    draw = np.random.default_rng(1)
    values = np.zeros((40, 12))
    values[:, 5] = draw.integers(0, 5, 40)
    values[:, 9] = draw.integers(0, 2, 40)
    target = np.concatenate([[0, 1], draw.integers(0, 2, 38)])
    for seed in range(8):
        config = TrainConfig(mtry=2, constants=constants, bootstrap=False, seed=seed)
        assert len(check_tree(Data(values, target), config)) > 1


COMPARED = numba.njit(lambda *counts: compare_gini(*counts)) if COMPILED else compare_gini


@settings(max_examples=examples(EXAMPLES))
@given(st.lists(st.integers(1, 2**31 - 1), min_size=4, max_size=4), st.integers(-1, 1), st.integers(1, 2**20))
@example([2**31 - 1] * 4, 1, 1)
def test_compare_gini__is_exact(counts: list[int], nudge: int, spread: int) -> None:
    def score(sq_l: int, w_l: int, sq_r: int, w_r: int) -> Fraction:
        return Fraction(sq_l, w_l) + Fraction(sq_r, w_r)

    a, b, c, d = counts
    one = (a * a + b * b, a + b, c * c + d * d, c + d)
    near = (one[2] + nudge, one[3], one[0], one[1])
    far = (b * b + spread, b + spread, c * c, c + 1)
    for other in (one, near, far):
        difference = score(*one) - score(*other)
        sign = (difference > 0) - (difference < 0)
        assert COMPARED(*[np.int64(n) for n in (*one, *other)]) == sign
        assert COMPARED(*[np.int64(n) for n in (*other, *one)]) == -sign
