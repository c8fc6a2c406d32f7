"""scikit-learn's own checks of estimators, and its tools on ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification, make_regression
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from bigforest.sklearn import BigForestClassifier, BigForestRegressor
from tests.thorough import cases

# scikit-learn's own forests are let off these, too: bags are of rows, whatever these weigh.
EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "weighing a row is not repeating it: bags are of rows"
    for kind in ("dense", "sparse")
}
X, Y = make_classification(150, 5, random_state=0)
X_NUMBERS, NUMBERS = make_regression(150, 5, random_state=0)
FRAME = pl.DataFrame(X, schema=[f"f{place}" for place in range(5)])


@pytest.mark.parametrize("estimator", [BigForestClassifier(5, n_jobs=1), BigForestRegressor(5, n_jobs=1)], ids=str)
def test_check_estimator(estimator: BaseEstimator) -> None:
    results = check_estimator(estimator, expected_failed_checks=EXPECTED, on_fail=None, on_skip=None)
    wrong = [result["check_name"] for result in results if result["status"] == "failed"]
    assert not wrong
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)
    assert len(results) > 50


def test_ranks__take_no_missing_values() -> None:
    gaps = np.where(X > 1.5, np.nan, X)
    ours = BigForestClassifier(n_estimators=3, ranks=True).fit(X, Y)
    for refused in (ours.fit, ours.score):
        with pytest.raises(ValueError, match="NaN"):
            refused(gaps, Y)


def test_tags__follow_the_parameters() -> None:
    for parameters in ({"stop_oob": 0.1}, {"sampling": "adaboost"}):
        tags = get_tags(BigForestClassifier(**parameters))
        assert not tags.target_tags.multi_output and not tags.classifier_tags.multi_label
    assert get_tags(BigForestClassifier()).classifier_tags.multi_label
    for ranks in (False, True):
        assert get_tags(BigForestClassifier(ranks=ranks)).input_tags.allow_nan != ranks
    assert get_tags(BigForestRegressor()).target_tags.multi_output
    assert not get_tags(BigForestRegressor(stop_oob=0.1)).target_tags.multi_output
    for criterion in ("squared_error", "poisson"):
        tags = get_tags(BigForestRegressor(criterion=criterion))
        assert tags.target_tags.positive_only == (criterion == "poisson")


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_pipeline__hands_tables_on(output: str) -> None:
    pipeline = make_pipeline(StandardScaler(), BigForestClassifier(n_estimators=5)).set_output(transform=output)
    assert cross_val_score(pipeline, FRAME.to_pandas(), Y, cv=2).mean() > 0.7
    assert pipeline.fit(FRAME.to_pandas(), Y)[-1].feature_importances_.shape == (5,)


def test_pipeline__with_categories_of_a_frame() -> None:
    frame = FRAME.with_columns(word=pl.Series(np.array(["low", "high"])[(X[:, 0] > 0).astype(int)])).to_pandas()
    scaled = make_column_transformer((StandardScaler(), ["f1", "f2"]), remainder="passthrough").set_output(
        transform="pandas"
    )
    pipeline = make_pipeline(scaled, BigForestClassifier(n_estimators=5)).fit(frame, Y)
    kinds = [feature.kind for feature in pipeline[-1].forest_.spec.features]
    assert kinds.count("category") == 1 and pipeline.score(frame, Y) > 0.9


@pytest.mark.parametrize("jobs", cases([2, 1], quick=1))
def test_grid_search__in_processes_gives_the_same(jobs: int) -> None:
    grid = {"max_depth": [1, 4]}
    search = GridSearchCV(BigForestClassifier(n_estimators=5), grid, cv=2, n_jobs=jobs).fit(X, Y)
    assert search.best_score_ > 0.7
    own = [
        cross_val_score(clone(search.estimator).set_params(**p), X, Y, cv=2).mean()
        for p in search.cv_results_["params"]
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], own)


@pytest.mark.parametrize(
    ("kind", "table", "target"), [(BigForestClassifier, X, Y), (BigForestRegressor, X_NUMBERS, NUMBERS)]
)
def test_inspection(kind: Any, table: Any, target: Any) -> None:
    ours = kind(n_estimators=10).fit(table, target)
    drops = permutation_importance(ours, table, target, n_repeats=2, random_state=0).importances_mean
    assert drops.argmax() == ours.feature_importances_.argmax()
    best = int(drops.argmax())
    curve = partial_dependence(ours, table, [best], grid_resolution=5)
    assert np.ptp(curve["average"]) > 0.0


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_inspection__of_a_polars_frame_with_categories() -> None:
    """scikit-learn's tools make an array of objects of it."""
    frame = FRAME.with_columns(word=pl.Series(np.array(["low", "high"])[Y]))
    ours = BigForestClassifier(n_estimators=10).fit(frame, Y)
    drops = permutation_importance(ours, frame, Y, n_repeats=2, random_state=0).importances_mean
    assert drops.argmax() == 5
    cells = frame.to_numpy().astype(object)
    np.testing.assert_array_equal(ours.predict_proba(cells), ours.predict_proba(frame))
    with pytest.raises(ValueError, match="6 features"):
        ours.predict(cells[:, :5])


def test_calibration__of_probabilities() -> None:
    ours = CalibratedClassifierCV(BigForestClassifier(n_estimators=10), cv=2).fit(X, Y)
    assert ours.predict_proba(X).shape == (150, 2) and ours.score(X, Y) > 0.8
