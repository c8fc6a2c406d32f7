"""A few of the values of a column, at equal shares of its rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile_grid(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """At most `points` different values, ascending: quantiles from the least to the greatest, each of them a value.

    values  none of them missing, one at least.
    """
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, points), method="inverted_cdf"))
