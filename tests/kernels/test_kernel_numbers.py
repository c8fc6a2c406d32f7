"""The tree kernel for regression targets: every tree equals the oracle's, node for node."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigforest.kernels.llvm.exact import compare_means, compare_variance
from bigforest.options.train_config import TrainConfig
from tests.kernel import check_kernel, check_mixed_kernel
from tests.naive.split import Table, best_split, variance_score
from tests.strategies import Data, configs, mixed_tables, tables, weights
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 300 if COMPILED else 30
HEAVIEST = 65_535
LARGE = 2**40
GAPS = {1: [(1,), (4,)], 2: [(1,), (1000,)], 4: [(1,), (2**25,), (1, 1, 2**24), (300,)]}
POOLS = [[0, 1], [-1, 0, 1], [0, 1, 2, 3, 5, 8, 13], [-LARGE, LARGE - 1, LARGE], [LARGE, LARGE + 1], [-7, 10**12]]


def with_numbers(draw: st.DataObject, data: Data) -> Data:
    """The table with whole regression targets: few, tied, far apart, next to each other, alike, or its classes."""
    rows = len(data.target)
    pool = draw.draw(st.sampled_from([*POOLS, list(range(-rows, rows)), [5], None]))
    cells = st.lists(st.sampled_from(pool), min_size=rows, max_size=rows) if pool else st.just(data.target)
    return data._replace(target=np.array(draw.draw(cells), np.int64), numbers=True)


@settings(max_examples=examples(EXAMPLES))
@given(data=tables(max_rows=40, max_features=4), config=configs(), width=st.sampled_from(sorted(GAPS)), draw=st.data())
def test_grow__numbers_of_random_tables(data: Data, config: TrainConfig, width: int, draw: st.DataObject) -> None:
    rows = len(data.target)
    gaps = draw.draw(st.sampled_from(GAPS[width]))
    check_kernel(with_numbers(draw, data), draw.draw(weights(rows)), config, width, gaps=gaps)


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(data=mixed_tables(max_rows=40, max_features=4), config=configs(), draw=st.data())
def test_grow__mixed_numbers_of_random_tables(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    check_mixed_kernel(with_numbers(draw, data), bag, config, gaps=draw.draw(st.sampled_from([(1,), (4,), (1, 3)])))


@settings(max_examples=examples(EXAMPLES // 3), deadline=None)
@given(data=mixed_tables(max_rows=25), config=configs(), draw=st.data())
def test_grow__mixed_numbers_of_heavy_weights(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    rows = len(data.target)
    bag = draw.draw(st.lists(st.sampled_from([1, 2, HEAVIEST - 1, HEAVIEST]), min_size=rows, max_size=rows))
    check_mixed_kernel(with_numbers(draw, data), bag, config)


@pytest.mark.parametrize("rows", cases([100, 160, 400, 3000], quick=3))
@pytest.mark.parametrize("kind", ["steps", "noise", "heavy", "ties", "late"])
@pytest.mark.parametrize("min_leaf", [1, 7])
def test_grow__numbers_in_every_way_of_scanning(rows: int, kind: str, min_leaf: int) -> None:
    rows = rows if COMPILED else rows // 10
    draw = np.random.default_rng(rows)
    values = np.column_stack([draw.permutation(rows), draw.integers(0, 30, rows), draw.normal(size=rows)])
    target = {
        "steps": np.digitize(values[:, 2], [-1, 0.2, 1.1]) * 1000 + draw.integers(0, 9, rows),
        "noise": draw.integers(-(2**35), 2**35, rows),
        "heavy": (2.0 ** draw.uniform(0, 40, rows)).astype(np.int64),
        "ties": np.arange(rows) % 2,
        "late": (values[:, 0] > 0.8 * rows) * 1000 + draw.integers(0, 9, rows),
    }[kind]
    outliers = [(1,) * codes + (far,) for codes, far in ((200, 2**17), (1400, 2**20), (2900, 2**20))]
    for gaps in ((1,), tuple(2 ** draw.integers(0, 18, 40)), *outliers):
        config = TrainConfig(mtry=2, min_leaf=min_leaf, max_depth=2)
        check_kernel(Data(values, target, numbers=True), draw.integers(0, 3, rows).tolist(), config, gaps=gaps)


@pytest.mark.parametrize("levels", [3, 60, 700])
def test_grow__mixed_numbers_of_thousands_of_rows(levels: int) -> None:
    rows = 3000 if COMPILED else 300
    draw = np.random.default_rng(levels)
    category = draw.integers(0, levels, rows).astype(np.float64)
    number = np.round(draw.normal(size=rows), 2)
    target = (1e9 * np.sin(category) + 1e8 * number + draw.integers(-9, 9, rows)).astype(np.int64)
    category[draw.random(rows) < 0.1], number[draw.random(rows) < 0.2] = np.nan, np.nan
    data = Data(np.column_stack([category, number]), target, frozenset([0]), numbers=True)
    nodes = check_mixed_kernel(data, draw.integers(0, 3, rows).tolist(), TrainConfig(mtry="all", max_depth=6))
    assert {node.feature for node in nodes} == {-1, 0, 1}


@settings(max_examples=examples(EXAMPLES // 3), deadline=None)
@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=3), min_size=2, max_size=8))
def test_best_split__numbers_get_the_best_of_all_subsets(levels: list[list[int]]) -> None:
    values = np.array([[float(level)] for level, numbers in enumerate(levels) for _ in numbers])
    table = Table(values, values, list(chain(*levels)), 0, frozenset([0]))
    rows = range(len(values))
    once = [1] * len(values)
    found = best_split(table, rows, once, [0], "variance", 1)
    assert found is not None

    def score_of(subset: tuple[int, ...]) -> Fraction:
        inside = [row for row in rows if values[row, 0] in subset]
        return variance_score(table.total(inside, once), table.total(sorted(set(rows) - set(inside)), once))

    subsets = (subset for size in range(1, len(levels)) for subset in combinations(range(len(levels)), size))
    assert variance_score(found.left, found.right) == max(map(score_of, subsets))


@pytest.mark.parametrize("sign", [1, -1])
def test_grow__numbers_in_mirrored_halves_tie(sign: int) -> None:
    rows = 2000 if COMPILED else 200
    half = np.random.default_rng(2).integers(0, 2**38, rows // 2)
    up = sign * np.arange(float(rows))
    data = Data(np.column_stack([up, -up]), np.concatenate([half, half[::-1]]), numbers=True)
    nodes = check_kernel(data, [1] * rows, TrainConfig(mtry="all", max_depth=1))
    assert nodes[0].feature == 0


def test_grow__numbers_whose_scores_only_differ_by_rounding_tie() -> None:
    """After 5, 10 and 25 rows the scores are equal, and the second is rounded up."""
    step = 1_000_000_002
    half = np.repeat([3 * step, step, step // 3], [5, 5, 15])
    data = Data(np.arange(50.0)[:, np.newaxis], np.concatenate([half, -half[::-1]]), numbers=True)
    nodes = check_kernel(data, [1] * 50, TrainConfig(mtry="all", max_depth=1))
    assert nodes[0].threshold == 4.5


COMPARED = numba.njit(lambda *sums: compare_variance(*sums)) if COMPILED else compare_variance
MEANS_COMPARED = numba.njit(lambda *means: compare_means(*means)) if COMPILED else compare_means


@settings(max_examples=examples(EXAMPLES))
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


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1))
@example(2**62, 2**62 - 1, 2**31 - 1, 2**31 - 1)
@example(-3, -6, 1, 2)
def test_compare_means__is_exact(one: int, two: int, w_one: int, w_two: int) -> None:
    scaled = max(-(2**62), min(2**62, one // w_one * w_two))  # the same mean, or next to it
    for first, other in (((one, w_one), (two, w_two)), ((one, w_one), (scaled, w_two))):
        sign = (Fraction(*first) > Fraction(*other)) - (Fraction(*first) < Fraction(*other))
        assert MEANS_COMPARED(*[np.int64(n) for n in (*first, *other)]) == sign
