"""Kinds of features for the kernels, and growing on features in memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.scan.categorical_missing import CATEGORY, MISSING, NUMBER, Subsets, make_categorical_missing
from bigforest.kernels.scan.random_split import CodeDictionary
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.kernels.tree.grow import grow, grow_mixed
from bigforest.store.store import Store


class Features(NamedTuple):
    """The features of a table.

    codes  number of codes of each
    kinds  uint8 [features], see kernels/scan/categorical_missing.py
    """

    codes: tuple[int, ...]
    kinds: NDArray[np.uint8]

    @classmethod
    def of(cls, store: Store) -> Features:
        """Those of a store."""
        features = store.spec.features
        kinds = [
            CATEGORY if feature.kind == "category" else MISSING if feature.missing else NUMBER for feature in features
        ]
        return cls(tuple(feature.codes for feature in features), np.array(kinds, np.uint8))

    @property
    def plain(self) -> bool:
        """Whether all are numbers of which none is missing."""
        return not self.kinds.any()

    @property
    def largest(self) -> int:
        """Codes of the largest category; 0 without one."""
        return max((self.codes[place] for place in np.flatnonzero(self.kinds == CATEGORY)), default=0)


# Trees, or a part of one, and further data of their nodes if features are not plain.
Grown = tuple[CodeTree, Subsets | None]


def grow_on_features(
    codes: Codes,
    by_row: RowMajorCodes,
    items: NDArray[np.uint64],
    target: ClassTarget | RegressionTarget,
    roots: Roots,
    rules: Rules,
    features: Features,
    dictionary: CodeDictionary | None = None,
) -> Grown:
    """Grow trees, or the part below a node, in memory; the arguments are those of kernels/tree/grow.py grow."""
    if features.plain:
        return grow(codes, by_row, items, target, roots, rules, dictionary), None
    mixed = make_categorical_missing(features.kinds, features.largest, roots.max_rows, target.number)
    return grow_mixed(codes, by_row, items, target, roots, rules, mixed, dictionary)
