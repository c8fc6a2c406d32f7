"""Hypothesis strategies of tables and configurations."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.options.train_config import TrainConfig
from tests.naive.split import SCORES

LARGEST = sys.float_info.max
EXTREMES = [
    -np.inf,
    -LARGEST,
    float(np.nextafter(-LARGEST, 0)),
    -1.0,
    -sys.float_info.min,
    -1e-323,
    -5e-324,
    -0.0,
    0.0,
    5e-324,
    1e-323,
    1.5e-323,
    sys.float_info.min,
    1.0,
    float(np.nextafter(1.0, 2)),
    LARGEST / 2,
    float(np.nextafter(LARGEST, 0)),
    LARGEST,
    np.inf,
]


class Data(NamedTuple):
    """A table of float64 features [rows, features] and class numbers [rows], every class present.

    NaN is missing; the numbers of the features `categories` are levels. numbers: whether the target is to be predicted
    as numbers; zero: the one that stands for 0.
    """

    values: NDArray[np.float64]
    target: NDArray[np.int64]
    categories: frozenset[int] = frozenset()
    numbers: bool = False
    zero: float = 0.0

    @property
    def classes(self) -> int:
        """How many; 0 of numbers."""
        return 0 if self.numbers else int(self.target.max()) + 1


@st.composite
def columns(draw: st.DrawFn, rows: int, target: NDArray[np.int64]) -> NDArray[np.float64]:
    """One column of the kinds that have broken tree builders."""
    kinds = ["few", "few", "some", "last_bit", "extreme", "distinct", "constant", "target"]
    kind = draw(st.sampled_from(kinds))
    if kind == "constant":
        return np.full(rows, draw(st.sampled_from([*EXTREMES, 3.0])))
    if kind == "target":  # nearly decides the class
        noise = draw(st.lists(st.sampled_from([0, 0, 0, 0, 1]), min_size=rows, max_size=rows))
        return (target + np.array(noise)).astype(np.float64)
    if kind == "distinct":
        return np.array(draw(st.permutations(range(rows))), np.float64)
    if kind == "extreme":
        pool = EXTREMES
    elif kind == "last_bit":
        start = draw(st.sampled_from([1.0, 0.1, -2.0, 1e300, 1e-310]))
        steps = draw(st.integers(2, 6))
        pool = [start]
        for _ in range(steps):
            pool.append(float(np.nextafter(pool[-1], np.inf)))
    else:
        pool = [float(n) for n in range(draw(st.integers(2, 4) if kind == "few" else st.integers(5, 40)))]
    cells = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
    return np.array(cells, np.float64)


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 60, max_features: int = 6, max_classes: int = 30) -> Data:
    """A table of at least two rows and two classes, with tied, repeated, mirrored and constant columns."""
    rows = draw(st.integers(2, max_rows))
    wanted = draw(st.sampled_from([2, 2, 3, 5, 10, max_classes]))
    labels = st.integers(0, min(wanted, rows) - 1)
    raw = np.array(draw(st.lists(labels, min_size=rows, max_size=rows)))
    if raw.min() == raw.max():
        raw[0] = raw[0] + 1
    target = np.unique(raw, return_inverse=True)[1]
    made: list[NDArray[np.float64]] = []
    for _ in range(draw(st.integers(1, max_features))):
        again = draw(st.sampled_from(["new", "new", "new", "copy", "mirror"])) if made else "new"
        if again == "new":
            made.append(draw(columns(rows, target)))
        else:
            source = made[draw(st.integers(0, len(made) - 1))]
            made.append(source.copy() if again == "copy" else -source)
    values = np.column_stack(made)
    if draw(st.booleans()):  # whole rows repeated, their classes perhaps in conflict
        chosen = np.array(draw(st.lists(st.integers(0, rows - 1), min_size=rows, max_size=rows)))
        values = values[chosen]
    return Data(np.ascontiguousarray(values), target)


@st.composite
def mixed_tables(draw: st.DrawFn, max_rows: int = 60, max_features: int = 6, max_classes: int = 30) -> Data:
    """`tables` with values missing in some columns, and categories."""
    data = draw(tables(max_rows, max_features, max_classes))
    rows, features = data.values.shape
    values = data.values.copy()
    for feature in range(features):
        share = draw(st.sampled_from([0, 0, 1, 3, 9]))  # of ten
        tenths = st.lists(st.integers(0, 9), min_size=rows, max_size=rows)
        values[np.array(draw(tenths)) < share if share else [], feature] = np.nan
    return Data(values, data.target, frozenset(draw(st.sets(st.integers(0, features - 1)))))


def crowded(draw: np.random.Generator) -> Data:
    """8,000 rows of two classes and a feature that tells little: 1,500 values, half of the rows at twenty of the
    lowest, two side by side, and the best threshold mostly between two of these."""
    often = 4 * draw.integers(0, 10, 8000) + draw.integers(0, 2, 8000)
    values = np.where(draw.random(8000) < 0.5, draw.integers(0, 1500, 8000), often)
    return Data(values[:, None].astype(np.float64), (draw.random(8000) < 0.45 + 0.1 * (values > 16)).astype(np.int64))


def weights(rows: int) -> st.SearchStrategy[list[int]]:
    """How often each row is in a bag: at least one row is."""
    counts = st.lists(st.sampled_from([0, 1, 1, 2, 3, 7]), min_size=rows, max_size=rows)
    return counts.filter(any)


FRACTION = {"mtry": "all", "feature_fraction": 0.4}


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    """Every option that changes a tree, small numbers so that each of them bites."""
    bag = draw(
        st.sampled_from(
            [
                {"bootstrap": False},
                {},
                {"sample_fraction": 0.5},
                {"replace": False, "sample_fraction": 0.7},
                {"sample_fraction": 1e-9},
                {"sample_fraction": 2.0},
                {"sampling": "stratified"},
                {"sampling": "balanced", "replace": False, "sample_fraction": 0.8},
            ]
        )
    )
    return TrainConfig(
        trees=3,
        seed=draw(st.sampled_from([0, 1, 12345, 2**63 - 1])),
        impurity=draw(st.sampled_from([*SCORES])),
        max_depth=draw(st.sampled_from([None, None, None, 0, 1, 2, 5])),
        min_split=draw(st.sampled_from([2, 2, 3, 10])),
        min_leaf=draw(st.sampled_from([1, 1, 2, 5])),
        min_level=draw(st.sampled_from([1, 2, 3, 6, 1000])),
        constants=draw(st.sampled_from(["redraw", "count"])),
        **bag,
        **draw(st.sampled_from([*({"mtry": mtry} for mtry in ("all", "all", "sqrt", "log2", 1, 2, 0.5)), FRACTION])),
    )


@st.composite
def cuts(draw: st.DrawFn, rows: int) -> list[int]:
    """Sizes of the pieces a table of `rows` rows comes in: a few, of any size from one row on, none empty."""
    edges = draw(st.sets(st.integers(1, rows - 1), max_size=4)) if rows > 1 else set()
    bounds = [0, *sorted(edges), rows]
    return [stop - start for start, stop in pairwise(bounds)]


WHOLE = 2**53
POOLS: dict[type[pl.DataType], list[float]] = {
    pl.Boolean: [False, True],
    pl.Int8: [-128, -1, 0, 1, 127],
    pl.UInt8: [0, 1, 254, 255],
    pl.Int16: [-32768, -1, 0, 7, 32767],
    pl.UInt16: [0, 255, 256, 65535],
    pl.Int32: [-(2**31), -1, 0, 1, 2**31 - 1],
    pl.UInt32: [0, 1, 2**32 - 1],
    pl.Int64: [-WHOLE, -WHOLE + 1, -(2**31) - 1, -1, 0, 1, 2**32, WHOLE - 1, WHOLE],
    pl.UInt64: [0, 1, 65536, WHOLE - 1, WHOLE],
    pl.Int128: [-WHOLE, -1, 0, WHOLE],
    pl.Float32: [-np.inf, -3.0e38, -1e-45, -0.0, 0.0, 1e-45, 1.0, 1.0 + 2.0**-23, np.inf],
    pl.Float64: EXTREMES,
}
LABELS: dict[type[pl.DataType], list[object]] = {
    pl.Boolean: [False, True],
    pl.Int64: [-(2**63), -1, 0, 3, 2**63 - 1],
    pl.UInt8: [0, 1, 200],
    pl.Float64: [-0.0, 0.0, 0.5, 1.0, float("nan")],
    pl.String: ["", "a", "B", "b", "ä", "10", "9"],
    pl.Categorical: ["late", "early", "on time"],
}


@st.composite
def frames(draw: st.DrawFn, max_rows: int = 30) -> pl.DataFrame:
    """A frame of features of every type and a column `target` of two classes or more, some missing."""
    rows = draw(st.integers(2, max_rows))
    columns = []
    for number, dtype in enumerate(draw(st.lists(st.sampled_from(list(POOLS)), min_size=1, max_size=5))):
        cells = draw(st.lists(st.sampled_from(POOLS[dtype]), min_size=rows, max_size=rows))
        columns.append(pl.Series(f"f{number}", cells, dtype, strict=False))
    kind = draw(st.sampled_from(list(LABELS)))
    labels = draw(st.lists(st.sampled_from([*LABELS[kind], None]), min_size=rows, max_size=rows))
    labels[:2] = [label for label in LABELS[kind] if label == label][-2:]
    return pl.DataFrame([*columns, pl.Series("target", labels, kind)])


LEVELS = ["", "a", "B", "b", "ä", "\U0001f332", "10", "9", "null"]


@st.composite
def mixed_frames(draw: st.DrawFn, max_rows: int = 30) -> pl.DataFrame:
    """`frames` with columns of text, and with cells that are missing in some columns, perhaps in all rows."""
    frame = draw(frames(max_rows))
    rows = len(frame)
    for number, kind in enumerate(
        draw(st.lists(st.sampled_from([pl.String, pl.Categorical, pl.Enum(LEVELS)]), max_size=2))
    ):
        cells = draw(
            st.lists(st.sampled_from(draw(st.sampled_from([LEVELS, LEVELS[:3]]))), min_size=rows, max_size=rows)
        )
        frame.insert_column(0, pl.Series(f"t{number}", cells, kind))
    for name in frame.columns[:-1]:
        share = draw(st.sampled_from(["none", "none", "some", "some", "all"]))
        if share != "none":
            here = st.just(True) if share == "all" else st.booleans()
            missing = pl.Series(draw(st.lists(here, min_size=rows, max_size=rows)))
            gap = pl.lit(
                float("nan") if draw(st.booleans()) and frame[name].dtype.is_float() else None, frame[name].dtype
            )
            frame = frame.with_columns(pl.when(missing).then(gap).otherwise(name).alias(name))
    return frame


@st.composite
def sparse_configs(draw: st.DrawFn) -> TrainConfig:
    """`configs` of the sparse-oblique family."""
    plain = draw(configs())
    kind = draw(st.sampled_from(["rerf", "rerf", "sporf", "sporf", "gaussian", "very-sparse"]))
    means = draw(st.sampled_from(["none", "none", "consecutive", "vs-largest", "all"]))
    return replace(
        plain,
        family="sparse-oblique",
        min_level=TrainConfig().min_level,
        mtry="sqrt",
        feature_fraction=None,
        constants="redraw",
        projections=draw(st.sampled_from(["p^2/3", "p^0.5", "p^1.2", 1, 2, 7])),
        projection_kind=kind,
        density=None if kind == "rerf" else draw(st.sampled_from([None, 0.2, 0.7, 1.0])),
        mean_difference=means,
        mean_difference_scope="tree" if means == "none" else draw(st.sampled_from(["tree", "node"])),
        normalize=draw(st.sampled_from(["none", "none", "zscore", "minmax"])),
    )


@st.composite
def rotation_configs(draw: st.DrawFn) -> TrainConfig:
    """`configs` of the rotation family."""
    rotation = draw(st.sampled_from(["random", "random", "pca", "pca-classes"]))
    return replace(
        draw(configs()),
        family="rotation",
        min_level=TrainConfig().min_level,
        rotation=rotation,
        axes=None if rotation != "random" else draw(st.sampled_from([None, 1, 3, 9])),
        orthogonal=rotation != "random" or draw(st.booleans()),
        axis_features=None if rotation == "random" else draw(st.sampled_from([None, 1, 2])),
    )


@st.composite
def subspace_configs(draw: st.DrawFn, features: int) -> TrainConfig:
    """Configurations of the families in subspaces, for tables of `features` features."""
    family = draw(st.sampled_from(["subspace-cap", "subspace-perceptron"]))
    per = draw(st.sampled_from(["tree", "node"]))
    return TrainConfig(
        family=family,
        trees=1,
        bootstrap=False,
        seed=draw(st.sampled_from([0, 1, 12345, 2**63 - 1])),
        max_depth=draw(st.sampled_from([None, None, None, 0, 1, 5])),
        min_split=draw(st.sampled_from([2, 2, 3, 10])),
        min_leaf=draw(st.sampled_from([1, 1, 2, 5])),
        subspace=draw(st.sampled_from([None, features, draw(st.integers(1, features)), draw(mixed_sizes(features))])),
        subspace_per=per,
        steps=draw(st.sampled_from([2, 3, 7, 50])),
        **({"max_epochs": draw(st.sampled_from([1, 2, 9]))} if family == "subspace-perceptron" else {}),
    )


def mixed_sizes(features: int) -> st.SearchStrategy[str]:
    """Sizes of subspaces, one or several, as the option `subspace` names them."""
    sizes = st.lists(st.integers(1, features), min_size=1, max_size=4, unique=True)
    return sizes.map(lambda some: ",".join(map(str, some)))


@st.composite
def binary_tables(draw: st.DrawFn, max_rows: int = 60, max_features: int = 140) -> Data:
    """A table of zeros and ones, of some words of bits, perhaps with constant columns and rows that contradict."""
    rows, features = draw(st.integers(2, max_rows)), draw(st.integers(1, max_features))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from([0.02, 0.3, 0.5, 0.95]))
    values = (random.random((rows, features)) < share).astype(np.float64)
    classes = draw(st.sampled_from([2, 2, 3, 10]))
    if draw(st.booleans()):  # few different rows
        values = values[random.integers(0, max(1, rows // 3), rows)]
    raw = (values[:, :3] @ [1.0, 2.0, 4.0][: min(features, 3)]).astype(int) + random.integers(0, 2, rows)
    target = np.unique(raw % classes, return_inverse=True)[1]
    if target.max() == 0:
        target[0] = 1
    values[:, random.random(features) < 0.05] = draw(st.sampled_from([0.0, 1.0, 7.0]))
    return Data(np.ascontiguousarray(values), target)
