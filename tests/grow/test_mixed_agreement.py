"""Prediction sends the rows of training where growing sent them: into leaves that hold as many of each class."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.forest.nodes import TreeArrays, join_trees
from bigforest.forest.parts import check_parts, read_span
from bigforest.predict.forest import Forest
from tests.mixed import CATEGORIES, mixed_rows, mixed_table
from tests.naive.predict import Names, find_leaf

ROWS = 400


def table(regression: bool) -> pl.DataFrame:
    random = np.random.default_rng(8)
    truth: Any = random.normal(size=ROWS) if regression else random.choice(["no", "perhaps", "yes"], ROWS)
    return mixed_table(ROWS, 3, unseen=False).with_columns(y=pl.Series(truth))


def tree_of(forest: Forest) -> TreeArrays:
    """The only tree of a forest, as read; gains are not."""
    header, spans = check_parts(forest.directory)
    return join_trees([piece for span in spans for piece in read_span(span, header)])


def names_of(forest: Forest) -> Names:
    missing: list[list[str | None]] = [[None] if feature.missing else [] for feature in forest.spec.features]
    return {place: [*missing[place], *forest.levels.of(place).to_list()] for place in CATEGORIES}


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("depth", [3, None])
def test_predict__agrees_with_training(regression: bool, depth: int | None) -> None:
    frame = table(regression)
    options: dict[str, Any] = {"trees": 1, "bootstrap": False, "max_depth": depth, "min_leaf": 3, "categories": ["c2"]}
    forest = bf.train(frame, "y", **options)
    tree, names = tree_of(forest), names_of(forest)
    assert {"category", "axis"} <= set(forest.nodes.collect()["kind"])
    leaves = [find_leaf(tree, row, names) for row in mixed_rows(frame.drop("y"))]
    weight = forest.nodes.collect()["weight"].to_list()
    found = forest.predict(frame.drop("y"))["prediction"].to_list()
    for leaf in np.flatnonzero(tree.feature < 0).tolist():
        rows = [row for row, ended in enumerate(leaves) if ended == leaf]
        own = frame["y"].gather(rows)
        assert len(rows) == weight[leaf]
        if regression:
            assert tree.value is not None
            assert tree.value[leaf] == pytest.approx(own.mean(), abs=1e-12)
            assert {found[row] for row in rows} == {float(tree.value[leaf])}
        else:
            assert tree.counts[leaf].tolist() == [(own == label).sum() for label in forest.classes]
            assert {found[row] for row in rows} == {forest.classes[int(tree.counts[leaf].argmax())]}


@pytest.mark.parametrize("target", [["no", "yes"], [2.0, -1.5]])
@pytest.mark.parametrize("cells", [[3.5, None], [None, 3.5]])
@pytest.mark.parametrize("splitter", ["best", "random"])
def test_train__missing_values_beside_a_single_value(
    target: list[Any], cells: list[float | None], splitter: str
) -> None:
    """The split sends missing values to the right and all others to the left."""
    frame = pl.DataFrame({"a": cells[:1] * 7 + cells[1:] * 5, "y": target[:1] * 7 + target[1:] * 5})
    forest = bf.train(frame, "y", trees=8, splitter=splitter, bootstrap=False, shrink="off")
    assert forest.predict(frame)["prediction"].to_list() == frame["y"].to_list()
    assert forest.nodes.collect()["weight"].to_list() == ([12, 5, 7] if cells[0] is None else [12, 7, 5]) * 8


@pytest.mark.parametrize("up", [1, 2])
def test_train__threshold_between_adjacent_numbers(up: int) -> None:
    """Their middle is rounded to one of them, which must be the lower one."""
    below = 1.0 + up * 2.0**-52
    frame = pl.DataFrame({"a": [below, below + 2.0**-52] * 6, "y": ["no", "yes"] * 6})
    forest = bf.train(frame, "y", trees=1, bootstrap=False)
    assert forest.nodes.collect()["threshold"][0] == below
    assert forest.predict(frame)["prediction"].to_list() == frame["y"].to_list()
