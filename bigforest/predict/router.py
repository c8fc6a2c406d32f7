"""Rows in tiles, and the nodes they descend: the inputs of every kernel that routes rows."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.predict.packed_trees import PackedTrees
from bigforest.predict.rows import RowBatch, missing_error

if TYPE_CHECKING:
    from bigforest.kernels.predict.flat_tree import RouteInputs
    from bigforest.kernels.predict.route import RouteScratch

# Bytes of tiles that go through a tree before the next: they stay in the shared cache and the tree in the core's own.
CHUNK_BYTES = 8 << 20
# Most bytes of a tile, and most rows, as scratch takes 28 bytes for each. Every tile has to fetch the nodes of all
# trees.
_TILE_BYTES = 4 << 20
_TILE_ROWS = 1 << 15
# Fewer rows than one for this many nodes of a tree go level by level; more where nodes are on categories, too, which
# cost lists of rows more.
_NODES_PER_ROW = 100
_NODES_PER_ROW_OF_LEVELS = 10


@cache
def prediction_kernels() -> tuple[ModuleType, ModuleType, ModuleType]:
    """Return the modules accumulate, flat_tree and route; numba is loaded when the first row is predicted.

    An import statement within a function takes two microseconds each time, a twentieth of the time of answering a row.
    """
    from bigforest.kernels.predict import accumulate, flat_tree, route

    return accumulate, flat_tree, route


class RowRouter:
    """Puts rows into tiles, some at a time. For one thread: each call overwrites the tiles of the previous one."""

    def __init__(self, packed: PackedTrees, spec: DataSpec) -> None:
        self.packed = packed
        self._spec = spec
        self._tiles: dict[tuple[np.dtype[Any], bool], NDArray[Any]] = {}
        self._scratch: RouteScratch | None = None
        self._scratched: NDArray[Any] | None = None  # tiles that have this scratch

    def inputs(self, rows: RowBatch, start: int, stop: int) -> RouteInputs:
        """Return the inputs of routing kernels for the rows from `start` to before `stop`.

        Missing values are filled if the forest has values for them. If not, and some splits are on projections, raises
        DataError.
        """
        packed, every, rows = self.packed, rows, rows.cut(start, stop)
        narrow = self._spec.has_narrow_fills and rows.narrow
        by_level = packed.directions is None and self._are_few(rows.rows)
        tiles = self._empty(rows, narrow, by_level)
        by_rows = packed.directions is not None
        missing = None if rows.fill(tiles, by_rows=by_rows) else True
        if missing and self._spec.fills is not None:
            rows.fill_missing(tiles, self._spec.fills[packed.used], by_rows=by_rows)
            missing = None
        if missing and by_rows:
            raise missing_error(every, [self._spec.features[int(place)].name for place in packed.used])
        return prediction_kernels()[1].RouteInputs(
            tiles, rows.rows, by_level, packed.layout, packed.directions, packed.sets, missing
        )

    def columns(self, inputs: RouteInputs) -> NDArray[Any]:
        """Return the tiles of `inputs` as [tiles, features, rows of a tile], whatever the trees."""
        by_rows = self.packed.directions is not None
        return np.ascontiguousarray(inputs.tiles.swapaxes(1, 2)) if by_rows else inputs.tiles

    def scratch(self, inputs: RouteInputs) -> RouteScratch:
        """Return the scratch of a kernel for these inputs."""
        if self._scratch is None or self._scratched is not inputs.tiles:
            self._scratch, self._scratched = prediction_kernels()[2].new_scratch(inputs), inputs.tiles
        return self._scratch

    def vote(self, inputs: RouteInputs, roots: NDArray[np.uint64], mixed: NDArray[Any], votes: NDArray[Any]) -> None:
        """Add the ballots of the trees with these roots to votes; mixed, votes: see accumulate.py Votes."""
        scratch = self.scratch(inputs)
        prediction_kernels()[0].vote(*inputs[:3], *inputs.layout, *inputs[4:], roots, mixed, votes, *scratch)

    def _are_few(self, rows: int) -> bool:
        """Return whether so few rows descend faster level by level than node by node. One row always does."""
        least = _NODES_PER_ROW if self.packed.sets is None else _NODES_PER_ROW_OF_LEVELS
        return rows == 1 or rows * least < self.packed.nodes / self.packed.roots.size

    def _empty(self, rows: RowBatch, narrow: bool, by_level: bool) -> NDArray[Any]:
        """Return tiles for this many rows."""
        tile = prediction_kernels()[1].TILE
        kind, by_rows = rows.tile_type(narrow), self.packed.directions is not None
        tiles = self._tiles.get((kind, by_level))
        if tiles is None or len(tiles) * tiles.shape[1 if by_rows else 2] < rows.rows:
            width = rows.features + 1 if by_rows else rows.features
            tallest = min(_TILE_ROWS, max(tile, _TILE_BYTES // (width * kind.itemsize)))
            count = max(1, -(-rows.rows // (tile if by_level else tallest)))
            height = max(1, -(-rows.rows // count))
            height = 1 << (height - 1).bit_length() if by_level else height
            shape = (height, width) if by_rows else (width, height)
            tiles = self._tiles[kind, by_level] = np.empty((count, *shape), kind)
            if by_rows:
                tiles[:, :, rows.features] = 0
        return tiles


def chunk_rows(rows: RowBatch) -> int:
    """Return the rows that should pass all trees together: as many as fit CHUNK_BYTES, but at least one tile."""
    from bigforest.kernels.predict.flat_tree import TILE

    return max(1, CHUNK_BYTES // (rows.width * rows.features * TILE)) * TILE
