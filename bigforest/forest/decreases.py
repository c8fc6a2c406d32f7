"""Decrease of impurity by feature, of trees that were just grown or of files of trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.columns.dataspec import DataSpec
from bigforest.execution.executor import Executor
from bigforest.forest.nodes import TreeArrays, features_of, split_features
from bigforest.forest.parts import batches, part_paths

# Of a tree: the features that it uses, and the sum of gain * weight over the nodes of each.
TreeDecreases = tuple[NDArray[np.int64], NDArray[np.float64]]

_HERE = Executor(1)


class DecreaseSums:
    """Decreases by feature, added tree by tree in order, in whatever order the files come."""

    def __init__(self, features: int) -> None:
        self._total = np.zeros(features)
        self._waiting: dict[int, tuple[int, list[TreeDecreases]]] = {}
        self._following = 0

    def add(self, part: range, trees: list[TreeDecreases]) -> None:
        """Add the trees with a split of one file, in order; files are numbered from 0 without a gap."""
        self._waiting[part.start] = part.stop, trees
        while self._following in self._waiting:
            self._following, ready = self._waiting.pop(self._following)
            for feature, decrease in ready:
                self._total[feature] += decrease

    @property
    def shares(self) -> NDArray[np.float64]:
        """Share of each feature in the total decrease of impurity, float64 [features]."""
        whole = self._total.sum()
        return self._total / whole if whole > 0 else np.zeros(self._total.size)


def importance(directory: Path, spec: DataSpec, executor: Executor = _HERE) -> NDArray[np.float64]:
    """Return the share of each feature in the total decrease of impurity, float64 [features].

    Summed node by node within a tree and then tree by tree, so that neither the cut into parts nor the pieces they are
    read in can change a bit of it.
    """
    parts = [(path,) for path in part_paths(directory)]
    sums = DecreaseSums(len(spec.features))

    def add(part: int, trees: list[TreeDecreases]) -> None:
        sums.add(range(part, part + 1), trees)

    executor.run(part_decreases, parts, add, (spec,), even=True)
    return sums.shares


def part_decreases(spec: DataSpec, path: Path) -> list[TreeDecreases]:
    """Task: return the decreases of the trees with a split of one file. Only used features are kept: a table may have
    many more features than a tree has nodes."""
    return [_drop_zeros(decrease) for _, decrease in tree_decreases([path], spec)]


def grown_decreases(trees: TreeArrays, spec: DataSpec) -> list[TreeDecreases]:
    node, feature, start = split_features(trees)
    decrease = _decrease(trees.gain[node], trees.weight[node], np.diff(start)[node], spec)
    cuts = [slice(begin, end) for begin, end in pairwise(start[trees.starts].tolist()) if begin < end]
    return [
        _drop_zeros(np.bincount(feature[tree], decrease[tree], len(spec.features)).astype(np.float64)) for tree in cuts
    ]


def _drop_zeros(decrease: NDArray[np.float64]) -> TreeDecreases:
    return (used := np.flatnonzero(decrease)), decrease[used]


def _decrease(
    gain: NDArray[np.float64], weight: NDArray[np.uint64], shares: NDArray[np.int64], spec: DataSpec
) -> NDArray[np.float64]:
    """Return the decrease of a feature of a node: the decrease of the node divided by its number of features."""
    return gain / spec.target.step / spec.target.step * weight / shares


def tree_decreases(parts: Iterable[Path], spec: DataSpec) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield each tree with a split of these files, in order, with the sum of gain * weight over the nodes of each
    feature.

    The decrease of an oblique node is divided equally among its features. Those of numbers are counted in steps, whose
    squares neither vanish nor overflow.

    Trusts the parts, which this run has just written, or checked: reading few columns takes a fifth of the time of
    checking all.
    """
    total = np.zeros(len(spec.features))
    last = -1
    columns = ["tree", "gain", "weight", "feature", "terms"]
    for path in parts:
        for splits in batches(path, len(spec.target.classes), columns):
            splits = splits.filter(splits["gain"].is_valid())
            if splits.num_rows == 0:
                continue
            tree, gain, weight, names, terms = (splits[name] for name in columns)
            feature, shares = features_of(names, terms, spec)
            tree = np.repeat(as_numpy(tree), shares)
            decrease = np.repeat(_decrease(as_numpy(gain), as_numpy(weight), shares, spec), shares)
            cuts = (np.flatnonzero(np.diff(tree)) + 1).tolist()
            for begin, end in pairwise([0, *cuts, feature.size]):
                if tree[begin] != last:
                    if last >= 0:
                        yield last, total
                    total = np.zeros(len(spec.features))
                    last = int(tree[begin])
                np.add.at(total, feature[begin:end], decrease[begin:end])
    if last >= 0:
        yield last, total
