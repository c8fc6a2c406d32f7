"""The section `trees`: depth and sizes of trees, features that follow each other, and informative leaves as text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_series
from bigforest.errors import listed
from bigforest.explain.job import ExplainJob, SectionPlan, plan_groups
from bigforest.forest.files import Header
from bigforest.forest.nodes import SplitFeatures, TreeArrays, cut_entries, join_trees, node_predictions, split_features
from bigforest.forest.parts import read_span
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.predict.groups import Trees
from bigforest.store.levels import level_text

# Most levels of a category, and most terms of a projection, that a rule names.
_NAMED = 6
# Most bytes of a pair of features while pairs are counted.
_PAIR_BYTES = 64
# Bytes of a node in addition to loading it, and of a number of its value; bytes of a feature and of a tree in the
# tables.
_NODE_BYTES = 160
_ANSWER_BYTES = 24
_FEATURE_BYTES = 300
_TREE_BYTES = 120
# Bits of the lower half of a weight, see TreeShapes.
_HALF = 32
# Nanoseconds on one thread for a node. Measured.
_NODE_NS = 500.0
# Pairs of features, as first * features + second, and the number of nodes with the pair.
_PAIRS = {"key": pl.UInt64, "nodes": pl.Int64}


class TreeShapes(NamedTuple):
    """The shapes of some trees.

    lines    rows of the table `trees`.
    splits   int64 [features, 5], for each feature: nodes that split on it; the sum of their depths; the number of trees
             with such a node; the sum of the upper halves of the bag weights of these nodes (without the lower _HALF
             bits); the sum of the lower halves. The sum of whole 64-bit weights might overflow.
    pairs    number of nodes that split on the second feature of a pair, and whose parent splits on the first; columns
             _PAIRS.
    leaves   the most informative leaves: `interest` and the columns of `rules`, with codes instead of classes.
    """

    lines: pl.DataFrame
    splits: NDArray[np.int64]
    pairs: pl.DataFrame
    leaves: pl.DataFrame


def plan_trees(job: ExplainJob) -> SectionPlan:
    stock, features = job.stock, len(job.forest.spec.features)
    sizes = 2 * stock.sizes() + stock.trees.nodes * (_NODE_BYTES + _ANSWER_BYTES * stock.width)
    tables = _FEATURE_BYTES * features + _TREE_BYTES * stock.tree_count
    most = job.resources.limits.explain_pairs
    plan = plan_groups("trees", stock, job.resources, _PAIR_BYTES * most, work=0.0, shared=tables, sizes=sizes)
    return plan._replace(nanoseconds=stock.node_count * _NODE_NS)


def write_trees(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `trees`, `tree-features`, `tree-pairs` and `rules`.

    trees          for each tree: nodes, leaves, depth, mean depth of the leaves by weight, share of the largest leaf.
    tree-features  for each feature: nodes that split on it, the number of trees with such a node, and the mean depth
                   and the total bag weight of these nodes.
    tree-pairs     number of nodes that split on the feature `below` and whose parent splits on `above`.
    rules          the most informative leaves, with their conditions. The rank of a leaf follows from the product of
                   two numbers: its share of the bag weight of the tree, and the squared distance of its value from the
                   value of the root (for classes, the sum of the squared differences of their shares).
    """
    names = ["trees", "tree-features", "tree-pairs", "rules"]
    folder = job.folder.without_rows().with_settings(job.options.rules)
    if folder.has_all(names):
        return
    spec = job.forest.spec
    tables: dict[int, tuple[pl.DataFrame, pl.DataFrame]] = {}
    splits, pairs = np.zeros((len(spec.features), 5), np.int64), pl.DataFrame(schema=_PAIRS)

    def collect(trees: range, shape: TreeShapes) -> None:
        nonlocal splits, pairs
        splits, pairs = splits + shape.splits, _add_counts([pairs, shape.pairs])
        tables[trees.start] = shape.lines, shape.leaves

    shared = (job.stock.trees, job.options.rules, job.resources.limits.explain_pairs)
    job.over_trees("trees", plan, describe_group, shared, collect)
    lines, leaves = (pl.concat(parts) for parts in zip(*(tables[first] for first in sorted(tables)), strict=True))
    features = spec.feature_names
    folder.write("trees", lines)
    nodes, level, trees, upper, lower = splits.T
    weight = (upper * 2.0**_HALF + lower) * (1.0 if spec.weight is None else spec.weight.step)
    with np.errstate(invalid="ignore"):
        table = {"feature": features, "nodes": nodes, "trees": trees, "level": level / nodes, "weight": weight}
    folder.write("tree-features", pl.DataFrame(table))
    folder.write("tree-pairs", _pair_table(pairs, features))
    folder.write("rules", _rules(leaves, job))


