"""Counts of levels that training did not see, over batches of rows to predict, and the notice about them."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import listed, shown
from bigforest.events import Listener, Notice
from bigforest.progress import watching

# Tables of fewer rows are read without counting: a single row stays fast, and shares of a few rows say little.
FEWEST_ROWS = 10
# Share of the rows with an unseen level above which a column is named.
_SHARE = 0.1
# Columns and levels that a message names.
_COLUMNS = 5
LEVELS = 5


def named_levels(series: pl.Series, unseen: NDArray[np.bool_]) -> list[str]:
    """Return the first unseen levels of a column for a message. unseen: bool [rows]."""
    return [shown(level) for level in series.filter(pl.Series(unseen)).unique(maintain_order=True).head(LEVELS)]


class UnseenLevels:
    """Number of rows with an unseen level, by column, with some of the levels.

    Rows that are read once for each group of trees count once for each, which leaves the shares as they are.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._unseen: dict[str, int] = {}
        self._levels: dict[str, list[str]] = {}

    def add(self, name: str, series: pl.Series, unseen: NDArray[np.bool_]) -> None:
        """Count the cells of a batch of a column. unseen: bool [rows]."""
        count = int(np.count_nonzero(unseen))
        wanted = count and len(self._levels.get(name, ())) < LEVELS
        self._add(name, unseen.size, count, named_levels(series, unseen) if wanted else [])

    def join(self, other: UnseenLevels) -> None:
        """Add the counts of other rows."""
        for name, rows in other._rows.items():
            self._add(name, rows, other._unseen[name], other._levels[name])

    def _add(self, name: str, rows: int, unseen: int, levels: list[str]) -> None:
        self._rows[name] = self._rows.get(name, 0) + rows
        self._unseen[name] = self._unseen.get(name, 0) + unseen
        self._levels[name] = list(dict.fromkeys([*self._levels.get(name, []), *levels]))[:LEVELS]

    def tell(self, listener: Listener | None = None) -> bool:
        """Send a notice that names the columns in which more than a tenth of the rows have an unseen level, if there
        are any; return True then. Without a listener it is logged."""
        shares = {name: self._unseen[name] / rows for name, rows in self._rows.items() if rows >= FEWEST_ROWS}
        many = [
            f"{name!r} in {share:.0%} of the rows ({', '.join(self._levels[name])})"
            for name, share in shares.items()
            if share > _SHARE
        ]
        if many:
            with watching(listener) as listener:
                listener(
                    Notice(
                        f"levels that did not occur in training: {listed(many, _COLUMNS)}; splits cannot tell them "
                        "apart, so check that these columns are written as in training"
                    )
                )
        return bool(many)
