"""One tree of a fitted estimator, with what tools look for in scikit-learn's trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.explain.importance import tree_shares
from bigforest.export.trees import node_impurities, node_values
from bigforest.sklearn.tables import joined, only

# Attributes of the estimator that its trees have too, beside its parameters.
_SHARED = ("classes_", "n_classes_", "n_outputs_", "n_features_in_", "feature_names_in_")


class FittedArrays(NamedTuple):
    """The nodes of a tree in preorder, under the names of scikit-learn's `tree_`; -1 and -2 stand where it has them.

    children_left, children_right  int64, -1 in leaves
    feature         int64, place of the column of X; -2 in leaves and where a node is oblique
    threshold       float64, rows with at most this go left; -2.0 in leaves, NaN in nodes on categories
    missing_go_to_left  uint8
    value           float64 [nodes, 1, classes], shares of the classes, or [nodes, 1, 1], the number predicted; shrunk
                    where the forest is
    impurity        float64. Of a regression, how much the splits below decrease the impurity: leaves have 0, as the
                    forest does not store how their rows differ
    weighted_n_node_samples  float64, weight of the bag rows; without weights their number, repeats counted
    n_node_samples  int64, the same, rounded
    max_depth       level of the deepest leaf, the root having 0
    apply           function that gives the number of the leaf of each row of X
    compute_feature_importances  function that gives feature_importances_; with normalize=False, in units of impurity
    """

    children_left: NDArray[np.int64]
    children_right: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    missing_go_to_left: NDArray[np.uint8]
    value: NDArray[np.float64]
    impurity: NDArray[np.float64]
    weighted_n_node_samples: NDArray[np.float64]
    n_node_samples: NDArray[np.int64]
    max_depth: int
    apply: Callable[[Any], NDArray[np.int64]]
    compute_feature_importances: Callable[..., NDArray[np.float64]]

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return self.feature.size

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int((self.children_left < 0).sum())


class FittedTree:
    """A tree of an estimator. It predicts what the tree alone says; classes as the estimator names them.

    With several outputs it is the trees of this number of all of them. Parameters of the estimator, its classes and its
    numbers of features and outputs are attributes of its trees too.
    """

    def __init__(self, estimator: Any, number: int) -> None:
        self._estimator = estimator
        self._number = number
        self._trees = [forest[number] for forest in estimator.forests_]

    def __repr__(self) -> str:
        return repr(only(self._trees))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and (name in _SHARED or name in self._estimator._get_param_names()):
            return getattr(self._estimator, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def tree_(self) -> Any:
        """The nodes, FittedArrays; a list of them for several outputs."""
        return only([self._arrays(output) for output in range(len(self._trees))])

    def _arrays(self, output: int) -> FittedArrays:
        tree = self._trees[output]
        nodes, place = tree.nodes, self._estimator._places(tree.forest)
        leaf = nodes["left"].is_null().to_numpy()
        weight = nodes["weight"].to_numpy().astype(np.float64)
        value = node_values(nodes, tree.forest)
        if not tree.forest.is_regression:
            value = self._estimator._of_all_classes(output, value)
        return FittedArrays(
            nodes["left"].cast(int).fill_null(-1).to_numpy(),
            nodes["right"].cast(int).fill_null(-1).to_numpy(),
            np.array([-2 if name is None else place[name] for name in nodes["feature"].to_list()]),
            np.where(leaf, -2.0, nodes["threshold"].fill_null(np.nan).to_numpy()),
            nodes["default_left"].fill_null(False).to_numpy().astype(np.uint8),
            value[:, None, :],
            node_impurities(nodes, tree.forest),
            weight,
            np.rint(weight).astype(np.int64),
            tree.depth,
            partial(self._apply, output),
            partial(self._importances, output),
        )

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Share of each column of X in the tree's decrease of impurity, float64 [features]; 0 for a single leaf.

        The features of an oblique node share equally. With several outputs, the mean over those with a split.
        """
        return mean_of_shares([self._importances(output) for output in range(len(self._trees))])

    def _importances(self, output: int, normalize: bool = True) -> NDArray[np.float64]:
        tree = self._trees[output]
        terms = pl.col("terms").list.eval(pl.element().struct.field("feature"))
        one = pl.concat_list(pl.col("feature").cast(pl.String))
        used = pl.when(pl.col("feature").is_null()).then(terms).otherwise(one)
        splits = tree.nodes.filter(pl.col("left").is_not_null()).with_columns(used=used)
        decrease = pl.col("gain") * pl.col("weight") / pl.col("used").list.len()
        found = splits.select("used", decrease=decrease).explode("used")
        own = np.zeros((1, self._estimator.n_features_in_))
        place = self._estimator._places(tree.forest)
        np.add.at(own[0], [place[name] for name in found["used"]], found["decrease"].to_numpy())
        return tree_shares(own)[0] if normalize else own[0] / tree.nodes["weight"][0]

    def get_depth(self) -> int:
        """Level of the deepest leaf, the root having 0."""
        return max(int(tree.depth) for tree in self._trees)

    def get_n_leaves(self) -> int:
        """Number of leaves, of all outputs."""
        return sum(tree.leaves for tree in self._trees)

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Number of the leaf in which each row ends; with several outputs int64 [rows, outputs]."""
        return joined([self._apply(output, X) for output in range(len(self._trees))])

    def _apply(self, output: int, X: Any) -> NDArray[np.int64]:
        return self._trees[output].apply(self._estimator._read(X)).astype(np.int64)

    def predict(self, X: Any) -> NDArray[Any]:
        """What the tree predicts for each row."""
        return self._estimator._predict(X, trees=[self._number])

    def predict_proba(self, X: Any) -> Any:
        """The shares of the classes in the leaf of each row, in the order of the estimator's `classes_`; a list for
        several outputs."""
        return only(self._estimator._shares(X, trees=[self._number]))


def mean_of_shares(of_outputs: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over outputs of the shares of features, each summing to 1; outputs without a split are left out."""
    found = [shares / shares.sum() for shares in of_outputs if shares.any()]
    return np.mean(found, axis=0) if found else np.zeros_like(of_outputs[0])
