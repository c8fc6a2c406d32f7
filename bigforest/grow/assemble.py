"""Put a tree together from its upper part and the subtrees below it, piece by piece in preorder."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.config import Impurity
from bigforest.errors import FormatError
from bigforest.forest.table import TreeArrays
from bigforest.grow.arrays import tree_arrays
from bigforest.grow.top import TreeTop
from bigforest.kernels.grow import CodeTree
from bigforest.store.store import Dictionaries

_HEAD = np.dtype("<u8")
# The arrays of a CodeTree as they follow each other in a file.
_TYPES = ("<i4", "<u4", "<u4", "<u4", "<u4", "<u4")


def write_subtree(path: Path, nodes: CodeTree) -> None:
    """Keep a finished subtree in a file of its own: nodes, classes, a checksum, and the arrays one after the other."""
    arrays = [array.astype(kind, copy=False) for array, kind in zip(nodes, _TYPES, strict=True)]
    crc = 0
    for array in arrays:
        crc = zlib.crc32(array.data, crc)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with temporary.open("wb") as file:
        file.write(np.array([*nodes.counts.shape, crc], _HEAD).tobytes())
        for array in arrays:
            file.write(array.data)
    temporary.replace(path)


def read_subtree(path: Path) -> CodeTree:
    """Inverse of `write_subtree`. Raises FormatError for a damaged file."""
    with path.open("rb") as file:
        head = np.fromfile(file, _HEAD, 3)
        size, classes = (int(head[0]), int(head[1])) if head.size == 3 else (0, 0)
        cells = 5 * size + classes * size
        if head.size < 3 or path.stat().st_size != head.nbytes + 4 * cells:
            raise FormatError(f"{path}: the file is damaged; start the training anew")
        arrays = [np.fromfile(file, kind, size) for kind in _TYPES[:-1]]
        counts = np.fromfile(file, _TYPES[-1], classes * size).reshape(size, classes)
    crc = 0
    for array in (*arrays, counts):
        crc = zlib.crc32(array.data, crc)
    if crc != int(head[2]):
        raise FormatError(f"{path}: the checksum differs; start the training anew")
    return CodeTree(*[*arrays, counts])


def assemble(
    top: TreeTop,
    below: NDArray[np.uint32],
    above: NDArray[np.uint32],
    subtrees: Mapping[int, tuple[Path, int]],
    dictionaries: Dictionaries,
    impurity: Impurity,
) -> Iterator[TreeArrays]:
    """The nodes of a tree in preorder, in pieces.

    below, above  as from route_block
    subtrees      of the small nodes of the top, by their entries: the file and its number of nodes

    Memory: one subtree.
    """
    order = list(top.preorder())
    upper = tree_arrays(top.skeleton(below, above), dictionaries, impurity)
    sizes = np.array([subtrees[entry][1] if entry in subtrees else 1 for entry in order], np.int64)
    numbers = np.cumsum(sizes) - sizes
    left, right = _renumbered(upper.left, upper, numbers), _renumbered(upper.right, upper, numbers)
    upper = upper._replace(left=left, right=right)
    begin = 0
    for place, entry in enumerate(order):
        if entry in subtrees:
            yield upper.rows(begin, place)
            nodes = tree_arrays(read_subtree(subtrees[entry][0]), dictionaries, impurity)
            inner, offset = nodes.feature >= 0, np.uint32(numbers[place])
            yield nodes._replace(
                left=np.where(inner, nodes.left + offset, np.uint32(0)),
                right=np.where(inner, nodes.right + offset, np.uint32(0)),
            )
            begin = place + 1
    yield upper.rows(begin, len(order))


def _renumbered(children: NDArray[np.uint32], nodes: TreeArrays, numbers: NDArray[np.int64]) -> NDArray[np.uint32]:
    found: NDArray[Any] = np.where(nodes.feature >= 0, numbers[children], 0)
    return found.astype(np.uint32)
