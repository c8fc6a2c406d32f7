"""One tree of a forest as an estimator, with the attributes that tools read from scikit-learn's trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bigforest.export.trees import export_tree, node_impurities, node_values
from bigforest.forest.decreases import decrease_shares, tree_decreases
from bigforest.sklearn.tables import item_or_list, joined

# Attributes of a forest that its trees have, too, in addition to the parameters of the forest.
_SHARED = ("classes_", "n_classes_", "n_outputs_", "n_features_in_", "feature_names_in_")


def _has_classes(tree: Any) -> bool:
    return hasattr(tree.estimator, "predict_proba")


class FittedArrays(NamedTuple):
    """Nodes of a tree in preorder, with the names of scikit-learn's `tree_`, and its marks -1 and -2.

    children_left, children_right  int64, -1 in leaves
    feature         int64, number of the column of X; -2 in leaves and oblique nodes
    threshold       float64, rows with at most this value go left; -2.0 in leaves, NaN in nodes on listed levels
    missing_go_to_left  uint8
    value           float64 [nodes, 1, classes], shares of the classes, or [nodes, 1, 1], the predicted number; shrunk
                    if the forest is shrunk
    impurity        float64. For regression, the decrease of impurity by the splits below the node: 0 in leaves,
                    because the forest does not store how their rows differ
    weighted_n_node_samples  float64, weight of the bag rows; without weights their number, repeats counted
    n_node_samples  int64, weighted_n_node_samples, rounded
    max_depth       depth of the deepest leaf; the root has depth 0
    apply           function that returns the number of the leaf of each row of X
    compute_feature_importances  function that returns feature_importances_; with normalize=False, in units of impurity
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
    def n_outputs(self) -> int:
        """Number of outputs of this tree, which is 1: each output has its own tree."""
        return self.value.shape[1]

    @property
    def n_classes(self) -> NDArray[np.int64]:
        """Number of classes; 1 for regression."""
        return np.array([self.value.shape[2]])

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int((self.children_left < 0).sum())


