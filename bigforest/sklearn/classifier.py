"""BigForestClassifier: scikit-learn's interface to classification forests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from bigforest.columns.labels import proba_names
from bigforest.errors import ConfigError, DataError, counted
from bigforest.sklearn.base import BaseBigForest, described, keep_parameters, warn_of_order
from bigforest.sklearn.parameters import CLASS_CRITERIA
from bigforest.sklearn.tables import (
    checked_sample_weight,
    classes_of,
    item_or_list,
    joined,
    labels_in_forest,
    outputs_of,
)


@described
class BigForestClassifier(ClassifierMixin, BaseBigForest):  # type: ignore[misc]
    """A random forest classifier, exact and reproducible for any number of threads.

    Parameters have scikit-learn's names where they mean the same, otherwise the names of `bigforest.train`.

    Parameters
    ----------
    criterion : str, default="gini"
        An impurity of classes, see `impurity` of `bigforest.train`; "log_loss" is "entropy".
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Number of features drawn per node: a count, or a fraction. None and 1.0 are all. "auto" is the default of the
        family: "sqrt", or more if small forests have a clearly lower out-of-bag error with them; all for tree and
        rotation. A feature that is constant in the node does not use up a draw: see `constants`.
    min_samples_leaf : "auto", int or float, default="auto"
        Minimum number of bag rows in a leaf. A float is a fraction of the rows, rounded up. With weights, the leaf must
        weigh more than `min_samples_leaf` - 1 rows of mean weight. "auto" is 1, or 2 if a class weighs more than twice
        another.
    bootstrap : bool or "auto", default="auto"
        Whether each tree is grown on a random bag of the rows, or on all rows. "auto" is the default of the family:
        True, but False for tree and the subspace families, and with `rotation` "pca" and "pca-classes".
    class_weight : dict, "balanced", "balanced_subsample" or list of these, default=None
        Class weights. The weight of a row is multiplied by the weight of its class. Classes that are not named have
        weight 1; rows of a class of weight 0 are left out. "balanced" is n_samples / (n_classes * rows of the class).
        "balanced_subsample" is "balanced" with `sampling` "stratified": a bag has the class shares of the table, up to
        rounding, so weights that are balanced in the table are balanced in each bag. For several outputs, a list with
        one entry for each, which applies to that output (scikit-learn multiplies the weights of all). Rows of weight 0
        are left out for all outputs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes_,), or a list of them
        The classes, ascending; a list of the classes of each output, if there are several.
    n_classes_ : int, or a list of them
        Number of classes.
    oob_decision_function_ : ndarray of float64 of shape (n_samples, n_classes_) or (n_samples, n_classes_, n_outputs_)
        With `oob_score`: class probabilities of each row by its out-of-bag trees; NaN if it has none. A list, if
        outputs have different numbers of classes.

    See Also
    --------
    BigForestRegressor : A random forest regressor.

    Notes
    -----
    The defaults are the same as in `bigforest.train`. In particular `random_state` is 0, all processors are used, and a
    feature that is constant in a node does not use up a draw.

    For several outputs, y of shape (n_samples, n_outputs), one forest is grown for each, on the same bags and seed, as
    by `sklearn.multioutput.MultiOutputClassifier`: its splits are the best for its output, and a fit of this output
    alone has the same results. scikit-learn grows joint trees instead, whose splits are the best for the mean impurity
    of all outputs. Training takes as long as n_outputs fits. With `sampling` by class, each output has bags of its own.

    Polars, pandas and pyarrow tables, and others that export an Arrow stream, are supported, with categories, dates and
    missing values. Arrays and lists are read as numbers; NaN is a missing value, and so is None in lists. In lists and
    arrays of objects, columns with text are categories. Sparse matrices are converted to dense in chunks. Row weights
    are used as in `bigforest.train`, and rows of weight 0 are left out.

    A fitted estimator is pickled with the Parquet files of its forest. Like every pickle it can run code when it is
    loaded: open only pickles that you trust. `forest_.write` and skops write no pickle.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigforest.sklearn import BigForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = BigForestClassifier(n_estimators=10).fit(X, y)
    >>> forest.predict(X[:2])
    array([0, 0])
    """

    _criteria = CLASS_CRITERIA
    _task = "classification"

    classes_: Any
    _classes: Sequence[NDArray[Any]]

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "gini",
        # Options, written by docs/options.py.
        family: Literal["axis", "tree", "rotation", "sparse-oblique", "subspace-cap", "subspace-perceptron"] = "axis",
        feature_fraction: float | None = None,
        splitter: Literal["best", "random"] = "best",
        max_depth: int | None = None,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        max_bins: Literal["exact"] | int = "exact",
        ranks: bool = False,
        constants: Literal["redraw", "count"] = "redraw",
        vote: Literal["soft", "hard"] = "soft",
        shrink: Literal["auto", "off"] | float = "auto",
        power: Literal["auto", "off"] | float = "auto",
        refine: Literal["auto", "off"] | int = "auto",
        stop_oob: float | None = None,
        replace: bool = True,
        calibration: float | None = None,
        sampling: Literal["uniform", "stratified", "balanced", "arc-x4", "adaboost"] = "uniform",
        min_level: str | int | None = None,
        keep_votes: bool = False,
        projections: str | int | None = None,
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
        min_samples_leaf: str | int | float = "auto",
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = tags.target_tags.multi_output
        return tags

    def _fit_outputs(self, X: Any, outputs: Sequence[Any], sample_weight: Any, groups: Any) -> None:
        classes, codes, labels = zip(*map(classes_of, outputs), strict=True)
        class_weights = _class_weights(self.class_weight, classes)
        for number, weight in enumerate(class_weights):
            if isinstance(weight, dict) and not all(weight.values()):
                # Rows of classes of weight 0 are left out; the classes stay.
                weights = checked_sample_weight(1.0 if sample_weight is None else sample_weight, labels[number])
                left_out = labels[number].is_in([label for label, value in weight.items() if not value])
                sample_weight = np.where(left_out.to_numpy(), 0.0, weights)
                class_weights[number] = {label: value for label, value in weight.items() if value}
        if self.oob_score and len(outputs) > 1:
            _check_scored(joined([labels.take(places) for labels, places in zip(classes, codes, strict=True)]))
        if self._fit(X, labels, sample_weight, groups, class_weights):
            self._classes, self.n_outputs_ = classes, len(classes)
            self.classes_, self.n_classes_ = item_or_list(classes), item_or_list([len(each) for each in classes])
        elif hasattr(self, "oob_score_"):
            return
        if self.oob_score:
            self._set_oob_score_and_attributes(codes)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each row: the most probable one, the lowest among ties.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs_)

        Examples
        --------
        >>> forest.predict(X[[0, 149]])
        array([0, 2])
        """
        return self._predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities from the votes of the trees, corrected by the boosted stage if there is one.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of float64 of shape (n_samples, n_classes_), or a list of them for several outputs
            Classes in the order of `classes_`.

        Examples
        --------
        >>> forest.predict_proba(X[:2]).shape
        (2, 3)
        """
        return item_or_list(self._shares(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithms of `predict_proba`; minus infinity for a class of probability 0.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of float64 of shape (n_samples, n_classes_), or a list of them for several outputs

        Examples
        --------
        >>> forest.predict_log_proba(X[:2]).shape
        (2, 3)
        """
        with np.errstate(divide="ignore"):
            return item_or_list([np.log(shares) for shares in self._shares(X)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy: the share of rows whose predicted class is right.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.
        y : array-like or table of shape (n_samples,) or (n_samples, n_outputs)
            True classes of the rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights. None for 1 for all rows.

        Returns
        -------
        float

        Examples
        --------
        >>> forest.score(X, y) > 0.9
        True
        """
        check_is_fitted(self)
        warn_of_order(X, y=y, sample_weight=sample_weight)
        outputs = outputs_of(y)
        if len(outputs) != self.n_outputs_:
            raise DataError(f"y has {counted(len(outputs), 'output')}, and had {self.n_outputs_} in fit; give as many")
        if _kind_of(truth := joined(outputs)) == _CLASSES:
            raise DataError(f"{_CLASSES} is not supported: {_NEEDED}; score each of forests_ by itself")
        return float(ClassifierMixin.score(self, X, truth, sample_weight))

    def _predict(self, X: Any, trees: Sequence[int] | None = None) -> NDArray[Any]:
        return self._of_largest(self._shares(X, trees))

    def _of_largest(self, shares: Sequence[NDArray[np.float64]]) -> NDArray[Any]:
        """Return the class with the largest share for each row and output, the lowest class among ties."""
        return joined(
            [
                classes.take(output_shares.argmax(axis=1))
                for classes, output_shares in zip(self._classes, shares, strict=True)
            ]
        )

    def _shares(self, X: Any, trees: Sequence[int] | None = None) -> list[NDArray[np.float64]]:
        answers = self._answers(X, "predict_proba", trees=trees)
        return [
            self._of_all_classes(number, shares if isinstance(shares, np.ndarray) else shares.to_numpy())
            for number, shares in enumerate(answers)
        ]

    def _of_all_classes(self, output: int, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return shares with a column for every class, including classes whose rows all have weight 0."""
        classes = self._classes[output]
        if classes.dtype.kind in "biuf" and shares.shape[1] == len(classes):
            return shares  # numbers have the same order in the forest
        place = {label: number for number, label in enumerate(labels_in_forest(classes).to_list())}
        places = [place[label] for label in self.forests_[output].classes]
        if places == list(range(len(classes))):
            return shares
        of_all = np.zeros((len(shares), len(classes)))
        of_all[:, places] = shares
        return of_all

    def _set_oob_score_and_attributes(self, codes: Sequence[NDArray[np.intp]]) -> None:
        """Set `oob_decision_function_` and `oob_score_`; codes: class number of each row, by output."""
        output_shares = self._out_of_bag(len(codes[0]), lambda forest: [*proba_names(forest.spec.target)])
        votes = [self._of_all_classes(number, shares) for number, shares in enumerate(output_shares)]
        for shares in votes:
            shares[np.isnan(shares).any(axis=1)] = np.nan  # also in the columns of classes that are not in the forest
        alike = len(votes) > 1 and len({shares.shape for shares in votes}) == 1
        self.oob_decision_function_ = np.stack(votes, axis=2) if alike else item_or_list(votes)
        truth = joined([labels.take(places) for labels, places in zip(self._classes, codes, strict=True)])
        voted = np.logical_and.reduce([~np.isnan(shares[:, 0]) for shares in votes])
        prediction = self._of_largest([np.where(voted[:, None], shares, 0.0) for shares in votes])
        self.oob_score_ = self._scored(truth, prediction, voted, accuracy_score)


# scikit-learn's kinds of several outputs; it scores only the first.
_FLAGS, _CLASSES = "multilabel-indicator", "multiclass-multioutput"
_NEEDED = f"several outputs must be {_FLAGS}, columns of 0 and 1"


def _kind_of(truth: NDArray[Any]) -> str:
    """Return scikit-learn's kind of true classes, [rows] or [rows, outputs], also for outputs of text and numbers."""
    return _CLASSES if truth.ndim == 2 and truth.dtype.kind == "O" else str(type_of_target(truth))


def _check_scored(truth: NDArray[Any]) -> None:
    """Raise DataError for several outputs that scikit-learn cannot score."""
    if (kind := _kind_of(truth)) != _FLAGS:
        raise DataError(
            f"The type of target cannot be used to compute OOB estimates: it is {kind}, and {_NEEDED}; leave oob_score "
            "at False, and see `oob` of each of forests_"
        )


def _class_weights(weights: Any, classes: Sequence[NDArray[Any]]) -> list[Any]:
    """Return the option class_weight of each output. Raises ConfigError.

    weights  parameter class_weight
    classes  the classes of each output
    """
    if isinstance(weights, list | tuple):
        if len(weights) != len(classes):
            raise ConfigError(
                f"class_weight is a list of {len(weights)}, and y has {counted(len(classes), 'output')}; "
                "give one for each"
            )
        return [_class_weight(weight, output_classes) for weight, output_classes in zip(weights, classes, strict=True)]
    if isinstance(weights, dict) and len(classes) > 1:
        raise ConfigError(
            f'class_weight is one dict, and y has {len(classes)} outputs; give a list with one for each, or "balanced"'
        )
    return [_class_weight(weights, output_classes) for output_classes in classes]


def _class_weight(weights: Any, classes: NDArray[Any]) -> Any:
    """Return the option class_weight of an output; weights: the parameter, see `_class_weights`.

    Weights of classes without rows are dropped, as in scikit-learn, if all classes with rows have weights. Raises
    ConfigError for a weight of a class without rows if a class with rows has none, and for a wrong weight.
    """
    if weights is None or (isinstance(weights, str) and weights in ("balanced", "balanced_subsample")):
        return weights
    if type(weights).__name__ == "Series" and hasattr(weights, "to_dict"):  # of pandas: the classes are its index
        weights = weights.to_dict()
    if not isinstance(weights, dict):
        raise ConfigError(
            f'class_weight must be a dict of classes, "balanced", "balanced_subsample" or None, not {weights!r}'
        )
    labels = classes.tolist()
    plain = {label.item() if isinstance(label, np.generic) else label: weight for label, weight in weights.items()}
    unknown = [label for label in plain if label not in labels]
    if unknown and any(label not in plain for label in labels):
        raise ConfigError(f"class_weight names {unknown[0]!r}, which is not a class; the classes are {labels[:20]}")
    named = dict(zip(labels, labels_in_forest(classes).to_list(), strict=True))
    wrong = [
        weight
        for weight in plain.values()
        if not isinstance(weight, int | float | np.number) or not 0.0 <= weight < np.inf
    ]
    if wrong:
        raise ConfigError(f"class_weight must be finite numbers, 0 or more, not {wrong[0]!r}")
    return {named[label]: float(weight) for label, weight in plain.items() if label in named}
