"""Kinds of features for the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.scan.categorical_missing import (
    CATEGORY,
    MISSING,
    NUMBER,
    CategoricalMissing,
    make_categorical_missing,
)
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
        """The kinds of the features of a store."""
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

    def mixed(self, rows: int, classes: int) -> CategoricalMissing | None:
        """What kernels need to grow on this many rows besides codes; None where all are plain."""
        return None if self.plain else make_categorical_missing(self.kinds, self.largest, rows, classes)
