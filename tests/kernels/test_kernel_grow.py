"""The tree kernel by itself: every width of codes, and weights no bag of a small table ever has."""

from __future__ import annotations

from itertools import pairwise, product

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.options.train_config import TrainConfig
from tests.kernel import WIDTHS, check_kernel
from tests.naive.quick_split import best_split as quick_split
from tests.naive.split import SCORES
from tests.strategies import Data, configs, crowded, tables, weights
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT
HEAVIEST = 65_535
GAPS = {1: [(1,), (4,)], 2: [(1,), (1000,), (5, 1)], 4: [(1,), (2**26,), (1, 1, 2**25), (2**20, 1), (300,)]}


@settings(max_examples=examples(500 if COMPILED else 60))
@given(data=tables(), config=configs(), width=st.sampled_from(sorted(WIDTHS)), draw=st.data())
def test_grow__any_weights(data: Data, config: TrainConfig, width: int, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    check_kernel(data, bag, config, width, gaps=draw.draw(st.sampled_from(GAPS[width])))


@settings(max_examples=examples(100 if COMPILED else 20))
@given(data=tables(max_rows=25), config=configs(), draw=st.data())
def test_grow__heavy_weights(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    heavy = st.sampled_from([1, 2, HEAVIEST - 1, HEAVIEST])
    bag = draw.draw(st.lists(heavy, min_size=len(data.target), max_size=len(data.target)))
    check_kernel(data, bag, config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("gaps", [(1,), (2000,)])
@pytest.mark.parametrize("min_leaf", [1, 20])
def test_grow__opened_buckets_of_hundreds_of_rows(gaps: tuple[int, ...], min_leaf: int) -> None:
    # Of a few codes or, with gaps, of thousands: there are counts of the rows of each code, or these rows are sorted.
    config = TrainConfig(mtry="all", max_depth=3, min_leaf=min_leaf)
    for seed in range(6):
        draw = np.random.default_rng(seed)
        check_kernel(crowded(draw), draw.integers(0, 3, 8000).tolist(), config, gaps=gaps, split=quick_split)


# Left weight and left surplus of class 1 over class 0 in two splits of a node of 10**9 rows of each class. The second
# is better, by 2 parts in 10**17.
CLOSE = [(820_178_428, 320_874_382), (880_189_041, 323_841_903)]


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("better", [0, 1])
@pytest.mark.parametrize("classes", [2, 3])
def test_grow__scores_closer_than_float64_can_tell(better: int, classes: int) -> None:
    cells, bag = [[1.0, 1.0, classes - 1]], [0]  # a row outside the bag, whose class the node lacks
    for k, sign in ((0, -1), (1, 1)):
        lefts = [(weight + sign * surplus) // 2 for weight, surplus in CLOSE]
        cuts = [0, *sorted(lefts), 10**9]
        for start, stop in pairwise(cuts):
            rows, rest = divmod(stop - start, HEAVIEST)
            cells += [[float(start >= left) for left in lefts] + [k]] * (rows + 1)
            bag += [HEAVIEST] * rows + [rest]
    table = np.array(cells)
    values = table[:, :2] if better else table[:, 1::-1]
    data = Data(np.ascontiguousarray(values), table[:, 2].astype(np.int64))
    nodes = check_kernel(data, bag, TrainConfig(mtry="all", max_depth=1), 1, quick_split)
    assert nodes[0].feature == better


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_grow__heavy_palindromes(impurity: str, classes: int, sign: int) -> None:
    draw = np.random.default_rng(classes)
    rows = 4000
    bag = np.full(rows, HEAVIEST)
    bag[draw.integers(0, rows, 3)] -= 1
    half = draw.integers(0, classes, rows // 2)
    target = np.concatenate([half, half[::-1]])
    up = sign * np.arange(float(rows))
    data = Data(np.column_stack([up, -up]), target)
    config = TrainConfig(impurity=impurity, mtry="all", max_depth=3)
    check_kernel(data, bag.tolist(), config, 4, quick_split)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("impurity", "classes", "rows"),
    [*product(SCORES, [2, 3], [1000]), ("gini", 2, 5000), ("gini", 3, 5000), ("entropy", 3, 5000)],
)
def test_grow__codes_far_apart_and_in_clumps(impurity: str, classes: int, rows: int) -> None:
    draw = np.random.default_rng(rows + classes)
    values = np.column_stack([draw.permutation(rows), draw.integers(0, 100, rows), draw.normal(size=rows)])
    target = np.digitize(values[:, 2] + draw.normal(0, 1, rows), np.linspace(-1, 1, classes + 1)[1:-1])
    for gaps in (2 ** draw.integers(0, 19, 40), np.repeat([1, 2**17], [200, 1])):
        config = TrainConfig(impurity=impurity, mtry=2, min_leaf=2, max_depth=8)
        check_kernel(Data(values, target), [1] * rows, config, 4, quick_split, gaps.tolist())


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("classes", cases([2, 3, 8], quick=2))
@pytest.mark.parametrize(("more", "others"), [(10, 90), (1, 1)])
def test_grow__best_split_just_inside_a_bucket(classes: int, mirrored: bool, more: int, others: int) -> None:
    # A hundred rows of the last class fill one bucket, a few more begin the next: no edge is as good.
    draw = np.random.default_rng(6)
    codes = np.concatenate([np.arange(100), 1024 + np.arange(more + others), 16 * 1024 + 87 * np.arange(2800)])
    last = classes - 1
    target = np.concatenate([np.full(100 + more, last), np.arange(others) % last, draw.permutation(2800) % classes])
    gaps = np.diff(codes, prepend=-1)
    if mirrored:
        gaps, target = np.concatenate([[1], gaps[:0:-1]]), target[::-1].copy()
    config = TrainConfig(mtry="all", max_depth=1)
    data = Data(np.arange(float(codes.size)).reshape(-1, 1), target)
    nodes = check_kernel(data, [1] * codes.size, config, 4, quick_split, gaps.tolist())
    assert nodes[0].threshold == (codes.size - more - 100.5 if mirrored else more + 99.5)


@pytest.mark.parametrize("impurity", SCORES)
def test_grow__four_hundred_siblings_wait_on_the_stack(impurity: str) -> None:
    rows = 400 if COMPILED else 150
    up = np.arange(float(rows))
    data = Data(np.column_stack([up, up, up]), np.arange(rows) % 2)
    bag = (np.arange(rows) + 1) ** 2 // 4 + 1  # the heaviest rows, on the right, are split off first
    nodes = check_kernel(data, bag.tolist(), TrainConfig(mtry=1, impurity=impurity), split=quick_split)
    assert len({node.feature for node in nodes}) == 4
    assert impurity == "error" or max(node.depth for node in nodes) == rows - 1


def test_grow__more_empty_buckets_than_rows() -> None:
    high = np.arange(100) >= 50
    data = Data(high.reshape(-1, 1).astype(float), high.astype(np.int64))
    assert len(check_kernel(data, [1] * 100, TrainConfig(mtry="all"), 1, gaps=[1, 250])) == 3


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(("min_leaf", "constants"), [(1, "redraw"), (7, "count")])
@pytest.mark.parametrize("rows", [9, 56, 57, 400, 2500])
def test_grow__more_features_than_are_scored_together(rows: int, min_leaf: int, constants: str) -> None:
    """Each feature is there thrice, once upside down: of those as good the first that is drawn stays."""
    draw = np.random.default_rng(rows)
    values = [draw.permutation(rows), draw.normal(size=rows), *(draw.integers(0, most, rows) for most in (2, 3, 40))]
    table = np.column_stack([*values, *values, *(-value for value in values), np.zeros(rows)])
    target = (values[1] + draw.normal(0, 1, rows) > 0).astype(np.int64)
    config = TrainConfig(mtry="all", min_leaf=min_leaf, max_depth=8, constants=constants)
    check_kernel(Data(table, target), [1] * rows, config, 4, quick_split, [1, 500, 3])
