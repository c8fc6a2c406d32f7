"""Makes forests without growing them: random trees, and their directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec, FeatureSpec, Label, TargetSpec
from bigforest.forest.decreases import importance_of
from bigforest.forest.files import Header, write_features
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.forest.run_file import Choices, write_run
from bigforest.kernels.common.layout import OBLIQUE, Terms
from bigforest.options.train_config import TrainConfig
from bigforest.predict.forest import Forest, read_forest
from bigforest.store.levels import Levels


def random_tree(
    random: np.random.Generator,
    features: int,
    classes: int,
    splits: int,
    thresholds: Sequence[float],
    weights: Sequence[float] = (),
) -> TreeArrays:
    """A tree with `splits` inner nodes, some leaves pure and some mixed; thresholds are drawn from `thresholds`.

    weights  of oblique nodes, about half of the inner ones; without any if it is empty.
    """
    nodes: list[list[object]] = []
    terms: dict[int, list[tuple[int, float]]] = {}

    def grow(splits: int, depth: int) -> NDArray[np.uint32]:
        number = len(nodes)
        nodes.append([-1, 0, depth, np.nan, False, np.nan])
        if splits == 0:
            counts = random.integers(0, 4, classes).astype(np.uint32)
            if random.random() < 0.6:
                counts[:] = 0
            counts[random.integers(classes)] += 1
        else:
            below = int(random.integers(splits))
            left = grow(below, depth + 1)
            threshold = float(thresholds[random.integers(len(thresholds))])
            feature = int(random.integers(features))
            if len(weights) and random.random() < 0.5:
                feature = OBLIQUE
                chosen = sorted(random.choice(features, random.integers(1, features + 1), replace=False))
                terms[number] = [(place, weights[random.integers(len(weights))]) for place in chosen]
            nodes[number][:2] = [feature, len(nodes)]
            nodes[number][3:6] = [threshold, feature >= 0 and bool(random.random() < 0.5), random.random()]
            counts = left + grow(splits - 1 - below, depth + 1)
        nodes[number].append(counts)
        return counts

    grow(splits, 0)
    feature, right, depth, threshold, default_left, gain, counts = zip(*nodes, strict=True)
    table = np.array(counts, np.uint32)
    return TreeArrays(
        np.array(feature, np.int32),
        np.array(right, np.uint32),
        np.array(depth, np.uint32),
        np.array(threshold, np.float64),
        np.array(default_left, np.bool_),
        np.array(gain, np.float64),
        table.sum(axis=1, dtype=np.uint64),
        table,
        terms=_terms(terms, len(nodes)) if terms else None,
    )


def _terms(terms: dict[int, list[tuple[int, float]]], nodes: int) -> Terms:
    """Terms by node, as arrays."""
    listed = [terms.get(node, []) for node in range(nodes)]
    feature, weight = zip(*(term for own in listed for term in own), strict=True)
    return Terms(np.cumsum([0, *map(len, listed)]), np.array(feature, np.int32), np.array(weight, np.float64))


def spec_of(features: int, classes: Sequence[Label], dtype: str = "Int64") -> DataSpec:
    """A dataspec of the float features x0, x1, ... and the target y."""
    columns = tuple(FeatureSpec(f"x{i}", "numeric", "Float64", 9, 1, i) for i in range(features))
    categories = tuple(map(str, classes)) if dtype == "Enum" else ()
    return DataSpec(100, 0, columns, TargetSpec("y", dtype, tuple(classes), categories=categories))


def write_forest(
    directory: Path, trees: list[TreeArrays], spec: DataSpec, parts: Sequence[int] = (), /, **config: object
) -> TrainConfig:
    """Write the trees into parts that start with tree 0 and with the trees `parts`, without an out-of-bag report."""
    made = TrainConfig(**{"trees": len(trees), "bootstrap": False, **config})  # type: ignore[arg-type]
    header = Header(spec, made, Levels.none(spec))
    directory.mkdir(parents=True, exist_ok=True)
    starts = [0, *parts]
    for start, stop in zip(starts, [*parts, len(trees)], strict=True):
        write_part(directory, start, trees[start:stop], header)
    write_features(directory, header, importance_of(trees, spec))
    write_run(directory, {"grow": 0.5}, 2, header, None, Choices())
    return made


def forest_of(directory: Path, trees: list[TreeArrays], spec: DataSpec, **config: object) -> Forest:
    """The trees as an open forest of two parts."""
    write_forest(directory, trees, spec, [len(trees) // 2] if len(trees) > 1 else [], **config)
    return read_forest(directory)
