"""The errors of predicted numbers, by scikit-learn's definitions, from rows in batches of any size.

Also a grid of a few values of a column, at equal shares of its rows (`quantile_grid`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The square of a difference of two numbers up to this size is finite.
LARGEST = 1e150

# Numbers that are added up at a time.
_CELLS = 1 << 18


@dataclass(frozen=True, slots=True)
class NumberMetrics:
    """The errors of predicted numbers. Rows count by weight.

    r2   share of the variance that is explained: 1 - mse / variance; if the variance is 0, 1 if every prediction is
         right, else 0. None for fewer than two rows.
    mse  mean of the squared errors.
    mae  mean of the absolute errors.
    poisson_deviance  mean of 2 (y log(y / p) - y + p), or of 2 p where y is 0. None if it was not requested, if a
         target y is negative or a prediction p is not positive, which scikit-learn refuses, or if a deviance is
         infinite.
    """

    r2: float | None
    mse: float
    mae: float
    poisson_deviance: float | None


def poisson_deviances(truth: NDArray[np.float64], prediction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Poisson deviance of each row, by scikit-learn's formula.

    It is NaN for a negative target or a prediction that is not positive, and infinite if it exceeds float64.
    """
    with np.errstate(all="ignore"):
        logs = truth * np.log(np.where(truth == 0.0, 1.0, truth / prediction))
        deviances = np.maximum(2.0 * (logs - truth + prediction), 0.0)  # below 0 only by rounding
        return np.where((truth >= 0.0) & (prediction > 0.0), deviances, np.nan)


class ExactSum:
    """A sum of float64 numbers without rounding, independent of order and batches."""

    def __init__(self) -> None:
        self._total = 0  # in units of the smallest number above 0, 2**-1074

    def add(self, numbers: NDArray[np.float64]) -> None:
        for start in range(0, numbers.size, _CELLS):
            fraction, exponent = np.frexp(numbers[start : start + _CELLS])
            whole = np.ldexp(fraction, 53).astype(np.int64)
            present, place = np.unique(exponent, return_inverse=True)
            # The two halves of each number are summed separately: float64 holds these sums exactly.
            for part, shift in ((whole >> 26, 26), (whole & (2**26 - 1), 0)):
                sums = np.bincount(place, part, present.size).astype(np.int64)
                for amount, at in zip(sums.tolist(), present.tolist(), strict=True):
                    bits = at - 53 + shift + 1074
                    self._total += amount << bits if bits >= 0 else amount >> -bits  # no bits are lost: they are zeros

    def join(self, other: ExactSum) -> None:
        self._total += other._total

    @property
    def value(self) -> Fraction:
        return Fraction(self._total, 2**1074)


class NumberSums:
    """Sums of the metrics of regression over rows, which come in batches. Terms are rounded to float64, sums are exact.

    origin   a number near the targets. It is subtracted from the targets before they are squared, to lose few digits.
    total    upper bound of the sum of the weights of all rows; None without weights.
    poisson  True to sum the Poisson deviance as well.
    """

    def __init__(self, origin: float, total: int | None = None, *, poisson: bool = False) -> None:
        self.rows = 0
        self._total = total
        self._weight = ExactSum()
        self._origin = origin
        self._sums = [ExactSum() for _ in range(4)]  # targets, their squares, squared errors, absolute errors
        self._least, self._most = np.inf, -np.inf  # targets
        self._deviance = ExactSum() if poisson else None

    def add(
        self, truth: NDArray[np.float64], prediction: NDArray[np.float64], weight: NDArray[np.int64] | None = None
    ) -> None:
        """Add rows: targets and predictions, all finite, and weights (only if there is a `total`)."""
        self.rows += truth.size
        self._least = min(self._least, float(truth.min(initial=np.inf)))
        self._most = max(self._most, float(truth.max(initial=-np.inf)))
        centred, error = truth - self._origin, truth - prediction
        share: Any = 1.0
        if weight is not None and self._total is not None:
            share = weight / self._total
            self._weight.add(share)
        for total, numbers in zip(self._sums, (centred, centred**2, error**2, np.abs(error)), strict=True):
            total.add(numbers * share)
        if self._deviance is not None:
            deviances = poisson_deviances(truth, prediction) * share
            if np.isfinite(deviances).all():
                self._deviance.add(deviances)
            else:
                self._deviance = None

    def join(self, other: NumberSums) -> None:
        self.rows += other.rows
        self._least, self._most = min(self._least, other._least), max(self._most, other._most)
        self._weight.join(other._weight)
        for ours, theirs in zip(self._sums, other._sums, strict=True):
            ours.join(theirs)
        if self._deviance is not None and other._deviance is not None:
            self._deviance.join(other._deviance)
        else:
            self._deviance = None

    def result(self) -> NumberMetrics:
        """Return the metrics; there must be rows."""
        total, squares, squared, absolute = (part.value for part in self._sums)
        weight = Fraction(self.rows) if self._total is None else self._weight.value
        # The squares of equal targets are rounded, so their difference from the square of the mean is not 0.
        spread = squares - total**2 / weight if self._least < self._most else Fraction(0)
        explained = 1 - squared / spread if spread > 0 else Fraction(squared == 0)
        r2 = float(explained) if self.rows > 1 else None
        deviance = None if self._deviance is None else float(self._deviance.value / weight)
        return NumberMetrics(r2, float(squared / weight), float(absolute / weight), deviance)


def quantile_grid(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Return at most `points` distinct values, ascending: quantiles at equal shares, each a value of the column.

    values  at least one, none missing.
    """
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, points), method="inverted_cdf"))
