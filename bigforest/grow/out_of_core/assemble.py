"""Put a tree together from its upper part and the subtrees below it, piece by piece in preorder."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.shared.feature_kinds import Grown
from bigforest.grow.shared.tree_arrays import Ends
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.scan.categorical_missing import Subsets
from bigforest.kernels.tree.builder import CodeTree
from bigforest.storage.paths import local_path, write_atomically
from bigforest.store.store import Dictionaries

# Beside the file of a subtree, the values between which its thresholds are.
_ENDS = ".ends"
# Values that are looked up at a time.
_LOOKED_UP = 1 << 16
_HEAD = np.dtype("<u8")
# The arrays of a CodeTree, and those of Subsets but the last, as they follow each other in a file; `sum` is empty of
# classes, and Subsets where there are none.
_TYPES = ("<i4", "<u4", "<u4", "<u4", "<u4", "<u4", "<i8", "<u1", "<u4", "<u4")


def write_subtree(path: Path, grown: Grown) -> None:
    """Keep a finished subtree in a file of its own: the sizes of its arrays, a checksum, and one after the other."""
    nodes, subsets = grown
    given = (*nodes, *((None, None, None) if subsets is None else subsets[:3]))
    arrays = [np.empty(0) if array is None else array for array in given]
    write_arrays(path, [array.astype(kind, copy=False) for array, kind in zip(arrays, _TYPES, strict=True)])


def read_subtree(path: Path) -> Grown:
    """Inverse of `write_subtree`. Raises FormatError for a damaged file."""
    feature, right, depth, left_code, right_code, counts, sums, missing, size, level = read_arrays(path, _TYPES)
    counts = counts.reshape(feature.size, -1)
    nodes = CodeTree(feature, right, depth, left_code, right_code, counts, sums if sums.size else None)
    return nodes, Subsets(missing, size, level, np.array([level.size], np.uint64)) if missing.size else None


def look_up_thresholds(paths: Sequence[Path], dictionaries: Dictionaries) -> None:
    """Task: find the values between which the thresholds of the subtrees in `paths` are, and keep each one's beside it.

    Together, in ascending order of their places in the dictionaries: these may be larger than memory, and a cold map
    read at random costs a page for every node. Memory: 32 bytes per split, one per node, and a subtree. Raises
    FormatError for a damaged file.
    """
    found = [_places(path, dictionaries.offsets) for path in paths]
    place = np.concatenate([own for own, _ in found], axis=1).reshape(-1)
    inner = [splits for _, splits in found]
    del found
    order = np.argsort(place)
    ends = place.view(np.float64)  # each where its place was
    for first in range(0, order.size, _LOOKED_UP):
        some = order[first : first + _LOOKED_UP]
        below = some < order.size // 2
        for values, own in ((dictionaries.high, some[below]), (dictionaries.low, some[~below])):
            ends[own] = values[place[own]]
    stops = np.cumsum([np.count_nonzero(splits) for splits in inner])[:-1]
    for path, splits, here in zip(paths, inner, np.split(ends.reshape(2, -1), stops, axis=1), strict=True):
        whole = np.full((2, splits.size), np.nan)
        whole[:, splits] = here
        write_arrays(path.with_suffix(_ENDS), [*whole.astype("<f8", copy=False)])


def _places(path: Path, offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where in the dictionaries the values below and above the thresholds of a subtree are, int64 [2, splits], and
    which of its nodes are split, bool [nodes]."""
    nodes = read_subtree(path)[0]
    inner = nodes.feature >= 0
    return offsets[nodes.feature[inner]] + np.stack([nodes.left_code[inner], nodes.right_code[inner]]), inner


def read_ends(path: Path) -> Ends:
    """What `look_up` kept of the subtree in `path`. Raises FormatError for a damaged file."""
    return Ends(*read_arrays(path.with_suffix(_ENDS), ("<f8", "<f8")))


def remove_subtree(path: Path) -> None:
    """Remove the files of a subtree."""
    path.unlink(missing_ok=True)
    path.with_suffix(_ENDS).unlink(missing_ok=True)


def write_arrays(path: Path, arrays: Sequence[NDArray[Any]]) -> None:
    """Write the sizes of some arrays, a checksum, and one after the other."""
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        file.write(np.array([*(array.size for array in arrays), _crc(arrays)], _HEAD).tobytes())
        for array in arrays:
            file.write(array.data)


def read_arrays(path: Path, types: Sequence[str]) -> list[NDArray[Any]]:
    """Inverse of `write_arrays`, of arrays of these types. Raises FormatError for a damaged file."""
    here = local_path(path)
    with here.open("rb") as file:
        head = np.fromfile(file, _HEAD, len(types) + 1)
        sizes, crc = head[:-1].tolist(), int(head[-1]) if head.size else 0
        expected = head.nbytes + sum(size * np.dtype(kind).itemsize for size, kind in zip(sizes, types, strict=False))
        if head.size <= len(types) or here.stat().st_size != expected:
            raise FormatError(f"{path}: the file is damaged; start the training again")
        arrays = [np.fromfile(file, kind, size) for kind, size in zip(types, sizes, strict=True)]
    if _crc(arrays) != crc:
        raise FormatError(f"{path}: the checksum differs; start the training again")
    return arrays


def _crc(arrays: Sequence[NDArray[Any]]) -> int:
    crc = 0
    for array in arrays:
        crc = zlib.crc32(array.reshape(-1).data, crc)
    return crc


def join_pieces(
    upper: TreeArrays, order: Sequence[int], subtrees: Mapping[int, int], below: Callable[[int], TreeArrays]
) -> Iterator[TreeArrays]:
    """The nodes of a tree in preorder, in pieces, from its upper part and what `below` gives for a small node.

    order     entries of the nodes of the upper part
    subtrees  number of nodes of the subtree of each small node, by entry
    """
    numbers = numbers_in_tree(order, subtrees)
    left, right = _renumbered(upper.left, upper, numbers), _renumbered(upper.right, upper, numbers)
    upper = upper._replace(left=left, right=right)
    begin = 0
    for place, entry in enumerate(order):
        if entry in subtrees:
            yield upper.rows(begin, place)
            nodes = below(entry)
            inner, offset = nodes.feature != LEAF, np.uint32(numbers[place])
            yield nodes._replace(
                left=np.where(inner, nodes.left + offset, np.uint32(0)),
                right=np.where(inner, nodes.right + offset, np.uint32(0)),
            )
            begin = place + 1
    yield upper.rows(begin, len(order))


def numbers_in_tree(order: Sequence[int], subtrees: Mapping[int, int]) -> NDArray[np.int64]:
    """Number of each node of the upper part in the whole tree; see join_pieces."""
    sizes = np.array([subtrees.get(entry, 1) for entry in order], np.int64)
    found: NDArray[np.int64] = np.cumsum(sizes) - sizes
    return found


def _renumbered(children: NDArray[np.uint32], nodes: TreeArrays, numbers: NDArray[np.int64]) -> NDArray[np.uint32]:
    found: NDArray[Any] = np.where(nodes.feature != LEAF, numbers[children], 0)
    return found.astype(np.uint32)
