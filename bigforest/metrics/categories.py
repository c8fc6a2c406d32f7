"""Intervals and sets of classes by the values of a column (Mondrian conformal prediction, Vovk 2005)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigforest.metrics.conformal import ClassSets, Intervals, check_enough_rows, pooled_categories


@dataclass(frozen=True, slots=True)
class ByCategory:
    """Calibration by the value of a row in a column.

    column      name of the column.
    dtype       name of its type in the calibration rows.
    levels      its values there, as text.
    calibrated  one for the rows of each level, then one for other levels, and one for missing values.
    """

    column: str
    dtype: str
    levels: tuple[str, ...]
    calibrated: tuple[Intervals | ClassSets, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that Intervals or ClassSets add."""
        return self.calibrated[0].columns

    @property
    def by_spread(self) -> bool:
        """True if some of the intervals follow the spread of the trees."""
        return any(one.by_spread for one in self.calibrated)

    def groups(self, codes: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Intervals | ClassSets]]:
        """Yield the rows of each category, ascending, and its intervals or sets.

        codes  int64 [rows], place of each row in `calibrated`.
        """
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(self.calibrated)))
        for one, begin, end in zip(self.calibrated, [0, *ends[:-1]], ends, strict=True):
            if end > begin:
                yield order[begin:end], one


def fit_by_category(
    column: str,
    dtype: str,
    levels: tuple[str, ...],
    codes: NDArray[np.int64],
    coverage: float,
    fit: Callable[[NDArray[np.bool_]], Intervals | ClassSets],
) -> ByCategory:
    """Calibrate intervals or sets for each category on its rows.

    Categories with too few rows are calibrated together (`pooled_categories`), categories without rows on all rows.

    codes  category of each calibration row: the place of its level, or len(levels) + 1 if the value is missing.
    fit    calibrates on some of the rows.

    Raises ConfigError if all rows together are too few.
    """
    check_enough_rows(codes.size, coverage)
    present, own = np.unique(codes, return_inverse=True)
    category = pooled_categories(np.bincount(own), coverage)
    found: dict[int, Intervals | ClassSets] = {}
    for one in np.unique(category).tolist():
        calibrated = fit(category[own] == one)
        found |= dict.fromkeys(present[category == one].tolist(), calibrated)
    rest = fit(np.ones(codes.size, np.bool_))
    return ByCategory(column, dtype, levels, tuple(found.get(code, rest) for code in range(len(levels) + 2)))
