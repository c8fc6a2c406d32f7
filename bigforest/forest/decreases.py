"""Decrease of impurity by feature, of trees that were just grown or are read from files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.execution.executor import Executor, in_order
from bigforest.forest.files import Header
from bigforest.forest.nodes import TreeArrays, split_features
from bigforest.forest.parts import Span, check_part, part_paths, part_ranges, read_span

# The features whose decrease in a tree is not 0, and the sum of gain * weight over the nodes of each of them.
TreeDecreases = tuple[NDArray[np.int64], NDArray[np.float64]]

_HERE = Executor(1)
# Bound of the rounding error of a decrease, for impurities up to 1 (gini, error); entropies are up to log2(classes).
_ROUNDING = 2.0**-50


def decrease_shares(decrease: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each feature in a total decrease, both [..., features]; 0 if nothing decreased.

    A decrease of rows that weigh next to nothing may be rounded to a negative number. It counts as 0.
    """
    positive = np.maximum(decrease, 0.0)
    total = positive.sum(axis=-1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0.0)


def importance(directory: Path, header: Header, executor: Executor = _HERE) -> NDArray[np.float64]:
    """Return the share of each feature in the total decrease of impurity, float64 [features].

    header  common header of the part files, with the levels of categories.

    Decreases are summed node by node within a tree, and then tree by tree, so the result does not depend on the
    division into part files, or on the pieces in which these are read. Raises FormatError.
    """
    paths = part_paths(directory)
    spans = [check_part(*part, header) for part in zip(paths, part_ranges(paths, header.config.trees), strict=True)]
    total = np.zeros(len(header.spec.features))

    def add(_: int, trees: list[TreeDecreases]) -> None:
        for feature, decrease in trees:
            total[feature] += decrease

    executor.run(part_decreases, [(span,) for span in spans], in_order(add), (header,))
    return decrease_shares(total)


def part_decreases(header: Header, span: Span) -> list[TreeDecreases]:
    """Task: return the decreases of the trees of a span. Features whose decrease is 0 are dropped: a table may have
    many more features than a tree has nodes."""
    decreases = (decrease for _, decrease in tree_decreases(read_span(span, header), header.spec))
    return [(kept := np.flatnonzero(decrease), decrease[kept]) for decrease in decreases]


def importance_of(trees: Iterable[TreeArrays], spec: DataSpec) -> NDArray[np.float64]:
    """Return the same as `importance`, for whole trees in memory, in order."""
    total = np.zeros(len(spec.features))
    for nodes in trees:  # separately: in memory, numbers of trees begin with 0 in each
        for _, decrease in tree_decreases([nodes], spec):
            total += decrease
    return decrease_shares(total)


def tree_decreases(pieces: Iterable[TreeArrays], spec: DataSpec) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the number of each tree, in order, and the sum of gain * weight over the nodes of each feature.

    pieces  consecutive nodes, of whole trees or of parts of trees

    The decrease of an oblique node is divided equally among its features. Decreases of a regression are divided by the
    square of the step to which targets are rounded (TargetSpec.step), so that they neither vanish nor overflow. For
    classes, a decrease within the rounding error counts as 0: in a tree without any larger decrease, rounding errors
    alone would make up the importance.
    """
    step, total, last = spec.target.step, np.zeros(len(spec.features)), -1
    least = 0.0 if spec.target.is_regression else _ROUNDING * max(1.0, math.log2(len(spec.target.classes)))
    for piece in pieces:
        node, feature, start = split_features(piece)
        gain = np.where(np.abs(piece.gain) > least, piece.gain, 0.0)
        decrease = gain[node] / step / step * piece.weight[node] / np.diff(start)[node]
        cuts = start[list(dict.fromkeys([0, *piece.starts.tolist()]))].tolist()
        for tree, (begin, end) in enumerate(pairwise(cuts), piece.tree):
            if tree != last:
                if last >= 0:
                    yield last, total
                total, last = np.zeros(len(spec.features)), tree
            np.add.at(total, feature[begin:end], decrease[begin:end])
    if last >= 0:
        yield last, total
