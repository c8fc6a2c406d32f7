"""Grows the same tree twice, by bigforest and by the oracle, and holds the two against each other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.forest import grow_tree
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import Sampler
from bigforest.source.open import open_source
from bigforest.store.store import Store
from tests.encoded import encode
from tests.naive.quick_split import best_split as quick_split
from tests.naive.split import Split, Table, best_split
from tests.naive.tree import Node, grow
from tests.strategies import Data

ONE_THREAD = Resources(threads=1)
GAIN_TOLERANCE = 1e-9


def check_tree(
    data: Data,
    config: TrainConfig,
    tree: int = 0,
    split: Callable[..., Split | None] = best_split,
    dtype: pl.DataType | None = None,
) -> list[Node]:
    """Assert that bigforest grows the oracle's tree, node for node; returns that tree.

    dtype is the type the features have in the table that is encoded; float64 unless given.
    """
    config = config.for_task("classification")
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data, dtype), Path(folder), config.max_bins)
        found = grow_tree(store, config, tree)
        table = table_of(store, data)
    weights = Sampler(store, config).bag(tree).tolist()
    expected = grow(table, weights, config, tree, split)
    assert_same(found, expected)
    return expected


def check_large_tree(data: Data, config: TrainConfig, tree: int = 0) -> list[Node]:
    """`check_tree` with the oracle that is quick enough for thousands of rows."""
    return check_tree(data, config, tree, quick_split)


def frame_of(data: Data, dtype: pl.DataType | None = None) -> pl.DataFrame:
    """The table as a user has it: the features x0, x1, ... and the class as the column y."""
    features = pl.DataFrame({f"x{i}": column for i, column in enumerate(data.values.T)})
    return features.cast(dtype or pl.Float64()).with_columns(y=pl.Series(data.target))


def store_of(frame: pl.DataFrame, folder: Path, max_bins: str | int = "exact") -> Store:
    """The encoded table, kept in `folder`."""
    source = open_source(frame, scratch=folder)
    return encode(
        source,
        "y",
        folder / "table.store",
        config=TrainConfig(max_bins=max_bins, task="classification"),
        exclude=(),
        resources=ONE_THREAD,
        listener=silent,
    )


def table_of(store: Store, data: Data) -> Table:
    """What the oracle learns from: the raw values, or the ranges of their codes where codes are capped."""
    low, high = np.empty_like(data.values), np.empty_like(data.values)
    for feature in range(data.values.shape[1]):
        lows, highs = store.low(feature), store.high(feature)
        code = np.searchsorted(lows, data.values[:, feature], side="right") - 1
        low[:, feature], high[:, feature] = lows[code], highs[code]
    assert (low <= data.values).all()
    assert (data.values <= high).all()
    return Table(low, high, data.target.tolist(), data.classes)


def terms_of(tree: TreeArrays, node: int) -> tuple[tuple[int, float], ...]:
    """The terms of an oblique node, none for others."""
    if tree.terms is None:
        return ()
    own = slice(tree.terms.start[node], tree.terms.start[node + 1])
    return tuple(zip(tree.terms.feature[own].tolist(), tree.terms.weight[own].tolist(), strict=True))


def assert_same(found: TreeArrays, expected: list[Node]) -> None:
    """The two trees are equal node for node; gains may differ by rounding."""
    for number, node in enumerate(expected):
        assert number < len(found.feature), f"{len(found.feature)} nodes instead of {len(expected)}"
        same = (
            found.feature[number] == node.feature
            and found.depth[number] == node.depth
            and found.weight[number] == node.weight
            and found.counts[number].tolist() == node.counts
        )
        if node.feature != -1:
            same = (
                same
                and terms_of(found, number) == node.terms
                and found.threshold[number] == node.threshold
                and found.right[number] == node.right
                and abs(found.gain[number] - node.gain) <= GAIN_TOLERANCE
            )
        else:
            same = same and np.isnan(found.threshold[number]) and np.isnan(found.gain[number])
        if not same:
            got = {name: column[number] for name, column in found._asdict().items() if isinstance(column, np.ndarray)}
            got["terms"] = terms_of(found, number)
            raise AssertionError(f"node {number} is {got}, but should be {node}")
    assert len(found.feature) == len(expected)
