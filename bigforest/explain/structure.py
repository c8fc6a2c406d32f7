"""What the trees look like: depth, sizes, features and who follows whom, and the most telling leaves as text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.events import stage
from bigforest.explain.job import ExplainJob
from bigforest.forest.format.checks import Nodes, join_nodes
from bigforest.forest.format.files import Header
from bigforest.forest.format.parts import Span, batches, check_parts, read_span, whole_parts
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.schema.dataspec import FeatureSpec
from bigforest.schema.labels import label_series
from bigforest.store.levels import Levels

# Levels of a category, and terms of a projection, that a rule names.
_NAMED = 6


class PartShape(NamedTuple):
    """Of the trees of a part.

    lines   of `trees`, one per tree.
    splits  int64 [features, 2], nodes that look at each feature, and what the bag weighs in them.
    depths  int64 [features], sum of the levels of these nodes.
    follows  int64 [features, features], nodes on the second feature right below one on the first.
    leaves  (interest, tree, node, rule, weight, answer) of the most telling leaves.
    """

    lines: list[dict[str, Any]]
    splits: NDArray[np.int64]
    depths: NDArray[np.int64]
    follows: NDArray[np.int64]
    leaves: list[tuple[float, int, int, str, float, Any]]


def write_trees(job: ExplainJob) -> None:
    """`trees`, `tree-features`, `tree-pairs` and `rules`.

    trees          nodes, leaves, depth, mean depth of the leaves by weight, and rows of the largest leaf.
    tree-features  nodes that look at a feature, trees that do, their mean level and what the bag weighs in them.
    tree-pairs     nodes on the feature `below` whose parent looks at `above`.
    rules          the leaves that say most: weight * how far their answer is from that of the root (for classes the sum
                   of squared differences of shares, for numbers the squared difference), with their conditions.
    """
    names = ["trees", "tree-features", "tree-pairs", "rules"]
    settings = repr(job.options.rules)
    if job.folder.has_all(names, settings):
        return
    paths = job.forest.part_files
    header = check_parts(list(paths))
    found: dict[int, PartShape] = {}
    spans = whole_parts(list(paths))
    with stage("trees", len(spans), "parts", job.listener) as progress:

        def collect(index: int, part: PartShape) -> None:
            found[index] = part
            progress.advance()

        shared = (header, job.forest.levels, job.options.rules)
        job.run(part_shape, [(span,) for span in spans], collect, shared, job.resources.workers)
    parts = [found[index] for index in range(len(spans))]
    spec = header.spec
    features = [feature.name for feature in spec.features]
    job.folder.write("trees", pl.DataFrame([line for part in parts for line in part.lines]).drop("used"), settings)
    splits = sum((part.splits for part in parts), np.zeros((len(features), 2), np.int64))
    depths = sum((part.depths for part in parts), np.zeros(len(features), np.int64))
    used = np.zeros(len(features), np.int64)
    for part in parts:
        for line in part.lines:
            used[line["used"]] += 1
    with np.errstate(invalid="ignore"):
        level = depths / splits[:, 0]
    table = {"feature": features, "nodes": splits[:, 0], "trees": used, "level": level, "weight": splits[:, 1]}
    job.folder.write("tree-features", pl.DataFrame(table).with_columns(pl.col("level").fill_nan(None)), settings)
    follows = sum((part.follows for part in parts), np.zeros((len(features), len(features)), np.int64))
    above, below = np.nonzero(follows)
    order = np.argsort(-follows[above, below], kind="stable")
    pairs = {
        "above": pl.Series([features[place] for place in above[order].tolist()], dtype=pl.String),
        "below": pl.Series([features[place] for place in below[order].tolist()], dtype=pl.String),
        "nodes": follows[above, below][order],
    }
    job.folder.write("tree-pairs", pl.DataFrame(pairs), settings)
    job.folder.write("rules", _rules([leaf for part in parts for leaf in part.leaves], job), settings)


def _rules(leaves: list[tuple[float, int, int, str, float, Any]], job: ExplainJob) -> pl.DataFrame:
    """The most telling of some leaves; of equals the first tree and node."""
    leaves = sorted(leaves, key=lambda leaf: (-leaf[0], leaf[1], leaf[2]))[: job.options.rules]
    step = 1.0 if job.forest.spec.weight is None else job.forest.spec.weight.step
    columns: dict[str, Any] = {
        "tree": pl.Series([leaf[1] for leaf in leaves], dtype=pl.UInt32),
        "node": pl.Series([leaf[2] for leaf in leaves], dtype=pl.UInt32),
        "rule": pl.Series([leaf[3] for leaf in leaves], dtype=pl.String),
        "weight": pl.Series([leaf[4] * step for leaf in leaves], dtype=pl.Float64),
    }
    if job.forest.is_regression:
        columns["answer"] = pl.Series([leaf[5] for leaf in leaves], dtype=pl.Float64)
    else:
        shares = [leaf[5] for leaf in leaves]
        labels = label_series(job.forest.spec.target).alias("answer")
        columns["answer"] = labels.gather([int(np.argmax(own)) for own in shares])
        columns["share"] = pl.Series([float(np.max(own)) for own in shares], dtype=pl.Float64)
    return pl.DataFrame(columns)


def part_shape(header: Header, levels: Levels, rules: int, span: Span) -> PartShape:
    """Task: what the trees of a part look like."""
    nodes = join_nodes(list(read_span(span, header)))
    classes = len(header.spec.target.classes)
    weight = [batch.column("weight").to_numpy() for batch in batches(span, classes, ["weight"])]
    features = len(header.spec.features)
    part = PartShape(
        [],
        np.zeros((features, 2), np.int64),
        np.zeros(features, np.int64),
        np.zeros((features, features), np.int64),
        [],
    )
    starts = nodes.starts
    every = np.concatenate(weight).astype(np.float64)
    for at in range(starts.size - 1):
        _add_tree(
            part, _Tree(nodes, int(starts[at]), int(starts[at + 1]), nodes.tree + at, every), rules, header, levels
        )
    return part


class _Tree(NamedTuple):
    """A tree among the nodes of a part."""

    nodes: Nodes
    begin: int
    end: int
    number: int
    weight: NDArray[np.float64]

    def features(self, node: int) -> list[int]:
        """Features that an inner node looks at."""
        feature = int(self.nodes.feature[self.begin + node])
        if feature != OBLIQUE:
            return [feature]
        terms = self.nodes.terms
        assert terms is not None
        found: list[int] = terms.feature[terms.start[self.begin + node] : terms.start[self.begin + node + 1]].tolist()
        return found

    def parents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The parent of each node, and its level; the root has -1 and 0."""
        size = self.end - self.begin
        parent, level = np.full(size, -1), np.zeros(size, np.int64)
        inner = np.flatnonzero(self.nodes.feature[self.begin : self.end] != LEAF)
        parent[inner + 1] = inner
        parent[self.nodes.right[self.begin : self.end][inner].astype(np.int64)] = inner
        for node in range(1, size):
            level[node] = level[parent[node]] + 1
        return parent, level

    def answers(self) -> NDArray[np.float64]:
        """Shares of classes, or numbers, of every node."""
        own = slice(self.begin, self.end)
        if self.nodes.value is not None:
            return self.nodes.value[own, None]
        counts = self.nodes.counts[own].astype(np.float64)
        shares: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
        return shares


