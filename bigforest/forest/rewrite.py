"""Files of trees, read back to be kept when a run continues, or written again as files of another forest.

Nodes pass through as tables of some rows, so memory does not depend on the size of a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, arrow_table, as_numpy, compute
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import FormatError, counted, damaged_forest
from bigforest.forest.files import Header, write_tables
from bigforest.forest.format import KINDS, NODES, nodes_schema
from bigforest.forest.nodes import cut_row_groups, part_path
from bigforest.forest.parts import Span, batches, check_part, check_parts, first_tree, part_paths, read_span


def is_finished(directory: Path, group: range, header: Header) -> bool:
    """Return whether the file of the trees `group` exists and is complete.

    Raises FormatError when it is damaged, is of another forest or holds other trees.
    """
    path = part_path(directory, group.start)
    if not path.exists():
        return False
    try:
        found = _checked_trees(check_part(path, header), header)
    except FormatError as error:
        raise FormatError(f"{error}; remove this file and resume the run, which grows its trees again") from error
    if found != group:
        raise FormatError(f"{path} holds the trees {found}, not {group}; remove it and resume the run")
    return True


def recut(
    source: Path, groups: Sequence[range], directory: Path, header: Header, parts: Sequence[range] | None = None
) -> None:
    """Write trees of the forest in `source` as the files `groups` of the forest of `header` in `directory`.

    groups  the first parts of that forest, as grow/forest.py cuts it; the trees they cover must be in `source`.
    parts   the trees of each part to read, of a forest that is growing; None for all.

    A part has the bytes that it would have if its trees had been grown and written at once. Raises FormatError.
    """
    if all(part_path(directory, group.start).exists() for group in groups):
        return
    nodes = _Nodes(_stored(source, header.spec, 0, parts))
    for group in groups:
        write_nodes(nodes.until(group.stop), part_path(directory, group.start), header)


def copy_parts(source: Path, offset: int, directory: Path, merged: Header) -> None:
    """Write all trees of the forest in `source` as trees from `offset` on of the `merged` forest in `directory`.

    The files keep their trees. Raises FormatError.
    """
    paths = part_paths(source)
    starts, (header, _) = [first_tree(path) for path in paths], check_parts(paths)
    nodes = _Nodes(_stored(source, merged.spec, offset))
    for start, stop in zip(starts, [*starts[1:], header.config.trees], strict=True):
        write_nodes(nodes.until(offset + stop), part_path(directory, offset + start), merged)


def write_nodes(tables: Iterable[pa.Table], path: Path, header: Header) -> None:
    """Write tables of schema NODES as the part `path`, in the row groups that nodes.py write_part makes."""
    groups = (
        pa.concat_tables([table.slice(begin, end - begin) for table, begin, end in group]).combine_chunks()
        for group in cut_row_groups((table, _starts(table)) for table in tables)
    )
    write_tables(nodes_schema(header.spec), groups, path, "trees", header)


class _Nodes:
    """Tables of nodes, taken by the number of the tree."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._rest: pa.Table | None = None

    def until(self, stop: int) -> Iterator[pa.Table]:
        """Yield the remaining nodes of trees before `stop`."""
        while (table := self._rest or next(self._tables, None)) is not None:
            below = int(np.searchsorted(as_numpy(table["tree"]), stop))
            self._rest = table.slice(below) if below < table.num_rows else None
            if below:
                yield table.slice(0, below)
            if self._rest is not None:
                return


def _stored(directory: Path, spec: DataSpec, offset: int, parts: Sequence[range] | None = None) -> Iterator[pa.Table]:
    """Yield the checked nodes of a forest, or of some of its files, in order, with tree numbers raised by `offset`.

    Raises FormatError.
    """
    paths = part_paths(directory) if parts is None else [part_path(directory, part.start) for part in parts]
    header, spans = check_parts(paths)
    names = spec.feature_names
    expected = 0
    for span in spans:
        trees = _checked_trees(span, header)
        if trees.start != expected:
            raise damaged_forest(f"{span.path} begins with tree {trees.start}, not {expected}")
        expected = trees.stop
        for batch in batches(span, len(spec.target.classes)):
            yield as_written(pa.Table.from_batches([batch]), names, offset)
    if expected != (header.config.trees if parts is None else parts[-1].stop):
        raise damaged_forest(f"{directory} holds {counted(expected, 'tree')}, not {header.config.trees:,}")


def _checked_trees(span: Span, header: Header) -> range:
    """Read and check a file of trees; return the numbers of its trees. Raises FormatError."""
    first, trees = -1, 0
    for nodes in read_span(span, header):
        first = nodes.tree if first < 0 else first
        trees += nodes.roots.size
    return range(first, first + trees)


def as_written(table: pa.Table, names: list[str], offset: int) -> pa.Table:
    """Return nodes with the dictionaries of written files in place of the dictionaries of the file that was read."""
    columns = {name: table[name].combine_chunks() for name in NODES.names}
    for name, values in (("kind", arrow_array(KINDS)), ("feature", arrow_array(names, pa.string()))):
        places = compute().index_in(columns[name].cast(pa.string()), value_set=values)
        columns[name] = pa.DictionaryArray.from_arrays(places.cast(NODES.field(name).type.index_type), values)
    columns["tree"] = arrow_array(as_numpy(columns["tree"]) + np.uint32(offset))
    return arrow_table(columns, pa.schema([table.schema.field(name) for name in NODES.names]))


def with_columns(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Return the table with some columns replaced."""
    every = [columns.get(name, table[name]) for name in table.schema.names]
    return pa.Table.from_arrays(every, schema=table.schema)


def _starts(table: pa.Table) -> NDArray[np.int64]:
    """Return where the terms and levels of each node begin, and the end of the last."""
    lengths = [as_numpy(compute().list_value_length(table[name]), 0) for name in ("terms", "levels")]
    return np.concatenate([[0], np.cumsum(np.sum(lengths, axis=0), dtype=np.int64)])
