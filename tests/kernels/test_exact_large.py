"""Trees on tables so large that every kernel takes part: sorts, histograms, opened buckets, all widths."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from bigforest.grow.row_codes import by_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.node_scan import MOST_BUCKETS, heavy_buckets, most_buckets
from bigforest.kernels.common.sort import sort_by_code
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.scan.impurity import GINI, VARIANCE
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from tests.grown import check_large_tree
from tests.naive.split import SCORES
from tests.strategies import Data
from tests.thorough import cases

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")

Column = NDArray[np.float64]
Draw = np.random.Generator


def bits(draw: Draw, signal: Column) -> Column:
    """Two values, slightly informative."""
    return (signal + draw.normal(0, 2, signal.size) > 0).astype(np.float64)


def ties(draw: Draw, signal: Column) -> Column:
    """A dozen values."""
    return np.round(signal * 2 + draw.normal(0, 1, signal.size)).clip(-6, 6)


def bytes_(draw: Draw, signal: Column) -> Column:
    """All 256 codes of one byte."""
    return draw.integers(0, 256, signal.size) + 0.25


def words(draw: Draw, signal: Column) -> Column:
    """Thousands of values, so codes of two bytes."""
    return np.round(signal * 300 + draw.normal(0, 500, signal.size))


def floats(draw: Draw, signal: Column) -> Column:
    """Every value differs."""
    return signal + draw.normal(0, 1.5, signal.size)


def skewed(draw: Draw, signal: Column) -> Column:
    """Most rows share a few low codes, and the rest have one each."""
    rare = draw.random(signal.size) < 0.03
    return np.where(rare, 10 + draw.random(signal.size), draw.integers(0, 3, signal.size) - (signal > 1))


def clumped(draw: Draw, signal: Column) -> Column:
    """Nearly all distinct values lie in a few narrow ranges of codes that few rows share."""
    return np.where(draw.random(signal.size) < 0.5, 0.0, np.abs(signal) ** 3 + draw.random(signal.size) * 1e-3)


def zeros(draw: Draw, signal: Column) -> Column:
    """Most rows are zero, and the others are different numbers on both sides of it."""
    return np.where(draw.random(signal.size) < 0.8, 0.0, signal + draw.normal(0, 1, signal.size))


KINDS: list[Callable[[Draw, Column], Column]] = [bits, ties, bytes_, words, floats, skewed, clumped, zeros]


def table(rows: int, classes: int, seed: int, kinds: list[Callable[[Draw, Column], Column]] = KINDS) -> Data:
    """A table with one column of each kind, and copies and mirrors of two of them, so that features tie."""
    draw = np.random.default_rng(seed)
    signal = draw.normal(0, 1, rows)
    made = [kind(draw, signal) for kind in kinds]
    values = np.column_stack([-made[-1], *made, made[0], -made[-2]])
    noisy = signal + draw.normal(0, 0.4, rows)
    edges = np.quantile(noisy, np.linspace(0, 1, classes + 1)[1:-1] ** 1.5)  # classes of unequal size
    target = np.searchsorted(edges, noisy)
    stray = draw.random(rows) < 0.02
    target[stray] = draw.integers(0, classes, stray.sum())
    return Data(values, np.unique(target, return_inverse=True)[1])


@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("classes", [2, 3, 30])
def test_grow_tree__3_000_rows(impurity: str, classes: int) -> None:
    config = TrainConfig(impurity=impurity, mtry=3, seed=3)
    check_large_tree(table(3000, classes, 7), config, tree=classes)


@pytest.mark.parametrize("min_leaf", cases([300, 50, 5], quick=2))
@pytest.mark.parametrize("classes", [2, 10])
def test_grow_tree__2_000_rows_and_large_leaves(classes: int, min_leaf: int) -> None:
    for impurity in SCORES:
        config = TrainConfig(impurity=impurity, mtry="all", min_leaf=min_leaf, bootstrap=False)
        check_large_tree(table(2000, classes, 8), config)


@pytest.mark.parametrize(
    ("impurity", "bins"), cases([("gini", 2), ("gini", 300), ("entropy", 16), *product(SCORES, [2, 16, 300])], quick=3)
)
def test_grow_tree__capped_codes(impurity: str, bins: int) -> None:
    config = TrainConfig(impurity=impurity, mtry=4, max_bins=bins)
    check_large_tree(table(2500, 3, 9), config)


@pytest.mark.parametrize(("impurity", "classes"), cases(product(SCORES, [2, 10]), quick=2))
def test_grow_tree__20_000_rows(impurity: str, classes: int) -> None:
    config = TrainConfig(impurity=impurity, mtry=3, seed=1, max_depth=9)
    check_large_tree(table(20_000, classes, 4), config)


def test_grow_tree__6_000_rows_grown_until_pure() -> None:
    check_large_tree(table(6_000, 2, 5), TrainConfig(mtry=2))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5])
def test_grow_tree__codes_of_four_bytes(classes: int) -> None:
    kinds = [floats, words, floats, ties]
    data = table(70_000, classes, 6, kinds)
    assert max(np.unique(column).size for column in data.values.T) > 2**16
    check_large_tree(data, TrainConfig(mtry="all", max_depth=2))
    check_large_tree(data, TrainConfig(mtry=2, sample_fraction=0.02, replace=False))


@pytest.mark.parametrize("classes", cases([10, 2], quick=1))
@pytest.mark.parametrize("constants", ["redraw", "count"])
def test_grow_tree__hundreds_of_features(classes: int, constants: str) -> None:
    data = table(1500, classes, 10, [words, ties, bits, skewed] * 70)
    rare = np.zeros((1500, 90))  # images have such columns: constant in nearly every node
    places = np.random.default_rng(1).integers(0, 1500, (90, 3))
    rare[places, np.arange(90)[:, None]] = 1.0
    data = Data(np.column_stack([rare[:, :45], data.values, rare[:, 45:]]), data.target)
    check_large_tree(data, TrainConfig(constants=constants))


def test_grow_tree__alternating_classes_make_a_deep_tree() -> None:
    rows = 700
    data = Data(np.arange(float(rows)).reshape(-1, 1), np.arange(rows) % 2)
    nodes = check_large_tree(data, TrainConfig(bootstrap=False))
    assert len(nodes) == 2 * rows - 1


@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("classes", [2, 4])
def test_grow_tree__palindrome_of_1_400_rows(impurity: str, classes: int) -> None:
    half = np.random.default_rng(2).integers(0, classes, 700)
    target = np.concatenate([half, half[::-1]])
    up = np.arange(1400.0)
    nodes = check_large_tree(
        Data(np.column_stack([-up, up, up]), target),
        TrainConfig(impurity=impurity, bootstrap=False, mtry="all", max_depth=6),
    )
    assert len({node.feature for node in nodes if node.feature >= 0}) == 3  # none is preferred for its number


@pytest.mark.parametrize("impurity", SCORES)
def test_grow_tree__large_checkerboard_has_nothing_but_ties(impurity: str) -> None:
    side = 64
    values = np.array(list(product(range(side), repeat=2)), np.float64)
    target = values.sum(axis=1).astype(np.int64) % 2
    config = TrainConfig(impurity=impurity, bootstrap=False, mtry="all", max_depth=8)
    check_large_tree(Data(values, target), config)


@kernel
def _sorted(keys, begin, end):
    sort_by_code(keys, begin, end)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("rows", [0, 1, 256, 257, 5_000])
def test_sort_by_code__frequent_codes(rows: int, share: float) -> None:
    draw = np.random.default_rng(rows)
    code = np.where(draw.random(rows) < share, draw.choice([0, 70, 2**32 - 1], rows), draw.integers(0, 2**32, rows))
    keys = code.astype(np.uint64) << np.uint64(32) | draw.integers(0, 9, rows).astype(np.uint64)
    ordered = np.concatenate([[np.uint64(7)], keys, [np.uint64(3)]])
    _sorted(ordered, np.uint64(1), np.uint64(rows + 1))
    assert (ordered[0], ordered[-1]) == (7, 3)
    assert (np.diff(ordered[1:-1] >> np.uint64(32)).astype(np.int64) >= 0).all()
    assert np.array_equal(np.sort(ordered[1:-1]), np.sort(keys))


@kernel
def _buckets(n, most, rows):
    return heavy_buckets(n, np.uint64(64), most, rows)


def test_heavy_buckets__grows_by_the_root_of_the_rows() -> None:
    room = [int(_buckets(np.uint64(4**k), np.uint64(1024), np.uint64(8))) for k in range(16)]
    assert room[:9] == [64, 64, 64, 64, 64, 128, 512, 1024, 1024]
    assert room[9:] == [2**k for k in range(10, 17)]
    for rows in [1, 2**18, 2**18 + 1, 2**22 + 1, 2**24 - 1, 2**31]:
        assert _buckets(np.uint64(rows), np.uint64(MOST_BUCKETS), np.uint64(1)) <= most_buckets(rows)


@pytest.mark.parametrize(("classes", "rows"), [(2, 2**22 + 1000), (3, 300_000), (100, 300_000), (1, 300_000)])
def test_grow__best_split_of_many_rows(classes: int, rows: int) -> None:
    """More rows than the usual number of buckets is for; 1: numbers. Noise, of which most buckets are opened."""
    draw = np.random.default_rng(classes)
    matrix = np.array([draw.permutation(rows) for _ in range(2)], np.uint32)
    codes = Codes(
        np.empty((0, rows), np.uint8), np.empty((0, rows), np.uint16), matrix, np.array([[4, 0], [4, 1]], np.uint32)
    )
    kind = draw.integers(0, max(classes, 2), rows)
    value = draw.integers(-1000, 1000, rows) - kind[0]
    for array in (*codes, value):
        array.flags.writeable = False  # as in a store
    target = ClassTarget(classes, None) if classes > 1 else RegressionTarget(value)
    items = np.arange(rows, dtype=np.uint64) << np.uint64(32) | np.uint64(1)
    if classes > 1:
        items |= kind.astype(np.uint64) << np.uint64(16)
    rules = Rules(2, GINI if classes > 1 else VARIANCE, 1, 2, 1, True)
    tree, _ = grow(codes, by_rows(codes), items, target, Roots.single(rows, np.uint64(5)), rules)
    best = [_best_split(kind if classes > 1 else value, classes, np.argsort(column)) for column in matrix]
    feature = int(np.argmax([score for score, _ in best]))
    assert abs(best[0][0] - best[1][0]) > 1e-9 * best[0][0]
    assert (tree.feature[0], tree.left_code[0]) == (feature, best[feature][1])


def _best_split(target: NDArray[np.int64], classes: int, order: NDArray[np.intp]) -> tuple[float, int]:
    """Return the highest score of a split of rows with different codes, and the code on its left, from every split."""
    left = np.arange(1.0, order.size)
    right, score = order.size - left, np.zeros(order.size - 1)
    for number in range(classes):
        part = np.cumsum((target[order] == number) if classes > 1 else target[order] - target.mean())
        score += part[:-1] ** 2 / left + (part[-1] - part[:-1]) ** 2 / right
    return float(score.max()), int(score.argmax())
