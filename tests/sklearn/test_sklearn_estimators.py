"""The estimators of bigforest.sklearn: what they answer, beside the forest that bigforest.train gives."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, balanced_accuracy_score, r2_score

import bigforest as bf
from bigforest.errors import BigForestError, DataError
from bigforest.sklearn import BigForestClassifier, BigForestRegressor
from bigforest.sklearn.base import BaseBigForest
from bigforest.sklearn.parameters import threads_of

ROOT = Path(__file__).resolve().parents[2]
ESTIMATORS: list[type[BaseBigForest]] = [BigForestClassifier, BigForestRegressor]
X, Y = make_classification(200, 6, n_informative=4, n_classes=3, random_state=0)
X_NUMBERS, NUMBERS = make_regression(200, 5, random_state=0)
NAMES = [f"feature {place}" for place in range(6)]
WORDS = np.array(["no", "perhaps", "yes"])[Y]


def fitted(kind: type[BaseBigForest] = BigForestClassifier, **parameters: Any) -> Any:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    return kind(**{"n_estimators": 8, **parameters}).fit(table, target)  # type: ignore[attr-defined]


@cache
def shared(kind: type[BaseBigForest] = BigForestClassifier) -> Any:
    """The estimator that is fitted once with the defaults of `fitted`, and that no test changes."""
    return fitted(kind)


def same(one: Any, other: Any, table: Any = X) -> bool:
    return bool(np.array_equal(one.predict_proba(table), other.predict_proba(table)))


def mixed_table() -> pl.DataFrame:
    """Numbers with gaps, text, an enum and a date."""
    random = np.random.default_rng(4)
    return pl.DataFrame(
        {
            "number": pl.Series(X[:, 0]).set(pl.Series(random.random(200) < 0.1), None),
            "text": np.array(["a", "b", "c", "d"])[random.integers(0, 4, 200)],
            "enum": pl.Series(WORDS, dtype=pl.Enum(["no", "perhaps", "yes"])),
            "date": pl.Series(random.integers(0, 99, 200)).cast(pl.Date),
        }
    )


def test_classifier__is_the_forest_that_train_grows() -> None:
    forest = bf.train((X, Y), trees=8, seed=3, max_depth=4, mtry=2, impurity="entropy")
    ours = fitted(random_state=3, max_depth=4, max_features=2, criterion="log_loss")
    assert np.array_equal(ours.predict_proba(X), forest.predict_proba(X))
    assert np.array_equal(ours.predict(X), forest.predict(X))
    assert ours.n_classes_ == 3 and ours.n_outputs_ == 1 and len(ours) == 8


def test_regressor__is_the_forest_that_train_grows() -> None:
    forest = bf.train((X_NUMBERS, NUMBERS), trees=8, keep_targets=True)
    ours = fitted(BigForestRegressor, keep_targets=True)
    assert np.array_equal(ours.predict(X_NUMBERS), forest.predict(X_NUMBERS))
    assert np.array_equal(
        ours.predict(X_NUMBERS, quantiles=[0.1, 0.9]), forest.predict(X_NUMBERS, quantiles=[0.1, 0.9])
    )
    table = pl.DataFrame(X_NUMBERS, schema=[f"x{place}" for place in range(5)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a table, where the fit had an array
        for quantiles in ([0.5], 0.5):
            expected = forest.predict(table, quantiles=quantiles)["q0.5"]
            assert np.array_equal(ours.predict(table, quantiles=quantiles)[:, 0], expected)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_defaults__are_those_of_train(kind: type[BaseBigForest]) -> None:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    ours = kind().fit(table, target).forest_.config  # type: ignore[attr-defined]
    assert ours == bf.train((table, target)).config


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_docstring__describes_every_parameter_with_its_default(kind: type[BaseBigForest]) -> None:
    parameters = {name: value.default for name, value in inspect.signature(kind).parameters.items()}
    described = dict(re.findall(r"^(\w+) : .*, default=(.+)$", inspect.getdoc(kind) or "", re.MULTILINE))
    assert list(described) == list(parameters)
    assert {name: eval(text) for name, text in described.items()} == parameters
    options = set(bf.TrainConfig.__dataclass_fields__)
    elsewhere = {"trees", "seed", "mtry", "impurity", "min_split", "min_leaf", "sample_fraction", "group", "task"}
    of_other = {"weight", "ties", "missing"} | (  # missing is of files
        {"keep_targets"}
        if kind is BigForestClassifier
        else {name for name in options if name in inspect.signature(BigForestClassifier).parameters}
    )
    assert options - elsewhere - of_other <= set(parameters)


@pytest.mark.parametrize(
    "labels",
    [
        Y,
        WORDS,
        WORDS.astype(object),
        Y == 1,
        Y.astype(float),
        Y.astype(np.uint8),
        pd.Series(WORDS),
        pl.Series(WORDS),
        pd.Series(Y + 2**53, dtype="Int64"),
        pd.array(Y, dtype="UInt8"),
        pd.Series(Y == 1, dtype="boolean"),
        pd.DataFrame({"y": pd.Series(Y == 1, dtype="bool[pyarrow]")}),
        pd.Series(Y == 1, dtype="category"),
        np.ma.array(Y + 2**53),
    ],
    ids=lambda labels: type(labels).__name__,
)
@pytest.mark.filterwarnings("ignore:A column-vector")
def test_classes__of_every_type_come_back(labels: Any) -> None:
    ours = BigForestClassifier(n_estimators=8).fit(X, labels)
    expected = np.unique(np.asarray(labels))
    assert np.array_equal(ours.classes_, expected) and ours.classes_.dtype == expected.dtype
    assert ours.predict(X).dtype.kind == expected.dtype.kind
    assert ours.score(X, labels) > 0.9


def test_target__of_types_that_numpy_does_not_convert() -> None:
    wide, words = pl.Series(Y).cast(pl.Int128), WORDS.astype(np.dtypes.StringDType())
    assert fitted().score(X, wide) == fitted().score(X, Y)
    assert BigForestClassifier(2).fit(X, words).score(X, words) == BigForestClassifier(2).fit(X, WORDS).score(X, WORDS)
    numbers = BigForestRegressor(2).fit(X, Y)
    assert BigForestRegressor(2).fit(X, wide).score(X, wide) == numbers.score(X, Y)


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["2001-09-08", "2001-09-10", "2020-01-01"], "M8[ns]"),  # numbers of 18 and 19 digits
        np.array([-10, 9, 100], "m8[D]"),
    ],
    ids=["times", "durations"],
)
def test_classes__whose_text_has_another_order(classes: Any) -> None:
    weights = dict(zip(classes, [2.0, 1.0, 3.0], strict=True))
    ours = BigForestClassifier(n_estimators=8, class_weight=weights, oob_score=True).fit(X, classes[Y])
    assert np.array_equal(ours.classes_, np.unique(classes))
    numbered = BigForestClassifier(n_estimators=8, class_weight={0: 2.0, 1: 1.0, 2: 3.0}, oob_score=True).fit(X, Y)
    assert (ours.predict(X) == classes[numbered.predict(X)]).mean() > 0.9
    assert ours.oob_score_ == pytest.approx(numbered.oob_score_, abs=0.05)
    left_out = BigForestClassifier(n_estimators=8).fit(X, classes[Y], sample_weight=(Y != 1) * 1.0)
    assert (left_out.predict(X[Y != 1]) == classes[Y[Y != 1]]).mean() > 0.9


def test_table__gives_the_forest_that_train_grows() -> None:
    """Other kinds of tables are in test_every_table."""
    frame = mixed_table()
    forest = bf.train(frame.with_columns(target=pl.Series(WORDS)), trees=8)
    for table in (frame, frame.to_pandas(), frame.to_arrow().combine_chunks().to_batches()[0]):
        ours = BigForestClassifier(n_estimators=8).fit(table, WORDS)
        assert np.array_equal(ours.predict_proba(table), forest.predict_proba(frame).to_numpy())
        assert ours.feature_names_in_.tolist() == frame.columns
        assert np.array_equal(ours.apply(table), forest.apply(frame))


def test_names__are_checked_as_scikit_learn_does() -> None:
    for table in (pd.DataFrame(X, columns=NAMES), pl.DataFrame(X, schema=NAMES)):
        ours = BigForestClassifier(n_estimators=2).fit(table, Y)
        with pytest.raises(ValueError, match=r"names should match.*\n.*must be in the same order"):
            ours.predict(table[NAMES[::-1]])
        with pytest.raises(ValueError, match=r"names should match.*\n.*unseen at fit time:\n- other"):
            ours.predict(pl.DataFrame(X, schema=[*NAMES[1:], "other"]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert same(ours, fitted(n_estimators=2))
    numbered = BigForestClassifier(n_estimators=2).fit(pd.DataFrame(X), Y)
    assert not hasattr(numbered, "feature_names_in_") and same(numbered, ours, X)
    with pytest.raises(ValueError, match="columns of X are in another order than in fit: 0, 1, 2"):
        numbered.predict(pd.DataFrame(X)[[1, 0, *range(2, X.shape[1])]])


def test_dask__is_refused_for_its_computed_frame() -> None:
    frame = pytest.importorskip("dask.dataframe").from_pandas(pd.DataFrame({"a": [1, 2] * 5}), npartitions=2)
    ours = BigForestClassifier(1).fit(frame.compute(), [0, 1] * 5)
    for use in (lambda: ours.fit(frame, [0, 1] * 5), lambda: ours.predict(frame)):
        with pytest.raises(DataError, match=r"X is a Dask frame; give the result of its compute\(\)"):
            use()


def test_target__may_be_called_as_a_feature() -> None:
    frame = pl.DataFrame(X, schema=["target", "weight", "group", "a", "b", "c"])
    weights = np.arange(200) % 3 + 1
    ours = BigForestClassifier(n_estimators=2).fit(frame, Y, sample_weight=weights, groups=np.arange(200) // 2)
    assert ours.score(frame, Y) > 0.8


def test_categories__by_name_and_by_place() -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 30, 200)
    target = (codes % 2 == 1).astype(int)
    table = np.column_stack([X[:, 0], codes.astype(float)])
    of_array = BigForestClassifier(n_estimators=4, max_features=None, categories=[1], min_level=1).fit(table, target)
    assert of_array.forest_.spec.features[1].kind == "category"
    assert of_array.score(table, target) == 1.0
    frame = pd.DataFrame({"x0": X[:, 0], "x1": codes})
    named = BigForestClassifier(n_estimators=4, max_features=None, categories=["x1"], min_level=1).fit(frame, target)
    assert same(named, named, frame) and np.array_equal(named.predict_proba(frame), of_array.predict_proba(table))
    of_pandas = BigForestClassifier(n_estimators=4, max_features=None, min_level=1)
    assert same(of_pandas.fit(frame.astype({"x1": "category"}), target), named, frame)
    floats = frame.astype({"x1": float}).rename(columns={"x1": "^x1$"})  # which would be a pattern for Polars
    of_floats = BigForestClassifier(n_estimators=4, max_features=None, categories=["^x1$"], min_level=1)
    assert np.array_equal(of_floats.fit(floats, target).predict_proba(floats), named.predict_proba(frame))
    with pytest.raises(BigForestError, match="not whole"):
        BigForestClassifier(categories=[0]).fit(table, target)
    with pytest.raises(BigForestError, match="names or places of columns"):
        BigForestClassifier(categories=["nothing"]).fit(frame, target)


class Shallow(BigForestClassifier):
    """A class derived from ours, with parameters of its own."""

    def __init__(self, levels: int = 2) -> None:
        super().__init__(n_estimators=8, max_depth=levels)
        self.levels = levels


def test_derived_class__may_have_other_parameters() -> None:
    assert same(clone(Shallow()).fit(X, Y), fitted(max_depth=2))


@pytest.mark.parametrize("form", [np.asarray, list, pl.DataFrame, pd.DataFrame])
def test_groups__are_in_a_bag_together(form: Any) -> None:
    groups = form(np.arange(200) // 10)
    ours = BigForestClassifier(n_estimators=4).fit(X, Y, groups=groups)
    for bag in ours.estimators_samples_:
        times = np.bincount(bag, minlength=200).reshape(20, 10)
        assert (times == times[:, :1]).all() and (times == 0).any()


@pytest.mark.parametrize(
    ("kind", "max_samples", "draws"),
    [
        *((BigForestClassifier, *own) for own in ((None, 200), (50, 50), (0.5, 100), (300, 300), (1.5, 300))),
        (BigForestRegressor, 0.5, 100),
    ],
)
def test_samples__are_those_that_the_report_leaves_out(kind: type[BaseBigForest], max_samples: Any, draws: int) -> None:
    ours = fitted(kind, max_samples=max_samples)
    bags = ours.estimators_samples_
    assert {len(bag) for bag in bags} == {draws}
    out = 200 * len(bags) - sum(len(np.unique(bag)) for bag in bags)
    assert ours.forest_.oob.rows.select(pl.col("trees").sum()).collect().item() == out


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_out_of_bag__is_what_trees_say_that_have_not_seen_a_row(kind: type[BaseBigForest]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = fitted(kind, oob_score=True)
    table = X if kind is BigForestClassifier else X_NUMBERS
    votes, voters = 0.0, np.zeros(200)
    for tree, bag in zip(ours, ours.estimators_samples_, strict=True):
        unseen = ~np.isin(np.arange(200), bag)
        answers = tree.predict_proba(table) if kind is BigForestClassifier else tree.predict(table)[:, None]
        votes = votes + np.where(unseen[:, None], answers, 0.0)
        voters += unseen
    with np.errstate(invalid="ignore"):
        mean = votes / voters[:, None]
    if kind is BigForestClassifier:
        np.testing.assert_allclose(ours.oob_decision_function_, mean)
        expected = accuracy_score(Y[voters > 0], mean[voters > 0].argmax(axis=1))
    else:
        np.testing.assert_allclose(ours.oob_prediction_, mean[:, 0])
        expected = r2_score(NUMBERS[voters > 0], mean[voters > 0, 0])
    assert ours.oob_score_ == pytest.approx(expected)


def test_oob_score__may_be_a_function_and_needs_bags() -> None:
    ours = fitted(n_estimators=40, oob_score=balanced_accuracy_score)
    assert ours.oob_score_ == balanced_accuracy_score(Y, ours.oob_decision_function_.argmax(axis=1))
    for parameters in ({"bootstrap": False}, {"family": "tree", "n_estimators": 1}):
        with pytest.raises(BigForestError, match="Out of bag"):
            fitted(oob_score=True, **parameters)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_warm_start__ends_in_the_forest_of_one_fit(kind: type[BaseBigForest]) -> None:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    weights = np.arange(200) % 4 + 1.0
    ours: Any = kind(n_estimators=4, warm_start=True, oob_score=True, random_state=5)  # type: ignore[call-arg]
    ours.fit(table, target, sample_weight=weights)
    first = ours.oob_score_
    ours.set_params(n_estimators=9).fit(table, target, sample_weight=weights)
    whole: Any = kind(n_estimators=9, oob_score=True, random_state=5)  # type: ignore[call-arg]
    whole.fit(table, target, sample_weight=weights)
    assert len(ours) == 9 and np.array_equal(ours.apply(table), whole.apply(table))
    assert ours.oob_score_ == whole.oob_score_ != first
    with pytest.warns(UserWarning, match="without increasing n_estimators"):
        ours.fit(table, target, sample_weight=weights)
    with pytest.raises(BigForestError, match="must be larger or equal to len"):
        ours.set_params(n_estimators=3).fit(table, target, sample_weight=weights)
    with pytest.raises(BigForestError, match="max_depth"):
        ours.set_params(n_estimators=10, max_depth=2).fit(table, target, sample_weight=weights)
    ours.set_params(max_depth=None, random_state=6)
    with pytest.raises(BigForestError, match="grown with random_state 5, which is 6 now"):
        ours.fit(table, target, sample_weight=weights)
    ours.set_params(random_state=5)
    with pytest.raises(BigForestError, match=r"^the table is not the one that the forest was started with"):
        ours.fit(table[::-1], target, sample_weight=weights)
    with pytest.raises(BigForestError, match="grown with sample_weight; fit with sample_weight again"):
        ours.fit(table, target)
    with pytest.raises(BigForestError, match="grown without groups; fit without groups again"):
        ours.fit(table, target, sample_weight=weights, groups=Y)


def test_classifier__has_classes_of_any_number() -> None:
    labels = 7 * (np.arange(400) // 3)  # bigforest.train takes 134 numbers with gaps for measurements
    numbers = np.arange(400.0)[:, None]
    ours = BigForestClassifier(9, max_features=1, shrink="off").fit(numbers, labels)
    assert ours.n_classes_ == 134 and ours.score(numbers, labels) > 0.5


def test_decision_path__has_the_nodes_from_root_to_leaf() -> None:
    ours = fitted(n_estimators=3)
    indicator, first = ours.decision_path(X)
    leaves = ours.apply(X)
    assert indicator.shape == (200, first[-1]) and indicator.max() == 1
    for number, tree in enumerate(ours):
        arrays, depth = tree.tree_, tree._trees[0].nodes["depth"].to_numpy()
        part = indicator[:, first[number] : first[number + 1]].toarray()
        assert arrays.node_count == part.shape[1]
        assert np.array_equal(part.sum(axis=1), depth[leaves[:, number]] + 1)
        for row in range(0, 200, 20):
            node = 0
            while arrays.children_left[node] >= 0:
                assert part[row, node]
                left = X[row, arrays.feature[node]] <= arrays.threshold[node]
                node = int((arrays.children_left if left else arrays.children_right)[node])
            assert node == leaves[row, number]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_trees__predict_what_the_forest_averages(kind: type[BaseBigForest]) -> None:
    ours = shared(kind)
    table = X if kind is BigForestClassifier else X_NUMBERS
    if kind is BigForestClassifier:
        np.testing.assert_allclose(np.mean([tree.predict_proba(table) for tree in ours], axis=0), ours.predict_proba(X))
    else:
        np.testing.assert_allclose(np.mean([tree.predict(table) for tree in ours], axis=0), ours.predict(table))
    tree = ours[0]
    assert np.array_equal(tree.apply(table), ours.apply(table)[:, 0])
    assert np.array_equal(tree.tree_.apply(table), ours.apply(table)[:, 0])
    assert tree.tree_.n_leaves == tree.get_n_leaves() and tree.tree_.max_depth == tree.get_depth() > 1
    in_leaf = np.bincount(tree.apply(table)[ours.estimators_samples_[0]], minlength=tree.tree_.node_count)
    assert np.array_equal(tree.tree_.n_node_samples[tree.tree_.children_left < 0], in_leaf[in_leaf > 0])
    assert (
        tree.get_n_leaves()
        == (tree.tree_.children_left == -1).sum()
        == len(np.unique(tree._trees[0].nodes["node"])) // 2 + 1
    )
    reached = tree.tree_.value[tree.apply(table), 0]
    if kind is BigForestClassifier:
        np.testing.assert_allclose(reached, tree.predict_proba(table))
    else:
        np.testing.assert_allclose(reached[:, 0], tree.predict(table))


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("weighted", [False, True])
def test_importances__are_means_of_the_trees_as_in_scikit_learn(kind: type[BaseBigForest], weighted: bool) -> None:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    weights = np.arange(200) % 4 + 1.0 if weighted else np.ones(200)
    ours: Any = kind(n_estimators=5)  # type: ignore[call-arg]
    ours.fit(table, target, sample_weight=weights)
    path, first = ours.decision_path(table)
    of_trees = []
    for number, (tree, bag) in enumerate(zip(ours, ours.estimators_samples_, strict=True)):
        nodes, own = tree.tree_, np.zeros(table.shape[1])
        times = np.bincount(bag, minlength=200) * weights
        in_node = path[:, first[number] : first[number + 1]].toarray() * times[:, None]
        weight = in_node.sum(axis=0)
        if kind is BigForestClassifier:
            shares = np.array([in_node[target == label].sum(axis=0) for label in range(3)]) / weight
            impurity = 1 - (shares**2).sum(axis=0)
            np.testing.assert_allclose(nodes.impurity, impurity, atol=1e-12)
        else:
            mean = in_node.T @ target / weight
            impurity = (in_node * (target[:, None] - mean) ** 2).sum(axis=0) / weight
        for node in np.flatnonzero(nodes.children_left >= 0):
            sides = [nodes.children_left[node], nodes.children_right[node]]
            own[nodes.feature[node]] += weight[node] * impurity[node] - weight[sides] @ impurity[sides]
        np.testing.assert_allclose(tree.feature_importances_, own / own.sum(), atol=1e-9)
        np.testing.assert_allclose(nodes.compute_feature_importances(), own / own.sum(), atol=1e-9)
        plain = nodes.compute_feature_importances(normalize=False)
        np.testing.assert_allclose(plain, own / weight[0], atol=1e-9 * impurity[0])
        of_trees.append(own / own.sum())
    np.testing.assert_allclose(ours.feature_importances_, np.mean(of_trees, axis=0), atol=1e-9)


def test_importances__of_projections_categories_and_single_leaves() -> None:
    oblique = fitted(family="sparse-oblique")
    np.testing.assert_allclose(
        oblique.feature_importances_, np.mean([tree.feature_importances_ for tree in oblique], axis=0)
    )
    mixed = BigForestClassifier(n_estimators=4).fit(mixed_table(), WORDS)
    np.testing.assert_allclose(
        mixed.feature_importances_, np.mean([tree.feature_importances_ for tree in mixed], axis=0)
    )
    alone = BigForestClassifier(n_estimators=2).fit(np.ones((9, 2)), np.arange(9) % 2)
    assert alone.feature_importances_.tolist() == alone[0].feature_importances_.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_sparse_target__is_refused_by_name(kind: type[BaseBigForest]) -> None:
    with pytest.raises(BigForestError, match="sparse multilabel-indicator for y is not supported"):
        kind().fit(X, sparse.csr_matrix(np.eye(200)[:, :2]))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pickle__carries_the_forest(kind: type[BaseBigForest], tmp_path: Path) -> None:
    ours = shared(kind)
    table = X if kind is BigForestClassifier else X_NUMBERS
    joblib.dump(ours, tmp_path / "forest.joblib")
    for other in (pickle.loads(pickle.dumps(ours)), joblib.load(tmp_path / "forest.joblib"), copy.deepcopy(ours)):
        assert other.forest_.directory != ours.forest_.directory
        assert np.array_equal(other.predict(table), ours.predict(table))
        assert other.forest_.oob.error == ours.forest_.oob.error
    folder = other.forest_.directory
    assert folder.exists()
    del other  # no reference cycle keeps it until garbage is collected
    assert not folder.exists()
    unfitted = pickle.loads(pickle.dumps(kind(n_estimators=3)))  # type: ignore[call-arg]
    assert unfitted.get_params() == kind(n_estimators=3).get_params()  # type: ignore[call-arg]


def test_folders__of_copies_and_of_added_trees_go_away_unasked(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also ResourceWarning, which a folder of tempfile tells when it is forgotten
        unraisable: list[Any] = []
        old, sys.unraisablehook = sys.unraisablehook, unraisable.append
        try:
            other = pickle.loads(pickle.dumps(shared()))
            more = BigForestClassifier(n_estimators=2, warm_start=True, scratch=str(tmp_path)).fit(X, Y)
            more.set_params(n_estimators=4).fit(X, Y)
            assert same(copy.deepcopy(more), more)
            folders = [one.forest_.directory for one in (other, more)]
            del other, more
        finally:
            sys.unraisablehook = old
    assert not unraisable and not any(folder.exists() for folder in folders) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, pl.DataFrame, pd.DataFrame, sparse.csr_matrix])
def test_one_row__is_a_table_in_any_form(form: Callable[[Any], Any]) -> None:
    ours = BigForestClassifier(n_estimators=2).fit(form(X[:1]), Y[:1])
    assert ours.predict(form(X[:1])).tolist() == Y[:1].tolist()


@pytest.mark.parametrize(
    "parameters",
    [
        {"family": "sparse-oblique"},
        {"family": "rotation"},
        {"family": "subspace-cap"},
        {"family": "tree", "n_estimators": 1},
        {"splitter": "random", "bootstrap": False},
        {"max_bins": 16, "vote": "hard"},
        {"sampling": "balanced"},
        {"min_samples_leaf": 0.05, "min_samples_split": 0.2},
    ],
    ids=str,
)
def test_families__fit_and_are_cloned(parameters: dict[str, Any]) -> None:
    ours = clone(BigForestClassifier(**{"n_estimators": 3, **parameters})).fit(X, Y)
    assert ours.score(X, Y) > 0.5
    assert ours.forest_.config.family == parameters.get("family", "axis")


@pytest.mark.parametrize(
    "parameters",
    [{"family": "sparse-oblique", "projections": 9, "normalize": "zscore"}, {"family": "rotation"}],
    ids=str,
)
def test_families__of_regression(parameters: dict[str, Any]) -> None:
    ours = clone(BigForestRegressor(n_estimators=3, **parameters)).fit(X, X[:, 0] - X[:, 1])
    assert ours.score(X, X[:, 0] - X[:, 1]) > 0.5
    assert ours.forest_.config.family == parameters["family"]


def test_parameters__may_be_numbers_of_numpy() -> None:
    given = {
        "max_depth": np.int32(4),
        "ccp_alpha": np.float32(0.0),
        "oob_score": np.True_,
        "min_samples_leaf": np.int8(2),
        "max_leaf_nodes": np.array(9),
    }
    plain = {name: value.item() for name, value in given.items()}
    assert same(fitted(n_estimators=np.int64(9), **given), fitted(n_estimators=9, **plain))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"monotonic_cst": [0] * 6}, "monotonic_cst is not supported"),
        ({"monotonic_cst": np.zeros(6)}, "monotonic_cst is not supported, leave it at None"),
        ({"ccp_alpha": -0.1}, "ccp_alpha must be at least 0, not -0.1"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes must be a whole number from 2 to"),
        ({"min_impurity_decrease": "much"}, "min_impurity_decrease must be at least 0, not 'much'"),
        ({"n_estimators": 0}, "n_estimators must be"),
        ({"criterion": "poisson"}, "criterion must be one of gini"),
        ({"max_features": 1.5}, "max_features must be"),
        ({"max_features": 7}, "draw 7"),
        ({"max_samples": 5.5}, "max_samples must be"),
        ({"max_samples": 1.5, "replace": False}, "max_samples 1.5 draws rows more than once"),
        ({"max_samples": 1001}, "at most 5 times the 200"),
        ({"max_samples": 0.5, "bootstrap": False}, "max_sample"),
        ({"min_samples_leaf": 0}, "min_samples_leaf must be"),
        ({"min_samples_split": 1}, "min_samples_split must be"),
        ({"min_weight_fraction_leaf": 0.6}, "min_weight_fraction_leaf must be"),
        ({"random_state": -1}, "random_state must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"family": "tree"}, "single tree"),
        ({"feature_fraction": 0.5, "max_features": 3}, "feature_fraction replaces max_features"),
        ({"family": "nonsense"}, "family must be one of"),
        ({"warm_start": "yes"}, "warm_start must be True or False"),
        ({"oob_score": 2}, "oob_score must be True or False"),
        ({"verbose": "much"}, "verbose must be a whole number"),
        (
            {"max_features": np.array([0.5, 1.0])},
            r"max_features must be a single number or word, not array\(\[0.5, 1. \]",
        ),
        ({"family": pd.Series(["axis", "tree"])}, "family must be a single number or word, not 0    axis 1    tree"),
        ({"ranks": np.array([True, False])}, "ranks must be a single number or word, not array"),
        ({"oob_score": [True]}, r"oob_score must be a single number or word, not \[True\]"),
        ({"bootstrap": pd.NA}, "bootstrap must be a single number or word, not <NA>"),
        ({"max_depth": {"tree": 3}}, "max_depth must be a single number or word, not {'tree': 3}"),
    ],
    ids=str,
)
def test_wrong_parameters__are_named_as_the_estimator_names_them(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(BigForestError, match=message) as caught:
        fitted(**parameters)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("kind", "parameters", "given", "message"),
    [
        ("Regressor", {"criterion": "poisson"}, {"y": X[:, 0]}, r"y has the value -\S+, and the Poisson deviance"),
        ("Regressor", {}, {"y": 1e300 * X[:, 0]}, r"y has values up to \S+, too large"),
        ("Regressor", {}, {"groups": np.zeros(200, int)}, "groups: all rows are of the one group 0"),
        ("Regressor", {}, {"groups": [None, *range(199)]}, "groups has 1 missing value"),
        (
            "Regressor",
            {},
            {"groups": np.stack([Y, Y], axis=1)},
            r"groups: a column was expected, not .* shape \(200, 2\)",
        ),
        ("Regressor", {}, {"groups": 1}, "groups: a column cannot be made of int"),
        ("Regressor", {}, {"X": pd.DataFrame(index=range(200))}, "X has no columns"),
        ("Regressor", {}, {"groups": np.ma.array(Y, mask=np.arange(200) < 3)}, "groups has 3 missing values"),
        ("Classifier", {}, {"X": pd.DataFrame(X[:0]), "y": Y[:0]}, "X: the table has no rows"),
        ("Classifier", {"sampling": "balanced"}, {"groups": Y}, "drop groups or sampling"),
        ("Classifier", {"family": "subspace-cap"}, {"sample_weight": np.ones(200)}, "sample_weight is an option of"),
        (
            "Classifier",
            {"sampling": "arc-x4", "n_estimators": 99_999},
            {"y": Y},
            r"at most \S+ trees, and n_estimators is",
        ),
    ],
)
def test_errors__call_what_is_given_as_the_estimators_do(kind: str, parameters: Any, given: Any, message: str) -> None:
    estimator = {"Classifier": BigForestClassifier, "Regressor": BigForestRegressor}[kind](**parameters)
    with pytest.raises(BigForestError, match=f"(^|[ ;]){message}") as caught:
        estimator.fit(**{"X": X, "y": X[:, 0] if kind == "Regressor" else Y, **given})
    assert "target" not in str(caught.value).removesuffix("convert the target")


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_methods__before_fit_say_that_it_is_missing(kind: type[BaseBigForest]) -> None:
    for method in ("predict", "apply", "decision_path", *(("predict_proba",) if kind is BigForestClassifier else ())):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(kind(), method)(X)


def test_random_state__none_draws_another_forest() -> None:
    assert same(fitted(), shared())
    assert not same(fitted(random_state=None), fitted(random_state=None))
    assert same(fitted(random_state=np.random.RandomState(3)), fitted(random_state=np.random.RandomState(3)))


def test_n_jobs__follows_joblib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert threads_of(None) is None and threads_of(3) == 3 and threads_of(-10_000) == 1
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert threads_of(None) == 1
    assert same(fitted(n_jobs=1), fitted(n_jobs=2))


def test_verbose__prints_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    fitted(verbose=0)
    assert not capsys.readouterr().out
    fitted(verbose=1)
    assert "[bigforest] grow:" in capsys.readouterr().out


def test_verbose__tells_of_y_and_sample_weight(capsys: pytest.CaptureFixture[str]) -> None:
    BigForestRegressor(1, verbose=1).fit(X, 0 * Y, sample_weight=np.minimum(np.arange(200), 1))
    printed = capsys.readouterr().out
    assert "1 row has no value in y, or 0 in sample_weight, and is left out" in printed and "value in y, so" in printed


def test_import__without_scikit_learn_says_what_to_install() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import bigforest; import bigforest.sklearn"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ImportError: bigforest.sklearn needs scikit-learn: pip install 'bigforest[sklearn]'" in run.stderr


def test_metadata_routing__asks_for_weights() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        request = BigForestClassifier().set_fit_request(sample_weight=True, groups=True).get_metadata_routing()
        assert request.consumes("fit", ["sample_weight", "groups"]) == {"sample_weight", "groups"}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_of_a_forest_of_scikit_learn__are_taken_as_they_are(kind: type[BaseBigForest]) -> None:
    theirs = RandomForestClassifier if kind is BigForestClassifier else RandomForestRegressor
    ours = fitted(kind, **theirs(n_estimators=3, random_state=1, ccp_alpha=0).get_params())
    assert len(ours) == 3 and set(theirs().get_params()) <= set(ours.get_params())


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("max_leaf_nodes", np.int64(4)), ("min_impurity_decrease", np.float32(0.05)), ("ccp_alpha", 0.05)],
)
def test_trees__are_cut(kind: type[BaseBigForest], name: str, value: Any) -> None:
    if kind is BigForestRegressor and name != "max_leaf_nodes":
        value *= NUMBERS.var()
    grown, ours = shared(kind), fitted(kind, **{name: value})
    sizes = [(one.tree_.node_count, whole.tree_.node_count) for one, whole in zip(ours, grown, strict=True)]
    assert all(size < whole for size, whole in sizes) and any(size > 1 for size, _ in sizes)
    assert name != "max_leaf_nodes" or max(size for size, _ in sizes) == 7


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series([None, *WORDS[1:]], dtype=object),
        [float("nan"), *WORDS[1:].tolist()],
        np.ma.array(WORDS, mask=Y == 0),
        pd.Series([pd.NA, *(Y == 1)[1:]], dtype="boolean"),
        np.array(["NaT", "2020-01-01", "2021-01-01"], "M8[s]")[Y],
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_missing_classes__are_said_to_be_missing(labels: Any) -> None:
    for estimator in (BigForestClassifier(), BigForestRegressor()):
        with pytest.raises(BigForestError, match=r"y contains NaN, None|y has dates"):
            estimator.fit(X, labels)


def test_criteria__friedman_mse_is_the_variance() -> None:
    with pytest.warns(FutureWarning, match="friedman_mse") as caught:
        ours = BigForestRegressor(n_estimators=8, criterion="friedman_mse")
    assert caught[0].filename == __file__ and clone(ours).criterion == "squared_error"
    expected = shared(BigForestRegressor).predict(X_NUMBERS)
    assert np.array_equal(ours.fit(X_NUMBERS, NUMBERS).predict(X_NUMBERS), expected)
    chosen = clone(shared(BigForestRegressor)).set_params(criterion="friedman_mse").fit(X_NUMBERS, NUMBERS)
    assert np.array_equal(chosen.predict(X_NUMBERS), expected)


def test_criteria__poisson_is_the_deviance() -> None:
    counts = np.random.default_rng(1).poisson(np.exp(X_NUMBERS[:, 0])).astype(float)
    ours = BigForestRegressor(n_estimators=4, criterion="poisson").fit(X_NUMBERS, counts)
    forest = bf.train((X_NUMBERS, counts), trees=4, impurity="poisson", task="regression")
    assert np.array_equal(ours.predict(X_NUMBERS), forest.predict(X_NUMBERS))
    assert not np.array_equal(
        ours.predict(X_NUMBERS), ours.set_params(criterion="squared_error").fit(X_NUMBERS, counts).predict(X_NUMBERS)
    )
    for wrong in (-counts, np.zeros(200)):
        with pytest.raises(BigForestError, match="the Poisson deviance needs numbers of at least 0"):
            BigForestRegressor(criterion="poisson").fit(X_NUMBERS, wrong)


@pytest.mark.parametrize(
    ("y", "value"),
    [(["b", "a"] * 10, "'b'"), (np.array(["1", "2 m"] * 10), "'2 m'"), (pd.Series([1, "1,5"] * 10), "'1,5'")],
)
def test_regressor__names_a_target_that_is_no_number(y: Any, value: str) -> None:
    with pytest.raises(ValueError, match=f"^y has {value}, which is no number, .* or use a classifier for classes$"):
        BigForestRegressor(n_estimators=2).fit(np.arange(20.0)[:, None], y)


@pytest.mark.parametrize("unit", ["datetime64[s]", "timedelta64[h]"])
def test_regressor__refuses_dates_whose_unit_is_not_chosen(unit: str) -> None:
    with pytest.raises(ValueError, match=r"^y has dates or durations, and regression predicts numbers"):
        BigForestRegressor(n_estimators=2).fit(np.arange(20.0)[:, None], np.arange(20).astype(unit))


@pytest.mark.parametrize("role", ["y", "sample_weight", "groups"])
def test_fit__warns_of_an_index_in_another_order(role: str) -> None:
    X = pd.DataFrame({"a": np.arange(20.0)}, index=pd.RangeIndex(100, 120))
    values = {"y": pd.Series([0, 1] * 10, X.index)}
    values |= {role: pd.Series([1, 2] * 10, X.index)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BigForestClassifier(n_estimators=2).fit(X, **values)
        again = {name: column.reset_index(drop=True) for name, column in values.items()}  # other rows, or no index
        BigForestClassifier(n_estimators=2).fit(X, **again)
    values[role] = values[role].iloc[::-1]
    with pytest.warns(UserWarning, match=rf"{role} has the index of X in another order, .* give {role}\.loc\[X\.index"):
        BigForestClassifier(n_estimators=2).fit(X, **values)


def test_score__warns_of_an_index_in_another_order() -> None:
    X = pd.DataFrame({"a": np.arange(20.0)}, index=pd.RangeIndex(100, 120))
    y = pd.Series([0, 1] * 10, X.index)
    for estimator in (BigForestClassifier(n_estimators=2), BigForestRegressor(n_estimators=2)):
        estimator.fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert estimator.score(X, y, np.ones(20)) == estimator.score(X, y)
        with pytest.warns(UserWarning, match=r"y has the index of X in another order"):
            estimator.score(X, y.iloc[::-1])


def test_classes__with_spaces_around_them_are_kept() -> None:
    labels, plain = np.array([" a", "b "])[(Y > 0).astype(int)], np.array(["a", "b"])[(Y > 0).astype(int)]
    for weights in (
        None,
        [{" a": 3.0, "b ": 1.0}, {"a": 3.0, "b": 1.0}],
        [{" a": 0.0, "b ": 1.0}, {"a": 0.0, "b": 1.0}],
    ):
        spaced, bare = weights or (None, None)
        ours = BigForestClassifier(3, class_weight=spaced).fit(X, labels)
        expected = BigForestClassifier(3, class_weight=bare).fit(X, plain)
        assert ours.classes_.tolist() == [" a", "b "] and set(ours.predict(X)) <= {" a", "b "}
        assert np.array_equal(ours.predict_proba(X), expected.predict_proba(X))
        assert ours.score(X, labels) == expected.score(X, plain)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "a ", "b"] * 5, "y has 'a' and 'a ', which are one class without the spaces"),
        ([" a", " b", "a", "b", "b"] * 3, "y has ' a' and 'a', which are one class without the spaces"),
        (pd.Series(["a", pd.NA, "b"] * 5, dtype="string"), "y contains NaN, None, NA"),
        (pd.cut(np.arange(15.0), 3), r"y has objects such as Interval.*, as text"),
        (np.array(["a", 1, "b"] * 5, object), "y has objects such as 1; convert"),
    ],
)
def test_classifier__refuses_labels_that_a_forest_does_not_keep_apart(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BigForestClassifier(n_estimators=2).fit(np.arange(15.0)[:, None], y)
