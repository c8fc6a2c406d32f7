"""The tree kernel for numbers to predict: every tree equals the oracle's, node for node."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.kernels.exact import compare_variance
from bigforest.kernels.grow import Rules, grow_numbers
from bigforest.kernels.impurity import VARIANCE
from bigforest.kernels.layout import LEAF, Rows
from tests.kernel import encoded
from tests.naive import rng
from tests.naive.split import threshold_between
from tests.naive.variance import NumberNode, Numbers
from tests.naive.variance import grow_numbers as grow_naively
from tests.strategies import Data, configs, tables, weights

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 300 if COMPILED else 30
LARGE = 2**40
POOLS = [[0, 1], [-1, 0, 1], [0, 1, 2, 3, 5, 8, 13], [-LARGE, LARGE - 1, LARGE], [LARGE, LARGE + 1], [-7, 10**12]]


@st.composite
def targets(draw: st.DrawFn, rows: int) -> list[int]:
    """Whole numbers: few, tied, far apart, next to each other, alike."""
    pool = draw(st.sampled_from([*POOLS, list(range(-rows, rows)), [5]]))
    return draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))


def check_numbers(
    values: NDArray[np.float64],
    target: Sequence[int],
    repeats: Sequence[int],
    weight: Sequence[int],
    config: TrainConfig,
    gaps: Sequence[int] = (1,),
) -> list[NumberNode]:
    """Assert that the kernel grows the oracle's tree; returns that tree. No weights: each row weighs 1."""
    table = Numbers(values, values, target, repeats, weight or [1] * len(target))
    expected = grow_naively(table, config, 0)
    dictionaries, codes = encoded(values, 4, gaps)
    rows = np.flatnonzero(repeats).astype(np.uint64)
    items = rows << np.uint64(32) | np.asarray(repeats, np.uint64)[rows]
    rules = Rules(
        config.drawn_features(values.shape[1]),
        VARIANCE,
        -1 if config.max_depth is None else config.max_depth,
        config.min_split,
        config.min_leaf,
        config.constants == "redraw",
        -1 if config.feature_fraction is None else max(1, int(config.feature_fraction * 2**53)),
    )
    by_row = Rows(*(np.array(matrix.T, order="C") for matrix in codes[:3]), reach=20)
    given_numbers = np.array(target, np.int64), np.array(weight, np.uint32)
    for array in given_numbers:
        array.flags.writeable = False
    key = np.uint64(rng.stream_key(config.seed, rng.PURPOSE_GROW, 0, 0))
    with np.errstate(over="ignore"):
        found = grow_numbers(codes, by_row, items, *given_numbers, key, rules)
    assert found.feature.size == len(expected)
    for number, node in enumerate(expected):
        got = (found.feature[number], found.depth[number], found.counts[number, 0], found.sum[number])
        assert got == (node.feature, node.depth, node.weight, node.sum), f"node {number} is {got} and not {node}"
        if node.feature != LEAF:
            value_of = dictionaries[node.feature]
            below, above = value_of[found.left_code[number]], value_of[found.right_code[number]]
            assert threshold_between(below, above) == node.threshold
            assert found.right[number] == node.right
    return expected


@settings(max_examples=EXAMPLES)
@given(data=tables(max_rows=40, max_features=4), config=configs(), draw=st.data())
def test_grow_numbers__random_tables_and_options(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    rows = len(data.target)
    target = draw.draw(st.one_of(targets(rows), st.just(data.target.tolist())))
    gaps = draw.draw(st.sampled_from([(1,), (2**25,), (1, 1, 2**24), (300,)]))
    check_numbers(data.values, target, draw.draw(weights(rows)), [], config, gaps)


@settings(max_examples=EXAMPLES // 2)
@given(data=tables(max_rows=30, max_features=3), config=configs(), draw=st.data())
def test_grow_numbers__any_weights(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    rows = len(data.target)
    weight = draw.draw(st.lists(st.sampled_from([1, 1, 2, 3, 1000]), min_size=rows, max_size=rows))
    check_numbers(data.values, draw.draw(targets(rows)), draw.draw(weights(rows)), weight, config)


@pytest.mark.parametrize("rows", [100, 400, 700, 3000])
@pytest.mark.parametrize("kind", ["steps", "noise", "heavy", "ties"])
@pytest.mark.parametrize("min_leaf", [1, 7])
def test_grow_numbers__every_way_of_scanning(rows: int, kind: str, min_leaf: int) -> None:
    rows = rows if COMPILED else rows // 10
    draw = np.random.default_rng(rows)
    values = np.column_stack([draw.permutation(rows), draw.integers(0, 30, rows), draw.normal(size=rows)])
    target = {
        "steps": np.digitize(values[:, 2], [-1, 0.2, 1.1]) * 1000 + draw.integers(0, 9, rows),
        "noise": draw.integers(-(2**35), 2**35, rows),
        "heavy": (2.0 ** draw.uniform(0, 40, rows)).astype(np.int64),
        "ties": np.arange(rows) % 2,
    }[kind]
    for gaps in ((1,), tuple(2 ** draw.integers(0, 18, 40)), (1,) * 200 + (2**17,)):
        config = TrainConfig(mtry=2, min_leaf=min_leaf, max_depth=2)
        check_numbers(values, target.tolist(), draw.integers(0, 3, rows).tolist(), [], config, gaps)


@pytest.mark.parametrize("sign", [1, -1])
def test_grow_numbers__mirrored_halves_tie(sign: int) -> None:
    rows = 2000 if COMPILED else 200
    half = np.random.default_rng(2).integers(0, 2**38, rows // 2)
    up = sign * np.arange(float(rows))
    target = np.concatenate([half, half[::-1]]).tolist()
    nodes = check_numbers(np.column_stack([up, -up]), target, [1] * rows, [], TrainConfig(mtry="all", max_depth=1))
    assert nodes[0].feature == 0


COMPARED = numba.njit(lambda *sums: compare_variance(*sums)) if COMPILED else compare_variance


@settings(max_examples=EXAMPLES)
@given(
    st.integers(-(2**61), 2**61),
    st.integers(-(2**61), 2**61),
    st.integers(1, 2**30),
    st.integers(1, 2**30),
    st.integers(-2, 2),
)
def test_compare_variance__is_exact(sum_l: int, sum_r: int, w_l: int, w_r: int, nudge: int) -> None:
    def score(sum_l: int, w_l: int, sum_r: int, w_r: int) -> Fraction:
        return Fraction(sum_l * sum_l, w_l) + Fraction(sum_r * sum_r, w_r)

    one = (sum_l, w_l, sum_r, w_r)
    for other in ((sum_l + nudge, w_l, sum_r - nudge, w_r), (sum_r, w_r, sum_l, w_l), (sum_r, w_l, sum_l, w_r)):
        difference = score(*one) - score(*other)
        sign = (difference > 0) - (difference < 0)
        assert COMPARED(*[np.int64(n) for n in (*one, *other)]) == sign
        assert COMPARED(*[np.int64(n) for n in (*other, *one)]) == -sign
