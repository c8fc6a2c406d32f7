"""Lists of varying length, one per node: the terms of oblique nodes, the levels of nodes on categories.

They are NamedTuples of `start`, int64 [nodes + 1], and arrays of entries, of which node i has start[i]:start[i + 1].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LevelLists, Terms

Lists = TypeVar("Lists", Terms, LevelLists)


def cut_lists(lists: Lists, begin: int, end: int) -> Lists:
    """The lists of nodes `begin` to before `end`."""
    first, last = lists.start[begin], lists.start[end]
    return _made(lists, lists.start[begin : end + 1] - first, [entries[first:last] for entries in lists[1:]])


def join_lists(parts: Sequence[Lists | None], sizes: Sequence[int]) -> Lists | None:
    """The lists of nodes that follow each other, of which each part has this many; None without any."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    start = np.zeros(sum(sizes) + 1, np.int64)
    end = 0
    for part, size in zip(parts, sizes, strict=True):
        begin, end = end, end + size
        np.add(0 if part is None else part.start[1:], start[begin], out=start[begin + 1 : end + 1])
    return _made(found[0], start, list(map(np.concatenate, zip(*(part[1:] for part in found), strict=True))))


def join_fields(pieces: Sequence[Any], sizes: Sequence[int], names: Iterable[str]) -> dict[str, Any]:
    """The named arrays and lists of nodes that follow each other, of which each piece has this many.

    Pieces may lack levels or terms that others have; what none has is None.
    """
    found: dict[str, Any] = {}
    for name in names:
        own = [getattr(piece, name) for piece in pieces]
        if name in ("levels", "terms"):
            found[name] = join_lists(own, sizes)
        else:
            found[name] = None if own[0] is None else np.concatenate(own)
    return found


def list_of_nodes(lists: Lists) -> Lists:
    """The lists of the nodes that have one, and of these alone."""
    own = np.append(0, np.flatnonzero(np.diff(lists.start)) + 1)
    return lists._replace(start=lists.start[own])


def _made(like: Lists, start: NDArray[np.int64], entries: list[NDArray[Any]]) -> Lists:
    kind: Any = type(like)
    made: Lists = kind(start, *entries)
    return made
