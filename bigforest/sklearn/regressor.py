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
from bigforest.sklearn.tables import numbers_of


class BigForestRegressor(RegressorMixin, BaseBigForest):  # type: ignore[misc]
    """A forest that predicts numbers, exact and the same on any number of threads.

    Parameters are called as in scikit-learn where they mean the same, else as the options of `bigforest.train`.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees; at most this many with `stop_oob`. 1 in the family tree.
    criterion : {"squared_error"}, default="squared_error"
        Impurity: the variance.
    family : {"axis", "tree"}, default="axis"
        A forest that splits on features, or a single tree on all rows. The families that BigForestClassifier
        has besides tell classes apart.
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Features drawn in each node: a count, or a fraction of them; None and 1.0 are all. "auto" is half
        of them, or all where that is better out of bag, and all in tree. A feature that is constant in the node does
        not use up a draw: see `constants`.
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
        A node with fewer bag rows is a leaf. A float is a fraction of the rows. Where rows have weights, rows
        beyond 2 count as their mean weight.
    min_samples_leaf : "auto", int or float, default="auto"
        No child has fewer bag rows. A float is a fraction of the rows. "auto" is 2, or 1 where all features are
        drawn because that is better out of bag (see `max_features`). Of rows with weights as `min_samples_split`.
    min_weight_fraction_leaf : float, default=0.0
        No child has less than this share of the weight of all rows; without weights, of their number.
    bootstrap : bool or "auto", default="auto"
        Whether each tree is grown on a random bag of rows, or on all. "auto" is the family's own: True, but
        False in tree.
    max_samples : int or float, default=None
        Size of a bag: a number of rows, or a fraction of them; None is all.
    oob_score : bool or callable, default=False
        Whether to keep `oob_score_` and what it is of; a callable is the score, `oob_score(truth, prediction)`.
    warm_start : bool, default=False
        Whether `fit` adds trees to the forest that is there, up to `n_estimators`. Table, weights and all other
        parameters must be the same; the forest is that of one fit with all trees.
    random_state : int, RandomState or None, default=0
        Seed of all random draws. With 0, bigforest's default, every fit gives the same forest; None draws
        another seed for each.
    n_jobs : int, default=None
        Threads. None is all processors, or, in worker processes of joblib, the share of them that joblib
        allows. The forest does not depend on it.
    verbose : int, default=0
        1 prints the stages of a fit and their seconds, 2 also their progress.
    categories : sequence of str or int, default=None
        Names, or places, of columns of whole numbers or booleans that are categories. Columns of text,
        categoricals and enums are so anyway.
    memory : int or str, default=None
        Most memory of the whole process while fitting, such as "4GB"; None is unlimited. The forest does not
        depend on it.
    scratch : path, default=None
        Folder for temporary files; None is the system's.
    monotonic_cst : None, default=None
        Not there, and refused: splits are chosen by the decrease of impurity alone.

    Attributes
    ----------
    forest_ : bigforest.Forest
        The forest itself: a table, the out-of-bag report, lazy prediction and more.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Their names, where X was a table with names.
    n_outputs_ : int
        1.
    feature_importances_ : ndarray of float64 of shape (n_features_in_,)
        Share of each column in all decrease of impurity, over all trees.
    estimators_ : list of FittedTree
        The trees, which predict by themselves, and have their nodes as `tree_`.
    estimators_samples_ : list of ndarray of int32
        Rows in the bag of each tree, drawn again when requested.
    oob_score_ : float
        With `oob_score`: score of the rows, each by the trees that it is out of bag for, where there are any.
    oob_prediction_ : ndarray of float64 of shape (n_samples,)
        With `oob_score`: mean of the trees that have not seen a row; NaN where all have.

    See Also
    --------
    BigForestClassifier : A forest that predicts classes.

    Notes
    -----
    Built on `bigforest.train`, whose defaults are also the defaults here: in particular `random_state=0`, all
    processors, and a feature that is constant in a node does not use up a draw. Of scikit-learn's forests these
    parameters are not there: `max_leaf_nodes` (trees are grown depth first), `min_impurity_decrease`, `ccp_alpha`
    (prune with `bigforest.prune_forest`) and `monotonic_cst`; nor are the criteria "absolute_error" and "poisson", and
    `class_weight="balanced_subsample"`. Sparse matrices and several outputs are refused.

    Tables of Polars, pandas and pyarrow are read as they are, with categories, dates and missing values; arrays as
    numbers, where NaN is missing. Weights are kept to a thousandth of the largest, and rows of weight 0 are left out.

    A fitted estimator is pickled with the Parquet files of its forest. Like every pickle it can run code when it is
    read: open only what you trust, and keep forests with `forest_.write` where others are to read them.

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
        """Grow the forest.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The training rows.
        y : array-like of shape (n_samples,)
            Their numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Their weights, from 0 on; None is 1 for all.
        groups : array-like of shape (n_samples,), default=None
            Names of groups, such as patients: the rows of a group are in a bag together, or out of it.

        Returns
        -------
        self : BigForestRegressor
        """
        if y is None:
            raise DataError("This BigForestRegressor requires y to be passed, but the target y is None")
        numbers = numbers_of(y)
        if self._fit(X, pl.Series(numbers), sample_weight, groups) or not hasattr(self, "oob_score_"):
            self.n_outputs_ = 1
            if self.oob_score:
                self._set_oob_score_and_attributes(numbers)
        return self

    def predict(self, X: Any, quantiles: Sequence[float] = ()) -> NDArray[np.float64]:
        """The number that the trees predict on average, or quantiles of what they saw.

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
