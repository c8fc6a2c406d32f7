"""Classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bigforest.common.errors import ConfigError, DataError
from bigforest.forest.load.vote_rule import proba_names
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
        What a node may split on: a feature (axis), a random sum of some features (sparse-oblique), an axis of
        the tree's own rotated table (rotation), any feature in a single tree on all rows (tree), or the line
        between two class means or a perceptron in a random subspace (the last two). Only axis and tree take
        missing values, categories and numbers to predict.
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Features drawn in each node: a count, or a fraction of them; None and 1.0 are all. "auto" is the
        family's own: "sqrt", and all in tree and rotation. A feature that is constant in the node does not use
        up a draw: see `constants`.
    max_depth : int, default=None
        Deepest level of a leaf, the root having 0; None is unlimited.
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
        False in tree and in subspaces, and with `rotation="pca"`.
    max_samples : int or float, default=None
        Size of a bag: a number of rows, or a fraction of them; None is all.
    replace : bool, default=True
        Whether a bag is drawn with replacement.
    sampling : {"uniform", "stratified", "balanced"}, default="uniform"
        How bags are drawn: all rows alike, each class with its share, or as many of every class as the smallest
        has.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by which those of their rows are multiplied, 1 where not given; "balanced" is
        n_samples / (n_classes * rows of the class).
    oob_score : bool or callable, default=False
        Whether to keep `oob_score_` and what it is of; a callable is the score, `oob_score(truth, prediction)`.
    keep_votes : bool, default=False
        Keep the leaf of every row in each tree whose bag it is not in, as `forest_.oob.votes`.
    vote : {"soft", "hard"}, default="soft"
        What a tree votes: the shares of the classes in the leaf, or one vote for the largest.
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
    min_level : int, default=5
        A level of a category with fewer bag rows in a node is not split off by itself there, unless it is among
        the few largest; 1: every level may be.
    max_bins : "exact" or int, default="exact"
        Every distinct value may be a threshold, or this many quantiles of each feature.
    constants : {"redraw", "count"}, default="redraw"
        Whether a feature that is constant in the node uses up a draw (count), as in scikit-learn, or not.
    splitter : {"best", "random"}, default="best"
        The best split of each drawn feature, or a random one, as in extremely randomised trees. Families axis
        and tree.
    feature_fraction : float, default=None
        Chance of each feature to be looked at in a node, in place of `max_features`.
    stop_oob : float, default=None
        Grow no more trees once the out-of-bag error has settled to within this share of it.
    ranks : bool, default=False
        Split on the ranks of the training values in place of the values.
    projections : int or str, default="p^2/3"
        sparse-oblique: columns of a node's random matrix, a count, or "p^E" for ceil(p**E) of p features.
    projection_kind : {"rerf", "sporf", "gaussian", "very-sparse"}, default="rerf"
        sparse-oblique: how the matrix is filled.
    density : float, default=None
        sparse-oblique: share of the matrix that is not 0; None is the kind's own.
    mean_difference : {"none", "consecutive", "vs-largest", "all"}, default="none"
        sparse-oblique: also offer differences of class means.
    mean_difference_scope : {"tree", "node"}, default="tree"
        sparse-oblique: means of the tree's bag, or of the node.
    normalize : {"none", "zscore", "minmax"}, default="none"
        sparse-oblique: weights are for features divided by their deviation or their range.
    axes : int, default=None
        rotation: axes of a tree's table; None is as many as features.
    orthogonal : bool, default=True
        rotation: make random axes orthogonal.
    rotation : {"random", "pca"}, default="random"
        rotation: random axes, or principal components of disjoint subsets of three features.
    subspace : int, default=None
        subspaces: features of a subspace; None is 100, and at most half of all.
    subspace_per : {"tree", "node"}, default="tree"
        subspaces: one for each tree, or drawn by each node.
    steps : int, default=50
        subspaces: parts of the way between two class means, searched for the best cut.
    max_epochs : int, default=100
        subspace-perceptron: most passes over the rows of a node.
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
        Rows in the bag of each tree, drawn again when asked for.
    oob_score_ : float
        With `oob_score`: score of the rows, each by the trees that have not seen it, where there are any.
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
        family: str = "axis",
        max_features: str | int | float | None = "auto",
        max_depth: int | None = None,
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float = 1,
        min_weight_fraction_leaf: float = 0.0,
        bootstrap: bool | str = "auto",
        max_samples: int | float | None = None,
        replace: bool = True,
        sampling: str = "uniform",
        class_weight: Any = None,
        oob_score: bool | Callable[..., Any] = False,
        keep_votes: bool = False,
        vote: str = "soft",
        warm_start: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        categories: Any = None,
        memory: int | str | None = None,
        scratch: Any = None,
        min_level: int = 5,
        max_bins: str | int = "exact",
        constants: str = "redraw",
        splitter: str = "best",
        feature_fraction: float | None = None,
        stop_oob: float | None = None,
        ranks: bool = False,
        projections: str | int = "p^2/3",
        projection_kind: str = "rerf",
        density: float | None = None,
        mean_difference: str = "none",
        mean_difference_scope: str = "tree",
        normalize: str = "none",
        axes: int | None = None,
        orthogonal: bool = True,
        rotation: str = "random",
        subspace: int | None = None,
        subspace_per: str = "tree",
        steps: int = 50,
        max_epochs: int = 100,
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
        """The class of each row: that with the most votes, the lowest of equals.

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
        names = proba_names(self.forest_.spec)
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
        raise ConfigError('class_weight="balanced_subsample" is not there; use "balanced", or sampling="balanced"')
    if not isinstance(given, dict):
        raise ConfigError(f'class_weight must be a dict of classes, "balanced" or None, not {given!r}')
    known = classes.tolist()
    unknown = [label for label in given if label not in known]
    if unknown and any(label not in given for label in known):
        raise ConfigError(f"class_weight names {unknown[0]!r}, which is no class; these are {known[:20]}")
    plain = {label.item() if isinstance(label, np.generic) else label: w for label, w in given.items()}
    return {
        int(label) if isinstance(label, float) else label: float(weight)
        for label, weight in plain.items()
        if label in known
    }
