"""Forests, tables and trees for the tests of explanations."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import bigforest as bf
from bigforest.forest.nodes import TreeArrays, join_trees
from bigforest.forest.parts import check_parts, read_span
from bigforest.predict.forest import Forest
from tests.forests import forest_of, random_tree, spec_of
from tests.mixed import CLASSES, mixed_names, mixed_rows, mixed_spec, mixed_table, mixed_trees, write_mixed
from tests.naive.predict import Names

THRESHOLDS = [0.0, 0.5, -1.5, 2.0, 1e-3]
WEIGHTS = (1.0, -0.5, 2.0, -7e-3)
PLAIN = {"shrink": "off", "power": "off", "refine": "off"}  # options of a forest of nothing but its trees


class Case(NamedTuple):
    """A forest, rows with the target y, of which some may be missing, and both for the naive functions.

    truth  class codes or numbers; None where missing.
    """

    forest: Forest
    trees: list[TreeArrays]
    frame: pl.DataFrame
    rows: list[tuple[Any, ...]]
    truth: list[Any]
    names: Names

    @property
    def kept(self) -> list[int]:
        """Rows with a target."""
        return [row for row, own in enumerate(self.truth) if own is not None]

    @property
    def features(self) -> int:
        """Number of features."""
        return len(self.forest.spec.features)


def mixed_case(folder: Path, rows: int, seed: int, regression: bool = False, trees: int = 4, **config: Any) -> Case:
    """Numbers and categories with missing values."""
    grown = mixed_trees(trees, seed, regression)
    forest = write_mixed(folder, grown, mixed_spec(regression), (trees // 2,), **config)
    random = np.random.default_rng(seed)
    labels = np.round(random.uniform(1, 9, rows), 2).tolist() if regression else random.choice(CLASSES, rows).tolist()
    labels = [None if hidden else label for label, hidden in zip(labels, random.random(rows) < 0.1, strict=True)]
    labels[0] = 5.0 if regression else 5
    frame = mixed_table(rows, seed).with_columns(y=pl.Series(labels))
    truth = labels if regression else [None if label is None else CLASSES.index(label) for label in labels]
    return Case(forest, grown, frame, mixed_rows(frame.drop("y")), truth, mixed_names())


def oblique_case(folder: Path, rows: int, seed: int, trees: int = 3) -> Case:
    """Projections and thresholds on numbers, none of them missing, with ties."""
    random = np.random.default_rng(seed)
    grown = [random_tree(random, 3, 3, int(random.integers(9)), THRESHOLDS, WEIGHTS) for _ in range(trees)]
    forest = forest_of(folder, grown, spec_of(3, CLASSES))
    matrix = random.choice([*THRESHOLDS, -9.0, 1.0, 9.0], (rows, 3))
    truth = random.integers(0, 3, rows).tolist()
    frame = pl.DataFrame(matrix, schema=["x0", "x1", "x2"]).with_columns(y=pl.Series([CLASSES[k] for k in truth]))
    return Case(forest, grown, frame, [tuple(row) for row in matrix.tolist()], truth, {})


def case_of(kind: str, folder: Path, rows: int, seed: int) -> Case:
    """A forest of one kind: "classes", "hard" votes, "numbers", or "oblique"."""
    if kind == "oblique":
        return oblique_case(folder, rows, seed)
    return mixed_case(folder, rows, seed, kind == "numbers", **({"vote": "hard"} if kind == "hard" else {}))


@cache
def grown_case(rows: int = 200, **options: Any) -> Case:
    """Six grown trees, trained once for all tests that ask for the same; none changes it.

    Features are a number without ties, one of five values or missing, a category of two levels or missing, and noise; a
    twentieth of the rows has no target, which is of two classes, or with task="regression" a number.
    """
    random = np.random.default_rng(rows)
    a, b = random.normal(size=rows), random.integers(0, 6, rows)
    numbers = np.round(a + (b > 2) + random.normal(size=rows) * 0.2, 2)
    if options.get("impurity") == "poisson":
        numbers = np.exp(numbers)
    frame = pl.DataFrame(
        {
            "a": a,
            "b": pl.Series([None if value == 5 else int(value) for value in b]),
            "word": pl.Series(random.choice(["x", "y", None], rows).tolist(), dtype=pl.String),
            "noise": random.normal(size=rows),
        }
    )
    regression = options.get("task") == "regression"
    labels = pl.Series(numbers if regression else np.where(numbers > 0.5, "high", "low"))
    frame = frame.with_columns(y=pl.when(pl.Series(random.random(rows) < 0.05)).then(None).otherwise(labels))
    forest = bf.train(frame, "y", trees=6, threads=1, **{"shrink": "off", "refine": "off"} | options)
    classes = forest.classes
    truth = [own if own is None or regression else classes.index(own) for own in frame["y"].to_list()]
    words = {2: [None, "x", "y"]}
    return Case(forest, trees_of(forest), frame, frame.drop("y").rows(), truth, words)


def bags_of(case: Case) -> list[list[int]]:
    """The bag of each tree: how often it has each row that has a target."""
    table = case.forest.inbag()
    assert table["row"].to_list() == case.kept
    return [table[str(tree)].to_list() for tree in range(len(case.trees))]


def loss_by(options: dict[str, Any]) -> str:
    """The loss by which a forest of these options is evaluated."""
    if "impurity" in options:
        return "poisson_deviance"
    return "mse" if options.get("task") else "error"


def trees_of(forest: Forest) -> list[TreeArrays]:
    """The trees of a grown forest, as the naive functions take them; gains are not kept."""
    header, spans = check_parts(forest.directory)
    found: list[TreeArrays] = []
    for span in spans:
        trees = join_trees(list(read_span(span, header)))
        trees = trees._replace(gain=np.full(trees.feature.size, np.nan))
        found += [trees.rows(begin, end) for begin, end in pairwise(trees.starts.tolist())]
    return found