def _pair_table(pairs: pl.DataFrame, features: list[str]) -> pl.DataFrame:
    """Return the pairs, the most frequent first. Ties are in the order of the features."""
    pairs = pairs.sort("nodes", "key", descending=[True, False])
    names = pl.Series(features, dtype=pl.String)
    above, below = pairs["key"] // len(features), pairs["key"] % len(features)
    return pl.DataFrame({"above": names.gather(above), "below": names.gather(below), "nodes": pairs["nodes"]})


def _rules(leaves: pl.DataFrame, job: ExplainJob) -> pl.DataFrame:
    """Return the most informative of some leaves. Ties are in the order of trees and nodes."""
    best = leaves.sort("interest", "tree", "node", descending=[True, False, False])
    table = best.head(job.options.rules).drop("interest")
    if job.forest.is_regression:
        return table
    return table.with_columns(label_series(job.forest.spec.target).gather(table["prediction"]).alias("prediction"))


def describe_group(trees: Trees, rules: int, most: int, group: range) -> TreeShapes:
    """Task: return the shapes of the trees of a group; most: see `_pairs`."""
    nodes = join_trees([piece for span in trees.spans(group) for piece in read_span(span, trees.header)])
    features = len(trees.header.spec.features)
    parent, depth = nodes.parents, nodes.depth.astype(np.int64)
    used = split_features(nodes)
    splits, weight = np.zeros((features, 5), np.int64), nodes.weight[used.node].astype(np.int64)
    for at, values in ((1, depth[used.node]), (3, weight >> _HALF), (4, weight & (2**_HALF - 1))):
        np.add.at(splits[:, at], used.feature, values)
    splits[:, 0] = np.bincount(used.feature, minlength=features)
    tree = np.repeat(np.arange(nodes.roots.size), np.diff(nodes.starts))
    splits[:, 2] = np.bincount(np.unique(tree[used.node] * features + used.feature) % features, minlength=features)
    leaves = _rule_leaves(nodes, parent, tree, rules, trees.header)
    return TreeShapes(_lines(nodes, depth), splits, _pairs(used, parent, features, most), leaves)


def _pairs(splits: SplitFeatures, parent: NDArray[np.int64], features: int, most: int) -> pl.DataFrame:
    """Count the pairs of a feature of a node and a feature of its parent, columns _PAIRS.

    features  number of features
    most      most pairs that are held at a time, unless one feature of a node has more
    """
    child = np.flatnonzero(parent[splits.node] >= 0)  # entries of `splits` whose node has a parent
    above = parent[splits.node[child]]
    number = splits.start[above + 1] - splits.start[above]  # of features of the parent
    pair_counts, ends = pl.DataFrame(schema=_PAIRS), np.concatenate([[0], np.cumsum(number)])
    for begin, end in cut_entries(ends, most):  # nodes on many features have many pairs
        span = slice(begin, end)
        first = np.repeat(splits.start[above[span]] - ends[begin:end], number[span]) + np.arange(ends[begin], ends[end])
        second = np.repeat(splits.feature[child[span]], number[span])
        keys = splits.feature[first].astype(np.uint64) * np.uint64(features) + second.astype(np.uint64)
        pair_counts = _add_counts([pair_counts, pl.DataFrame({"key": keys, "nodes": np.ones(keys.size, np.int64)})])
    return pair_counts


