"""Intervals, sets and rejection beside the oracle."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.errors import ConfigError
from bigforest.metrics.conformal import (
    Intervals,
    fewest_rows,
    fit_by_category,
    fit_class_sets,
    fit_intervals,
    reject_curve,
)
from tests.naive import conformal as naive

COVERAGES = st.sampled_from(["0.05", "0.5", "0.7", "0.8", "0.9", "0.95", "0.99"])
# Few different values, so that ties and constants are common.
VALUES = st.sampled_from([-1e300, -3.0, -0.5, 0.0, 0.1, 0.30000000000000004, 0.3, 2.0, 7.0])
SHARES = st.sampled_from([0.0, 0.1, 0.3, 1 / 3, 0.5, 0.9, 1.0])
PAIRS = st.one_of(
    st.lists(st.tuples(VALUES, VALUES), max_size=30),
    st.tuples(st.integers(0, 2**32), st.integers(1, 900), st.integers(1, 1000)).map(
        lambda drawn: _many(*drawn),
    ),
)


def _many(seed: int, rows: int, different: int) -> list[tuple[float, float]]:
    """Rows enough for several bins."""
    draw = np.random.default_rng(seed)
    prediction = np.floor(draw.exponential(different / 5, rows))
    return list(zip(prediction.tolist(), (prediction + draw.normal(0, 1 + prediction)).tolist(), strict=True))


@given(st.lists(st.integers(0, 4), max_size=120), COVERAGES)
def test_fit_by_category__takes_categories_together_as_the_oracle(codes: list[int], coverage: str) -> None:
    """Of three levels, other ones (3, which calibration rows never have) and missing values (4)."""
    own = np.array([code for code in codes if code != 3], np.int64)
    asked: list[list[int]] = []

    def fit(chosen: NDArray[np.bool_]) -> Intervals:
        asked.append(np.flatnonzero(chosen).tolist())
        return Intervals((), (float(len(asked)),))

    if naive.bound([0.0] * own.size, coverage) is None:
        with pytest.raises(ConfigError, match="too few"):
            fit_by_category("g", "String", ("a", "b", "c"), own, float(coverage), fit)
        return
    found = fit_by_category("g", "String", ("a", "b", "c"), own, float(coverage), fit)
    present = sorted(set(own.tolist()))
    pools = naive.categories([present.index(code) for code in own.tolist()], len(present), coverage)
    expected = {present[k]: np.flatnonzero(np.isin(own, [present[j] for j in pool])) for pool in pools for k in pool}
    for code, one in enumerate(found.calibrated):
        assert asked[int(one.radii[0]) - 1] == expected.get(code, np.arange(own.size)).tolist()


@given(PAIRS, COVERAGES, st.lists(st.floats(-1e6, 1e6), max_size=5))
def test_fit_intervals__as_the_oracle(pairs: list[tuple[float, float]], coverage: str, others: list[float]) -> None:
    prediction, truth = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([], [])
    if naive.bound(truth, coverage) is None:
        with pytest.raises(ConfigError, match=rf"this needs {fewest_rows(float(coverage))}; lower coverage"):
            fit_intervals(np.array(prediction), np.array(truth), float(coverage))
        return
    values = [*others, *sorted(set(prediction))[:50]]
    found = fit_intervals(np.array(prediction), np.array(truth), float(coverage)).bounds(np.array(values))
    assert found.tolist() == [list(naive.interval(prediction, truth, coverage, value) or ()) for value in values]


@given(PAIRS, COVERAGES, st.sampled_from([0.0, 1e-3, 1.0, 1e9]), st.integers(0, 99))
def test_fit_intervals__by_spread_as_the_oracle(
    pairs: list[tuple[float, float]], coverage: str, largest: float, seed: int
) -> None:
    prediction, truth = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([], [])
    if naive.bound(truth, coverage) is None:
        return
    draw = np.random.default_rng(seed)
    spread = np.round(draw.random(len(pairs)) * largest, 3)
    values = sorted(set(prediction))[:50]
    new = draw.random(len(values)) * largest
    fitted = fit_intervals(np.array(prediction), np.array(truth), float(coverage), spread)
    assert (fitted.scale > 0.0) == bool(spread.mean() > 2.0**-49 * max(map(abs, prediction)))
    found = fitted.bounds(np.array(values), new)
    expected = [
        list(naive.interval(prediction, truth, coverage, value, spread.tolist(), float(own)) or ())
        for value, own in zip(values, new, strict=True)
    ]
    assert np.allclose(found, np.array(expected), rtol=1e-12)


def test_fit_intervals__rounding_is_no_spread() -> None:
    """The trees agree: widths followed the last bits of their means, some intervals were four times as wide."""
    prediction = np.array([-7.7, 3.3, 1.1] * 20)
    found = fit_intervals(prediction, prediction + 0.1, 0.9, np.array([0.0, 2.2e-16, 1e-16] * 20))
    low, high = found.bounds(prediction[:3], np.array([2.2e-16, 0.0, 0.0])).T
    assert not found.by_spread and high - low == pytest.approx([0.2] * 3)


def test_fit_intervals__several_bins_of_which_the_wide_ones_are_wide() -> None:
    draw = np.random.default_rng(3)
    prediction = draw.random(4000)
    found = fit_intervals(prediction, prediction + draw.normal(0, 0.1 + prediction), 0.9)
    assert len(found.radii) == 20
    assert found.radii[-1] > 4 * found.radii[0]
    assert len(fit_intervals(prediction[:399], prediction[:399], 0.9).radii) == 1
    assert len(fit_intervals(prediction[:400], prediction[:400], 0.9).radii) == 2
    assert len(fit_intervals(prediction, prediction, 0.999).radii) == 1  # a bin takes 10,000 rows


@given(
    st.lists(st.tuples(st.integers(0, 4), SHARES), max_size=120), COVERAGES, st.lists(SHARES, min_size=5, max_size=5)
)
def test_fit_class_sets__as_the_oracle(pairs: list[tuple[int, float]], coverage: str, row: list[float]) -> None:
    truth, share = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([], [])
    expected = naive.class_set(truth, share, coverage, row)
    codes, shares = np.array(truth, np.int64), np.array(share)
    if expected is None:
        with pytest.raises(ConfigError, match="too few for a coverage"):
            fit_class_sets(codes, shares, 5, float(coverage))
        return
    found = fit_class_sets(codes, shares, 5, float(coverage)).members(np.array([row]))
    assert np.flatnonzero(found[0]).tolist() == expected


@given(
    st.lists(st.tuples(SHARES, st.booleans()), max_size=60),
    st.sampled_from(["0.01", "0.1", "0.2", "0.25", "0.3333333333333333", "0.5", "0.75", "0.99"]),
)
def test_least_share__as_isotonic_regression(pairs: list[tuple[float, bool]], risk: str) -> None:
    confidence, wrong = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([], [])
    shares, errors = np.array(confidence), np.array(wrong, bool)
    if len(pairs) * Fraction(risk) < 1:
        with pytest.raises(ConfigError, match="too few to say where the error exceeds"):
            reject_curve(shares, errors).least_share(float(risk))
        return
    least = reject_curve(shares, errors).least_share(float(risk))
    tried = [*confidence, 0.0, 1.0]
    assert [share >= least for share in tried] == naive.answered(confidence, wrong, risk, tried)


@pytest.mark.parametrize(("wrong", "least"), [("00101", 0.6), ("1011", 0.8), ("10", 0.0), ("11", np.inf)])
def test_least_share__of_equal_losses_takes_the_one_that_answers_most(wrong: str, least: float) -> None:
    shares, errors = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([mark == "1" for mark in wrong])
    assert reject_curve(shares[: len(wrong)], errors).least_share(0.5) == least


@given(st.lists(st.tuples(SHARES, st.booleans()), min_size=1, max_size=60))
def test_reject_curve__as_the_oracle(pairs: list[tuple[float, bool]]) -> None:
    confidence, wrong = (list(column) for column in zip(*pairs, strict=True))
    found = reject_curve(np.array(confidence), np.array(wrong, bool))
    assert list(zip(*(array.tolist() for array in found), strict=True)) == naive.rejections(confidence, wrong)


def test_fit_class_sets__a_class_of_just_enough_rows_is_calibrated_alone() -> None:
    truth = np.repeat([0, 1, 2, 3], [fewest_rows(0.9), 30, 5, 5])
    found = fit_class_sets(truth, np.array([0.25, 0.75, 0.5, 0.125])[truth], 4, 0.9)
    assert found.floors == (0.25, 0.75, 0.125, 0.125)


@pytest.mark.parametrize(("coverage", "rows"), [(0.9, 9), (0.95, 19), (0.99, 99), (0.5, 1), (0.7, 3), (0.999, 999)])
def test_fewest_rows(coverage: float, rows: int) -> None:
    assert fewest_rows(coverage) == rows
    fit_intervals(np.zeros(rows), np.arange(rows, dtype=float), coverage)
