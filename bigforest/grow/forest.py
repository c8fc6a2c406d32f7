"""Grow the trees of a forest from a store, a group of trees per task, each group one Parquet part."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.errors import DataError
from bigforest.events import Listener, stage
from bigforest.forest.table import TreeArrays, write_part
from bigforest.forest.trees import is_finished
from bigforest.grow.arrays import tree_arrays
from bigforest.kernels.draw import pack_items
from bigforest.kernels.grow import Rules, compile_kernels, grow
from bigforest.kernels.impurity import NUMBERS, entropy_table
from bigforest.kernels.layout import Rows
from bigforest.kernels.rng import PURPOSE_GROW, stream_key
from bigforest.kernels.rows import by_rows, empty_rows, fill_rows
from bigforest.resources import Resources
from bigforest.sample import bag
from bigforest.schedule.tasks import run
from bigforest.store.store import Store

# A part holds about this many rows' worth of trees, so that its table stays small beside the codes.
_PART_ROWS = 1_000_000
# At least this many parts where trees allow, so that cores stay busy to the end and a crash loses little.
_PARTS = 16
# Rows copied per task where a table is also kept by rows.
_COPY_ROWS = 8_192
# The kernels keep squared weights in int64; drawing without replacement, numpy counts to a billion.
_MOST_ROWS = 2**31 - 1
_MOST_ROWS_WITHOUT_REPLACEMENT = 10**9 - 1


def part_size(rows: int, trees: int) -> int:
    """Trees per part; a function of the task alone, so that the files do not depend on the machine."""
    return max(1, min(-(-trees // _PARTS), _PART_ROWS // rows))


def part_groups(rows: int, trees: int) -> list[range]:
    """The trees of each part, in order."""
    size = part_size(rows, trees)
    return [range(first, min(first + size, trees)) for first in range(0, trees, size)]


def grow_forest(
    store: Store, config: TrainConfig, directory: Path, *, resources: Resources, listener: Listener
) -> None:
    """Write `directory`/trees/part-*.parquet: all trees of the forest, but for the parts that are there already.

    The files are a function of (store, config). Raises DataError for tables too large to grow in memory, and
    FormatError when a part that is there is damaged or of another forest.
    """
    groups = part_groups(store.rows, config.trees)
    groups = [group for group in groups if not is_finished(directory, group, store.spec, config)]

    with stage("compile", 1, "step", listener) as progress:  # seconds the first time, then read from a cache
        compile_kernels()
        progress.advance()
    with stage("grow", config.trees, "trees", listener) as progress:
        if done := config.trees - sum(map(len, groups)):
            progress.advance(done)
        by_row = empty_rows(store.codes)
        ranges = [(first, min(first + _COPY_ROWS, store.rows)) for first in range(0, store.rows, _COPY_ROWS)]
        run(
            lambda start, stop: fill_rows(store.codes, by_row, start, stop),
            ranges if by_row.reach else [],
            workers=resources.workers,
            on_result=lambda *_: None,
        )
        ground = _prepare(store, config, by_row)

        def grow_group(trees: range) -> None:
            arrays = [_grow(store, config, ground, tree) for tree in trees]
            write_part(directory, trees.start, arrays, store.spec, config)

        run(
            grow_group,
            [(group,) for group in groups],
            workers=resources.workers,
            on_result=lambda index, _: progress.advance(len(groups[index])),
        )


def grow_tree(store: Store, config: TrainConfig, tree: int) -> TreeArrays:
    """Tree number `tree` of the forest of (store, config), whole and in memory."""
    return _grow(store, config, _prepare(store, config, by_rows(store.codes)), tree)


class _Ground(NamedTuple):
    """What all trees of a forest share, besides the store."""

    by_row: Rows
    rules: Rules
    entropies: NDArray[np.int64]


def _prepare(store: Store, config: TrainConfig, by_row: Rows) -> _Ground:
    most = _MOST_ROWS if config.replace else _MOST_ROWS_WITHOUT_REPLACEMENT
    if store.rows > most:
        raise DataError(
            f"the table has {store.rows} rows; growing in memory takes at most {most}: train on a sample of them"
        )
    rules = Rules(
        mtry=config.drawn_features(len(store.spec.features)),
        impurity=NUMBERS[config.impurity],
        max_depth=-1 if config.max_depth is None else config.max_depth,
        min_split=config.min_split,
        min_leaf=config.min_leaf,
        redraw=config.constants == "redraw",
    )
    return _Ground(by_row, rules, entropy_table())


def _grow(store: Store, config: TrainConfig, ground: _Ground, tree: int) -> TreeArrays:
    multiplicity = bag(store.rows, tree, config)
    items = np.empty(np.count_nonzero(multiplicity), np.uint64)
    pack_items(store.target, multiplicity, items)
    with np.errstate(over="ignore"):
        key = np.uint64(stream_key(np.uint64(config.seed), PURPOSE_GROW, np.uint64(tree), np.uint64(0)))
    classes = len(store.spec.target.classes)
    nodes = grow(store.codes, ground.by_row, items, classes, key, ground.rules, ground.entropies)
    return tree_arrays(nodes, store.dictionaries, config.impurity)
