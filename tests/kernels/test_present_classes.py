"""Nodes that lack classes, and features most of whose rows have the smallest code, against the oracle."""

from __future__ import annotations

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
