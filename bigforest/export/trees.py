"""The trees of a forest as plain arrays, for exporters. Forests that no format supports are refused here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import bitmap
from bigforest.errors import ConfigError, api
from bigforest.events import Listener, stage
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.format import NODES
from bigforest.forest.nodes import TreeArrays, levels_column, node_predictions
from bigforest.forest.refinement import SEQUENCES
from bigforest.kernels.common.layout import LEAF, OBLIQUE

_VOTES = ("soft", "hard")
# Functions from the class shares of nodes, [nodes, classes], to their impurity, [nodes].
_IMPURITIES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "gini": lambda shares: 1.0 - (shares * shares).sum(axis=1),
    "entropy": lambda shares: 0.0 - (shares * np.log2(np.where(shares > 0.0, shares, 1.0))).sum(axis=1),
    "error": lambda shares: 1.0 - shares.max(axis=1),
}


class ExportedTree(NamedTuple):
    """The nodes of a tree of a forest, or of its boosted stage, in preorder.

    left, right   int64, numbers of the children; -1 in leaves
    feature       int64, position among the features of training; -1 in leaves
    threshold     float64: values of at most this go left; NaN in leaves and in nodes on categories
    default_left  bool: True if missing values go left. In a node on a category: True if all levels go left except
                  for `levels`, False if all go right except for them
    levels        in a node on a category, the exceptions from `default_left`, with missing values as None; in other
                  nodes None instead of a list
    votes         float64 [nodes, classes], votes of each node for the classes; regression: [nodes, 1], its prediction.
                  Boosted stage: [nodes, scores], numbers that are added to the prediction on the scale of the link
    weight        float64, weight of the bag rows
    impurity      float64, see node_impurities
    depth         uint32
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    levels: list[list[str | None] | None]
    votes: NDArray[np.float64]
    weight: NDArray[np.float64]
    impurity: NDArray[np.float64]
    depth: NDArray[np.uint32]

    @property
    def nodes(self) -> int:
        return self.left.size

    def missing_left(self, node: int) -> bool:
        """Return True if missing values go left."""
        listed = self.levels[node]
        return bool(self.default_left[node]) != (listed is not None and None in listed)


def exported_trees(files: ForestFiles, to: str, listener: Listener) -> Iterator[ExportedTree]:
    """Yield the trees, one after the other, for the format `to`, without the boosted stage. Raises ConfigError for a
    forest that no format supports, and FormatError.

    listener  receives the events of the stage "export", which ends with the last tree.
    """
    if files.config.weighs_trees:
        raise ConfigError(
            f"{to} does not support weights of trees, and with sampling {files.config.sampling!r} votes have "
            "weights; train with another sampling"
        )
    if files.config.ranks:
        raise ConfigError(f"{to} does not support the ranks that this forest splits on; train without {api('ranks')}")
    if files.config.vote not in _VOTES:
        raise ConfigError(f"{to} cannot vote {files.config.vote!r}; train with {api('vote')} soft or hard")
    on_projections = ConfigError(
        f"{to} splits on one feature at a time, and this forest ({files.config.family}) on projections; train the "
        "family axis or tree"
    )
    # Only families on projections have other rules for ties, and values for levels.
    other_ties = not files.is_regression and files.config.tie_rule != "lowest"
    if other_ties or any(feature.has_level_values for feature in files.spec.features):
        raise on_projections
    with stage("export", files.trees, "trees", listener) as progress:
        for nodes in files.each_tree():
            if (nodes.feature == OBLIQUE).any():
                raise on_projections
            votes = node_values(nodes, files)
            if not files.is_regression and files.config.vote == "hard":
                votes = (np.arange(votes.shape[1]) == votes.argmax(axis=1)[:, None]).astype(np.float64)
            yield export_tree(nodes, files, votes, node_impurities(nodes, files))
            progress.advance(1)


def stage_trees(files: ForestFiles) -> list[ExportedTree]:
    """Return the trees of the boosted stage of a forest, sequence after sequence. Raises FormatError.

    Their votes are divided by the number of sequences, so the sum over all trees is the mean over the sequences. Their
    impurity is 0.
    """
    nodes = files.read_refinement()
    trees = [nodes.rows(begin, end) for begin, end in pairwise(nodes.starts.tolist())]
    votes = [np.asarray(tree.value) / SEQUENCES for tree in trees]
    return [export_tree(tree, files, vote, np.zeros(len(vote))) for tree, vote in zip(trees, votes, strict=True)]


