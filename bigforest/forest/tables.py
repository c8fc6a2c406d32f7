"""Files of a forest as Polars frames, and Parquet files that commands write piece by piece: complete or absent, and
recognised as written by bigforest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from bigforest.execution.forks import check_polars_threads
from bigforest.forest.files import METADATA_KEY, buffered_output, check_bytes, declared, file_kind
from bigforest.forest.run_file import RunStamp, same_run
from bigforest.storage.arrow import no_rows
from bigforest.storage.atomic import OutputKind, check_output, staged

# Function that yields the named columns of a file in batches; None for all columns.
Batches = Callable[[Path, list[str] | None], Iterator[Any]]


def scan(
    paths: list[Path], columns: pa.Schema, batches: Batches, holding: object, stamp: RunStamp | None
) -> pl.LazyFrame:
    """Scan files of the schema `columns` as a LazyFrame, which keeps the object `holding` alive.

    stamp  stamp of the forest: a query raises FormatError if the forest was replaced. None for no check.

    Arrow reads the files: damaged bytes with a right checksum could make Polars end the process. A query that meets
    damage raises FormatError.
    """
    schema = dict(to_frame(no_rows(columns)).schema)

    def read(
        names: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None, held: object = holding
    ) -> Iterator[pl.DataFrame]:
        # Read at least one column: a table without columns has no rows.
        requested = list(columns.names) if names is None else names or columns.names[:1]
        kept = pa.schema([columns.field(name) for name in requested])
        with same_run(stamp):
            for path in paths:
                check_bytes(path)
                for batch in batches(path, requested):
                    frame = to_frame(declared(batch, kept))
                    if rows is not None:
                        frame = frame.head(rows)
                        rows -= frame.height
                    yield frame if predicate is None else frame.filter(predicate)
                    if rows == 0:
                        return

    return register_io_source(read, schema=schema)


def to_frame(table: Any) -> pl.DataFrame:
    """Convert a pyarrow table or batch to a DataFrame. Raises ConfigError in a forked process."""
    check_polars_threads()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


# Version of the metadata of these files, not of forests.
VERSION = 1
# Bytes of a row group in Arrow's memory. The writer keeps metadata of every column of every row group until the end,
# so groups must not be small.
GROUP_BYTES = 1 << 25


def write_table_file(
    out: str | Path,
    pieces: Iterable[pa.Table],
    *,
    kind: str,
    about: dict[str, Any],
    dictionary: bool | Sequence[str] = True,
    overwrite: bool,
) -> None:
    """Write `pieces`, at least one and all of one schema, to the Parquet file `out`, with row groups of whole pieces.

    kind        kind of the file; only a file of the same kind is overwritten.
    about       further entries of the JSON object under the key "bigforest" of its schema metadata.
    dictionary  columns to write with a dictionary, True for all: good for few values, useless for measurements.

    Raises OutputExistsError or ConfigError when `out` cannot be used, before the first piece is requested.
    """
    with staged(out, _output(kind), overwrite=overwrite) as made:
        write_pieces(
            made,
            _row_groups(pieces),
            {"version": VERSION, "kind": kind, **about},
            compression="lz4",
            use_dictionary=dictionary if isinstance(dictionary, bool) else list(dictionary),
            write_statistics=False,  # not used by filters, and large in tables of a thousand columns
        )


def _row_groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join consecutive pieces to tables of at least GROUP_BYTES; the last one may be smaller."""
    held: list[pa.Table] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.nbytes
        if size >= GROUP_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def write_pieces(path: Path, pieces: Iterable[pa.Table], mark: Mapping[str, Any], **options: Any) -> None:
    """Write pieces of one schema, at least one, as row groups of a Parquet file; mark: JSON of the schema metadata."""
    metadata = {METADATA_KEY: json.dumps(mark)}
    with ExitStack() as opened:
        writer = None
        for piece in pieces:
            if writer is None:
                file = opened.enter_context(buffered_output(path))
                schema = piece.schema.with_metadata(metadata)
                writer = opened.enter_context(pq.ParquetWriter(file, schema, **options))
            writer.write_table(piece, row_group_size=max(1, piece.num_rows))


def check_table_file(out: str | Path, kind: str, *, overwrite: bool) -> None:
    """Raise the errors that `write_table_file` would raise for `out` before its first piece."""
    check_output(out, _output(kind), overwrite=overwrite)


def _output(kind: str) -> OutputKind:
    return OutputKind(kind.replace("-", " ") + " file", lambda path: file_kind(path) == kind)
