"""The rules of the race, against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigforest.training.candidates import (
    MeasuredLoss,
    Rows,
    RowScores,
    cross_fitted,
    measure_loss,
    retired,
    rounds,
    standard_error,
    standings,
    winner,
)
from tests.naive import race as naive
from tests.thorough import examples

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, None])


@st.composite
def tables(draw: st.DrawFn, candidates: int = 3) -> tuple[dict[str, list[float | None]], list[float], list[int]]:
    """Scores of a few candidates, weights and groups of the rows."""
    count = draw(st.integers(8, 30))
    rows = {f"c{k}": draw(st.lists(SCORES, min_size=count, max_size=count)) for k in range(candidates)}
    weights = draw(st.lists(st.sampled_from([1.0, 1.0, 2.5, 0.25]), min_size=count, max_size=count))
    groups = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    for own in rows.values():  # both halves have a row
        for side in (0, 1):
            assume(any(s is not None and naive.half(g) == side for s, g in zip(own, groups, strict=True)))
    return rows, weights, groups


def scores_of(own: list[float | None], second: list[bool] | None = None) -> RowScores:
    values = np.array([math.nan if s is None else s for s in own])
    return RowScores(values, None) if second is None else RowScores(values[:, None], np.array(second)[:, None])


@settings(max_examples=examples(100))
@given(tables())
def test_race__as_plain_python(table: tuple[dict[str, list[float | None]], list[float], list[int]]) -> None:
    given_scores, weights, groups = table
    rows = Rows(np.array(weights), np.array(groups))
    scores = {name: scores_of(own) for name, own in given_scores.items()}
    measured = {name: measure_loss(each, rows) for name, each in scores.items()}
    for name, own in given_scores.items():
        assert measured[name].loss == pytest.approx(naive.mean_loss(own, weights))
        np.testing.assert_allclose(measured[name].influence, naive.influences_of_mean(own, weights), atol=1e-12)
    found = standings(measured, rows)
    best = min(given_scores, key=lambda name: measured[name].loss)
    of_best = naive.influences_of_mean(given_scores[best], weights)
    for name, own in given_scores.items():
        if name != best:
            error = naive.paired_error(naive.influences_of_mean(own, weights), of_best, groups)
            assert found[name].error == pytest.approx(error, abs=1e-12)
        assert found[name].difference == pytest.approx(measured[name].loss - measured[best].loss)
        near_rule = [abs(each.behind - limit) < 1e-6 for each in found.values() for limit in (1.0, 3.0)]
        assume(not any(near_rule))
    assert winner(found) == naive.winner(given_scores, weights, groups)
    behind = [name for name in given_scores if found[name].difference > 3 * found[name].error]
    assert retired(found, 50) == behind
    assert retired(found, 25) == []


@settings(max_examples=examples(60))
@given(tables(2), st.lists(st.booleans(), min_size=30, max_size=30))
def test_area__as_plain_python(
    table: tuple[dict[str, list[float | None]], list[float], list[int]], labels: list[bool]
) -> None:
    given_scores, weights, groups = table
    second = labels[: len(weights)]
    rows = Rows(np.array(weights), np.array(groups))
    own = given_scores["c0"]
    assume(len({label for label, s in zip(second, own, strict=True) if s is not None}) == 2)
    found = measure_loss(scores_of(own, second), rows)
    assert found.loss == pytest.approx(naive.area_loss(own, second, weights))
    np.testing.assert_allclose(found.influence, naive.influences_of_area(own, second, weights), atol=1e-12)
    none = [0.0] * len(weights)
    assert standard_error(found.influence, rows) == pytest.approx(
        naive.paired_error(naive.influences_of_area(own, second, weights), none, groups), abs=1e-12
    )


@settings(max_examples=examples(60))
@given(tables())
def test_cross_fitted__as_plain_python(table: tuple[dict[str, list[float | None]], list[float], list[int]]) -> None:
    given_scores, weights, groups = table
    rows = Rows(np.array(weights), np.array(groups))
    scores = {name: scores_of(own) for name, own in given_scores.items()}
    for side in (True, False):  # no rounding decides
        half = np.array([(naive.half(group) == 1) == side for group in groups])
        parts = {name: measure_loss(RowScores(s.score[half], None), rows.chosen(half)) for name, s in scores.items()}
        assume(all(abs(each.behind - 1.0) > 1e-6 for each in standings(parts, rows.chosen(half)).values()))
    assert cross_fitted(scores, rows) == pytest.approx(naive.cross_fitted(given_scores, weights, groups))


def test_standings__without_rows_out_of_bag_come_last() -> None:
    rows = Rows(None, None)
    nothing = measure_loss(RowScores(np.full(4, np.nan), None), rows)
    found = standings({"a": nothing, "b": MeasuredLoss(0.5, np.zeros(4))}, rows)
    assert winner(found) == "b"
    assert found["a"].behind == math.inf


@pytest.mark.parametrize(
    ("trees", "expected"),
    [
        (1, [1]),
        (25, [25]),
        (60, [25, 50, 60]),
        (100, [25, 50, 75, 100]),
        (300, [25, 50, 75, 100, 125, 150, 175, 200, 250, 300]),
    ],
)
def test_rounds__end_at_the_number_of_trees(trees: int, expected: list[int]) -> None:
    assert rounds(trees) == expected


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_standard_error__of_numbers_of_any_size(size: float) -> None:
    influence = np.array([0.5, -1.0, 0.0, 0.25])
    usual = math.sqrt(0.25 + 1.0 + 0.0625)
    assert standard_error(influence * size, Rows(None, None)) == pytest.approx(usual * size, rel=1e-12, abs=0.0)