def _add_counts(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by("key").agg(pl.sum("nodes"))


def _lines(nodes: TreeArrays, depth: NDArray[np.int64]) -> pl.DataFrame:
    """Return the rows of the table `trees`; depth: of each node, int64 [nodes]."""
    roots, leaf, weight = nodes.roots, nodes.feature == LEAF, nodes.weight.astype(np.float64)
    in_leaves = np.where(leaf, weight, 0.0)
    columns = {
        "tree": nodes.tree + np.arange(roots.size),
        "nodes": np.diff(nodes.starts),
        "leaves": np.add.reduceat(leaf, roots, dtype=np.int64),
        "depth": np.maximum.reduceat(depth, roots),
        "mean_depth": np.add.reduceat(depth * in_leaves, roots) / np.add.reduceat(in_leaves, roots),
        "largest_leaf": np.maximum.reduceat(in_leaves, roots) / weight[roots],
    }
    return pl.DataFrame(columns)


def _rule_leaves(
    nodes: TreeArrays, parent: NDArray[np.int64], tree: NDArray[np.int64], rules: int, header: Header
) -> pl.DataFrame:
    """Return the most informative leaves (`write_trees`), at most `rules`. Ties are in the order of trees and nodes.

    parent  int64 [nodes], parent of each node
    tree    int64 [nodes], position of the tree of each node among these trees
    """
    answers, weight = node_predictions(nodes.counts, nodes.value), nodes.weight.astype(np.float64)
    leaf = np.flatnonzero(nodes.feature == LEAF)
    root = nodes.root_of[leaf]
    interest = weight[leaf] / weight[root] * ((answers[leaf] - answers[root]) ** 2).sum(axis=1)
    best = np.argsort(-interest, kind="stable")[:rules]
    at, answer = leaf[best], answers[leaf[best]]
    columns: dict[str, Any] = {
        "interest": interest[best],
        "tree": (nodes.tree + tree[at]).astype(np.uint32),
        "node": (at - root[best]).astype(np.uint32),
        "rule": pl.Series([rule_of(nodes, place, parent, header) for place in at.tolist()], dtype=pl.String),
        "weight": weight[at] * (1.0 if header.spec.weight is None else header.spec.weight.step),
        "prediction": answer[:, 0] if nodes.value is not None else answer.argmax(axis=1),
    }
    return pl.DataFrame(columns if nodes.value is not None else columns | {"share": answer.max(axis=1)})


def rule_of(nodes: TreeArrays, node: int, parent: NDArray[np.int64], header: Header) -> str:
    """Return the conditions of a leaf as a text, in the order in which their features occur on the path.

    All conditions on a feature with thresholds become one. Thresholds have all their digits, so exactly the rows of the
    leaf satisfy the rule. There are two exceptions: the weights of projections are rounded, and only _NAMED levels of a
    condition are named.
    """
    texts: dict[Any, str] = {}  # conditions by feature, or by node for projections and lists of levels
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    shut: set[int] = set()  # features whose missing values do not reach the leaf
    path = []
    while parent[node] >= 0:
        path.append((int(parent[node]), node == parent[node] + 1))
        node = int(parent[node])
    for at, left in reversed(path):
        place = int(nodes.feature[at])
        if place == OBLIQUE:
            bound = float(nodes.threshold[at])
            texts["node", at] = f"{_projection(nodes, at, header)} {'<=' if left else '>'} {bound!r}"
            continue
        feature = header.spec.features[place]
        if feature.splits_on_levels:
            texts["node", at] = _level_condition(nodes, at, left, place, header)
            continue
        bound = float(nodes.threshold[at])
        if left:
            high[place] = min(high.get(place, np.inf), bound)
        else:
            low[place] = max(low.get(place, -np.inf), bound)
        if feature.has_level_values:
            assert header.levels is not None
            levels = header.levels.between(place, feature, low.get(place, -np.inf), high.get(place, np.inf))
            names = listed(list(map(level_text, levels)), _NAMED)
            texts[place] = f"{feature.name} in {{{names}}}"
            continue
        if not feature.missing or bool(nodes.default_left[at]) != left:
            shut.add(place)
        texts[place] = _interval(feature.name, low.get(place), high.get(place), place not in shut)
    return " and ".join(texts.values()) or "all rows"


def _interval(name: str, low: float | None, high: float | None, missing: bool) -> str:
    """Return the bounds of a number as a text; missing: True if a missing value satisfies all conditions."""
    if low is None:
        text = f"{name} <= {high!r}"
    elif high is None:
        text = f"{name} > {low!r}"
    else:
        text = f"{low!r} < {name} <= {high!r}"
    return f"({text} or missing)" if missing else text


def _level_condition(nodes: TreeArrays, at: int, left: bool, place: int, header: Header) -> str:
    """Return the condition of a child of node `at`, which splits on listed levels of a category, as a text.

    left   True for the left child.
    place  position of the category in the dataspec.
    """
    lists, levels, feature = nodes.levels, header.levels, header.spec.features[place]
    assert lists is not None and levels is not None
    names = [*[None] * feature.missing, *levels.of(place).to_list()]
    texts = [level_text(names[int(code)]) for code in lists.code[lists.start[at] : lists.start[at + 1]]]
    inside = bool(nodes.default_left[at]) != left
    return f"{feature.name} {'in' if inside else 'not in'} {{{listed(texts, _NAMED)}}}"


def _projection(nodes: TreeArrays, node: int, header: Header) -> str:
    terms = nodes.terms
    assert terms is not None
    span = range(int(terms.start[node]), int(terms.start[node + 1]))
    texts = [f"{terms.weight[at]:.4g} {header.spec.features[int(terms.feature[at])].name}" for at in span]
    return " + ".join(texts[:_NAMED]) + (f" + {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")
