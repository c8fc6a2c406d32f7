"""Compile the kernels of growing in memory, by growing on two rows, so that this does not count as time of the first
tree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.oblique.search import DirectionExtras, Oblique, smallest
from bigforest.kernels.scan.categorical_missing import CATEGORY, Subsets, make_categorical_missing
from bigforest.kernels.scan.impurity import GINI, entropy_table
from bigforest.kernels.scan.random_split import CodeDictionary
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.subspace.columns import Subspace
from bigforest.kernels.subspace.split import smallest_subspace
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.kernels.tree.grow import grow


class Needs(NamedTuple):
    """Needs of a forest in addition to splits for two classes on plain numbers.

    family      splits on projections of this family
    mixed       features that are categories or have missing values
    regression  whether the targets are numbers
    many        whether there are more than two classes
    random      random splits on features
    impurity    number of the criterion
    table       of a registered criterion, see kernels/scan/impurity.py; None for those of the package
    zero        for regression by the Poisson deviance any number, else None
    """

    family: type[Oblique | Subspace] | None = None
    mixed: bool = False
    regression: bool = False
    many: bool = False
    random: bool = False
    impurity: int = GINI
    table: Any = None
    zero: float | None = None


def compile_kernels(needs: Needs) -> tuple[CodeTree, DirectionExtras | Subsets | None]:
    """Compile the kernels of `grow`, or load them from the cache; return the result of `grow`."""
    codes = Codes(
        u8=np.zeros((1, 2), np.uint8),
        u16=np.zeros((0, 2), np.uint16),
        u32=np.zeros((0, 2), np.uint32),
        place=np.array([[1, 0]], np.uint32),
    )
    value = np.arange(2)
    dictionary = CodeDictionary(np.arange(2), np.zeros(1))
    by_row = RowMajorCodes(codes.u8.T.copy(), codes.u16.T.copy(), codes.u32.T.copy(), 0)
    for array in (*codes, value, *dictionary):
        array.flags.writeable = False  # as in a store: with other flags kernels would be compiled again
    items = np.array([1, 1 << 32 | (0 if needs.regression else 1 << 16) | 1], np.uint64)
    classes = 3 if needs.many else 2
    table = entropy_table() if needs.table is None else needs.table
    target = RegressionTarget(value, needs.zero) if needs.regression else ClassTarget(classes, table)
    random = dictionary if needs.random else None
    roots = Roots.single(items.size, np.uint64(0))
    rules = Rules(mtry=1, impurity=needs.impurity, max_depth=-1, min_split=2, min_leaf=1, redraw=True)
    with np.errstate(over="ignore"):
        kind: Any = None
        if needs.family is not None:
            if needs.family is Oblique:
                kind = smallest(codes, items.size, classes, needs.regression)
            else:
                kind = smallest_subspace(codes.place.shape[0], items.size, classes)
        elif needs.mixed:
            kind = make_categorical_missing(
                np.array([CATEGORY], np.uint8), np.ones(1, np.int64), 1, items.size, classes
            )
        return grow(codes, by_row, items, target, roots, rules, kind, random)
