"""Metrics against scikit-learn's, and the same for pieces of any size in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.metrics.classes import Area, Metrics, Scores
from bigforest.metrics.numbers import NumberSums
from tests.thorough import examples

COLUMNS = ["class", "rows", "predicted", "precision", "recall", "f1", "log_loss", "brier", "auc"]


def check_metrics(
    found: pl.DataFrame,
    classes: Sequence[object],
    truth: Sequence[int],
    prediction: Sequence[int],
    proba: NDArray[np.float64],
) -> None:
    """Assert that the table of metrics is what scikit-learn makes of these rows."""
    metrics = pytest.importorskip("sklearn.metrics")
    labels = list(range(len(classes)))
    assert found.columns == COLUMNS
    assert found["class"].to_list() == [*classes, None]
    each = metrics.precision_recall_fscore_support(truth, prediction, labels=labels, zero_division=0.0)
    macro = metrics.precision_recall_fscore_support(truth, prediction, average="macro", zero_division=0.0)
    for place, name in enumerate(("precision", "recall", "f1")):
        assert found[name].to_list() == pytest.approx([*each[place], macro[place]], rel=1e-12)
    assert found["rows"].to_list() == [*each[3], len(truth)]
    assert found["predicted"].to_list() == [*np.bincount(prediction, minlength=len(labels)), len(prediction)]
    whole = found.row(-1, named=True)
    assert whole["log_loss"] == pytest.approx(metrics.log_loss(truth, proba, labels=labels), abs=1e-11)
    assert whole["brier"] == pytest.approx(metrics.brier_score_loss(truth, proba, labels=labels), abs=1e-11)
    for code, row in enumerate(found.rows(named=True)[:-1]):
        own, share = np.array(truth) == code, np.column_stack([1 - proba[:, code], proba[:, code]])
        assert row["log_loss"] == pytest.approx(metrics.log_loss(own, share, labels=[False, True]), abs=1e-11)
        assert row["brier"] == pytest.approx(metrics.brier_score_loss(own, share, labels=[False, True]), abs=1e-11)
    areas: list[Any] = []
    for code in labels:
        own = np.array(truth) == code
        known = 0 < own.sum() < len(own) and len(classes) > 1
        areas.append(pytest.approx(metrics.roc_auc_score(own, proba[:, code]), abs=1e-12) if known else None)
    if len(classes) == 2:
        areas[0] = areas[1]  # by the probability of the second class
    assert found["auc"].to_list()[:-1] == areas
    values = [area for area in found["auc"].to_list()[:-1] if area is not None]
    assert whole["auc"] == (pytest.approx(np.mean(values), abs=1e-12) if values else None)


def table(metrics: Metrics) -> pl.DataFrame:
    names = ["code", *COLUMNS[1:]]
    rows = [[getattr(one, name) for name in names] for one in metrics.result()]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row", infer_schema_length=None)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[list[int], list[int], NDArray[np.float64]]:
    """Truth, prediction and probabilities of few or many different values."""
    classes = draw(st.sampled_from([2, 2, 3, 5]))
    rows = draw(st.integers(1, 40))
    codes = st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)
    parts = st.lists(st.sampled_from([0, 0, 1, 2, 7, 1000]), min_size=classes * rows, max_size=classes * rows)
    weights = np.array(draw(parts), np.float64).reshape(rows, classes)
    weights[:, 0] += weights.sum(axis=1) == 0
    return draw(codes), draw(codes), weights / weights.sum(axis=1, keepdims=True)


@settings(max_examples=examples(50))
@given(rows=labelled(), data=st.data())
def test_metrics__are_those_of_scikit_learn(
    rows: tuple[list[int], list[int], NDArray[np.float64]], data: st.DataObject
) -> None:
    truth, prediction, proba = rows
    whole, pieces = Metrics(proba.shape[1]), Metrics(proba.shape[1])
    whole.add(np.array(truth), np.array(prediction), proba)
    check_metrics(table(whole), range(proba.shape[1]), truth, prediction, proba)
    left = data.draw(st.permutations(range(len(truth))))
    while left:
        some = data.draw(st.integers(1, len(left)))
        now, left = left[:some], left[some:]
        pieces.add(np.array(truth)[now], np.array(prediction)[now], proba[now])
    assert pieces.result() == whole.result()


@settings(max_examples=examples(80))
@given(
    rows=st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0]), st.booleans()), min_size=1),
    most=st.integers(2, 9),
    step=st.integers(1, 9),
)
def test_area__the_same_from_any_number_of_passes(rows: list[tuple[float, bool]], most: int, step: int) -> None:
    values, second = np.array([value for value, _ in rows]), np.array([truth for _, truth in rows])
    pairs = [(a > b) + (a == b) / 2 for a in values[second] for b in values[~second]]
    area, above, passes = Area(), -np.inf, 0
    while True:
        scores = Scores(most, above)
        for start in range(0, len(rows), step):
            scores.add(values[start : start + step], second[start : start + step])
        area.add(scores)
        passes += 1
        if scores.limit is None:
            break
        above = float(scores.values[-1])
    assert passes <= -(-np.unique(values).size // (most // 2))
    assert area.value == (pytest.approx(np.mean(pairs), rel=1e-12) if pairs else None)
    joined = Area()
    for own in (values <= 0.25, values > 0.25):
        part = Scores(len(rows))
        part.add(values[own], second[own])
        joined.join(Area().add(part))
    assert joined.value == area.value


def test_area__of_weights_whose_products_exceed_63_bits() -> None:
    heavy = Scores(9)
    heavy.add(np.array([0.1, 0.2, 0.3]), np.array([False, True, True]), np.array([1, 1, 1]) << 40)
    assert Area().add(heavy).value == 1.0


@settings(max_examples=examples(50))
@given(rows=labelled(), most=st.integers(2, 9), data=st.data())
def test_metrics__joined_are_those_of_the_whole(
    rows: tuple[list[int], list[int], NDArray[np.float64]], most: int, data: st.DataObject
) -> None:
    truth, prediction, proba = (np.array(part) for part in rows)
    whole, joined = Metrics(proba.shape[1], most), Metrics(proba.shape[1], most)
    whole.add(truth, prediction, proba)
    begin = 0
    while begin < truth.size:
        here = slice(begin, begin + data.draw(st.integers(1, truth.size - begin)))
        begin = here.stop
        part = Metrics(proba.shape[1], most)
        part.add(truth[here], prediction[here], proba[here])
        joined.join(part)
    assert joined.result() == whole.result()


def test_metrics__too_many_scores_have_no_area() -> None:
    metrics = Metrics(2, max_scores=10)
    proba = np.linspace(0, 1, 12)
    metrics.add(np.arange(12) % 2, np.zeros(12), np.column_stack([1 - proba, proba]))
    assert [one.auc for one in metrics.result()] == [None] * 3
    assert metrics.result_with([0.5])[-1].auc == 0.5


def test_metrics__a_refused_answer_is_no_prediction() -> None:
    metrics = Metrics(2)
    metrics.add(np.array([0, 1, 1]), np.array([0, -1, 1]), np.full((3, 2), 0.5))
    first, second, whole = metrics.result()
    assert (first.precision, first.recall, second.precision, second.recall) == (1.0, 1.0, 1.0, 0.5)
    assert (whole.rows, whole.predicted, metrics.accuracy) == (3, 2, 2 / 3)


@pytest.mark.parametrize(("predicted", "r2"), [(5.0, 1.0), (5.5, 0.0)])
def test_number_metrics__r2_of_equal_targets(predicted: float, r2: float) -> None:
    sums = NumberSums(0.0)
    sums.add(np.full(3, 5.0), np.full(3, predicted))
    assert sums.result().r2 == r2


def test_number_metrics__one_row_has_no_r2() -> None:
    sums = NumberSums(0.0)
    sums.add(np.array([5.0]), np.array([5.0]))
    assert (sums.result().r2, sums.result().mse) == (None, 0.0)


@pytest.mark.parametrize("weight", [None, np.array([1, 3, 2, 5, 1, 1, 4])], ids=["unweighted", "weighted"])
@pytest.mark.parametrize(("error", "wanted"), [(0.5, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("target", [0.3, -7.7, 1e6 + 0.1])
def test_number_sums__r2_of_equal_targets(target: float, error: float, wanted: float, weight: Any) -> None:
    """The rounding of the squares was the variance, and R2 -1e17."""
    truth = np.full(7, target)
    parts = [NumberSums(1.7, None if weight is None else 17) for _ in range(2)]
    for sums, rows in zip(parts, (slice(0, 3), slice(3, 7)), strict=True):
        sums.add(truth[rows], truth[rows] + error, None if weight is None else weight[rows])
    parts[0].join(parts[1])
    assert parts[0].result().r2 == wanted
