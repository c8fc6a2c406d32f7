"""Nodes that lack classes, and features most of whose rows have the smallest code, against the oracle."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.kernels.common.node_scan import Node
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.scan.many_classes import FEW_ROWS, make_many_class_scratch, with_present_classes
from bigforest.options.train_config import TrainConfig
from tests.kernel import check_kernel
from tests.naive.quick_split import best_split as quick_split
from tests.strategies import Data
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT
MOST_ROWS = 300 if COMPILED else 50


@st.composite
def _sparse_tables(draw: st.DrawFn) -> tuple[Data, list[int]]:
    """A table in which few rows differ from the smallest value, or have one of two, and weights of its rows.

    A class is rare, or rows of some columns tell it, so that nodes lack classes.
    """
    rows = draw(st.integers(4, MOST_ROWS))
    classes = draw(st.integers(2, 7))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    target = np.minimum(random.geometric(draw(st.sampled_from([0.3, 0.6])), rows) - 1, classes - 1)
    target[:2] = 0, 1
    target = np.unique(target, return_inverse=True)[1]
    columns = []
    for _ in range(draw(st.integers(1, 4))):
        values = random.integers(1, draw(st.sampled_from([2, 4, 60, 250])), rows, endpoint=True)
        told = draw(st.booleans()) & (target > target.max() // 2)
        columns.append(np.where((random.random(rows) < draw(st.sampled_from([0.0, 0.5, 0.9]))) & ~told, 0, values))
    bag = random.integers(0, 2, rows, endpoint=True) * draw(st.sampled_from([1, 3, 1000, 32_767]))
    bag[0] = 1
    return Data(np.column_stack(columns).astype(np.float64), target), bag.tolist()


@settings(max_examples=examples(200 if COMPILED else 25))
@given(_sparse_tables(), st.sampled_from([1, 4]), st.sampled_from([1, 3]), st.sampled_from(["gini", "entropy"]))
def test_grow__few_classes_and_smallest_codes(
    table: tuple[Data, list[int]], width: int, min_leaf: int, impurity: str
) -> None:
    config = TrainConfig(impurity=impurity, min_leaf=min_leaf, mtry=2)
    check_kernel(*table, config, width, quick_split)


@kernel
def _seen(node, scratch, items, total):
    found = with_present_classes(node, scratch)
    for i in range(np.uint64(found.items.size)):
        items[i] = found.items[i]
    for k in range(np.uint64(found.total.size)):
        total[k] = found.total[k]
    return found.total.size, found.weight, found.sq


@pytest.mark.parametrize("present", [[0, 1, 2], [1, 2], [0, 2], [2]])
@pytest.mark.parametrize("rows", [9, FEW_ROWS, FEW_ROWS + 1])
def test_with_present_classes__numbered_in_their_order(present: list[int], rows: int) -> None:
    target = np.resize(np.array(present, np.uint64), rows)
    own = np.arange(rows, dtype=np.uint64) << np.uint64(32) | np.uint64(2)
    total = 2 * np.bincount(target.astype(np.int64), minlength=3)
    node = Node(own | target << np.uint64(16), total, 2 * rows, int((total**2).sum()))
    items, seen = np.empty(rows, np.uint64), np.empty(3, np.int64)
    classes, weight, sq = _seen(node, make_many_class_scratch(3), items, seen)
    number = target if rows > FEW_ROWS else np.searchsorted(present, target).astype(np.uint64)
    assert np.array_equal(items, own | number << np.uint64(16))
    assert np.array_equal(seen[:classes], total if rows > FEW_ROWS else total[present])
    assert (weight, sq) == (node.weight, node.sq)
