"""Weights of any range: what nodes hold is right by exact arithmetic, however trees grow, and reports weigh alike."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.config import TrainConfig
from bigforest.errors import BigForestError
from bigforest.events import Event, Notice, silent
from bigforest.forest.parts import part_paths
from bigforest.grow.need import Way
from bigforest.resources import Resources
from bigforest.sample import Sampler
from bigforest.store.store import Store
from bigforest.weigh import grow_trees
from tests.naive.weights import held, mean, variance
from tests.test_passes import WHOLE, ways

# Weights over nine orders of magnitude, as shares of the largest.
SHARES = st.floats(-9.0, 0.0).map(lambda exponent: 10.0**exponent)
WHOLES = st.integers(0, 9).flatmap(lambda digits: st.integers(1, 10**digits)).map(float)
FAMILIES: list[dict[str, Any]] = [
    {"family": "axis", "trees": 2},
    {"family": "tree", "trees": 1},
    {"family": "sparse-oblique", "trees": 2},
    {"family": "rotation", "trees": 2, "axes": 2},
]


def grown(store: Store, config: TrainConfig, way: Way, threads: int = 1) -> list[bytes]:
    """The parts of a forest, grown in that way."""
    with tempfile.TemporaryDirectory() as folder:
        resources = Resources(threads=threads)
        grow_trees(store, config, Path(folder), resources=resources, listener=silent, way=way)
        return [path.read_bytes() for path in part_paths(Path(folder))]


def check(parts: list[bytes], frame: pl.DataFrame, store: Store, config: TrainConfig, near: float) -> None:
    """Every node has the classes, or the mean, weight and gain, of the rows of the bag that pass it."""
    nodes = pl.concat([pl.read_parquet(part) for part in parts])
    rows = frame.to_dicts()
    target, spec = frame["y"].to_list(), store.spec
    for (tree,), table in nodes.group_by("tree", maintain_order=True):
        times = Sampler.of(store, config).bag(int(str(tree))).tolist()
        weights = [Fraction(row["w"]) * often for row, often in zip(rows, times, strict=True)]
        own = held(table.to_dicts(), rows, weights)
        for node, inside in zip(table.to_dicts(), own, strict=True):
            total = sum(weight for _, weight in inside)
            assert spec.weight is not None
            assert node["weight"] * spec.weight.step == pytest.approx(float(total), rel=near)
            if node["counts"] is None:
                values = [Fraction(value) for value in target]
                size = float(mean([abs(value) for value in values], inside))
                assert abs(node["value"] - float(mean(values, inside))) <= near * size + 1e-12
                spread = float(variance(values, inside))
                assert node["gain"] is None or -1e-12 <= node["gain"] <= spread * (1 + near) + 1e-12
                continue
            for count, label in zip(node["counts"], spec.target.classes, strict=True):
                exact = sum((weight for row, weight in inside if target[row] == label), Fraction())
                assert count / sum(node["counts"]) == pytest.approx(float(exact / total), rel=near, abs=0.0)


@given(data=st.data(), family=st.sampled_from(FAMILIES), way=ways(), whole=st.booleans(), numbers=st.booleans())
@settings(deadline=None, max_examples=60)
def test_nodes__hold_the_weights_of_their_rows(
    data: st.DataObject, family: dict[str, Any], way: Way, whole: bool, numbers: bool
) -> None:
    size = data.draw(st.integers(2, 40))
    columns = {
        name: data.draw(st.lists(st.integers(-4, 4).map(float), min_size=size, max_size=size)) for name in ("a", "b")
    }
    weights = data.draw(st.lists(WHOLES if whole else SHARES, min_size=size, max_size=size))
    weights[0] *= 1e4  # so that they are wide
    target = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    target[:2] = [0, 1]
    frame = pl.DataFrame({**columns, "w": weights, "y": target})
    numbers = numbers and family["family"] in ("axis", "tree")
    task = "regression" if numbers else "classification"
    config = TrainConfig.of(weight="w", task=task, seed=data.draw(st.integers(0, 9)), min_leaf=1, **family)
    with tempfile.TemporaryDirectory() as folder:
        store = bigforest.encode_store(frame, Path(folder) / "s", target="y", weight="w", task=task)
        parts = grown(store, config, WHOLE)
        if store.spec.wide_weights:
            check(parts, frame, store, config, 1e-12 if whole else 1e-6)
        assert grown(store, config, way) == parts
