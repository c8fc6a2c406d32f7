"""Growing on ranks: the table with the ranks of its values for values."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigforest.config import TrainConfig
from bigforest.forest.ranks import Knots, average_ranks, write_ranks
from bigforest.places import made
from bigforest.resources import Resources
from bigforest.store.format import VALUE_TYPE
from bigforest.store.store import Store

# Most bytes per code of a feature while its ranks are worked out.
CODE_BYTES = 64


def ranked_store(store: Store, config: TrainConfig, directory: Path, resources: Resources) -> Store:
    """The store with ranks for values, where the trees of `config` split on ranks; else the store as it is.

    What values have which ranks is written to the forest in `directory`. Memory: 8 bytes per code, and CODE_BYTES per
    code of one feature.
    """
    if not config.ranks:
        return store
    offsets, low, _ = store.dictionaries
    ranks = np.empty(low.size)

    def knots() -> Iterator[Knots]:
        for feature in range(len(store.spec.features)):
            rank = average_ranks(store.counts(feature))
            ranks[offsets[feature] : offsets[feature + 1]] = rank
            ends = np.stack([store.low(feature), store.high(feature)], axis=1).ravel()
            distinct = np.append(True, ends[1:] != ends[:-1])
            yield ends[distinct], np.repeat(rank, 2)[distinct]

    write_ranks(directory, knots(), store.spec, config)
    if not resources.crew().remote:
        return store.with_values(ranks)
    assert resources.scratch is not None
    kept = resources.scratch / f"ranks-{secrets.token_hex(8)}.bin"
    with made(kept) as here:
        ranks.astype(VALUE_TYPE, copy=False).tofile(here)
    return store.with_values(ranks, kept)
