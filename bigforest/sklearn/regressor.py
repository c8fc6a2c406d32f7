"""Regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from bigforest.common.errors import DataError
from bigforest.sklearn.base import BaseBigForest, keep_parameters
from bigforest.sklearn.parameters import NUMBER_CRITERIA, threads_of
from bigforest.sklearn.tables import check_dense, numbers_of


class BigForestRegressor(RegressorMixin, BaseBigForest):  # type: ignore[misc]
    """A random forest regressor, exact and reproducible for any number of threads.

    Parameters have scikit-learn's names where they mean the same, otherwise the names of `bigforest.train`.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, or the maximum with `stop_oob`. 1 for the family tree.
    criterion : {"squared_error"}, default="squared_error"
        Impurity: the variance.
    family : {"axis", "tree"}, default="axis"
        A forest that splits on features, or a single tree on all rows. The other families of BigForestClassifier
        support classification only.
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Number of features drawn per node: a count, or a fraction. None and 1.0 are all. "auto" is half of them, or all
        if that has a lower out-of-bag error, and all for tree. A feature that is constant in the node does not use up a
        draw: see `constants`.
    feature_fraction : float or None, default=None
        Probability that a feature is considered in a node. Alternative to `max_features`. If no feature is drawn, the
        draw is repeated. Only for the families axis, tree and rotation.
    splitter : {"best", "random"}, default="best"
        Use the best split of each drawn feature, or a random one. "random" gives extremely randomised trees (Geurts
        2006). Only for the families axis and tree.
    max_depth : int or None, default=None
        Maximum depth of a tree; the root has depth 0. None means unlimited.
    max_bins : {"exact"} or int, default="exact"
        Candidate thresholds per feature: all values, or at most INT bins by quantiles.
    ranks : bool, default=False
        Split on ranks in the training table instead of values. Equal values get their mean rank.
    constants : {"redraw", "count"}, default="redraw"
        Whether a feature that is constant in the node uses up a draw (count) or not (redraw). Only for the families
        axis, tree and rotation.
    shrink : {"auto", "off"} or float, default="auto"
        Shrink leaf values towards their ancestors: by out-of-bag loss (auto), or with LAMBDA rows. Hierarchical
        shrinkage (Agarwal et al. 2022): a step below a node of n rows is multiplied by n / (n + lambda). "auto" selects
        lambda from 0, 0.1, 1, 3, 10 and 50 by the out-of-bag log loss (mean squared error for regression). It uses 0
        unless the loss decreases by more than the standard error of the difference. It also uses 0 without out-of-bag
        rows, with hard votes, with more than 64 classes, or if rows times classes exceed 4,194,304. With `sampling`
        arc-x4 and adaboost leaves are shrunk only by a given lambda.
    stop_oob : float or None, default=None
        Stop when 20 more trees reduce the out-of-bag error by at most this fraction. After every 10 trees, from 40 on,
        the mean of the error curve over its last 20 points is compared with the mean over the 20 points before. `trees`
        is the maximum. None means grow all trees.
    replace : bool, default=True
        Draw a bag with replacement.
    calibration : float or None, default=None
        Share of the rows held out of all bags, to calibrate prediction intervals and sets. The rows held out do not
        depend on the seed. With `group`, whole groups are held out. None means none.
    min_level : int, default=5
        Levels of a category with fewer bag rows in a node are split as one level; 1 turns this off. The largest levels
        of a node are always split separately: as many as the number of its rows has binary digits, 10 for 1,000. Only
        for the families axis and tree.
    keep_targets : bool, default=False
        Keep the training targets of every leaf, for quantiles (regression).
    keep_votes : bool, default=False
        Keep the leaf of every out-of-bag row in each tree, as a table.
    min_samples_split : int or float, default=2
        Minimum number of bag rows in a node that is split. A float is a fraction of the rows. With weights, the part
        above 2 is in units of the mean row weight.
    min_samples_leaf : "auto", int or float, default="auto"
        Minimum number of bag rows in a leaf. A float is a fraction of the rows. "auto" is 2, or 1 if all features are
        drawn because of a lower out-of-bag error (see `max_features`). Weights count as for `min_samples_split`.
    min_weight_fraction_leaf : float, default=0.0
        Minimum share of the total weight in a leaf; without weights, of the number of rows.
    bootstrap : bool or "auto", default="auto"
        Whether each tree is grown on a random bag of the rows, or on all rows. "auto" is the default of the family:
        True, but False for tree.
    max_samples : int or float, default=None
        Size of a bag: a number of rows, or a fraction of them. None for all.
    oob_score : bool or callable, default=False
        Whether to compute `oob_score_` and the out-of-bag predictions. A callable is the score, `oob_score(truth,
        prediction)`.
    warm_start : bool, default=False
        Whether `fit` adds trees to the existing forest, up to `n_estimators`. Table, weights and all other parameters
        must be the same. The result is the same as that of one fit with all trees.
    random_state : int, RandomState or None, default=0
        Random seed. With 0, the default, every fit gives the same forest. None draws another seed for each fit.
    n_jobs : int, default=None
        Number of threads. None for all processors, or, in worker processes of joblib, the share that joblib allows. The
        forest does not depend on it.
    verbose : int, default=0
        1 prints the stages of a fit with their times, 2 also their progress.
    categories : sequence of str or int, default=None
        Names or positions of columns of integers or booleans to treat as categories. Text, categorical and enum columns
        are always categories.
    memory : int or str, default=None
        Memory budget of the whole process while fitting, such as "4GB". None for no limit. The forest does not depend
        on it.
    scratch : path, default=None
        Folder for temporary files. None for the system's temporary folder.
    monotonic_cst : None, default=None
        Not supported: splits are selected by decrease of impurity only.

    Attributes
    ----------
    forest_ : bigforest.Forest
        The forest as a bigforest object: its tables, the out-of-bag report, lazy prediction and more.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the columns, if X is a table with names.
    n_outputs_ : int
        1.
    feature_importances_ : ndarray of float64 of shape (n_features_in_,)
        Mean over the trees of each column's share in the decrease of impurity, as in scikit-learn.
    estimators_ : list of FittedTree
        The trees, each with its own `predict` and its nodes as `tree_`.
    estimators_samples_ : list of ndarray of int32
        Rows in the bag of each tree, recomputed when requested.
    oob_score_ : float
        With `oob_score`: the score of the out-of-bag predictions.
    oob_prediction_ : ndarray of float64 of shape (n_samples,)
        With `oob_score`: mean prediction by the out-of-bag trees of each row; NaN if there are none.

    See Also
    --------
    BigForestClassifier : A random forest classifier.

    Notes
    -----
    Defaults, parameters that are not supported, tables and pickling are as described for `BigForestClassifier`. The
    criteria "absolute_error" and "poisson" are not supported either.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bigforest.sklearn import BigForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> BigForestRegressor(n_estimators=10).fit(X, y).predict(X[:2]).shape
    (2,)
    """

    _criteria = NUMBER_CRITERIA

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "squared_error",
        family: str = "axis",
        max_features: str | int | float | None = "auto",
        # Options, written by docs/options.py.
        feature_fraction: float | None = None,
        splitter: Literal["best", "random"] = "best",
        max_depth: int | None = None,
        max_bins: Literal["exact"] | int = "exact",
        ranks: bool = False,
        constants: Literal["redraw", "count"] = "redraw",
        shrink: Literal["auto", "off"] | float = "auto",
        stop_oob: float | None = None,
        replace: bool = True,
        calibration: float | None = None,
        min_level: int = 5,
        keep_targets: bool = False,
        keep_votes: bool = False,
        # End of the options.
        min_samples_split: int | float = 2,
        min_samples_leaf: str | int | float = "auto",
        min_weight_fraction_leaf: float = 0.0,
        bootstrap: bool | str = "auto",
        max_samples: int | float | None = None,
        oob_score: bool | Callable[..., Any] = False,
        warm_start: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        categories: Any = None,
        memory: int | str | None = None,
        scratch: Any = None,
        monotonic_cst: None = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> BigForestRegressor:
        """Train the forest.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Targets of the rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights of at least 0. None for 1 for all rows.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, such as a patient: all rows of a group are in a bag, or out of it.

        Returns
        -------
        self : BigForestRegressor
        """
        if y is None:
            raise DataError("This BigForestRegressor requires y to be passed, but the target y is None")
        check_dense(y)
        numbers = numbers_of(y)
        if self._fit(X, pl.Series(numbers), sample_weight, groups) or not hasattr(self, "oob_score_"):
            self.n_outputs_ = 1
            if self.oob_score:
                self._set_oob_score_and_attributes(numbers)
        return self

    def predict(self, X: Any, quantiles: Sequence[float] = ()) -> NDArray[np.float64]:
        """Predict the mean target of each row, or quantiles of it.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.
        quantiles : sequence of float, default=()
            Shares from 0 to 1. Needs `keep_targets=True`; see `Forest.predict`.

        Returns
        -------
        ndarray of float64 of shape (n_samples,), or (n_samples, n_quantiles) where quantiles are requested
        """
        return self._predict(X, quantiles=quantiles)

    def _predict(
        self, X: Any, trees: Sequence[int] | None = None, quantiles: Sequence[float] = ()
    ) -> NDArray[np.float64]:
        check_is_fitted(self)
        threads = threads_of(self.n_jobs)
        found = self.forest_.predict(self._read(X), threads=threads, trees=trees, quantiles=quantiles)
        if isinstance(found, np.ndarray):
            return found
        return found.drop("prediction").to_numpy() if len(quantiles) else found["prediction"].to_numpy()  # type: ignore[no-any-return]

    def _set_oob_score_and_attributes(self, numbers: NDArray[np.float64]) -> None:
        self.oob_prediction_ = self._out_of_bag(len(numbers), ["prediction"])[:, 0]
        self.oob_score_ = self._scored(numbers, self.oob_prediction_, ~np.isnan(self.oob_prediction_), r2_score)
