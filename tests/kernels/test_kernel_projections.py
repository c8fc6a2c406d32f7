"""Rows sent down trees of oblique nodes by their codes, against the plain way of one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigforest.forest.nodes import TreeArrays
from bigforest.grow.feature_kinds import Features
from bigforest.grow.forest import leaves_of
from bigforest.grow.trees import code_view
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.common.layout import LEAF, OBLIQUE, Codes, Terms
from bigforest.store.store import Dictionaries
from tests.naive.predict import find_leaf

FEATURES = 4
# Values of a dictionary; ends are infinite at times, so that projections meet NaN.
VALUES = 6


def random_tree(draw: np.random.Generator, splits: int, values: np.ndarray) -> TreeArrays:
    """A tree in preorder with this many inner nodes, oblique ones and some on a feature."""
    feature: list[int] = []
    right: list[int] = []
    depth: list[int] = []

    def grow(inner: int, level: int) -> None:
        node = len(feature)
        feature.append(LEAF if inner == 0 else OBLIQUE if draw.random() < 0.8 else int(draw.integers(FEATURES)))
        right.append(0)
        depth.append(level)
        if inner:
            left = int(draw.integers(inner))
            grow(left, level + 1)
            right[node] = len(feature)
            grow(inner - 1 - left, level + 1)

    grow(splits, 0)
    lists: list[Any] = [
        np.sort(draw.choice(FEATURES, draw.integers(1, FEATURES + 1), replace=False)) if own == OBLIQUE else []
        for own in feature
    ]
    size = len(feature)
    terms = Terms(
        np.cumsum([0, *map(len, lists)]),
        np.concatenate([np.empty(0), *lists]).astype(np.int32),
        draw.choice([-1.5, -1.0, 0.1, 1.0, 3.0], sum(map(len, lists))),
    )
    return TreeArrays(
        feature=np.array(feature, np.int32),
        left=np.where(np.array(feature) == LEAF, 0, np.arange(1, size + 1)).astype(np.uint32),
        right=np.array(right, np.uint32),
        depth=np.array(depth, np.uint32),
        threshold=np.where(np.array(feature) == LEAF, np.nan, draw.choice(values.ravel(), size)),
        default_left=np.zeros(size, np.bool_),
        gain=np.zeros(size),
        weight=np.ones(size, np.uint64),
        counts=np.ones((size, 2), np.uint32),
        below=np.zeros(size, np.uint32),
        above=np.zeros(size, np.uint32),
        terms=terms,
    )


def joined(trees: list[TreeArrays]) -> TreeArrays:
    """Trees one after the other."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(tree, name) for tree in trees]) for name in TreeArrays._fields[:11]
    }
    lists = [tree.terms for tree in trees if tree.terms is not None]
    sizes = np.concatenate([np.diff(own.start) for own in lists])
    weight, feature = np.concatenate([own.weight for own in lists]), np.concatenate([own.feature for own in lists])
    return TreeArrays(**columns, terms=Terms(np.append(0, np.cumsum(sizes)), feature, weight))


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 60),
    splits=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    infinite=st.booleans(),
    reach=st.sampled_from([0, 5, 1000]),
)
def test_rows_end_where_they_do_one_at_a_time(
    seed: int, rows: int, splits: list[int], infinite: bool, reach: int
) -> None:
    draw = np.random.default_rng(seed)
    values = np.sort(np.round(draw.normal(size=(FEATURES, VALUES)), 1), axis=1)
    if infinite:
        values[:, 0], values[:, -1] = -np.inf, np.inf
    cells = draw.integers(0, VALUES, (FEATURES, rows))
    held = cells[:1].astype(np.uint8), cells[1:3].astype(np.uint16), cells[3:].astype(np.uint32)
    codes = Codes(*held, np.array([[1, 0], [2, 0], [2, 1], [4, 0]], np.uint32))
    low = values.ravel()
    dictionaries = Dictionaries(np.arange(0, FEATURES * VALUES + 1, VALUES), low, low)
    trees = [random_tree(draw, number, values) for number in splits]
    bags = [(draw.random(rows) >= 0.7).astype(np.uint16) for _ in trees]
    view = code_view(codes, by_rows(codes))._replace(reach=np.uint64(reach))
    features = Features((VALUES,) * FEATURES, np.zeros(FEATURES, np.uint8), np.ones(FEATURES, np.int64))
    found = leaves_of(view, dictionaries, features, joined(trees), bags, projected=True)
    for tree, bag, own in zip(trees, bags, found, strict=True):
        sent = np.flatnonzero(bag == 0)
        np.testing.assert_array_equal(own.rows, sent)
        table = np.take_along_axis(values, cells, axis=1).T
        with np.errstate(invalid="ignore"):
            wanted = [find_leaf(tree, table[row].tolist()) for row in sent.tolist()]
        assert own.leaves.tolist() == wanted