def _add_tree(part: PartShape, tree: _Tree, rules: int, header: Header, levels: Levels) -> None:
    parent, level = tree.parents()
    feature, weight = tree.nodes.feature[tree.begin : tree.end], tree.weight[tree.begin : tree.end]
    leaf = feature == LEAF
    used = set[int]()
    for node in np.flatnonzero(~leaf).tolist():
        own = tree.features(node)
        used.update(own)
        part.splits[own] += [1, int(weight[node])]
        part.depths[own] += level[node]
        if node:
            part.follows[np.ix_(tree.features(int(parent[node])), own)] += 1
    part.lines.append(
        {
            "tree": tree.number,
            "nodes": feature.size,
            "leaves": int(leaf.sum()),
            "depth": int(level.max()),
            "mean_depth": float((level[leaf] * weight[leaf]).sum() / weight[leaf].sum()),
            "largest_leaf": float(weight[leaf].max() / weight[0]),
            "used": sorted(used),
        }
    )
    answers = tree.answers()
    interest = np.where(leaf, weight / weight[0] * ((answers - answers[0]) ** 2).sum(axis=1), -1.0)
    best = np.argsort(-interest, kind="stable")[:rules]
    for node in best[leaf[best]].tolist():
        answer = float(answers[node, 0]) if tree.nodes.value is not None else answers[node]
        rule = rule_of(tree, node, parent, header, levels)
        part.leaves.append((float(interest[node]), tree.number, node, rule, float(weight[node]), answer))
    part.leaves.sort(key=lambda found: (-found[0], found[1], found[2]))
    del part.leaves[rules:]


