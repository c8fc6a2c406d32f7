"""Rows that equal another row: a copy of a row out of bag may be in the bag, so that the row is no test of the tree.

Rows of few different ones, as of some categories, are equal by chance and are not counted.
Oracle: the rows themselves, in tests/encode/test_repeated_rows.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import counted
from bigforest.store.format import block_count, block_span
from bigforest.store.store import Store

# Share of repeated rows from which users are told: fewer matter little, and round values repeat by chance.
_REPEATED = 0.05
# Large tables are looked at in this many of their blocks, evenly apart.
_BLOCKS = 4


def notice_repeats(store: Store) -> str | None:
    """Task: a message about rows that repeat, if a twentieth do."""
    possible = sum(math.log2(feature.codes) for feature in store.spec.features)
    if possible < math.log2(store.rows / (2 * _REPEATED)):  # as many equal another by chance, if all were as frequent
        return None
    rows, repeated = _repeated(store)
    if repeated <= _REPEATED * rows:
        return None
    some = "" if rows == store.rows else " that were looked at"
    return (
        f"{repeated:,} of {counted(rows, 'row')}{some} equal another row in all columns; if they are the same "
        "observation, give copies the same group, or the out-of-bag error is too low"
    )


def _repeated(store: Store) -> tuple[int, int]:
    """How many rows were looked at, and how many of these equal an earlier one, by hashes of 64 bits."""
    count = block_count(store.rows)
    blocks = range(0, count, -(-count // _BLOCKS))
    spans = [block_span(store.rows, block) for block in blocks]
    looked = np.concatenate([np.arange(span.start, span.stop) for span in spans])
    hashed = np.concatenate([store.labels(span.start, span.stop) for span in spans]).astype(np.uint64)
    features = store.spec.features
    order = sorted(range(len(features)), key=lambda place: -features[place].codes)
    rows, repeated = looked, 0
    for number, place in enumerate(order, 1):
        for block in blocks:
            store.fetch([place], range(block, block + 1))
        hashed = _mixed(hashed, store.feature_codes(place, range(1))[rows])
        # Most rows differ in the first columns; counting takes longer than a column.
        if number & (number - 1) == 0 or number == len(order):
            _, group, sizes = np.unique(hashed, return_inverse=True, return_counts=True)
            alike = sizes[group] > 1
            rows, hashed = rows[alike], hashed[alike]
            repeated = rows.size - int(np.count_nonzero(sizes > 1))
            if not repeated:
                break
    return looked.size, repeated


def _mixed(hashed: NDArray[np.uint64], codes: NDArray[np.generic]) -> NDArray[np.uint64]:
    """The hashes of rows with another column."""
    with np.errstate(over="ignore"):
        mixed = (hashed ^ codes.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ mixed >> np.uint64(29)
