"""The oracles are believed by every other test, so they are held to arithmetic by hand and to each other."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.kernels.common import rng as kernel_rng
from bigforest.options.train_config import TrainConfig
from tests.naive import quick_split, rng
from tests.naive.split import SCORES, Split, Table, best_split, impurity_of, threshold_between
from tests.naive.tree import grow
from tests.strategies import Data, configs, tables, weights
from tests.thorough import examples


def as_table(data: Data) -> Table:
    return Table(data.values, data.values, data.target.tolist(), data.classes)


def test_rng__kernel_draws_the_same() -> None:
    for z in (0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
        with np.errstate(over="ignore"):
            assert rng.mix(z) == int(getattr(kernel_rng.mix, "py_func", kernel_rng.mix)(np.uint64(z)))
            for purpose, first, second in ((1, 0, 0), (2, 99, 12345), (2, 2**40, 2**33)):
                numbers = [np.uint64(n) for n in (z, purpose, first, second)]
                assert rng.stream_key(z, purpose, first, second) == int(kernel_rng.stream_key(*numbers))


def test_shuffled__every_order_is_as_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for key in range(6000):
        order = tuple(rng.shuffled(rng.mix(key), 3))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    chi_square = sum((n - 1000) ** 2 / 1000 for n in seen.values())
    assert chi_square < 20.5  # 5 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1.0, 2.0, 1.5),
        (-sys.float_info.max, sys.float_info.max, 0.0),
        (sys.float_info.max / 2, sys.float_info.max, sys.float_info.max * 0.75),
        (1.0, np.nextafter(1.0, 2), 1.0),
        (5e-324, 1e-323, 5e-324),
        (1.5e-323, 2e-323, 1.5e-323),
        (-np.inf, np.inf, -np.inf),
        (-np.inf, 1.0, -np.inf),
        (1.0, np.inf, 1.0),
    ],
)
def test_threshold_between__separates(left: float, right: float, expected: float) -> None:
    assert threshold_between(left, right) == expected
    assert left <= expected < right


def test_best_split__by_hand() -> None:
    values = np.array([[5.0, 1.0], [5.0, 2.0], [5.0, 3.0], [5.0, 10.0], [6.0, 10.0]])
    table = Table(values, values, [0, 0, 0, 1, 1], 2)
    rows, once = range(5), [1] * 5
    assert best_split(table, rows, once, [0, 1], "gini", 1) == Split(1, 6.5, [3, 0], [0, 2])
    assert best_split(table, rows, once, [0], "gini", 1) == Split(0, 5.5, [3, 1], [0, 1])
    assert best_split(table, rows, once, [0], "gini", 2) is None
    assert best_split(table, rows, [1, 1, 1, 1, 9], [0, 1], "error", 3) == Split(1, 6.5, [3, 0], [0, 10])
    assert best_split(table, [0, 1, 2, 3], once, [0], "gini", 1) is None


def test_best_split__ties_go_to_the_feature_drawn_first_then_to_the_lowest_threshold() -> None:
    values = np.array([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [4.0, 6.0]])
    table = Table(values, values, [0, 1, 1, 0], 2)
    for impurity in SCORES:
        found = best_split(table, range(4), [1] * 4, [1, 0], impurity, 1)
        assert found is not None
        assert (found.feature, found.threshold) == (1, 6.5)


@given(one=st.tuples(*[st.integers(0, 9)] * 3), other=st.tuples(*[st.integers(0, 9)] * 3))
@pytest.mark.parametrize("impurity", SCORES)
def test_scores__order_splits_as_the_impurity_does(impurity: str, one: tuple[int, ...], other: tuple[int, ...]) -> None:
    total = [10, 12, 9]
    splits = [(list(left), [a - b for a, b in zip(total, left, strict=True)]) for left in (one, other) if sum(left)]
    splits = [sides for sides in splits if sum(sides[1])]
    weighted = [sum(sum(side) * impurity_of(side, impurity) for side in sides) for sides in splits]
    scores = [SCORES[impurity](*sides) for sides in splits]
    if len(splits) == 2 and not math.isclose(weighted[0], weighted[1], rel_tol=1e-5):
        assert (weighted[0] < weighted[1]) == (scores[0] > scores[1])


@settings(max_examples=examples(60))
@given(data=tables(), config=configs(), draw=st.data())
def test_quick_split__agrees(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    naive = grow(as_table(data), bag, config, 0)
    quick = grow(as_table(data), bag, config, 0, quick_split.best_split)
    assert list(map(repr, quick)) == list(map(repr, naive))  # as text, because nan is not equal to itself


@settings(max_examples=examples(60))
@given(data=tables(), config=configs(), draw=st.data())
def test_grow__nodes_fit_together(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    nodes = grow(as_table(data), bag, config, 1)
    assert nodes[0].weight == sum(bag)
    reached = [0]
    for number, node in enumerate(nodes):
        assert node.weight == sum(node.counts) > 0
        if node.feature < 0:
            continue
        left, right = nodes[node.left], nodes[node.right]
        assert node.left == number + 1 < node.right
        assert min(left.weight, right.weight) >= config.min_leaf
        assert [a + b for a, b in zip(left.counts, right.counts, strict=True)] == node.counts
        assert left.depth == right.depth == node.depth + 1
        assert node.gain >= -1e-12
        reached += [node.left, node.right]
    assert sorted(reached) == list(range(len(nodes)))


@pytest.mark.parametrize("impurity", SCORES)
def test_grow__xor_is_solved_at_depth_2(impurity: str) -> None:
    values = np.array([[x, y] for x in (-1.0, 1.0) for y in (-1.0, 1.0)] * 4)
    table = Table(values, values, ((values[:, 0] > 0) ^ (values[:, 1] > 0)).astype(int).tolist(), 2)
    nodes = grow(table, [1] * 16, TrainConfig(mtry="all", impurity=impurity).for_task("classification"), 0)
    assert [(node.feature, node.threshold, node.depth) for node in nodes if node.feature >= 0] == [
        (0, 0.0, 0),
        (1, 0.0, 1),
        (1, 0.0, 1),
    ]
    assert all(max(node.counts) == node.weight for node in nodes if node.feature < 0)