class ForestTree(BaseEstimator):  # type: ignore[misc]
    """Estimator that predicts with one tree of a forest, and has the same classes as the forest.

    The estimators in `estimators_` are fitted. A clone is not: its `fit` grows one tree on all given rows, with the
    forest's parameters except those about bags. With several outputs, the estimator has tree `number` of each output.
    The parameters of the forest, its classes and its numbers of features and outputs are attributes of the
    tree, too.

    Parameters
    ----------
    estimator : BigForestClassifier or BigForestRegressor
        The forest.
    number : int, default=0
        Number of the tree in the forest. A tree grown by `fit` is tree 0 of a new forest.
    random_state : int, RandomState or None, default=None
        Random seed of `fit`. None for the `random_state` of the forest. Trees of a fitted forest have its seed.

    Attributes
    ----------
    tree_ : FittedArrays, or a list of them for several outputs
        The nodes.
    """

    def __init__(self, estimator: Any, number: int = 0, random_state: Any = None) -> None:
        self.estimator = estimator
        self.number = number
        self.random_state = random_state
        if hasattr(estimator, "forests_"):
            self._take(estimator, number)

    def _take(self, forest: Any, number: int) -> None:
        """Become tree `number` of a fitted forest."""
        self._forest, self._number = forest, number
        self._trees = [trees[number] for trees in forest.forests_]
        self.__dict__.pop("tree_", None)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow one tree on all rows, see `BigForestClassifier.fit`, in place of the tree of the forest."""
        alone = self.estimator._single_tree()
        if self.random_state is not None:
            alone.set_params(random_state=self.random_state)
        self._take(alone.fit(X, y, sample_weight), 0)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "_forest" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = self.estimator.__sklearn_tags__()
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return repr(item_or_list(self._trees)) if self.__sklearn_is_fitted__() else super().__repr__(N_CHAR_MAX)

    def __getattr__(self, name: str) -> Any:
        forest = vars(self).get("_forest", vars(self).get("estimator"))
        if forest is not None and (name in _SHARED or name in forest._get_param_names()):
            return getattr(forest, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def tree_(self) -> Any:
        """The nodes."""
        check_is_fitted(self)
        return item_or_list([self._arrays(output) for output in range(len(self._trees))])

    def _arrays(self, output: int) -> FittedArrays:
        """Return the nodes of the tree of an output."""
        tree = self._trees[output]
        files = tree.forest.files
        nodes, place = files.tree_arrays(tree.number), np.array(list(self._forest._places(tree.forest).values()))
        value = node_values(nodes, files)
        if not tree.forest.is_regression:
            value = self._forest._of_all_classes(output, value)
        arrays = export_tree(nodes, files, value, node_impurities(nodes, files))
        return FittedArrays(
            arrays.left,
            arrays.right,
            np.where(arrays.feature < 0, -2, place[arrays.feature]),
            np.where(arrays.left < 0, -2.0, arrays.threshold),
            arrays.default_left.astype(np.uint8),
            value[:, None, :],
            arrays.impurity,
            arrays.weight,
            np.rint(arrays.weight).astype(np.int64),
            int(arrays.depth.max()),
            partial(self._apply, output),
            partial(self._importances, output),
        )

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Share of each column of X in the tree's decrease of impurity, float64 [features]; 0 for a single leaf.

        The features of an oblique node share equally. With several outputs, the mean over those with a split.
        """
        check_is_fitted(self)
        return mean_of_shares([self._importances(output) for output in range(len(self._trees))])

    def _importances(self, output: int, normalize: bool = True) -> NDArray[np.float64]:
        tree = self._trees[output]
        files, step = tree.forest.files, tree.forest.spec.target.step
        nodes = files.tree_arrays(tree.number)
        [(_, sums)] = tree_decreases([nodes], files.spec)
        decreases = np.zeros(self._forest.n_features_in_)
        np.add.at(decreases, list(self._forest._places(tree.forest).values()), sums)
        return decrease_shares(decreases) if normalize else decreases * step * step / nodes.weight[0]

    def get_depth(self) -> int:
        """Return the depth of the deepest leaf; the root has depth 0."""
        check_is_fitted(self)
        return max(int(tree.depth) for tree in self._trees)

    def get_n_leaves(self) -> int:
        """Return the number of leaves, of all outputs."""
        check_is_fitted(self)
        return sum(tree.leaves for tree in self._trees)

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf of each row; with several outputs int64 [rows, outputs]."""
        check_is_fitted(self)
        return joined([self._apply(output, X) for output in range(len(self._trees))])

    def _apply(self, output: int, X: Any) -> NDArray[np.int64]:
        return self._trees[output].apply(self._forest._read(X)).astype(np.int64)

    def decision_path(self, X: Any) -> Any:
        """Return a sparse matrix in CSR format, [rows, nodes]: 1 if a node is on the path of a row.

        With several outputs, a list of matrices.
        """
        check_is_fitted(self)
        parents = [tree.forest.files.tree_arrays(tree.number).parents for tree in self._trees]
        leaves = (self._apply(output, X)[:, None] for output in range(len(parents)))
        return item_or_list(list(map(path_matrix, leaves, parents)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction of the tree for each row."""
        check_is_fitted(self)
        return self._forest._predict(X, trees=[self._number])

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the class shares in the leaf of each row, in the order of `classes_`; a list for several outputs."""
        check_is_fitted(self)
        return item_or_list(self._forest._shares(X, trees=[self._number]))

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of `predict_proba`; minus infinity for a class that the leaf lacks."""
        check_is_fitted(self)
        with np.errstate(divide="ignore"):
            return item_or_list([np.log(shares) for shares in self._forest._shares(X, trees=[self._number])])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the tree, or R2 for regression."""
        score: float = type(self.estimator).score(self, X, y, sample_weight)
        return score


def path_matrix(leaves: NDArray[np.int64], parent: NDArray[np.int64]) -> Any:
    """Return the nodes on the paths of rows as a sparse matrix in CSR format, int64 [rows, nodes].

    leaves  int64 [rows, trees], the leaf of each row in each tree.
    parent  int64 [nodes], the parent of each node; -1 at a root.
    """
    row, at = np.repeat(np.arange(len(leaves)), leaves.shape[1]), leaves.ravel()
    rows, passed = [row], [at]
    while at.size:
        at = parent[at]
        row, at = row[at >= 0], at[at >= 0]
        rows.append(row)
        passed.append(at)
    places = (np.concatenate(rows), np.concatenate(passed))
    return sparse.csr_matrix((np.ones(places[0].size, np.int64), places), shape=(len(leaves), parent.size))


def mean_of_shares(of_outputs: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over outputs with a split of the shares of features, which sums to 1; zeros without any split."""
    normalized = [shares / shares.sum() for shares in of_outputs if shares.any()]
    return np.mean(normalized, axis=0) if normalized else np.zeros_like(of_outputs[0])
