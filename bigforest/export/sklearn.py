"""A scikit-learn forest with the trees of a forest.

scikit-learn converts its input to float32 and compares it with the float64 thresholds. It computes the importances of
features from the impurities of nodes. The impurity of a regression leaf is 0, because a forest does not store the
variance of leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.events import Listener, silent
from bigforest.export.trees import ExportedTree, exported_trees, library, refuse_categories, refuse_corrections
from bigforest.forest.forest_files import ForestFiles

_TO = "scikit-learn"
# Feature and threshold of a leaf in the arrays of scikit-learn.
_UNDEFINED = -2


def to_sklearn(files: ForestFiles, listener: Listener = silent) -> Any:
    refuse_categories(files, _TO)
    refuse_corrections(files, _TO)
    ensemble = library("sklearn.ensemble", "sklearn")
    names = files.spec.feature_names
    trees = [_estimator(tree, len(names), files) for tree in exported_trees(files, _TO, listener)]
    kind = ensemble.RandomForestRegressor if files.is_regression else ensemble.RandomForestClassifier
    model = kind(n_estimators=len(trees), bootstrap=files.config.bootstrap, random_state=files.config.seed % 2**32)
    model.estimator_ = trees[0].__class__()
    model.estimators_ = trees
    model.n_features_in_, model.n_outputs_ = len(names), 1
    model.feature_names_in_ = np.array(names, dtype=object)
    if not files.is_regression:
        model.classes_ = np.array(files.classes)
        model.n_classes_ = len(files.classes)
    return model


def _estimator(tree: ExportedTree, features: int, files: ForestFiles) -> Any:
    kinds = library("sklearn.tree", "sklearn")
    arrays = library("sklearn.tree._tree", "sklearn")
    outputs = tree.votes.shape[1]
    model = (kinds.DecisionTreeRegressor if files.is_regression else kinds.DecisionTreeClassifier)()
    model.n_features_in_ = model.max_features_ = features
    model.n_outputs_ = 1
    if not files.is_regression:
        model.classes_, model.n_classes_ = np.arange(outputs, dtype=np.float64), outputs
    model.tree_ = arrays.Tree(features, np.array([1 if files.is_regression else outputs], np.intp), 1)
    model.tree_.__setstate__(
        {
            "max_depth": int(tree.depth.max()),
            "node_count": tree.nodes,
            "nodes": _nodes(tree, arrays.NODE_DTYPE),
            "values": np.ascontiguousarray(tree.votes[:, None, :]),
        }
    )
    return model


def _nodes(tree: ExportedTree, dtype: Any) -> NDArray[Any]:
    nodes, leaf = np.zeros(tree.nodes, dtype), tree.left < 0
    nodes["left_child"], nodes["right_child"] = tree.left, tree.right  # -1 in leaves, as in scikit-learn
    nodes["feature"] = np.where(leaf, _UNDEFINED, tree.feature)
    nodes["threshold"] = np.where(leaf, _UNDEFINED, tree.threshold)
    nodes["missing_go_to_left"] = tree.default_left
    nodes["impurity"] = tree.impurity
    nodes["n_node_samples"] = nodes["weighted_n_node_samples"] = tree.weight
    return nodes
