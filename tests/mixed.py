"""Forests with categories, missing values and regression targets, without growing them: specs, levels, random trees."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bigforest.columns.dataspec import DataSpec, FeatureSpec, TargetSpec, code_width
from bigforest.forest.decreases import importance
from bigforest.forest.files import Header, write_features, write_levels
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.forest.run_file import Choices, write_run
from bigforest.kernels.common.layout import LevelLists
from bigforest.options.train_config import TrainConfig
from bigforest.predict.forest import Forest, read_forest
from bigforest.store.levels import Levels

CLASSES = (5, 7, 9)
# Levels of a category of text, which may be missing, and of one of many whole numbers, which is never missing.
TEXT, MANY = 4, 300
NUMBERS = {0: "x0", 3: "x3"}
CATEGORIES = {1: "c1", 2: "c2"}
Codes = tuple[int, int, int]
CODES = (0, TEXT + 1, MANY)


def mixed_spec(regression: bool = False, rows: int = 100) -> DataSpec:
    """x0 and x3 are numbers, of which x3 may be missing; c1 has TEXT levels and may be missing, c2 has MANY."""
    kinds = [("numeric", 9, False), ("category", TEXT + 1, True), ("category", MANY, False), ("numeric", 9, True)]
    slots = {1: 0, 2: 0, 4: 0}
    features = []
    for place, (kind, codes, missing) in enumerate(kinds):
        name = (NUMBERS | CATEGORIES)[place]
        dtype = {1: "String", 2: "Int32"}.get(place, "Float64")
        width = code_width(codes)
        features.append(FeatureSpec(name, kind, dtype, codes, width, slots[width], None, missing))
        slots[width] += 1
    classes, number = TargetSpec("y", "Int64", CLASSES), TargetSpec("y", "Float64", (), "regression", 10.0, 2.0**-20)
    return DataSpec(rows, 0, tuple(features), number if regression else classes)


def mixed_levels() -> Levels:
    """The levels of these categories."""
    text = [*"abcd"[:TEXT], *map(str, range(-7, 2 * MANY - 7, 2))]
    return Levels(np.array([0, 0, TEXT, TEXT + MANY, TEXT + MANY]), pl.Series("level", text))


def mixed_names() -> dict[int, list[str | None]]:
    """What each code is, for tests/naive/predict.py."""
    levels = mixed_levels()
    return {1: [None, *levels.of(1).to_list()], 2: levels.of(2).to_list()}


def mixed_tree(
    random: np.random.Generator, splits: int, thresholds: list[float], regression: bool = False, codes: Codes = CODES
) -> TreeArrays:
    """A tree with `splits` inner nodes on these features; categories have this number of codes, missing counted."""
    nodes: list[list[Any]] = []
    lists: list[list[int]] = []

    def grow(splits: int, depth: int) -> int:
        number = len(nodes)
        nodes.append([-1, 0, depth, np.nan, False, np.nan, None])
        lists.append([])
        if splits == 0:
            nodes[number][6] = random.integers(0, 4, len(CLASSES)) * (random.random(len(CLASSES)) < 0.5)
            nodes[number][6][random.integers(len(CLASSES))] += 1
            return number
        below = int(random.integers(splits))
        feature = int(random.integers(4))
        left = grow(below, depth + 1)
        right = grow(splits - 1 - below, depth + 1)
        nodes[number][:2] = [feature, right]
        nodes[number][4:6] = [bool(random.random() < 0.5), random.random()]
        if feature in CATEGORIES:
            most = codes[feature]
            listed = random.choice(most, random.integers(1, most if random.random() < 0.5 else 4), replace=False)
            lists[number] = sorted(listed.tolist())
        else:
            nodes[number][3] = thresholds[random.integers(len(thresholds))]
        nodes[number][6] = nodes[left][6] + nodes[right][6]
        return number

    grow(splits, 0)
    feature, right, depth, threshold, default_left, gain, counts = zip(*nodes, strict=True)
    table = np.array(counts, np.uint32)
    start = np.cumsum([0, *map(len, lists)])
    return TreeArrays(
        np.array(feature, np.int32),
        np.array(right, np.uint32),
        np.array(depth, np.uint32),
        np.array(threshold, np.float64),
        np.array(default_left, np.bool_),
        np.array(gain, np.float64),
        table.sum(axis=1, dtype=np.uint64),
        table[:, :0] if regression else table,
        value=np.round(random.uniform(1, 19, len(nodes)), 3) if regression else None,
        levels=LevelLists(start, np.array([code for own in lists for code in own], np.uint32)) if start[-1] else None,
    )


def mixed_trees(
    count: int, seed: int = 0, regression: bool = False, most: int = 12, codes: Codes = CODES
) -> list[TreeArrays]:
    """Some of them."""
    random = np.random.default_rng(seed)
    thresholds = [-1.0, 0.5, 1e300, np.inf, 2.0]
    return [mixed_tree(random, int(random.integers(most)), thresholds, regression, codes) for _ in range(count)]


def write_mixed(
    directory: Path,
    trees: list[TreeArrays],
    spec: DataSpec,
    cuts: tuple[int, ...] = (),
    levels: Levels | None = None,
    **config: Any,
) -> Forest:
    """The trees as an open forest, parts cut before the trees `cuts`."""
    made = TrainConfig(**{"trees": len(trees), "bootstrap": False, **config})
    header = Header(spec, made, levels or mixed_levels())
    directory.mkdir(parents=True, exist_ok=True)
    for start, stop in pairwise([0, *cuts, len(trees)]):
        write_part(directory, start, trees[start:stop], header)
    write_levels(directory, header)
    write_features(directory, header, importance(directory, header))
    write_run(directory, {"grow": 0.5}, 2, header, None, Choices())
    return read_forest(directory)


def mixed_table(rows: int, seed: int = 0, unseen: bool = True) -> pl.DataFrame:
    """Rows with missing values in all features and, if `unseen`, levels that no category has."""
    random = np.random.default_rng(seed)
    missing = random.random((rows, 4)) < 0.2

    def column(place: int, values: list[Any], dtype: Any) -> pl.Series:
        cells = [None if missing[row, place] else values[random.integers(len(values))] for row in range(rows)]
        return pl.Series((NUMBERS | CATEGORIES)[place], cells, dtype)

    numbers = [-9.0, -1.0, 0.0, 0.5, 1.5, 2.0, 1e300, np.inf]
    return pl.DataFrame(
        [
            column(0, numbers, pl.Float64),
            column(1, [*"abcd"[:TEXT], *(["z", "é"] if unseen else [])], pl.String),
            column(2, [*range(-7, 2 * MANY - 7, 2), *([0, 10_000] if unseen else [])], pl.Int32),
            column(3, numbers, pl.Float64),
        ]
    )


def mixed_rows(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Its rows as the naive predictor takes them: levels as text."""
    return frame.with_columns(pl.col("c2").cast(pl.String)).rows()
