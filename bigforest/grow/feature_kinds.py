"""Kinds of features: from a store to what kernels need to know of each of its columns."""

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
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store


class Features(NamedTuple):
    """The features of a table.

    codes      number of codes of each
    kinds      uint8 [features], see kernels/scan/categorical_missing.py
    min_level  int64 [features], the option, in weights of the bag
    """

    codes: tuple[int, ...]
    kinds: NDArray[np.uint8]
    min_level: NDArray[np.int64]

    @classmethod
    def of(cls, store: Store, config: TrainConfig) -> Features:
        """Those of a store. Raises ConfigError where min_level is of another number of features."""
        features, mean = store.spec.features, store.spec.searched_weight
        least = [1 + round((level - 1) * mean) for level in config.min_levels(len(features))]
        kinds = [
            CATEGORY if feature.splits_on_levels else MISSING if feature.has_gaps else NUMBER for feature in features
        ]
        return cls(tuple(feature.codes for feature in features), np.array(kinds, np.uint8), np.array(least, np.int64))

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
        if self.plain:
            return None
        return make_categorical_missing(self.kinds, self.min_level, self.largest, rows, classes)
