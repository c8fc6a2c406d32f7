"""BigForestRegressor: scikit-learn's interface to regression forests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags

from bigforest.sklearn.base import BaseBigForest, described, keep_parameters, warn_of_order
from bigforest.sklearn.parameters import NUMBER_CRITERIA
from bigforest.sklearn.tables import joined, numbers_of, outputs_of


@described
class BigForestRegressor(RegressorMixin, BaseBigForest):  # type: ignore[misc]
    """A random forest regressor, exact and reproducible for any number of threads.

    Parameters have scikit-learn's names where they mean the same, otherwise the names of `bigforest.train`.

    Parameters
    ----------
    criterion : {"squared_error", "friedman_mse", "poisson"}, default="squared_error"
        Impurity. "squared_error" is the variance; "friedman_mse" is its deprecated name. "poisson" is half the Poisson
        deviance, for counts and other targets that are not negative; it needs the family axis or tree.
    family : {"axis", "tree", "rotation", "sparse-oblique"}, default="axis"
        A forest that splits on features, a single tree on all rows, or a forest that splits on projections; see
        `bigforest.train`. The other families of BigForestClassifier support classification only.
    max_features : "auto", "sqrt", "log2", None, int or float, default="auto"
        Number of features drawn per node: a count, or a fraction. None and 1.0 are all. "auto" is half of them, or all
        if that has a lower out-of-bag error, and all for tree and rotation. A feature that is constant in the node does
        not use up a draw: see `constants`.
    min_samples_leaf : "auto", int or float, default="auto"
        Minimum number of bag rows in a leaf. A float is a fraction of the rows, rounded up. "auto" is 2, or 1 if all
        features are drawn because of a lower out-of-bag error (see `max_features`). With weights, the leaf must weigh
        more than `min_samples_leaf` - 1 rows of mean weight.
    bootstrap : bool or "auto", default="auto"
        Whether each tree is grown on a random bag of the rows, or on all rows. "auto" is the default of the family:
        True, but False for tree.

    Attributes
    ----------
    oob_prediction_ : ndarray of float64 of shape (n_samples,) or (n_samples, n_outputs_)
        With `oob_score`: prediction of each row by its out-of-bag trees; NaN if it has none.

    See Also
    --------
    BigForestClassifier : A random forest classifier.

    Notes
    -----
    Defaults, several outputs, tables and pickling are as described for `BigForestClassifier`. The criterion
    "absolute_error" is not supported.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bigforest.sklearn import BigForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = BigForestRegressor(n_estimators=10).fit(X, y)
    >>> forest.predict(X[:2]).shape
    (2,)
    """

    _criteria = NUMBER_CRITERIA
    _task = "regression"

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
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        max_bins: Literal["exact"] | int = "exact",
        ranks: bool = False,
        constants: Literal["redraw", "count"] = "redraw",
        shrink: Literal["auto", "off"] | float = "auto",
        refine: Literal["auto", "off"] | int = "auto",
        stop_oob: float | None = None,
        replace: bool = True,
        calibration: float | None = None,
        min_level: str | int | None = None,
        keep_targets: bool = False,
        keep_votes: bool = False,
        projections: str | int | None = None,
        projection_kind: Literal["rerf", "sporf", "gaussian", "very-sparse"] = "rerf",
        density: float | None = None,
        normalize: Literal["none", "zscore", "minmax"] = "none",
        axes: int | None = None,
        orthogonal: bool = True,
        rotation: Literal["random", "pca", "pca-classes"] = "random",
        axis_features: int | None = None,
        axes_from: str | Sequence[str] = (),
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
        if isinstance(criterion, str) and criterion == "friedman_mse":
            warnings.warn(
                'criterion="friedman_mse" is deprecated, as in scikit-learn: it is "squared_error", use that name',
                FutureWarning,
                stacklevel=2,
            )
            criterion = "squared_error"
        keep_parameters(self, locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.criterion == "poisson"
        return tags

    def _fit_outputs(self, X: Any, outputs: Sequence[Any], sample_weight: Any, groups: Any) -> None:
        numbers = [numbers_of(output) for output in outputs]
        if self._fit(
            X, [pl.Series(output_numbers) for output_numbers in numbers], sample_weight, groups, [None] * len(numbers)
        ):
            self.n_outputs_ = len(numbers)
        elif hasattr(self, "oob_score_"):
            return
        if self.oob_score:
            self._set_oob_score_and_attributes(numbers)

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
            With several outputs (n_samples, n_outputs_), or (n_samples, n_outputs_, n_quantiles).

        Examples
        --------
        >>> BigForestRegressor(n_estimators=10, keep_targets=True).fit(X, y).predict(X[:2], quantiles=[0.1, 0.9]).shape
        (2, 2)
        """
        return self._predict(X, quantiles=quantiles)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R2, the coefficient of determination of the predictions.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.
        y : array-like or table of shape (n_samples,) or (n_samples, n_outputs)
            True targets of the rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights. None for 1 for all rows.

        Returns
        -------
        float

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from bigforest.sklearn import BigForestRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> BigForestRegressor(n_estimators=10).fit(X, y).score(X, y) > 0.5
        True
        """
        warn_of_order(X, y=y, sample_weight=sample_weight)
        return float(RegressorMixin.score(self, X, joined(outputs_of(y)), sample_weight))

    def _predict(
        self, X: Any, trees: Sequence[int] | None = None, quantiles: Sequence[float] = ()
    ) -> NDArray[np.float64]:
        outputs = self._answers(X, "predict", trees=trees, quantiles=quantiles)
        return joined([_numbers(answers) for answers in outputs])

    def _set_oob_score_and_attributes(self, numbers: Sequence[NDArray[np.float64]]) -> None:
        outputs = self._out_of_bag(len(numbers[0]), lambda _: ["prediction"])
        self.oob_prediction_ = joined([prediction[:, 0] for prediction in outputs])
        voted = np.logical_and.reduce([~np.isnan(prediction[:, 0]) for prediction in outputs])
        self.oob_score_ = self._scored(joined(numbers), self.oob_prediction_, voted, r2_score)


def _numbers(predictions: NDArray[np.float64] | pl.DataFrame) -> NDArray[np.float64]:
    """Return the predictions of `Forest.predict` as an array, or only the quantiles if there are some."""
    if isinstance(predictions, np.ndarray):
        return predictions
    quantiles = predictions.drop("prediction")
    return quantiles.to_numpy() if quantiles.width else predictions["prediction"].to_numpy()
