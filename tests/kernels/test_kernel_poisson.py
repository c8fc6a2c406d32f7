"""Splits by the Poisson deviance: the logarithm, scores and bounds, and whole trees, against the oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigforest.kernels.common.deviance import logarithm, poisson_corner, poisson_score
from bigforest.kernels.compiler.jit import kernel
from bigforest.options.train_config import TrainConfig
from tests.kernel import check_kernel, check_mixed_kernel
from tests.naive import split as naive
from tests.naive.split import Table, best_split
from tests.strategies import Data, configs, mixed_tables, tables, weights
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 200 if COMPILED else 30
SIZES = [1, 2, 16, 77]
HEAVIEST = 65_535
LARGE = 2**40
GAPS = [(1,), (2**25,), (1, 1, 2**24), (300,)]
# Targets, and the number that stands for 0.
POOLS = [
    ([0, 1], 0),
    ([0, 0, 0, 1], 0),
    ([0, 0, 0, 0, 0, 10**9], 0),
    ([0, 1, 2, 3, 5, 8, 13], 0),
    ([-3, -2, -1, 0, 1], -3),
    ([-LARGE, 1 - LARGE, LARGE - 1], -LARGE),
    ([LARGE, LARGE + 1], -(2**54)),
    ([5], 5),
    ([5], 4),
]


@kernel
def _log(x):
    return logarithm(x)


@kernel
def _score(*arguments):
    return poisson_score(*arguments)


@kernel
def _corner(*arguments):
    return poisson_corner(*arguments)


@settings(max_examples=examples(500))
@given(st.floats(1e-60, 1e60))
@example(1.0)
@example(math.sqrt(0.5))
@example(math.nextafter(1.0, 2.0))
def test_logarithm__is_that_of_the_oracle_and_right(x: float) -> None:
    assert _log(x) == naive.logarithm(x)
    assert abs(_log(x) - math.log(x)) <= 2 * math.ulp(math.log(x))


def test_logarithm__finite_at_zero() -> None:
    assert 0.0 * _log(0.0) == 0.0


def _splits(draw: np.random.Generator, n: int, most: int) -> tuple[int, int, list[int], list[int]]:
    """Weight and total of a node, and of the left side of n splits."""
    weight = int(draw.integers(2, 2**31 - 1)) if most > 9 else int(draw.integers(2, 20))
    total = int(draw.integers(1, most + 1))
    return weight, total, draw.integers(1, weight, n).tolist(), draw.integers(0, total, n, endpoint=True).tolist()


@settings(max_examples=examples(EXAMPLES))
@given(st.sampled_from(SIZES), st.sampled_from([3, 9, 10**6, 2**52]), st.integers(0, 2**32))
def test_poisson_scores__equal_those_of_the_oracle(n: int, most: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    weight, total, w_l, sum_l = _splits(draw, n, most)
    centre = total // weight
    node = (weight, total - centre * weight, float(centre))
    for left, one in zip(w_l, sum_l, strict=True):
        of_left = one - centre * left
        found = _score(of_left, left, *node)
        wanted = naive.poisson_score([left, one], [weight - left, total - one], 0.0)
        assert found == (-1.0 if wanted is None else wanted)
        if wanted is not None:
            assert found == _score(node[1] - of_left, weight - left, *node)  # mirrored
            sides = ((one, left), (total - one, weight - left))
            real = math.fsum(s * math.log(Fraction(s * weight, w * total)) for s, w in sides) / total
            assert abs(found - 1.0 - real) < 1e-13 * (1.0 + abs(real))
            assert _corner(of_left, left, *node) == found


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(1, 2**30), st.integers(1, 2**20), st.integers(1, 2**20), st.integers(0, 2**20))
def test_poisson_score__is_1_where_no_mean_changes(mean: int, w_l: int, w_r: int, centre: int) -> None:
    weight, origin = w_l + w_r, float(centre)
    centred = [(mean - centre) * w for w in (w_l, weight)]
    assert _score(centred[0], w_l, weight, centred[1], origin) == 1.0


def with_counts(draw: st.DataObject, data: Data) -> Data:
    """The table with targets that are not below zero: few, tied, mostly 0, far apart, far from 0, alike."""
    rows = len(data.target)
    pool, zero = draw.draw(st.sampled_from(POOLS))
    cells = draw.draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
    return data._replace(target=np.array(cells, np.int64), numbers=True, zero=float(zero))


def by_deviance(config: TrainConfig) -> TrainConfig:
    """The configuration with this criterion."""
    return replace(config, impurity="poisson")


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(data=tables(max_rows=40, max_features=4), config=configs(), draw=st.data())
def test_grow__counts_of_random_tables(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    gaps = draw.draw(st.sampled_from(GAPS))
    check_kernel(with_counts(draw, data), draw.draw(weights(len(data.target))), by_deviance(config), gaps=gaps)


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(data=mixed_tables(max_rows=40, max_features=4), config=configs(), draw=st.data())
def test_grow__mixed_counts_of_random_tables(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    check_mixed_kernel(with_counts(draw, data), draw.draw(weights(len(data.target))), by_deviance(config))


@settings(max_examples=examples(EXAMPLES // 3), deadline=None)
@given(data=mixed_tables(max_rows=25), config=configs(), draw=st.data())
def test_grow__random_splits_of_counts(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    check_mixed_kernel(with_counts(draw, data), bag, replace(by_deviance(config), splitter="random"))


@settings(max_examples=examples(EXAMPLES // 3), deadline=None)
@given(data=mixed_tables(max_rows=25), config=configs(), draw=st.data())
def test_grow__mixed_counts_of_heavy_weights(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    rows = len(data.target)
    bag = draw.draw(st.lists(st.sampled_from([1, 2, HEAVIEST - 1, HEAVIEST]), min_size=rows, max_size=rows))
    check_mixed_kernel(with_counts(draw, data), bag, by_deviance(config))


@pytest.mark.parametrize("rows", cases([60, 160, 400, 3000], quick=3))
@pytest.mark.parametrize("kind", ["counts", "rare", "heavy", "far"])
def test_grow__counts_in_every_way_of_scanning(rows: int, kind: str) -> None:
    rows = rows if COMPILED else rows // 10
    draw = np.random.default_rng(rows)
    values = np.column_stack([draw.permutation(rows), draw.integers(0, 30, rows), draw.normal(size=rows)])
    target, zero = {
        "counts": (draw.poisson(np.exp(values[:, 2])), 0),
        "rare": ((values[:, 0] > 0.9 * rows) * draw.integers(0, 3, rows) + (values[:, 1] == 3), 0),
        "heavy": ((2.0 ** draw.uniform(0, 40, rows)).astype(np.int64), 0),
        "far": (draw.integers(-(2**35), 2**35, rows), -(2**50)),
    }[kind]
    outliers = [(1,) * codes + (far,) for codes, far in ((200, 2**17), (2900, 2**20))]
    for gaps in ((1,), tuple(2 ** draw.integers(0, 18, 40)), *outliers):
        config = TrainConfig(impurity="poisson", mtry=2, min_leaf=3, max_depth=2)
        data = Data(values, target.astype(np.int64), numbers=True, zero=float(zero))
        check_kernel(data, draw.integers(0, 3, rows).tolist(), config, gaps=gaps)


def test_grow__counts_in_mirrored_halves_tie() -> None:
    rows = 2000 if COMPILED else 200
    half = np.random.default_rng(2).integers(0, 2**38, rows // 2)
    up = np.arange(float(rows))
    data = Data(np.column_stack([up, -up]), np.concatenate([half, half[::-1]]), numbers=True)
    nodes = check_kernel(data, [1] * rows, TrainConfig(impurity="poisson", mtry="all", max_depth=1))
    assert nodes[0].feature == 0


@settings(max_examples=examples(EXAMPLES // 3), deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=2, max_size=7))
def test_best_split__counts_get_the_best_of_all_subsets(levels: list[list[int]]) -> None:
    values = np.array([[float(level)] for level, numbers in enumerate(levels) for _ in numbers])
    table = Table(values, values, [number for numbers in levels for number in numbers], 0, frozenset([0]))
    rows, once = range(len(values)), [1] * len(values)
    found = best_split(table, rows, once, [0], "poisson", 1)
    scores = []
    for chosen in product((False, True), repeat=len(levels)):
        sides = [[row for row in rows if chosen[int(values[row, 0])] == side] for side in (True, False)]
        if all(sides):
            scores.append(naive.poisson_score(table.total(sides[0], once), table.total(sides[1], once), 0.0))
    known = [score for score in scores if score is not None]
    assert (found is None) == (not known)
    if found is not None:
        best = naive.poisson_score(found.left, found.right, 0.0)
        assert best is not None
        assert best >= max(known) - 1e-14


def test_best_split__no_side_without_counts() -> None:
    values = np.arange(4.0)[:, np.newaxis]
    once = [1] * 4
    found = best_split(Table(values, values, [0, 0, 1, 5], 0), range(4), once, [0], "poisson", 1)
    assert found is not None
    assert found.threshold == 2.5  # the variance, too, would split there; 1.5 would leave two rows without counts
    assert best_split(Table(values, values, [0, 0, 0, 5], 0), range(4), once, [0], "poisson", 1) is None
