"""Data of nodes with a variable number of entries, in addition to a CodeTree: terms of directions, sets of levels."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# DirectionExtras of kernels/oblique/search.py or Subsets of kernels/scan/categorical_missing.py. The arrays _OF_NODES
# have one entry per node. The other arrays have the entries of all nodes, of which the first `used` (uint64 [1]) are in
# use.
Entries = TypeVar("Entries", bound=Any)
_OF_NODES = ("threshold", "size", "missing")


def with_room(pool: Entries, nodes: int, entries: int) -> Entries:
    """Return the pool with room for `nodes` nodes and `entries` more entries: double arrays that are too short."""
    used = int(pool.used[0])
    needed = {name: nodes if name in _OF_NODES else used + entries for name in pool._fields if name != "used"}
    short = [name for name, size in needed.items() if getattr(pool, name).size < size]
    return pool._replace(**{name: twice_as_long(getattr(pool, name)) for name in short})  # type: ignore[no-any-return]


def trimmed(pool: Entries, nodes: int) -> Entries:
    """Return the pool without unused room. Pages that were never written take no memory."""
    sizes = {name: nodes if name in _OF_NODES else int(pool.used[0]) for name in pool._fields if name != "used"}
    return pool._replace(**{name: getattr(pool, name)[:size] for name, size in sizes.items()})  # type: ignore[no-any-return]


def twice_as_long(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array at twice its length."""
    longer = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array  # pages that are not written take no memory
    return longer
