"""A grid of values: from a column to a few of its values, at equal shares of its rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile_grid(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """At most `points` different values, ascending: quantiles at equal shares, each of which occurs in the column.

    values  at least one, none missing.
    """
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, points), method="inverted_cdf"))
