"""Grid of a few values of a column, at equal shares of its rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile_grid(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Return at most `points` distinct values, ascending: quantiles at equal shares, each a value of the column.

    values  at least one, none missing.
    """
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, points), method="inverted_cdf"))
