"""Missing values and categories in the tree kernel by itself, and the order of levels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.kernels.common.node_scan import Node
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.scan.level_order import make_levels, order_levels
from bigforest.options.train_config import TrainConfig
from tests.kernel import WIDTHS, check_mixed_kernel
from tests.naive.levels import level_groups, level_order, principal_component
from tests.naive.split import SCORES, Table, best_split
from tests.strategies import Data, configs, crowded, mixed_tables, weights
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT
HEAVIEST = 65_535


@settings(max_examples=examples(600 if COMPILED else 60), deadline=None)
@given(data=mixed_tables(), config=configs(), width=st.sampled_from(sorted(WIDTHS)), draw=st.data())
def test_grow__mixed_any_weights(data: Data, config: TrainConfig, width: int, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    check_mixed_kernel(data, bag, config, width, draw.draw(st.sampled_from([(1,), (4,), (1, 3)])))


@settings(max_examples=examples(150 if COMPILED else 20), deadline=None)
@given(data=mixed_tables(max_rows=25, max_classes=4), config=configs(), draw=st.data())
def test_grow__mixed_heavy_weights(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    heavy = st.sampled_from([1, 2, HEAVIEST - 1, HEAVIEST])
    bag = draw.draw(st.lists(heavy, min_size=len(data.target), max_size=len(data.target)))
    check_mixed_kernel(data, bag, config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
def test_grow__mixed_opened_buckets_of_hundreds_of_rows() -> None:
    config = TrainConfig(mtry="all", max_depth=1)
    for seed in range(6):
        draw = np.random.default_rng(seed)
        data = crowded(draw)
        data.values[draw.random(8000) < 0.01] = np.nan
        check_mixed_kernel(data, draw.integers(0, 3, 8000).tolist(), config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("classes", cases([2, 3, 7], quick=2))
@pytest.mark.parametrize("levels", [3, 60, 700])
def test_grow__mixed_thousands_of_rows(impurity: str, classes: int, levels: int) -> None:
    draw = np.random.default_rng(levels + classes)
    rows = 3000
    category = draw.integers(0, levels, rows).astype(np.float64)
    number = np.round(draw.normal(size=rows), 2)
    target = np.digitize(np.sin(category) + number / 3, np.linspace(-1, 1, classes + 1)[1:-1])
    category[draw.random(rows) < 0.1], number[draw.random(rows) < 0.2] = np.nan, np.nan
    data = Data(np.column_stack([category, number]), target, frozenset([0]))
    config = TrainConfig(impurity=impurity, mtry="all", max_depth=4, min_leaf=2)
    nodes = check_mixed_kernel(data, draw.integers(0, 3, rows).tolist(), config)
    assert {node.feature for node in nodes} == {-1, 0, 1}


@pytest.mark.parametrize("numbers", [False, True])
def test_grow__mixed_names_say_nothing(numbers: bool) -> None:
    rows = 60
    draw = np.random.default_rng(5)
    value = draw.normal(size=rows)
    target = (value + draw.normal(size=rows) > 0).astype(np.int64)
    data = Data(np.column_stack([np.arange(rows), value]), target, frozenset([0]), numbers=numbers)
    once = [1] * rows
    config = TrainConfig(mtry="all", max_depth=1)
    assert check_mixed_kernel(data, once, config)[0].feature == 1
    assert check_mixed_kernel(data, once, replace(config, min_level=1))[0].feature == 0


def test_level_groups__by_weight_or_rank() -> None:
    light = [*map(float, range(3, 9))]
    weights: dict[float | None, int] = {None: 10, 0.0: 9, 1.0: 9, 2.0: 10, **dict.fromkeys(light, 1)}
    heavy: list[list[float | None]] = [[None], [0.0], [1.0], [2.0]]  # of 44 rows, and so of six levels at most
    assert level_groups(weights, 1) == heavy + [[level] for level in light]
    assert level_groups(weights, 2) == level_groups(weights, 1000) == [*heavy, light]
    even = dict.fromkeys(map(float, range(9)), 2)
    assert level_groups(even, 2) == [[level] for level in even]
    assert level_groups(even, 3) == [list(even)]


@settings(max_examples=examples(100 if COMPILED else 10), deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(any), min_size=2, max_size=8),
    impurity=st.sampled_from(["gini", "entropy"]),
)
def test_best_split__two_classes_get_the_best_of_all_subsets(counts: list[tuple[int, int]], impurity: str) -> None:
    levels = range(len(counts))
    rows = [(level, k, n) for level in levels for k, n in enumerate(counts[level]) if n]
    values = np.array([[float(level)] for level, _, _ in rows])
    table = Table(values, values, [k for _, k, _ in rows], 2, frozenset([0]))
    found = best_split(table, range(len(rows)), [n for _, _, n in rows], [0], impurity, 1)
    assert found is not None
    score = SCORES[impurity]

    def of(subset: tuple[int, ...]) -> Fraction | int:
        left = [sum(counts[level][k] for level in subset) for k in (0, 1)]
        right = [sum(counts[level][k] for level in levels if level not in subset) for k in (0, 1)]
        return score(left, right)

    best = max(of(subset) for size in range(1, len(counts)) for subset in combinations(levels, size))
    # Entropy is in fixed point, each of six terms rounded by half a step.
    assert abs(best - score(found.left, found.right)) <= (0 if impurity == "gini" else 6)


@pytest.mark.parametrize("classes", [3, 5, 20])
def test_principal_component__is_that_of_linear_algebra(classes: int) -> None:
    draw = np.random.default_rng(classes)
    shares = draw.dirichlet(np.ones(classes), 2)[draw.integers(0, 2, 40)]
    counts = np.array([draw.multinomial(draw.integers(50, 500), share) for share in shares])
    weight = counts.sum(axis=1)
    share = counts / weight[:, None] - counts.sum(axis=0) / weight.sum()
    leading = np.linalg.eigh((share * weight[:, None]).T @ share)[1][:, -1]
    found = np.array(principal_component(counts.tolist()), np.float64)
    found -= found.mean()
    assert abs(found @ leading) / np.linalg.norm(found) > 0.9999


@kernel
def ordered(places, low, high, node, least, levels, sums, dictionary, key):  # type: ignore[no-untyped-def]
    """What is compiled into kernels only, as a kernel."""
    return order_levels(places, low, high, node, least, levels, sums, dictionary, key)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("classes", cases([3, 2], quick=1))
def test_order_levels__of_thousands(classes: int) -> None:
    draw = np.random.default_rng(classes)
    rows, most = 30_000, 1 << 20
    codes = draw.choice(most, 20_000).astype(np.uint32)[draw.integers(0, 20_000, rows)]
    target = draw.integers(0, classes, rows)
    counts = {int(code): [0] * classes for code in codes}
    for code, k in zip(codes.tolist(), target.tolist(), strict=True):
        counts[code][k] += 1
    expected = level_order({float(code): count for code, count in counts.items()}, classes)
    items = np.arange(rows, dtype=np.uint64) << np.uint64(32) | target.astype(np.uint64) << np.uint64(16) | np.uint64(1)
    total = np.bincount(target, minlength=classes)
    levels = make_levels(most, rows, classes)
    places = codes.copy()
    with np.errstate(over="ignore"):
        node = Node(items, total, rows, int((total**2).sum()), np.uint64(0))
        groups, found = ordered(places, codes.min(), codes.max(), node, 1, levels, None, None, np.uint64(0))
    assert groups == found == len(expected)
    assert levels.first[levels.order[: len(expected)]].tolist() == expected
    assert np.array_equal(np.array(expected)[places], codes)
    assert not levels.totals.any()
