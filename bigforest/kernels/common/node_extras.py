"""What nodes have beside a CodeTree, in numbers that differ from node to node: terms of directions, sets of levels."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# A Pool of kernels/oblique/search.py or the Subsets of kernels/scan/categorical_missing.py: arrays of one entry per
# node, arrays of the entries that all nodes have together, and `used` uint64 [1], the number of these so far.
Entries = TypeVar("Entries", bound=Any)
_OF_NODES = ("threshold", "size", "missing")


def with_room(pool: Entries, nodes: int, entries: int) -> Entries:
    """The pool with room for more nodes and more entries besides those used; a half or more of it is new."""
    used = int(pool.used[0])
    needed = {name: nodes if name in _OF_NODES else used + entries for name in pool._fields if name != "used"}
    short = [name for name, size in needed.items() if getattr(pool, name).size < size]
    return pool._replace(**{name: twice_as_long(getattr(pool, name)) for name in short})  # type: ignore[no-any-return]


def trimmed(pool: Entries, nodes: int) -> Entries:
    """The pool without the room that its nodes do not need."""
    sizes = {name: nodes if name in _OF_NODES else int(pool.used[0]) for name in pool._fields if name != "used"}
    return pool._replace(**{name: first(getattr(pool, name), size) for name, size in sizes.items()})  # type: ignore[no-any-return]


def twice_as_long(array: NDArray[Any]) -> NDArray[Any]:
    """The array with as much room again behind it."""
    longer = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array  # what is not written takes no memory yet
    return longer


def first(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Its first entries; the others, of a large array, were never written and take no memory."""
    return array[:count]
