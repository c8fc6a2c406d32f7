"""Parts of a forest, read back to be kept when a run goes on, or to be written again as parts of another forest.

Nodes pass through as tables of some rows, so that the memory does not depend on the size of a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bigforest.config import TrainConfig
from bigforest.encode.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.forest.files import Header, header_of, read_table, write_tables
from bigforest.forest.parts import check_nodes, check_parts, part_paths
from bigforest.forest.table import KINDS, NODES, part_path

_BATCH_ROWS = 1 << 17
# Rows of a row group where a part is written at once: pyarrow's rule, so that a copy has the same bytes.
_GROUP_ROWS = 1 << 20


def is_finished(directory: Path, group: range, spec: DataSpec, config: TrainConfig) -> bool:
    """Whether the part of the trees `group` is there, whole.

    Raises FormatError when it is damaged, is of another forest or holds other trees.
    """
    path = part_path(directory, group.start)
    if not path.exists():
        return False
    try:
        _check_part(path, header_of(spec, config))
        found = _span(path)
    except FormatError as error:
        raise FormatError(f"{error}; remove this file and resume the run, which grows its trees again") from error
    if found != group:
        raise FormatError(f"{path} holds the trees {found}, not {group}; remove it and resume the run")
    return True


def recut(source: Path, groups: Sequence[range], directory: Path, spec: DataSpec, config: TrainConfig) -> None:
    """Write trees of the forest in `source` as the parts `groups` of the forest of (spec, config) in `directory`.

    groups  the first parts of that forest, as grow/forest.py cuts it; the trees they cover must be in `source`.

    A part has the bytes that it would have if its trees had been grown and written at once. Raises FormatError.
    """
    if all(part_path(directory, group.start).exists() for group in groups):
        return
    nodes = _Nodes(_stored(source, spec, 0))
    for group in groups:
        write_tables(
            NODES, _row_groups(nodes.until(group.stop)), part_path(directory, group.start), "trees", spec, config
        )


def copy_parts(source: Path, first_tree: int, directory: Path, spec: DataSpec, config: TrainConfig) -> None:
    """Write all trees of the forest in `source` as trees from `first_tree` on of the forest of (spec, config).

    The parts are cut as they are. Raises FormatError.
    """
    starts = [_span(path).start for path in part_paths(source)]
    header = check_parts(part_paths(source))
    nodes = _Nodes(_stored(source, spec, first_tree))
    for start, stop in zip(starts, [*starts[1:], header.config.trees], strict=True):
        path = part_path(directory, first_tree + start)
        write_tables(NODES, _row_groups(nodes.until(first_tree + stop)), path, "trees", spec, config)


class _Nodes:
    """Tables of nodes, to be taken by the number of the tree."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._rest: pa.Table | None = None

    def until(self, stop: int) -> Iterator[pa.Table]:
        """All nodes not yet taken of trees before `stop`."""
        while (table := self._rest or next(self._tables, None)) is not None:
            below = int(np.searchsorted(table["tree"].to_numpy(), stop))
            self._rest = table.slice(below) if below < table.num_rows else None
            if below:
                yield table.slice(0, below)
            if self._rest is not None:
                return


def _stored(directory: Path, spec: DataSpec, offset: int) -> Iterator[pa.Table]:
    """The checked nodes of a forest in order, numbers of trees raised by `offset`. Raises FormatError."""
    paths = part_paths(directory)
    header = check_parts(paths)
    names = [feature.name for feature in spec.features]
    expected = 0
    for path in paths:
        _check_part(path, header)
        trees = _span(path)
        if trees.start != expected:
            raise FormatError(f"{path} begins with tree {trees.start}, not {expected}; the forest is damaged")
        expected = trees.stop
        for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS, use_threads=False):
            yield _as_written(pa.Table.from_batches([batch]), names, offset)
    if expected != header.config.trees:
        raise FormatError(f"{directory} holds {expected} trees, not {header.config.trees}; the forest is damaged")


def _check_part(path: Path, header: Header) -> None:
    check_nodes(read_table(path, "trees", NODES, header.identity)[1], header.spec, path)


def _span(path: Path) -> range:
    """The trees of a checked part."""
    tree = pq.ParquetFile(path).read(columns=["tree"], use_threads=False)["tree"]
    return range(tree[0].as_py(), tree[-1].as_py() + 1)


def _as_written(table: pa.Table, names: list[str], offset: int) -> pa.Table:
    """The nodes with the dictionaries that all parts are written with, whatever the file had made of them."""
    columns = {name: table[name].combine_chunks() for name in NODES.names}
    for name, values in (("kind", pa.array(KINDS)), ("feature", pa.array(names, pa.string()))):
        places = pc.index_in(columns[name].cast(pa.string()), value_set=values)
        columns[name] = pa.DictionaryArray.from_arrays(places.cast(NODES.field(name).type.index_type), values)
    columns["tree"] = pc.add(columns["tree"], pa.scalar(offset, pa.uint32()))
    columns["terms"] = pa.nulls(table.num_rows, NODES.field("terms").type)
    return pa.Table.from_arrays([columns[name] for name in NODES.names], schema=NODES)


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of _GROUP_ROWS, the last perhaps fewer, each in one chunk."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        while sum(piece.num_rows for piece in held) >= _GROUP_ROWS:
            whole = pa.concat_tables(held)
            yield whole.slice(0, _GROUP_ROWS).combine_chunks()
            held = [whole.slice(_GROUP_ROWS)]
    if sum(piece.num_rows for piece in held):
        yield pa.concat_tables(held).combine_chunks()
