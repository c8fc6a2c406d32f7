"""Arrays, sparse matrices and streams as the estimators of bigforest.sklearn take them."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from bigforest.errors import BigForestError
from bigforest.sklearn import BigForestClassifier, BigForestRegressor
from tests.sklearn.test_sklearn_estimators import X, Y, mixed_table, same


def test_sparse_matrix__gives_the_forest_of_the_dense_one() -> None:
    """Other forms are in test_every_table."""
    thin = np.where(X > 0.3, X, 0.0)
    made, weight = sparse.csc_array(thin), np.arange(len(Y)) % 3 + 1
    dense = BigForestClassifier(10, random_state=1, oob_score=True).fit(thin, Y, sample_weight=weight)
    own = BigForestClassifier(4, random_state=1, oob_score=True, warm_start=True).fit(made, Y, sample_weight=weight)
    own.set_params(n_estimators=10).fit(made, Y, sample_weight=weight)
    assert own.forest_.nodes.collect().equals(dense.forest_.nodes.collect())
    assert own.oob_score_ == dense.oob_score_ and own.n_features_in_ == thin.shape[1]
    for method in ("predict", "predict_proba", "apply"):
        assert np.array_equal(getattr(own, method)(made), getattr(dense, method)(thin)), method
    assert np.array_equal(own[2].predict(made), dense[2].predict(thin))
    numbers = BigForestRegressor(5, random_state=1).fit(made, X[:, 0])
    assert np.array_equal(numbers.predict(made), BigForestRegressor(5, random_state=1).fit(thin, X[:, 0]).predict(thin))
    with pytest.raises(BigForestError, match="X is a sparse matrix; give a frame"):
        BigForestClassifier(categories=[0]).fit(made, Y)


def test_arrays__of_other_types_give_the_same_forest() -> None:
    gaps = np.where(X > 1.5, np.nan, X)
    ours = BigForestClassifier(n_estimators=3).fit(gaps, Y)
    rows = [[None if np.isnan(cell) else cell for cell in row] for row in gaps.tolist()]
    for form in (np.array(rows, dtype=object), gaps.astype(np.longdouble)):
        other = BigForestClassifier(n_estimators=3).fit(form, Y)
        assert same(other, ours, gaps) and np.array_equal(ours.predict_proba(form), ours.predict_proba(gaps))
    with pytest.raises(ValueError, match="infinity"):
        BigForestClassifier().fit([[None, 1.0], [np.inf, 2.0]], [0, 1])


def test_text_of_numbers__is_numbers_in_any_array() -> None:
    ours = BigForestClassifier(n_estimators=3).fit(X, Y)
    words = X.astype(str)
    for form in (words, words.astype(object), words.tolist()):
        other = BigForestClassifier(n_estimators=3).fit(form, Y)
        assert same(other, ours, X) and np.array_equal(ours.predict_proba(form), ours.predict_proba(X))
    words[3, 1] = "many"
    with pytest.raises(ValueError, match="many"):
        ours.predict(words)


def test_integers_of_128_bits__are_integers() -> None:
    weight = np.arange(len(Y)) % 3 + 1
    own = BigForestClassifier(n_estimators=3).fit(X, Y, sample_weight=weight, groups=weight)
    for dtype in (pl.Int128, pl.UInt128):
        labels, wide = pl.Series(Y).cast(dtype), pl.Series(weight).cast(dtype)
        ours = BigForestClassifier(n_estimators=3).fit(X, labels, sample_weight=wide, groups=wide)
        assert same(ours, own, X) and ours.classes_.dtype == np.int64
        both = BigForestRegressor(n_estimators=3).fit(X, pl.DataFrame({"a": labels, "b": wide}))
        assert np.array_equal(both.predict(X)[:, 0], BigForestRegressor(n_estimators=3).fit(X, Y).predict(X))
    with pytest.raises(BigForestError, match="more than 64 bits"):
        BigForestClassifier().fit(X, pl.Series([10**30] * len(Y), dtype=pl.Int128))


GAPPED = mixed_table().select("number", "text", c=pl.when(pl.int_range(200) % 9 > 0).then(pl.col("enum")))


@cache
def of_gapped() -> BigForestClassifier:
    """Six trees fitted to the frame of a number and two categories, all with gaps."""
    return BigForestClassifier(6).fit(GAPPED, Y)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_arrays_with_text__give_the_forest_of_the_frame(missing: Any) -> None:
    own = of_gapped()
    cells = np.array([[missing if cell is None else cell for cell in row] for row in GAPPED.rows()], object)
    for form in (cells, cells.tolist()):
        ours = BigForestClassifier(6).fit(form, Y)
        assert not hasattr(ours, "feature_names_in_") and ours.n_features_in_ == 3
        assert same(ours, own, GAPPED.to_numpy())
        assert np.array_equal(ours.predict_proba(form), own.predict_proba(GAPPED))
    gap = np.array([[1.0, missing, missing]], object)  # whose cells could all be numbers
    row = pl.DataFrame([[1.0, None, None]], GAPPED.schema, orient="row")
    assert np.array_equal(ours.predict(gap), own.predict(row))
    cells[0, 0] = np.inf
    with pytest.raises(BigForestError, match="X contains infinity in 'x0'"):
        BigForestClassifier(6).fit(cells, Y)


def test_arrays_with_text__have_columns_of_one_type() -> None:
    words = GAPPED.select("text", "c").fill_null("none").to_numpy().astype(str)
    ours = BigForestClassifier(2).fit(words, Y)
    assert ours.forest_.spec.features[0].kind == "category"
    assert same(ours, BigForestClassifier(2).fit(words.astype(np.dtypes.StringDType()), Y), words)
    cells = np.array(GAPPED.rows(), object)
    cells[0, 0] = "much"
    with pytest.raises(BigForestError, match="x0 is not a column of one type"):
        BigForestClassifier(2).fit(cells, Y)


@pytest.mark.parametrize("first", [pd.NA, date(2020, 1, 1)])
def test_arrays_with_text__after_a_cell_that_is_no_number(first: Any) -> None:
    cells = np.array([[first, word] for word in GAPPED["text"].fill_null("none")], object)
    assert BigForestClassifier(2).fit(cells, Y).forest_.spec.features[-1].kind == "category"
    if isinstance(first, date):
        with pytest.raises(TypeError):  # without text it is no table of texts
            BigForestClassifier(2).fit(cells[:, :1], Y)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_arrays_of_objects__have_missing_numbers(missing: Any) -> None:
    gaps = np.where(X > 1.0, np.nan, X)
    cells = np.where(X > 1.0, missing, X.astype(object))
    own, ours = BigForestClassifier(2).fit(gaps, Y), BigForestClassifier(2).fit(cells, Y)
    assert np.array_equal(ours.predict_proba(cells.tolist()), own.predict_proba(gaps))


def test_infinite_values__are_refused() -> None:
    broken = X.copy()
    broken[3, 2] = np.inf
    for table in (broken, pl.DataFrame(broken), pd.DataFrame(broken)):
        with pytest.raises(ValueError, match="infinity"):
            BigForestClassifier().fit(table, Y)


def test_masked_cells__are_missing() -> None:
    gaps = np.where(X > 1.0, np.nan, X)
    masked = np.ma.masked_array(X, mask=X > 1.0)
    weights = np.ma.masked_array(np.ones(len(Y)), mask=False)
    ours = BigForestClassifier(n_estimators=3).fit(masked, Y, sample_weight=weights)
    plain = BigForestClassifier(n_estimators=3).fit(gaps, Y, sample_weight=weights)
    assert same(ours, plain, gaps) and np.array_equal(ours.predict_proba(masked), plain.predict_proba(gaps))
    for kind, target in ((BigForestClassifier, Y), (BigForestRegressor, X[:, 0])):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            kind().fit(X, np.ma.masked_array(target, mask=np.arange(len(Y)) == 3))
    with pytest.raises(ValueError, match="Input sample_weight contains NaN"):
        BigForestClassifier().fit(X, Y, sample_weight=np.ma.masked_array(Y + 1, mask=Y == 2))
    words = np.array(["low", "mid", "high"])[Y][:, None]
    ours = BigForestClassifier(n_estimators=3).fit(np.ma.masked_array(words, mask=X[:, :1] > 1.0), Y)
    assert same(ours, BigForestClassifier(n_estimators=3).fit(np.where(X[:, :1] > 1.0, None, words), Y), words)
