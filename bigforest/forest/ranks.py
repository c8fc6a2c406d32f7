"""Ranks of the training table, for forests that split on ranks: ranks.parquet, the store with ranks in place of values,
and the ranks of new values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.errors import damaged_forest
from bigforest.forest.files import Header, read_table, write_tables
from bigforest.forest.format import RANKS
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store

# Most bytes per code of a feature while its ranks are computed.
CODE_BYTES = 64

# Values of a feature and their ranks.
Knots = tuple[NDArray[np.float64], NDArray[np.float64]]


class Ranks(NamedTuple):
    """Values and ranks of all features: feature f has value[offsets[f]:offsets[f + 1]], ascending, and the same slice
    of `rank`.

    offsets  int64 [features + 1]
    value    float64
    rank     float64, average ranks from 1 to `rows`
    rows     number of rows of the training table
    """

    offsets: NDArray[np.int64]
    value: NDArray[np.float64]
    rank: NDArray[np.float64]
    rows: int

    @property
    def nbytes(self) -> int:
        return self.value.nbytes + self.rank.nbytes

    def equal(self, other: Ranks) -> bool:
        return self.rows == other.rows and all(map(np.array_equal, self[:3], other[:3]))

    def knots(self) -> Iterator[Knots]:
        """Yield values and ranks of each feature, as `write_ranks` takes them."""
        for start, stop in pairwise(self.offsets):
            yield self.value[start:stop], self.rank[start:stop]

    def of(self, feature: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ranks of new values of a feature, interpolated between neighbours; 0 below all, rows + 1 above
        all.

        If a neighbour is infinite, a value between the two has the rank of the lower one. NaN stays NaN.
        """
        span = slice(self.offsets[feature], self.offsets[feature + 1])
        stored, rank = self.value[span], self.rank[span]
        above = np.searchsorted(stored, values, side="right")
        lower, upper = np.maximum(above - 1, 0), np.minimum(above, stored.size - 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            half = stored[lower] * 0.5
            share = (values * 0.5 - half) / (stored[upper] * 0.5 - half)
        share[~(share > 0.0) | ~np.isfinite(stored[lower])] = 0.0
        ranks = rank[lower] + np.minimum(share, 1.0) * (rank[upper] - rank[lower])
        ranks[above == 0] = 0.0
        ranks[values > stored[-1]] = self.rows + 1.0
        ranks[np.isnan(values)] = np.nan
        return ranks


def average_ranks(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the average ranks, from 1, of ascending values that occur `counts` times. Equal values share one."""
    upto = np.cumsum(counts)
    return upto - (counts - 1) / 2.0


def write_ranks(directory: Path, knots: Iterable[Knots], header: Header) -> None:
    tables = (
        RANKS.table({"feature": np.full(value.size, feature, np.uint32), "value": value, "rank": rank})
        for feature, (value, rank) in enumerate(knots)
    )
    write_tables(tables, RANKS.at(directory), RANKS, header)


def ranked_store(store: Store, config: TrainConfig, directory: Path) -> Store:
    """Return the store with ranks in place of values, if the trees of `config` split on ranks; otherwise the store
    itself.

    The ranks of values are written to the forest in `directory`. Memory: 8 bytes per code, and CODE_BYTES per
    code of one feature.
    """
    if not config.ranks:
        return store
    ranked = store_with_ranks(store)

    def knots() -> Iterator[Knots]:
        for feature in range(len(store.spec.features)):
            ends = np.stack([store.low(feature), store.high(feature)], axis=1).ravel()
            distinct = np.append(True, ends[1:] != ends[:-1])
            yield ends[distinct], np.repeat(ranked.low(feature), 2)[distinct]

    write_ranks(directory, knots(), Header(store.spec, config))
    return ranked


def store_with_ranks(store: Store) -> Store:
    """Return the store with average ranks in place of values. A process that receives the store computes them again."""
    offsets = store.dictionaries.offsets
    ranks = np.empty(offsets[-1])
    for feature, (start, stop) in enumerate(pairwise(offsets)):
        ranks[start:stop] = average_ranks(store.counts(feature))
    return store.with_values(ranks, store_with_ranks)


def read_ranks(directory: Path, header: Header) -> Ranks:
    """Read and check ranks.parquet. Raises FormatError."""
    path, spec = RANKS.at(directory), header.spec
    table = read_table(path, RANKS, header)
    feature, value, rank = (as_numpy(column.chunk(0)) for column in table.itercolumns())
    offsets = np.searchsorted(feature, np.arange(len(spec.features) + 1))
    within = np.diff(feature) == 0
    sound = (
        (feature[1:] >= feature[:-1]).all()
        and offsets[-1] == feature.size
        and np.diff(offsets).all()
        and not np.isnan(value).any()
        and (value[1:] > value[:-1])[within].all()
        and (rank[1:] >= rank[:-1])[within].all()
        and rank.min() >= 1.0
        and rank.max() <= spec.rows
    )
    if not sound:
        raise damaged_forest(f"{path}: values and ranks are not ascending for each feature")
    return Ranks(offsets, value, rank, spec.rows)