def export_tree(
    nodes: TreeArrays, files: ForestFiles, votes: NDArray[np.float64], impurity: NDArray[np.float64]
) -> ExportedTree:
    """Return the nodes of a tree for exporters; votes, impurity: see ExportedTree."""
    size, (inner, left, right) = nodes.feature.size, nodes.splits
    on_left, on_right = np.full(size, -1), np.full(size, -1)
    on_left[inner], on_right[inner] = left, right
    listed = np.zeros(size, np.bool_)
    levels: list[list[str | None] | None] = [None] * size
    if nodes.levels is not None:
        listed = np.diff(nodes.levels.start) > 0
        kind = NODES.field("levels").type
        levels = levels_column(nodes.levels, bitmap(listed), nodes.feature, files.header, kind).to_pylist()
    return ExportedTree(
        on_left,
        on_right,
        np.maximum(nodes.feature, -1).astype(np.int64),
        np.where((nodes.feature == LEAF) | listed, np.nan, nodes.threshold),
        nodes.default_left,
        levels,
        votes,
        nodes.weight.astype(np.float64),
        impurity,
        nodes.depth,
    )


def node_values(nodes: TreeArrays, files: ForestFiles) -> NDArray[np.float64]:
    """Return the predictions of the nodes of a tree, [nodes, classes] or [nodes, 1], with the forest's shrinkage."""
    values = node_predictions(nodes.counts, nodes.value)
    if not files.shrinkage.amount:
        return values
    rows = nodes.weight * files.spec.weight_unit
    # Share that shrinkage keeps of the difference between a node and its parent.
    kept = rows / (rows + files.shrinkage.amount)
    shrunk = values.copy()
    for node, *children in _by_depth(nodes):
        for child in children:
            shrunk[child] = shrunk[node] + (values[child] - values[node]) * kept[node, None]
    return shrunk


def _by_depth(nodes: TreeArrays) -> list[NDArray[np.int64]]:
    """Return the inner nodes of each depth, from the root down, int64 [3, nodes]: node, left child, right child."""
    splits = np.stack(nodes.splits)
    depth = nodes.depth[splits[0]]
    order = np.argsort(depth, kind="stable")
    return np.split(splits[:, order], np.flatnonzero(np.diff(depth[order])) + 1, axis=1)


def node_impurities(nodes: TreeArrays, files: ForestFiles) -> NDArray[np.float64]:
    """Return the impurity of the bag rows in the nodes of a tree, float64 [nodes].

    The impurity of a leaf is computed from its counts. For regression, and for a criterion from outside the package, it
    is unknown and set to 0. The impurity of an inner node is its `gain` plus the weighted mean of its children.
    """
    weight, impurities = nodes.weight.astype(np.float64), np.zeros(nodes.feature.size)
    of_shares = _IMPURITIES.get(str(files.config.impurity))
    if of_shares is not None:
        leaf = nodes.feature == LEAF
        impurities[leaf] = of_shares(node_predictions(nodes.counts[leaf], None))
    weighted = impurities * weight
    for node, left, right in reversed(_by_depth(nodes)):
        impurities[node] = nodes.gain[node] + (weighted[left] + weighted[right]) / weight[node]
        weighted[node] = impurities[node] * weight[node]
    return impurities


def rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that is not above each threshold, so that no float32 value changes sides; NaN
    stays."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def refuse_categories(files: ForestFiles, to: str) -> None:
    """Raise ConfigError if the forest has categories, which the format does not support."""
    names = [repr(feature.name) for feature in files.spec.features if feature.kind == "category"]
    if names:
        raise ConfigError(
            f"categories cannot be exported to {to}, such as the features {', '.join(names[:5])}; "
            "export to treelite or sql, or train without them"
        )


def refuse_corrections(files: ForestFiles, to: str) -> None:
    """Raise ConfigError for a boosted stage or a power: the format supports only means over the trees."""
    if files.is_refined:
        raise ConfigError(
            f"{to} cannot represent the boosted stage of this forest; export the forest without the "
            f"stage (in Python, forest.unrefined()), train with {api('refine')} off, or export to onnx or sql"
        )
    if files.power.amount != 1.0:
        raise ConfigError(
            f"{to} predicts shares of votes, but this forest raises the shares to the power of "
            f"{files.power.amount:g}; in Python, export forest.sharpen(1), or train with {api('power')} off, or export "
            "to onnx or sql"
        )


def library(name: str, extra: str) -> Any:
    """Import an optional library. Raises ConfigError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(f"this needs {name.partition('.')[0]}: pip install 'bigforest[{extra}]'") from error
