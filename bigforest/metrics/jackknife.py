"""Intervals by the jackknife+ after bootstrap (Kim, Xu and Barber 2020). Oracle: tests/naive/conformal.py jackknife.

The forest without calibration row i consists of the trees whose bags leave it out. With f_i its prediction for a new
row, and R_i its error on row i, the interval is from the floor(alpha (n + 1))-th smallest of the n numbers
f_i - R_i to the ceil((1 - alpha)(n + 1))-th smallest of the f_i + R_i, alpha = 1 - coverage. It contains the true value
with a probability of at least 1 - 2 alpha, for any data, if rows are exchangeable, the number of trees was drawn from a
binomial distribution, and no option was selected on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api
from bigforest.metrics.conformal import check_enough_rows, rank_of

# Predictions of trees are rounded to whole numbers up to this size. A sum of 8,192 of them is exact in float64, so it
# does not depend on the order in which a matrix product adds them.
_STEPS = 2.0**40
MOST_TREES = 1 << 13
# Cells, rows times calibration rows, that are in memory at a time.
_CELLS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class JackknifeIntervals:
    """Intervals from the trees that were grown without each calibration row.

    errors  float64 [rows], error of each calibration row by the trees whose bags do not contain it.
    left    float64 [trees, rows], 1 if the row is not in the bag of the tree, else 0.
    rank    rank of the number that bounds a new row from above.
    """

    errors: NDArray[np.float64]
    left: NDArray[np.float64]
    rank: int

    columns: ClassVar[tuple[str, ...]] = ("low", "high")
    by_spread: ClassVar[bool] = False

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.errors.nbytes + self.left.nbytes

    def bounds(self, values: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
        """Return the lower and upper end for each row, float64 [rows, 2].

        values  predictions of each tree as whole numbers (`whole_values`), float64 [rows, trees].
        unit    the factor of these whole numbers.
        """
        found = np.empty((len(values), 2))
        step = max(1, _CELLS // self.errors.size)
        share = unit / self.left.sum(axis=0)
        for start in range(0, len(values), step):
            some = slice(start, start + step)
            own = (values[some] @ self.left) * share
            for column, bounds, sign in ((0, self.errors - own, -1), (1, self.errors + own, 1)):
                found[some, column] = sign * np.partition(bounds, self.rank - 1, axis=1)[:, self.rank - 1]
        return found


def fit_jackknife(errors: NDArray[np.float64], left: NDArray[np.float64], coverage: float) -> JackknifeIntervals:
    """Calibrate intervals on rows, each left out by at least one tree. Arguments as in JackknifeIntervals.

    Raises ConfigError if there are too few rows.
    """
    check_enough_rows(errors.size, coverage)
    return JackknifeIntervals(errors, left, rank_of(coverage, errors.size))


def check_trees(trees: int) -> None:
    """Raise ConfigError if a forest has too many trees."""
    if trees > MOST_TREES:
        raise ConfigError(
            f"the jackknife adds up at most {MOST_TREES} trees, and the forest has {trees}; drop {api('jackknife')}"
        )


def whole_values(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return the values of leaves as whole numbers, and the factor of these."""
    largest = float(np.abs(values).max(initial=0.0))
    unit = largest / _STEPS if largest / _STEPS > 0.0 else 1.0
    return np.rint(values / unit), unit