def rule_of(tree: _Tree, node: int, parent: NDArray[np.int64], header: Header, levels: Levels) -> str:
    """The conditions of a leaf, those on one number put together, in the order in which features come first.

    Bounds are written in full: a rule is true of the rows of the leaf and of no others.
    """
    texts: dict[Any, str] = {}
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    path = []
    while parent[node] >= 0:
        path.append((int(parent[node]), node == parent[node] + 1))
        node = int(parent[node])
    for above, left in reversed(path):
        at = tree.begin + above
        place = int(tree.nodes.feature[at])
        if place == OBLIQUE:
            texts["node", at] = (
                f"{_projection(tree, above, header)} {'<=' if left else '>'} {float(tree.nodes.threshold[at])!r}"
            )
            continue
        feature = header.spec.features[place]
        if feature.kind == "category":
            texts["node", at] = _listed(tree, above, left, feature, place, levels)
            continue
        bound = float(tree.nodes.threshold[at])
        if left:
            high[place] = min(high.get(place, np.inf), bound)
        else:
            low[place] = max(low.get(place, -np.inf), bound)
        missing = feature.missing and bool(tree.nodes.default_left[at]) == left
        texts[place] = _interval(feature.name, low.get(place), high.get(place), missing)
    return " and ".join(texts.values()) or "all rows"


def _interval(name: str, low: float | None, high: float | None, missing: bool) -> str:
    """Bounds of a number; a missing value passes the last of its conditions or it does not."""
    if low is None:
        text = f"{name} <= {high!r}"
    elif high is None:
        text = f"{name} > {low!r}"
    else:
        text = f"{low!r} < {name} <= {high!r}"
    return f"({text} or missing)" if missing else text


def _listed(tree: _Tree, node: int, left: bool, feature: FeatureSpec, place: int, levels: Levels) -> str:
    lists = tree.nodes.levels
    assert lists is not None
    at = tree.begin + node
    texts = [*(["missing"] if feature.missing else []), *levels.of(place).to_list()]
    names = [texts[int(code)] for code in lists.code[lists.start[at] : lists.start[at + 1]]]
    inside = bool(tree.nodes.default_left[at]) != left
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"{feature.name} {'in' if inside else 'not in'} {{{shown}}}"


def _projection(tree: _Tree, node: int, header: Header) -> str:
    terms = tree.nodes.terms
    assert terms is not None
    own = range(int(terms.start[tree.begin + node]), int(terms.start[tree.begin + node + 1]))
    texts = [f"{terms.weight[at]:.4g} {header.spec.features[int(terms.feature[at])].name}" for at in own]
    return " + ".join(texts[:_NAMED]) + (f" + {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")
