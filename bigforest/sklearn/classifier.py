"""Classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bigforest.common.errors import ConfigError, DataError
from bigforest.schema.labels import proba_names
from bigforest.sklearn.base import BaseBigForest, keep_parameters
from bigforest.sklearn.parameters import CLASS_CRITERIA, threads_of
from bigforest.sklearn.tables import check_dense, classes_of, labels_in_forest


class BigForestClassifier(ClassifierMixin, BaseBigForest):  # type: ignore[misc]
    """A random forest classifier, exact and reproducible for any number of threads.

    Parameters have scikit-learn's names where they mean the same, otherwise the names of `bigforest.train`.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, or the maximum with `stop_oob`. 1 for the family tree.
    criterion : {"gini", "entropy", "log_loss", "error"}, default="gini"
        Impurity; "log_loss" is "entropy", and "error" is the share of rows outside the most frequent class.
    family : {"axis", "sparse-oblique", "rotation", "tree", "subspace-cap", "subspace-perceptron"}, default="axis"
        Family of trees: what a node splits on. tree is a single CART tree on all rows. "axis": one feature.
        "sparse-oblique": a weighted sum of a few features (Randomer forests). "rotation": an axis of the table, rotated
        for each tree. "tree": a single tree that splits on features, without bootstrap. "subspace-cap" and
        "subspace-perceptron": trees on all rows, each in its own feature subspace, that split on the line between two
        class means or by a perceptron (Ho 1995).
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
    vote : {"soft", "hard"}, default="soft"
        Average the class probabilities of the leaves (soft), or count one vote per tree (hard). Used in the out-of-bag
        report, and by default in prediction. Always hard with `sampling` arc-x4 and adaboost.
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
    sampling : {"uniform", "stratified", "balanced", "arc-x4", "adaboost"}, default="uniform"
        Draw rows uniformly, by class, or, for boosting, by the errors of earlier trees. "stratified": each class has
        its share of the draws. "balanced": each class has as many draws as the smallest class has rows, times
        `max_samples`. "arc-x4": a row that m earlier trees predict wrongly has the weight 1 + m^4 (Breiman 1998).
        "adaboost": the rows that the last tree predicts wrongly get half of the total weight, and the vote of a tree
        with weighted error e has the weight log((1 - e) / e) (Freund and Schapire 1997). With these two, trees grow one
        after the other, and the out-of-bag error is biased.
    min_level : int, default=5
        Levels of a category with fewer bag rows in a node are split as one level; 1 turns this off. The largest levels
        of a node are always split separately: as many as the number of its rows has binary digits, 10 for 1,000. Only
        for the families axis and tree.
    keep_votes : bool, default=False
        Keep the leaf of every out-of-bag row in each tree, as a table.
    projections : str or int, default="p^2/3"
        Number of columns of a node's random matrix: a count, or ceil(p^E) for p features. Only for the family
        sparse-oblique.
    projection_kind : {"rerf", "sporf", "gaussian", "very-sparse"}, default="rerf"
        Distribution of the weights in the random matrix. "rerf": as many weights of +-1 as columns, anywhere. "sporf":
        +-1 in a fraction `density` of all cells. "gaussian": normal weights. "very-sparse": +-1 with probability
        `density` in each cell (Li 2006). Only for the family sparse-oblique.
    density : float or None, default=None
        Share of the cells of the matrix that have a weight. Default for p features: 1 / p (sporf), 1 (gaussian) or
        p^-0.5 (very-sparse). None means by the kind. Only for the family sparse-oblique.
    mean_difference : {"none", "consecutive", "vs-largest", "all"}, default="none"
        Also use differences of class means as directions. For consecutive classes, for the largest class and each other
        class, or for all pairs. Each is used with probability min(1, `projections` / p) in each node. Only for the
        family sparse-oblique.
    mean_difference_scope : {"tree", "node"}, default="tree"
        Compute class means on the tree's bag, or on the node. Only for the family sparse-oblique.
    normalize : {"none", "zscore", "minmax"}, default="none"
        Scale features before weights apply: none, by standard deviation (zscore) or range (minmax). Only for the family
        sparse-oblique.
    axes : int or None, default=None
        Number of axes per tree; nodes draw `max_features` of them. None means as many as features. Only for the family
        rotation.
    orthogonal : bool, default=True
        Make random axes orthogonal. Only for the family rotation.
    rotation : {"random", "pca", "pca-classes"}, default="random"
        Random Gaussian axes, or principal components of disjoint sets of features. The components of each set are
        computed on a sample of the rows (Rodriguez 2006). "pca" samples three quarters of all rows. "pca-classes"
        samples three quarters of the rows in the tree's bag that belong to a random subset of the classes, drawn for
        each set. Only for the family rotation.
    axis_features : int or None, default=None
        Number of features in each set of principal components. The last set of a tree may be smaller. With 1, the
        features stay as they are. None means 3. Only for the family rotation.
    axes_from : str or Sequence[str], default=()
        Feature to build axes from, or auto to select them; every other feature is an axis of its own. Irrelevant
        columns degrade every axis that contains them. auto ranks the features by the out-of-bag gain of their splits.
        It uses the leading ones for which small forests have the lowest out-of-bag error, or all features. Empty means
        all features. Only for the family rotation.
    subspace : str, int or None, default=None
        Number of features in a subspace; if there are several sizes, trees use them in turn. None means 100, but at
        most half of all. Only for the families subspace-cap and subspace-perceptron.
    subspace_per : {"tree", "node"}, default="tree"
        Draw a different subspace for each tree, or one for each node. With node, a node uses all features if those of
        its subspace cannot split it. Only for the families subspace-cap and subspace-perceptron.
    steps : int, default=50
        Number of steps between two class means at which splits are tried. Only for the families subspace-cap and
        subspace-perceptron.
    max_epochs : int, default=100
        Maximum number of passes of a perceptron over the rows of a node. Only for the family subspace-perceptron.
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Number of features drawn per node: a count, or a fraction. None and 1.0 are all. "auto" is the default of the
        family: "sqrt", but all for tree and rotation. A feature that is constant in the node does not use up a draw:
        see `constants`.
    min_samples_split : int or float, default=2
        Minimum number of bag rows in a node that is split. A float is a fraction of the rows. With weights, the part
        above 2 is in units of the mean row weight.
    min_samples_leaf : int or float, default=1
        Minimum number of bag rows in a leaf. A float is a fraction of the rows. Weights count as for
        `min_samples_split`.
    min_weight_fraction_leaf : float, default=0.0
        Minimum share of the total weight in a leaf; without weights, of the number of rows.
    bootstrap : bool or "auto", default="auto"
        Whether each tree is grown on a random bag of the rows, or on all rows. "auto" is the default of the family:
        True, but False for tree and the subspace families, and with `rotation` "pca" and "pca-classes".
    max_samples : int or float, default=None
        Size of a bag: a number of rows, or a fraction of them. None for all.
    class_weight : dict or "balanced", default=None
        Class weights. The weight of a row is multiplied by that of its class, which is 1 for classes that are not
        named. "balanced" is n_samples / (n_classes * rows of the class).
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
    classes_ : ndarray of shape (n_classes_,)
        The classes, ascending.
    n_classes_ : int
        Number of classes.
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
    oob_decision_function_ : ndarray of float64 of shape (n_samples, n_classes_)
        With `oob_score`: class probabilities by the out-of-bag trees of each row; NaN if there are none.

    See Also
    --------
    BigForestRegressor : A random forest regressor.

    Notes
    -----
    The defaults are those of `bigforest.train`: in particular `random_state=0`, all processors, and a feature that is
    constant in a node does not use up a draw. These parameters of scikit-learn's forests are not supported:
    `max_leaf_nodes` (trees are grown depth first), `min_impurity_decrease`, `ccp_alpha` (prune with
    `bigforest.prune_forest`), `monotonic_cst` and `class_weight="balanced_subsample"`. A target with several outputs is
    refused.

    Polars, pandas and pyarrow tables, and others that export an Arrow stream, are supported, with categories, dates and
    missing values. Arrays are read as numbers, where NaN is missing, and lists too, where None is. Sparse matrices are
    converted to dense in chunks. Row weights are used as in `bigforest.train`, and rows of weight 0 are left out.

    A fitted estimator is pickled with the Parquet files of its forest. Like every pickle it can run code when it is
    loaded: open only pickles that you trust, and use `forest_.write` to share forests.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigforest.sklearn import BigForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> BigForestClassifier(n_estimators=10).fit(X, y).predict(X[:2])
    array([0, 0])
    """

    _criteria = CLASS_CRITERIA

    classes_: NDArray[Any]

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "gini",
        # Options, written by docs/options.py.
        family: Literal["axis", "sparse-oblique", "rotation", "tree", "subspace-cap", "subspace-perceptron"] = "axis",
        feature_fraction: float | None = None,
        splitter: Literal["best", "random"] = "best",
        max_depth: int | None = None,
        max_bins: Literal["exact"] | int = "exact",
        ranks: bool = False,
        constants: Literal["redraw", "count"] = "redraw",
        vote: Literal["soft", "hard"] = "soft",
        shrink: Literal["auto", "off"] | float = "auto",
        stop_oob: float | None = None,
        replace: bool = True,
        calibration: float | None = None,
        sampling: Literal["uniform", "stratified", "balanced", "arc-x4", "adaboost"] = "uniform",
        min_level: int = 5,
        keep_votes: bool = False,
        projections: str | int = "p^2/3",
        projection_kind: Literal["rerf", "sporf", "gaussian", "very-sparse"] = "rerf",
        density: float | None = None,
        mean_difference: Literal["none", "consecutive", "vs-largest", "all"] = "none",
        mean_difference_scope: Literal["tree", "node"] = "tree",
        normalize: Literal["none", "zscore", "minmax"] = "none",
        axes: int | None = None,
        orthogonal: bool = True,
        rotation: Literal["random", "pca", "pca-classes"] = "random",
        axis_features: int | None = None,
        axes_from: str | Sequence[str] = (),
        subspace: str | int | None = None,
        subspace_per: Literal["tree", "node"] = "tree",
        steps: int = 50,
        max_epochs: int = 100,
        # End of the options.
        max_features: str | int | float | None = "auto",
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float = 1,
        min_weight_fraction_leaf: float = 0.0,
        bootstrap: bool | str = "auto",
        max_samples: int | float | None = None,
        class_weight: Any = None,
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> BigForestClassifier:
        """Train the forest.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Classes of the rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights of at least 0. None for 1 for all rows.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, such as a patient: all rows of a group are in a bag, or out of it.

        Returns
        -------
        self : BigForestClassifier
        """
        if y is None:
            raise DataError("This BigForestClassifier requires y to be passed, but the target y is None")
        check_dense(y)
        check_classification_targets(y)
        classes, codes, labels = classes_of(y)
        named_weights = _class_weight(self.class_weight, classes)
        if self._fit(X, labels, sample_weight, groups, named_weights) or not hasattr(self, "oob_score_"):
            self.classes_, self.n_classes_, self.n_outputs_ = classes, len(classes), 1
            if self.oob_score:
                self._set_oob_score_and_attributes(codes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each row: the one with the most votes, the lowest among ties.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities: the share of each class in the votes on each row.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of float64 of shape (n_samples, n_classes_)
            Classes in the order of `classes_`.
        """
        return self._shares(X)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of `predict_proba`; minus infinity for a class without votes.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of float64 of shape (n_samples, n_classes_)
        """
        with np.errstate(divide="ignore"):
            return np.log(self._shares(X))

    def _predict(self, X: Any, trees: Sequence[int] | None = None) -> NDArray[Any]:
        shares = self._shares(X, trees)
        prediction: NDArray[Any] = self.classes_.take(shares.argmax(axis=1))
        return prediction

    def _shares(self, X: Any, trees: Sequence[int] | None = None) -> NDArray[np.float64]:
        check_is_fitted(self)
        found = self.forest_.predict_proba(self._read(X), threads=threads_of(self.n_jobs), trees=trees)
        return self._of_all_classes(found if isinstance(found, np.ndarray) else found.to_numpy())

    def _of_all_classes(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shares with a column for every class: those whose rows all have weight 0 are not in the forest."""
        place = {label: number for number, label in enumerate(labels_in_forest(self.classes_).to_list())}
        known = [place[label] for label in self.forest_.classes]
        if known == list(range(len(self.classes_))):
            return shares
        of_all = np.zeros((len(shares), len(self.classes_)))
        of_all[:, known] = shares
        return of_all

    def _set_oob_score_and_attributes(self, codes: NDArray[np.intp]) -> None:
        names = proba_names(self.forest_.spec.target)
        votes = self._of_all_classes(self._out_of_bag(len(codes), names))
        voted: NDArray[np.bool_] = np.isfinite(votes.sum(axis=1))
        votes[~voted] = np.nan  # also of classes that are not in the forest
        self.oob_decision_function_ = votes
        prediction = self.classes_.take(np.where(voted[:, None], votes, 0.0).argmax(axis=1))
        self.oob_score_ = self._scored(self.classes_.take(codes), prediction, voted, accuracy_score)


def _class_weight(given: Any, classes: NDArray[Any]) -> Any:
    """The option class_weight. Weights of classes that a part of the table lacks are dropped, as in scikit-learn."""
    if given is None or (isinstance(given, str) and given == "balanced"):
        return given
    if isinstance(given, str) and given == "balanced_subsample":
        raise ConfigError('class_weight="balanced_subsample" is not supported; use "balanced", or sampling="balanced"')
    if not isinstance(given, dict):
        raise ConfigError(f'class_weight must be a dict of classes, "balanced" or None, not {given!r}')
    known = classes.tolist()
    plain = {label.item() if isinstance(label, np.generic) else label: weight for label, weight in given.items()}
    unknown = [label for label in plain if label not in known]
    if unknown and any(label not in plain for label in known):
        raise ConfigError(f"class_weight names {unknown[0]!r}, which is not a class; the classes are {known[:20]}")
    named = dict(zip(known, labels_in_forest(classes).to_list(), strict=True))
    return {named[label]: float(weight) for label, weight in plain.items() if label in named}
