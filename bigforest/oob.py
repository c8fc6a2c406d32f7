"""The out-of-bag report: every row judged by the trees that never saw it (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the
rows that at least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017,
section 6). Ties go to the lowest class. Bags are recomputed; the trees are read back from the forest's own
files, a group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.errors import ConfigError
from bigforest.events import Listener, stage
from bigforest.forest.files import write_table, write_tables
from bigforest.forest.packed import Packed, pack
from bigforest.forest.parts import check_count, check_parts, node_count, part_paths, read_parts
from bigforest.forest.table import CURVE, confusion, oob_rows
from bigforest.forest.values import Rows, chunk_rows, tiles_for
from bigforest.forest.votes import proba_names, stored_labels
from bigforest.resources import Resources
from bigforest.sample import bag_block
from bigforest.schedule.tasks import run
from bigforest.store.store import Store

# Trees that go over the rows together: fewer mean decoding the rows more often, more mean more memory.
_GROUP_NODES = 1 << 18

# Tasks per thread; a block is cut into several when blocks are few.
_PIECES = 4


class _Tally(NamedTuple):
    """Votes so far; entry i is row i of the store. See kernels/route.py vote_out_of_bag."""

    votes: NDArray[np.float64]
    voters: NDArray[np.uint32]
    prediction: NDArray[np.uint16]


class _Group(NamedTuple):
    first_tree: int
    packed: Packed
    mixed: NDArray[np.float64]


def write_oob(store: Store, config: TrainConfig, directory: Path, *, resources: Resources, listener: Listener) -> None:
    """Write oob/rows.parquet, curve.parquet and confusion.parquet of the forest grown into `directory`.

    The files do not depend on the number of threads. Memory: 6 + 8 * classes bytes per row, one group of
    trees, and about 20 MB per thread. Raises ConfigError without bootstrap, FormatError when the trees cannot
    be read.
    """
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    rows, classes = store.rows, len(store.spec.target.classes)
    tally = _Tally(np.zeros((rows, classes)), np.zeros(rows, np.uint32), np.zeros(rows, np.uint16))
    changes = np.zeros((2, config.trees), dtype=np.int64)
    with stage("oob", config.trees, "trees", listener) as progress:
        ranges = _ranges(rows, store.block_rows, _PIECES * resources.workers)
        for group in _groups(directory, config, resources.workers):
            pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into, a group's worth
            trees = slice(group.first_tree, group.first_tree + group.packed.roots.size)

            def collect(_: int, change: NDArray[np.int64], trees: slice = trees) -> None:
                changes[:, trees] += change

            tasks = [(store, config, group, tally, start, stop) for start, stop in ranges]
            run(_vote, tasks, workers=resources.workers, on_result=collect)
            progress.advance(group.packed.roots.size)
        _write_report(store, config, directory / "oob", tally, np.cumsum(changes, axis=1))


def _ranges(rows: int, block_rows: int, pieces: int) -> list[tuple[int, int]]:
    """The rows cut into ranges of equal size within blocks, at least about `pieces` of them."""
    blocks = -(-rows // block_rows)
    step = -(-block_rows // -(-pieces // blocks))
    return [
        (start, min(start + step, begin + block_rows, rows))
        for begin in range(0, rows, block_rows)
        for start in range(begin, min(begin + block_rows, rows), step)
    ]


def _groups(directory: Path, config: TrainConfig, workers: int) -> Iterator[_Group]:
    """The trees in order, packed, a bounded number of nodes at a time."""
    paths = part_paths(directory)
    header = check_parts(paths)
    waiting: list[Path] = []
    nodes = trees = 0

    def group() -> _Group:
        parts = read_parts(waiting, header, trees, workers)
        packed = pack(parts)
        return _Group(trees, packed, packed.ballots(config.vote))

    for path in paths:
        size = node_count(path)
        if waiting and nodes + size > _GROUP_NODES:
            ready = group()
            yield ready
            trees += ready.packed.roots.size
            waiting, nodes = [], 0
        waiting.append(path)
        nodes += size
    ready = group()
    yield ready
    check_count(directory, trees + ready.packed.roots.size, header)


def _vote(store: Store, config: TrainConfig, group: _Group, tally: _Tally, start: int, stop: int) -> NDArray[np.int64]:
    """Let the trees of a group vote on the rows from `start` to before `stop`, which lie in one block.

    Returns by how much each tree changed the number of rows that are wrong, and that have a vote: int64 [2,
    trees].
    """
    from bigforest.kernels.route import new_scratch, vote_out_of_bag

    packed = group.packed
    block, begin = start // store.block_rows, start % store.block_rows
    bags = np.stack(
        [
            bag_block(store.rows, group.first_tree + tree, block, config)[begin : begin + stop - start]
            for tree in range(packed.roots.size)
        ]
    )
    change = np.zeros((2, packed.roots.size), dtype=np.int64)
    narrow = all(_is_narrow(store.low(feature)) for feature in packed.used)
    layout = packed.layout(narrow)
    step = min(chunk_rows(packed.used.size, layout is packed.narrow), stop - start)
    tiles = tiles_for(step, packed.used.size, layout is packed.narrow)
    scratch = new_scratch()
    for first in range(start, stop, step):
        last = min(first + step, stop)
        columns = [store.low(feature)[store.feature_codes(feature)[first:last]] for feature in packed.used]
        Rows(columns).fill(tiles, 0, last - first)
        vote_out_of_bag(
            tiles,
            last - first,
            layout,
            packed.directions,
            packed.roots,
            group.mixed,
            bags[:, first - start : last - start],
            store.target[first:last],
            tally.votes[first:last],
            tally.voters[first:last],
            tally.prediction[first:last],
            change[0],
            change[1],
            scratch,
        )
    return change


def _is_narrow(values: NDArray[np.float64]) -> bool:
    """Whether every value is a float32."""
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())


def _write_report(
    store: Store, config: TrainConfig, directory: Path, tally: _Tally, changes: NDArray[np.int64]
) -> None:
    spec = store.spec
    known = stored_labels(spec)
    names, label = len(known), known.type
    schema = oob_rows(label, proba_names(spec))
    ranges = _ranges(store.rows, store.block_rows, 1)
    tables = (_rows(store, tally, known, schema, start, stop) for start, stop in ranges)
    write_tables(schema, tables, directory / "rows.parquet", "oob-rows", spec, config)
    wrong, reached = changes
    error = np.divide(wrong, reached, out=np.full(wrong.size, np.nan), where=reached > 0)
    curve = {
        "trees": np.arange(1, wrong.size + 1, dtype=np.uint32),
        "error": pa.array(error, mask=reached == 0),
        "rows": reached.astype(np.uint64),
    }
    write_table(pa.table(curve, schema=CURVE), directory / "curve.parquet", "oob-curve", spec, config)
    used = tally.voters > 0
    pairs = store.target[used].astype(np.uint64) * np.uint64(names) + tally.prediction[used]
    found, counts = np.unique(pairs, return_counts=True)
    table = {
        "truth": known.take(pa.array(found // np.uint64(names))),
        "prediction": known.take(pa.array(found % np.uint64(names))),
        "rows": counts.astype(np.uint64),
    }
    schema = confusion(label)
    write_table(pa.table(table, schema=schema), directory / "confusion.parquet", "oob-confusion", spec, config)


def _rows(store: Store, tally: _Tally, known: pa.Array, schema: pa.Schema, start: int, stop: int) -> pa.Table:
    """Rows from `start` to before `stop` of oob/rows.parquet."""
    piece = slice(start, stop)
    voters = tally.voters[piece]
    unused = voters == 0
    numbers = store.row_numbers
    shares = tally.votes[piece] / np.maximum(voters, 1)[:, None]
    return pa.Table.from_arrays(
        [
            pa.array(np.arange(start, stop, dtype=np.uint64) if numbers is None else numbers[piece]),
            known.take(pa.array(store.target[piece])),
            known.take(pa.array(tally.prediction[piece], mask=unused)),
            pa.array(voters),
            *(pa.array(shares[:, k], mask=unused) for k in range(shares.shape[1])),
        ],
        schema=schema,
    )
