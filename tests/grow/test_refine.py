"""Sequences of the boosted stage against slow, plain ones: bags, trees, and what they add to rows."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest as bf
from bigforest.forest.nodes import TreeArrays, join_trees
from bigforest.forest.refinement import SEQUENCES
from bigforest.grow.refine import StageSample, grow_sequence, in_bags
from bigforest.kernels.refine.link import LOGISTIC, POISSON, SOFTMAX, SQUARED, correct
from bigforest.oob.refine import row_tiles, with_code_thresholds
from bigforest.predict.refine import BoostedStage, StageRows
from tests.naive import refine as naive
from tests.naive.rng import stream_key
from tests.thorough import examples

LOSSES = {"squared": SQUARED, "logistic": LOGISTIC, "softmax": SOFTMAX, "poisson": POISSON}
# A sample has one of this many rows: its sequences have far fewer rows than the table has values.
EACH = 7
SCORES = st.one_of(st.sampled_from([0.0, -0.0, 700.0, -700.0, 1e308, -1e308]), st.floats(-50.0, 50.0))


@given(st.lists(st.tuples(st.floats(2.0**-10, 1.0), SCORES), min_size=1, max_size=9))
def test_correct__has_the_bits_of_the_plain_one_and_is_right(rows: list[tuple[float, float]]) -> None:
    start, added = (list(own) for own in zip(*rows, strict=True))
    for name, loss in LOSSES.items():
        shape = (1, -1) if name == "softmax" else (-1, 1)  # classes of a row, or rows
        found = np.reshape(added, shape)
        correct(loss, np.reshape(start, shape), found)
        each = [(start, added)] if name == "softmax" else [([one], [more]) for one, more in rows]
        assert found.tolist() == [naive.corrected(name, *own) for own in each]
    exact = math.exp(min(max(added[0], -700.0), 700.0))
    assert abs(naive.exponential(added[0]) - exact) <= 2 * math.ulp(exact)


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, pl.DataFrame]:
    """A loss, and a table of few rows with ties, missing values and levels, or of different values: of fewer rows in a
    sequence than there are bins, or of more."""
    rows = draw(st.integers(40, 90))
    if (distinct := draw(st.booleans())) and draw(st.booleans()):
        rows = 40 * EACH
    loss = draw(st.sampled_from(sorted(LOSSES)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = draw(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20, unique=True))
    columns: dict[str, Any] = {}
    for place in range(draw(st.integers(1, 3))):
        cells = random.choice(values, rows) if not distinct else random.normal(size=rows)
        columns[f"x{place}"] = [
            None if gone else cell
            for cell, gone in zip(
                cells.tolist(), (random.random(rows) < draw(st.sampled_from([0.0, 0.3]))), strict=True
            )
        ]
    if draw(st.booleans()):
        names = np.array(["a", "b", "c", "d", "e", None], object)[: draw(st.integers(2, 6))]
        columns["level"] = random.choice(names, rows).tolist()
    if loss in ("logistic", "softmax"):
        classes = 2 if loss == "logistic" else 3
        columns["y"] = [*range(classes), *random.integers(0, classes, rows - classes).tolist()]
    else:
        columns["y"] = (random.poisson(2.0, rows) + (0.0 if loss == "poisson" else 0.25)).tolist()
    if draw(st.booleans()):
        columns["w"] = random.integers(1, 4, rows).tolist()
    return loss, pl.DataFrame(columns)


@settings(max_examples=examples(150))
@given(tables(), st.integers(0, 5))
def test_sequence__grows_the_trees_of_the_plain_one(given: tuple[str, pl.DataFrame], sequence: int) -> None:
    loss, table = given
    weighted = "w" in table.columns
    options = {"task": "regression" if loss in ("squared", "poisson") else "classification"}
    options |= {"weight": "w"} if weighted else {}
    config = bf.TrainConfig.of(seed=3, impurity="poisson" if loss == "poisson" else None, **options)
    with TemporaryDirectory() as folder:
        store = bf.encode_store(table, Path(folder) / "t.store", target="y", **options)
        rows = np.arange(0, store.rows, EACH if store.rows >= 40 * EACH else 1)  # of the table, or of a sample
        outputs = 3 if loss == "softmax" else 1
        start = np.random.default_rng(1).uniform(0.1, 1.0, size=(rows.size, outputs))
        sample = StageSample(rows, start, LOSSES[loss])
        grown = grow_sequence(store, config, sample, 3, sequence)
        used = np.flatnonzero(in_bags(store, config, rows)[sequence])
        assert [sequence not in naive.left_out(3, row) for row in rows.tolist()] == in_bags(store, config, rows)[
            sequence
        ].tolist()
        cells = _values(store)[:, rows]
        truth = [float(y) for y in table["y"].gather(rows)]
        weight = (
            (table["w"] * (store.rows / table["w"].sum())).gather(rows).to_list() if weighted else [1.0] * rows.size
        )
        columns = [
            naive.Column([_cell(own[i], feature) for i in used], feature.splits_on_levels, feature.has_gaps)
            for own, feature in zip(cells, store.spec.features, strict=True)
        ]
        trees = naive.grow(
            columns,
            [truth[i] for i in used],
            [weight[i] for i in used],
            start[used].tolist(),
            loss,
            stream_key(3, naive.PURPOSE_REFINE, 2, sequence),
            3,
            10,
        )
        category = [feature.splits_on_levels for feature in store.spec.features]
        assert _as_written(grown, category) == [list(_preorder(tree)) for tree in trees]
        _check_sums(store, config, grown, trees, category)


def _values(store: Any) -> NDArray[np.float64]:
    """Values of all rows, [features, rows]: NaN is missing, and the values of categories are codes."""
    return np.array(
        [
            codes if feature.splits_on_levels else np.where(feature.has_gaps & (codes == 0), np.nan, low[codes])
            for feature, codes, low in (
                (feature, store.feature_codes(place), store.low(place))
                for place, feature in enumerate(store.spec.features)
            )
        ]
    )


def _cell(value: float, feature: Any) -> float | int | None:
    """A cell as the plain trees have it; code 0 of a category with missing values is None."""
    if feature.splits_on_levels:
        return None if feature.missing and value == 0 else int(value)
    return None if math.isnan(value) else float(value)


def _preorder(tree: naive.Tree) -> Any:
    listed = sorted(0 if level is None else level for level in tree.listed)
    yield tree.feature, repr(tree.threshold), tree.default_left, listed, tree.rows, tree.value
    for child in (tree.left, tree.right):
        if child is not None:
            yield from _preorder(child)


def _as_written(grown: TreeArrays, category: list[bool]) -> list[list[Any]]:
    """Nodes of each tree, with codes of levels; 0 is missing."""
    found = []
    assert grown.value is not None
    for node in range(grown.feature.size):
        feature = int(grown.feature[node])
        listed: list[int] = []
        if grown.levels is not None:
            listed = grown.levels.code[grown.levels.start[node] : grown.levels.start[node + 1]].tolist()
        found.append(
            (
                None if feature < 0 else feature,
                repr(float(grown.threshold[node])),
                bool(grown.default_left[node]),
                listed,
                int(grown.weight[node]),
                grown.value[node].tolist(),
            )
        )
    return [found[begin:end] for begin, end in zip(grown.starts[:-1], grown.starts[1:], strict=True)]


def _check_sums(store: Any, config: Any, grown: TreeArrays, trees: Any, category: list[bool]) -> None:
    """Every row of the table gets the values of its leaves, from tiles of values, float64 and float32 where these are
    exact, and from tiles of codes."""
    boosted = join_trees([grown] * SEQUENCES)
    cells = _values(store)
    stage = BoostedStage(store.spec, config, boosted, np.arange(len(category)))
    by_code = BoostedStage(store.spec, config, with_code_thresholds(store, boosted), boosted.used)
    tiles = StageRows(np.ascontiguousarray(cells[None]), store.rows, by_level=False, missing=True)
    rows = [[_cell(own[i], f) for own, f in zip(cells, store.spec.features, strict=True)] for i in range(store.rows)]
    expected = []
    for row in rows:
        total = [0.0] * grown.value.shape[1]
        for tree in trees:
            total = [a + v for a, v in zip(total, naive.add(tree, row, category), strict=True)]
        expected.append(total)
    narrow = tiles._replace(tiles=tiles.tiles.astype(np.float32))
    codes = row_tiles(store, np.arange(store.rows), boosted.used)
    ways = [(stage, tiles), (by_code, codes)]
    if np.array_equal(narrow.tiles, tiles.tiles, equal_nan=True):
        ways.append((stage, narrow))
    for own, exact in ways:
        found = np.zeros((store.rows, grown.value.shape[1]))
        own.add(exact, found, range(1))
        assert found.tolist() == expected
