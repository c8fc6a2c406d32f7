"""Where the out-of-bag rows end in each tree, kept with a forest (`keep_votes`): oob/votes/part-NNNNNNN.parquet, of
schema.py VOTES, NNNNNNN being the first tree.

They are what leaf_files.py says, tree by tree, so that every estimate that starts from out-of-bag votes can be made
from them and the nodes of the forest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import arrow_array, arrow_table, as_numpy
from bigforest.common.errors import damaged_forest
from bigforest.forest.format.files import Header, check_bytes, check_file, row_batches, write_tables
from bigforest.forest.format.frames import scan
from bigforest.forest.format.parts import first_tree, parts_in
from bigforest.forest.format.schema import VOTES
from bigforest.forest.votes.leaf_files import LeafFile
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

VOTES_KIND = "oob-votes"
VOTES_FOLDER = Path("oob", "votes")
# Votes in a row group, about.
_GROUP_ROWS = 1 << 18


def votes_files(directory: Path) -> list[Path]:
    """The files of the kept votes of a forest, in the order of their trees. Raises FormatError without any."""
    return parts_in(directory, VOTES_FOLDER)


def read_votes(directory: Path, identity: str, holding: object) -> pl.LazyFrame:
    """The kept votes of a forest, by tree and row; columns VOTES. Raises FormatError."""
    paths = votes_files(directory)
    for path in paths:
        check_file(path, VOTES_KIND, VOTES, identity)
    return scan(paths, VOTES, row_batches, holding)


def write_votes(directory: Path, store: Store, config: TrainConfig, file: LeafFile) -> None:
    """Task: write the votes of the trees of a file of leaves. Memory: a chunk, and a row group."""
    trees = range(file.trees.start, min(file.trees.stop, config.trees))
    path = directory / VOTES_FOLDER / f"part-{trees.start:07d}.parquet"
    tables = (table for tree in trees for table in _tables(file, tree, store.row_numbers))
    write_tables(VOTES, tables, path, VOTES_KIND, Header(store.spec, config))


def copy_votes(sources: Sequence[tuple[Path, Header]], directory: Path, merged: Header) -> None:
    """Write the votes of several forests, in this order, as those of the `merged` forest in `directory`.

    Raises FormatError.
    """
    offset = 0
    (directory / VOTES_FOLDER).parent.mkdir(exist_ok=True)
    for source, header in sources:
        for path in votes_files(source):
            check_file(path, VOTES_KIND, VOTES, header.identity)
            check_bytes(path)
            to = directory / VOTES_FOLDER / f"part-{first_tree(path) + offset:07d}.parquet"
            write_tables(VOTES, _moved(path, offset, header.config.trees), to, VOTES_KIND, merged)
        offset += header.config.trees


def _tables(file: LeafFile, tree: int, numbers: NDArray[np.uint64] | None) -> Iterator[pa.Table]:
    """The votes of a tree, some at a time."""
    rows: list[NDArray[np.uint64]] = []
    leaves: list[NDArray[np.uint32]] = []
    own = tree - file.trees.start
    with file.leaves.reading() as opened:
        for number in range(file.leaves.blocks):
            found = file.chunk(opened, number)
            begin = int(found.counts[:own].sum(dtype=np.int64))
            here = slice(begin, begin + int(found.counts[own]))
            places = found.rows[here].astype(np.uint64) + np.uint64(number * file.leaves.about["chunk"])
            rows.append(places if numbers is None else numbers[places])
            leaves.append(found.leaves[here])
            if sum(map(len, rows)) >= _GROUP_ROWS or number + 1 == file.leaves.blocks:
                joined = np.concatenate(rows)
                trees = np.full(joined.size, tree, np.uint32)
                yield arrow_table({"tree": trees, "row": joined, "leaf": np.concatenate(leaves)}, VOTES)
                rows, leaves = [], []


def _moved(path: Path, offset: int, trees: int) -> Iterator[pa.Table]:
    """The votes in a file, trees raised by `offset`."""
    for batch in row_batches(path):
        tree = batch.column("tree")
        if batch.num_rows and pc.max(tree).as_py() >= trees:
            raise damaged_forest(f"{path} has votes of a tree that does not exist")
        moved = arrow_array(as_numpy(tree) + np.uint32(offset))
        yield pa.Table.from_arrays([moved, batch.column("row"), batch.column("leaf")], schema=VOTES)
