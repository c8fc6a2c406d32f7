"""Kinds of the features of a store, as kernels need them to split nodes on categories and missing values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import CATEGORY, MISSING, NUMBER
from bigforest.kernels.scan.categorical_missing import CategoricalMissing, make_categorical_missing
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store


class Features(NamedTuple):
    """The features of a table.

    codes      number of codes of each feature
    kinds      uint8 [features], NUMBER, MISSING or CATEGORY of kernels/common/layout.py
    min_level  int64 [features], the option `min_level` as a weight: a level whose bag rows weigh this much is never
               joined with others
    """

    codes: tuple[int, ...]
    kinds: NDArray[np.uint8]
    min_level: NDArray[np.int64]

    @classmethod
    def of(cls, store: Store, config: TrainConfig) -> Features:
        """Return the features of a store. Raise ConfigError if `min_level` is for another number of features."""
        features, mean = store.spec.features, store.spec.searched_weight
        min_level = [1 + round((level - 1) * mean) for level in config.min_levels(len(features))]
        kinds = np.full(len(features), NUMBER, np.uint8)
        if store.shape.extras.non_plain_features:
            kinds[[feature.has_gaps for feature in features]] = MISSING
            kinds[[feature.splits_on_levels for feature in features]] = CATEGORY
        codes = tuple(feature.codes for feature in features)
        return cls(codes, kinds, np.array(min_level, np.int64))

    @property
    def plain(self) -> bool:
        """True if all features are numbers without missing values."""
        return not self.kinds.any()

    @property
    def largest(self) -> int:
        """Number of codes of the largest category; 0 without categories."""
        return max((self.codes[place] for place in np.flatnonzero(self.kinds == CATEGORY)), default=0)

    def non_plain(self, rows: int, classes: int) -> CategoricalMissing | None:
        """Return the argument of kernels for categories and missing values; None if all features are plain."""
        if self.plain:
            return None
        return make_categorical_missing(self.kinds, self.min_level, self.largest, rows, classes)
