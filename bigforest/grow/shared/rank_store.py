"""Growing on ranks: the table with ranks in place of values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigforest.forest.format.files import Header
from bigforest.forest.format.ranks import Knots, average_ranks, write_ranks
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

# Most bytes per code of a feature while its ranks are computed.
CODE_BYTES = 64


def ranked_store(store: Store, config: TrainConfig, directory: Path) -> Store:
    """The store with ranks in place of values, if the trees of `config` split on ranks; else the store itself.

    The ranks of values are written to the forest in `directory`. Memory: 8 bytes per code, and CODE_BYTES per
    code of one feature.
    """
    if not config.ranks:
        return store
    with_ranks = put_ranks(store)

    def knots() -> Iterator[Knots]:
        for feature in range(len(store.spec.features)):
            ends = np.stack([store.low(feature), store.high(feature)], axis=1).ravel()
            distinct = np.append(True, ends[1:] != ends[:-1])
            yield ends[distinct], np.repeat(with_ranks.low(feature), 2)[distinct]

    write_ranks(directory, knots(), Header(store.spec, config))
    return with_ranks


def put_ranks(store: Store) -> Store:
    """The store with the average ranks of its values, in this process and those it is sent to."""
    ranks = [average_ranks(store.counts(feature)) for feature in range(len(store.spec.features))]
    return store.with_values(np.concatenate(ranks), put_ranks)
