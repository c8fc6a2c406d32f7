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
from bigforest.sklearn.tables import classes_of


class BigForestClassifier(ClassifierMixin, BaseBigForest):  # type: ignore[misc]
    """A forest that predicts classes, exact and the same on any number of threads.

    Parameters are called as in scikit-learn where they mean the same, else as the options of `bigforest.train`.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees; at most this many with `stop_oob`. 1 in the family tree.
    criterion : {"gini", "entropy", "log_loss", "error"}, default="gini"
        Impurity; "log_loss" is "entropy", "error" the share of rows that are not of the largest class.
    family : {"axis", "sparse-oblique", "rotation", "tree", "subspace-cap", "subspace-perceptron"}, default="axis"
        What a node splits on; tree is a single CART on all rows. "axis": a feature. "sparse-oblique": a weighted sum of
        some features (Randomer forests). "rotation": an axis of the tree's own rotated table. "tree": one tree of
        splits on features, without bootstrap. "subspace-cap" and "subspace-perceptron": trees on all rows, each in a
        subspace of its own, that split on the line between two class means or by a perceptron (Ho 1995).
    feature_fraction : float or None, default=None
        Chance of each feature to be considered in a node, instead of `max_features`. A draw of no feature is repeated.
        Only of the families axis, tree and rotation.
    splitter : {"best", "random"}, default="best"
        Take the best split of each drawn feature, or a random one. "random" gives extremely randomised trees (Geurts
        2006). Only of the families axis and tree.
    max_depth : int or None, default=None
        Deepest level of a leaf; the root has level 0. None: unlimited.
    max_bins : {"exact"} or int, default="exact"
        Candidate thresholds per feature: at all values, or at no more than INT of them, by quantiles.
    ranks : bool, default=False
        Split on the ranks of the values in the training table instead of the values. Equal values have the mean of
        their ranks.
    constants : {"redraw", "count"}, default="redraw"
        Whether a feature that is constant in the node uses up a draw (count) or not (redraw). Only of the families
        axis, tree and rotation.
    vote : {"soft", "hard"}, default="soft"
        Average the posteriors of the leaves (soft), or count one vote per tree (hard). Out of bag, and in prediction
        unless asked otherwise. Always hard with `sampling` arc-x4 and adaboost.
    shrink : {"auto", "off"} or float, default="auto"
        Shrink leaves towards the nodes above them, by a lambda chosen out of bag or by LAMBDA rows. Hierarchical
        shrinkage (Agarwal et al. 2022): a node of n rows keeps n / (n + lambda) of what sets it apart from the node
        above. "auto" takes the lambda with the least out-of-bag log loss, or mean squared error for regression, among
        0, 0.1, 1, 3, 10 and 50, if it lowers the loss by more than the standard error of the difference; else 0, as
        where no row is out of bag, with hard votes, more than 64 classes, or more than 4,194,304 rows times classes.
        Off unless given with `sampling` arc-x4 and adaboost, and never chosen there.
    stop_oob : float or None, default=None
        Stop when 20 more trees lower the out-of-bag error by no more than this share of it. That is: once the mean
        error after each of the last 20 trees is not lower by more than this share of the mean error after each of the
        20 before. Looked at after every 10 trees, from 40 on. None: grow all trees.
    replace : bool, default=True
        Draw a bag with replacement.
    calibration : float or None, default=None
        Share of the rows held out of all bags, on which certainty is calibrated. Which rows these are does not depend
        on the seed. With `group`, whole groups are in no bag. None: none.
    sampling : {"uniform", "stratified", "balanced", "arc-x4", "adaboost"}, default="uniform"
        Draw rows uniformly, by class, or, for boosting, more of those that earlier trees are wrong on. "stratified":
        each class has its share of the draws. "balanced": each class has as many draws as the smallest has rows, times
        `max_samples`. "arc-x4": a row that m of the trees before are wrong on has the weight 1 + m^4 (Breiman 1998).
        "adaboost": rows that the last tree is wrong on have half of all weight, and a tree of the weighted error e
        votes with log((1 - e) / e) (Freund and Schapire 1997). With these two, trees grow one after the other, and the
        out-of-bag error is biased.
    min_level : int, default=5
        Levels of a category with fewer bag rows in a node are split as one level; 1: none are. The heaviest levels of a
        node may be split off although they have fewer: as many as the number of its rows has binary digits, 10 for
        1,000. Only of the families axis and tree.
    keep_votes : bool, default=False
        Keep the leaf of every out-of-bag row in each tree, as a table.
    projections : str or int, default="p^2/3"
        Columns of a node's random matrix: a count, or ceil(p^E) of p features. Only of the family sparse-oblique.
    projection_kind : {"rerf", "sporf", "gaussian", "very-sparse"}, default="rerf"
        Which cells of the matrix have a weight, and what weights. "rerf": as many weights of +-1 as columns, anywhere.
        "sporf": +-1 in `density` of all cells. "gaussian": normal weights. "very-sparse": +-1 with chance `density` in
        each cell (Li 2006). Only of the family sparse-oblique.
    density : float or None, default=None
        Share of the cells that have a weight. Unless given 1 / p (sporf), 1 (gaussian) or p^-0.5 (very-sparse) of p
        features. None: by the kind. Only of the family sparse-oblique.
    mean_difference : {"none", "consecutive", "vs-largest", "all"}, default="none"
        Also offer differences of the means of classes. Of consecutive classes, of the largest class and each other, or
        of all pairs; each with chance min(1, `projections` / p) in each node. Only of the family sparse-oblique.
    mean_difference_scope : {"tree", "node"}, default="tree"
        Means of the tree's bag, or of the node. Only of the family sparse-oblique.
    normalize : {"none", "zscore", "minmax"}, default="none"
        Scale of the features that weights apply to: none, standard deviation (zscore) or range (minmax). Only of the
        family sparse-oblique.
    axes : int or None, default=None
        Number of axes of a tree, of which nodes draw `max_features`. None: as many as features. Only of the family
        rotation.
    orthogonal : bool, default=True
        Make random axes orthogonal. Only of the family rotation.
    rotation : {"random", "pca", "pca-classes"}, default="random"
        Random Gaussian axes, or principal components of disjoint sets of features. The components of each set are those
        of a sample of the rows (Rodriguez 2006): "pca" samples three quarters of all rows, "pca-classes" three quarters
        of the rows in the tree's bag that are of some classes, drawn for each set. Only of the family rotation.
    axis_features : int or None, default=None
        Number of features in each set with principal components of its own. The last set of a tree may be smaller. Of
        1, the features stay as they are. None: 3. Only of the family rotation.
    axes_from : str or Sequence[str], default=()
        Feature that axes are made from, or auto to choose them; each other feature is an axis of its own. Columns that
        mean nothing spoil every axis they are part of. auto ranks the features by what splits on them gain out of bag,
        and takes the leading ones of which small forests err least out of bag, or all. Empty: all features. Only of the
        family rotation.
    subspace : str, int or None, default=None
        Number of features in a subspace; trees take several sizes in turn. None: 100, and at most half of all. Only of
        the families subspace-cap and subspace-perceptron.
    subspace_per : {"tree", "node"}, default="tree"
        Draw a different subspace for each tree, or one for each node. A node looks at all features where those of its
        own subspace cannot split it. Only of the families subspace-cap and subspace-perceptron.
    steps : int, default=50
        Steps between two class means at which cuts are tried. Only of the families subspace-cap and
        subspace-perceptron.
    max_epochs : int, default=100
        Most passes of a perceptron over the rows of a node. Only of the family subspace-perceptron.
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Features drawn in each node: a count, or a fraction of them; None and 1.0 are all. "auto" is the
        family's own: "sqrt", and all in tree and rotation. A feature that is constant in the node does not use
        up a draw: see `constants`.
    min_samples_split : int or float, default=2
        A node with fewer bag rows is a leaf. A float is a fraction of the rows. Where rows have weights, rows
        beyond 2 count as their mean weight.
    min_samples_leaf : int or float, default=1
        No child has fewer bag rows. A float is a fraction of the rows. Of rows with weights as
        `min_samples_split`.
    min_weight_fraction_leaf : float, default=0.0
        No child has less than this share of the weight of all rows; without weights, of their number.
    bootstrap : bool or "auto", default="auto"
        Whether each tree is grown on a random bag of rows, or on all. "auto" is the family's own: True, but
        False in tree and in subspaces, and with `rotation` "pca" and "pca-classes".
    max_samples : int or float, default=None
        Size of a bag: a number of rows, or a fraction of them; None is all.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by which those of their rows are multiplied, 1 where not given; "balanced" is
        n_samples / (n_classes * rows of the class).
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
    classes_ : ndarray of shape (n_classes_,)
        The classes, ascending.
    n_classes_ : int
        Their number.
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
    oob_decision_function_ : ndarray of float64 of shape (n_samples, n_classes_)
        With `oob_score`: shares of the votes of the trees that have not seen a row; NaN where all have.

    See Also
    --------
    BigForestRegressor : A forest that predicts numbers.

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
        """Grow the forest.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The training rows.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Their weights, from 0 on; None is 1 for all.
        groups : array-like of shape (n_samples,), default=None
            Names of groups, such as patients: the rows of a group are in a bag together, or out of it.

        Returns
        -------
        self : BigForestClassifier
        """
        if y is None:
            raise DataError("This BigForestClassifier requires y to be passed, but the target y is None")
        check_classification_targets(y)
        classes, codes, labels = classes_of(y)
        named_weights = _class_weight(self.class_weight, classes)
        if self._fit(X, labels, sample_weight, groups, named_weights) or not hasattr(self, "oob_score_"):
            self.classes_, self.n_classes_, self.n_outputs_ = classes, len(classes), 1
            if self.oob_score:
                self._set_oob_score_and_attributes(codes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row: that with the most votes, the lowest among ties.

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
        """The share of each class in the votes on each row.

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
        """The logarithms of `predict_proba`; minus infinity for a class without votes.

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
        known = np.searchsorted(self.classes_, np.array(self.forest_.classes))
        if known.size == len(self.classes_):
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
    unknown = [label for label in given if label not in known]
    if unknown and any(label not in given for label in known):
        raise ConfigError(f"class_weight names {unknown[0]!r}, which is not a class; the classes are {known[:20]}")
    plain = {label.item() if isinstance(label, np.generic) else label: w for label, w in given.items()}
    return {
        int(label) if isinstance(label, float) else label: float(weight)
        for label, weight in plain.items()
        if label in known
    }
