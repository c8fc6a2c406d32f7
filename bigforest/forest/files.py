"""One Parquet file of a forest: written completely or not at all, and checked before it is used.

The Parquet schema metadata of every file has the key "bigforest" with a JSON object: version (of the format), kind
(format.py, FileFormat), spec (DataSpec) and config (TrainConfig). All files of one forest have the same spec and
config; the run file also has "origin", where the training table was found (run_file.py). A file is written under a
temporary name that starts with a dot, and renamed when it is complete. This module also writes and reads the small
files of features, of levels, and of votes with boosting.

Parquet's own checksums cover pages, but not page headers and the footer. Each file therefore has the entry
"bigforest.crc32" in its key-value metadata: the CRC-32, as eight hexadecimal digits, of the whole file with zeros in
place of these digits. A file without the entry is read without this check. run.parquet lists the checksums of the other
files, so a file of another run with the same spec and config is recognised (run_file.py).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.columns.dataspec import DataSpec, json_object
from bigforest.errors import BigForestError, FormatError, damaged_forest, naming_file, system_error
from bigforest.forest.format import BOOSTING, FEATURES, FileFormat, levels_format
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.boosting import TreeVote
from bigforest.storage.arrow import FAULTS, naming_faults
from bigforest.storage.atomic import write_durably
from bigforest.storage.paths import local_path, readable
from bigforest.store.levels import LEVELS, Levels, checked_levels

VERSION = 3
METADATA_KEY = b"bigforest"
CHECKSUM_KEY = b"bigforest.crc32"
_BLANK = b"00000000"
# The last bytes of every Parquet file.
_MAGIC = b"PAR1"
# Bytes before the digits: Thrift has one byte for the field and one for the length of its value.
_ENTRY = CHECKSUM_KEY + bytes([0x18, len(_BLANK)])
# Bytes read at a time when a whole file is read.
_READ_BYTES = 1 << 20
# Bytes of a table that are written at once.
_WRITE_BYTES = 1 << 18
# Rows of a batch.
_BATCH_ROWS = 1 << 16
# Values, with their nesting levels, that Arrow encodes at a time.
_ENCODED_VALUES = 1 << 13


@dataclass(frozen=True)
class Header:
    """Metadata of a file about its forest.

    levels  levels of categories; None if they have not been read.
    """

    spec: DataSpec
    config: TrainConfig
    levels: Levels | None = None

    @cached_property
    def identity(self) -> str:
        """Spec and configuration as text, the same in all files of a forest."""
        return self.spec.to_json() + self.written_config

    @cached_property
    def written_config(self) -> str:
        return self.config.to_json()


def write_tables(
    tables: Iterable[pa.Table],
    path: Path,
    file_format: FileFormat,
    header: Header,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a table that comes in pieces as the file `path` of a forest; more: further entries of its metadata."""
    schema = file_format.columns
    described = {"spec": header.spec.to_json(), "config": header.written_config}
    entries = {"version": f"{VERSION}", "kind": json.dumps(file_format.kind), **described}
    entries |= {name: json.dumps(entry, sort_keys=True) for name, entry in (more or {}).items()}
    with write_durably(path) as temporary:
        with (
            buffered_output(temporary) as file,
            pq.ParquetWriter(
                file,
                schema.with_metadata({METADATA_KEY: json_object(entries)}),
                compression="lz4",  # a sixth less time than zstd for a tenth more bytes
                write_batch_size=_ENCODED_VALUES,
                write_page_checksum=True,
                **_column_options(schema),
            ) as writer,
        ):
            for table in tables:
                writer.write_table(table.replace_schema_metadata(writer.schema.metadata))
            writer.add_key_value_metadata({CHECKSUM_KEY: _BLANK})
        _seal(temporary)


def buffered_output(path: Path) -> Any:
    """Open a local file with a buffer: a ParquetWriter writes a small table of ten columns in forty pieces."""
    return pa.output_stream(path, compression=None, buffer_size=_WRITE_BYTES)


@lru_cache(maxsize=64)
def _column_options(schema: pa.Schema) -> dict[str, Any]:
    columns = dict(column for field in schema for column in _leaf_columns(field))
    # Integers as differences, floats by byte planes: half of the bytes in no more time. Byte planes of integers would
    # take a twelfth less time to write, but older readers, such as DuckDB 1.2, do not support them.
    encoding = {name: "DELTA_BINARY_PACKED" for name, kind in columns.items() if pa.types.is_integer(kind)}
    encoding |= {name: "BYTE_STREAM_SPLIT" for name, kind in columns.items() if pa.types.is_floating(kind)}
    return {
        "use_dictionary": [name for name, kind in columns.items() if not pa.types.is_primitive(kind)],
        "column_encoding": encoding,
        "write_statistics": [name for name in ("tree", "row") if name in columns],
    }


def _leaf_columns(field: pa.Field, above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and the type of each Parquet column of a field; a nested field has several."""
    kind, path = field.type, above + field.name
    if pa.types.is_list(kind):
        yield from _leaf_columns(kind.value_field.with_name("list.element"), f"{path}.")
    elif pa.types.is_struct(kind):
        for child in kind:
            yield from _leaf_columns(child, f"{path}.")
    else:
        yield path, kind


def _seal(path: Path) -> None:
    """Write the checksum of a complete file into the blank digits of its footer."""
    with path.open("r+b") as file:
        place = _checksum_place(file)
        assert place is not None
        digits = b"%08x" % _checksum(file, place)
        file.seek(place)
        file.write(digits)


def _ends_as_parquet(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(_MAGIC)))
    return file.read() == _MAGIC


def _checksum_place(file: BinaryIO) -> int | None:
    """Return the position of the digits in a Parquet file; None if the footer has no such entry."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    footer = min(size - 8, int.from_bytes(file.read(4), "little"))
    if footer <= 0:
        return None
    file.seek(size - 8 - footer)
    offset = file.read(footer).rfind(_ENTRY)
    place = size - 8 - footer + offset + len(_ENTRY)
    return place if offset >= 0 and place + len(_BLANK) <= size else None


def _checksum(file: BinaryIO, place: int) -> int:
    """Return the CRC-32 of the file with the digits at `place` blank."""
    crc = 0
    file.seek(0)
    for begin, end in ((0, place), (place + len(_BLANK), None)):
        if begin:
            crc = zlib.crc32(_BLANK, crc)
            file.seek(begin)
        while piece := file.read(_READ_BYTES if end is None else min(_READ_BYTES, end - file.tell())):
            crc = zlib.crc32(piece, crc)
    return crc


def check_bytes(path: Path) -> None:
    """Read the whole file and raise FormatError if its bytes do not have the checksum that it contains.

    Takes a nanosecond per byte. A Parquet file without a checksum passes. A file that does not end as a Parquet file is
    refused without being read.
    """
    with naming_file(path), _local(path).open("rb") as file:
        if not _ends_as_parquet(file):
            raise _unreadable(path, "it has no footer")
        place = _checksum_place(file)
        if place is None:
            return
        checksum = b"%08x" % _checksum(file, place)
        file.seek(place)
        sound = file.read(len(_BLANK)) == checksum
    if not sound:
        raise damaged_forest(f"{path}: the checksum differs")


def stored_checksum(path: Path) -> str | None:
    """Return the checksum in the footer of a file, without comparing it with the bytes.

    None for a Parquet file without a checksum, and for any other file. Raises OSError.
    """
    with naming_file(path), path.open("rb") as file:
        place = _checksum_place(file) if _ends_as_parquet(file) else None
        if place is None:
            return None
        file.seek(place)
        return file.read(len(_BLANK)).decode("latin-1")


def open_parquet(path: Path, words: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a file to read it in pieces, and verify Parquet's checksums. Raises FormatError.

    words  paths of text columns that become dictionaries.
    """
    with naming_faults(lambda fault: _unreadable(path, fault), path):
        local = _local(path)
        small = local.stat().st_size <= _READ_BYTES  # no buffer for each column then
        source, buffer = (pa.BufferReader(local.read_bytes()), 0) if small else (local.absolute(), _READ_BYTES)
        return pq.ParquetFile(source, read_dictionary=words, page_checksum_verification=True, buffer_size=buffer)


def _local(path: Path) -> Path:
    """Return a local copy of `path`. Raises FormatError unless it is a regular file: reading a pipe would wait."""
    with suppress(FileNotFoundError):
        if (local := local_path(path)).is_file():
            return local
    raise damaged_forest(f"{path} is missing")


def decoding(path: Path) -> AbstractContextManager[None]:
    """Raise FormatError if the block cannot decode the rows of a file."""
    return naming_faults(lambda fault: damaged_forest(f"{path} cannot be decoded ({fault})"), path)


def _unreadable(path: Path, fault: str) -> FormatError:
    return damaged_forest(f"{path} is not a readable Parquet file ({fault})")


def row_batches(path: Path, names: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a file as record batches, validated by Arrow. names: columns to read; None for all."""
    with decoding(path):
        for batch in open_parquet(path).iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
            batch.validate(full=True)
            yield batch


def file_mark(path: Path) -> Any:
    """Return the metadata of a file of bigforest, of any version, under METADATA_KEY; None for any other file.

    Raises OSError.
    """
    try:
        if not path.is_file():  # reading a pipe would wait
            return None
        return json.loads((pq.read_schema(readable(path)).metadata or {})[METADATA_KEY])
    except FAULTS as error:
        if (named := system_error(error, path)) is not None:
            raise named from error
        return None


def file_kind(path: Path) -> str | None:
    """Return the kind of a file of bigforest, of any version; None for any other file."""
    mark = file_mark(path)
    kind = mark.get("kind") if isinstance(mark, dict) else None
    return kind if isinstance(kind, str) else None


def read_header(path: Path, kind: str | None) -> tuple[Header, pq.ParquetFile]:
    """Return the header of a file, and the file with its footer read.

    Raises FormatError unless it is a file of a forest, of format version VERSION and of the kind `kind` (None: any).
    """
    file = _footer(path)
    return _header_in(file, path, kind)[0], file


def _footer(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        raise damaged_forest(f"{path} is missing")
    with naming_faults(lambda fault: _unreadable(path, fault), path):
        return pq.ParquetFile(readable(path))


def _header_in(file: pq.ParquetFile, path: Path, kind: str | None) -> tuple[Header, pa.Schema]:
    """Return the header and the schema of an open file. Raises FormatError as `read_header` does."""
    with naming_faults(lambda fault: _unreadable(path, fault), path):
        schema = file.schema.to_arrow_schema()
        _ = schema.names  # damaged bytes may not be text
    try:
        version, stored_kind, header = _parse((schema.metadata or {})[METADATA_KEY])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not a file of a forest: it has no bigforest metadata; check the path") from error
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise damaged_forest(f"{path} has format version {version!r}, which never existed")
    if version > VERSION:
        raise FormatError(f"{path} has format version {version} and this bigforest reads {VERSION}; upgrade bigforest")
    if version < VERSION:
        raise FormatError(
            f"{path} has format version {version}, of an older bigforest, and this one reads {VERSION}; train it again"
        )
    if kind is not None and stored_kind != kind:
        raise damaged_forest(f"{path} has kind {stored_kind!r} instead of {kind!r}")
    if isinstance(header, str):
        raise damaged_forest(f"{path}: {header}")
    return header, schema


@lru_cache(maxsize=8)
def _parse(metadata: bytes) -> tuple[object, object, Header | str]:
    """Return version, kind, and the header or an error message. Cached: all tree files of a forest have these bytes."""
    raw = json.loads(metadata)
    version, kind = raw["version"], raw["kind"]
    try:
        config = json.dumps(raw["config"], sort_keys=True)
        return version, kind, Header(DataSpec.from_entries(raw["spec"]), TrainConfig.from_json(config))
    except (KeyError, TypeError, BigForestError) as error:
        return version, kind, str(error)


def read_table(path: Path, file_format: FileFormat, header: Header) -> pa.Table:
    """Read one whole file, with one chunk per column, in the order of the columns of its format.

    Raises FormatError unless it is a sound file of this format, with no other columns, of the forest with this header.
    """
    file = open_checked(path, file_format, header)
    with decoding(path):
        table = declared(file.read(use_threads=False), file_format.columns).unify_dictionaries().combine_chunks()
        table.validate(full=True)
    return table


def with_rows(table: pa.Table, path: Path) -> pa.Table:
    """Return the table of a file. Raises FormatError if it has no row."""
    if not table.num_rows:
        raise damaged_forest(f"{path} has no rows")
    return table


def declared(read: Any, columns: pa.Schema) -> Any:
    """Return a table or batch with the order and types of `columns`, without further metadata."""
    return type(read).from_arrays([read.column(name) for name in columns.names], schema=columns)


def check_file(path: Path, file_format: FileFormat, header: Header) -> pq.ParquetFile:
    """Check a file as `read_table` does, without reading rows: metadata, columns, and the forest it belongs to.

    Returns the file with its footer read.
    """
    file = _footer(path)
    _check_columns(file, path, file_format, header)
    return file


def open_checked(
    path: Path, file_format: FileFormat, header: Header, words: Sequence[str] = (), *, whole: bool = True
) -> pq.ParquetFile:
    """Check a file (`check_file`) and open it to read rows. whole: also check all bytes; words: see `open_parquet`."""
    file = open_parquet(path, words)
    _check_columns(file, path, file_format, header)
    if whole:
        check_bytes(path)
    return file


def _check_columns(file: pq.ParquetFile, path: Path, file_format: FileFormat, header: Header) -> None:
    """Raise FormatError unless an open file has this format and is a file of the forest with this header."""
    stored, schema = _header_in(file, path, file_format.kind)
    if stored.identity != header.identity:
        raise damaged_forest(f"{path} belongs to another forest, as its dataspec or configuration differs")
    for field in file_format.columns:
        position = schema.get_field_index(field.name)
        if position < 0:
            raise damaged_forest(f"{path} has no column {field.name!r}")
        file_field = schema.field(position)
        if file_field.type != field.type or file_field.nullable != field.nullable:
            raise damaged_forest(f"{path}: column {field.name!r} is {file_field.type}, not {field.type}")
    if len(schema) != len(file_format.columns):
        raise damaged_forest(f"{path} has columns that do not belong there")


def write_features(directory: Path, header: Header, importance: NDArray[np.float64]) -> None:
    features = header.spec.features
    columns = {name: [getattr(feature, name) for feature in features] for name in ("name", "kind", "dtype", "codes")}
    numbered = {"feature": np.arange(len(features), dtype=np.uint32), **columns, "importance": importance}
    write_tables([FEATURES.table(numbered)], FEATURES.at(directory), FEATURES, header)


def read_features(directory: Path, header: Header) -> pa.Table:
    """Read features.parquet. Raises FormatError unless it is about the features of the dataspec."""
    path, spec = FEATURES.at(directory), header.spec
    table = read_table(path, FEATURES, header)
    expected = {
        "feature": list(range(len(spec.features))),
        **{name: [getattr(feature, name) for feature in spec.features] for name in ("name", "kind", "dtype", "codes")},
    }
    share = as_numpy(table["importance"])
    same = all(table[name].to_pylist() == cells for name, cells in expected.items())
    if not (same and ((share >= 0) & (share <= 1)).all()):
        raise damaged_forest(f"{path} does not match the features of the dataspec")
    return table


def has_levels(spec: DataSpec) -> bool:
    """Return True if some feature is a category with levels, so that the forest has the file levels.parquet."""
    return any(feature.levels for feature in spec.features)


def write_levels(directory: Path, header: Header) -> None:
    if header.levels is not None and has_levels(header.spec):
        file_format = levels_format(header.spec)
        write_tables(header.levels.tables(header.spec), file_format.at(directory), file_format, header)


def read_forest_levels(directory: Path, header: Header) -> Levels:
    """Read and check the levels of categories; none if no category has levels. Raises FormatError."""
    if not has_levels(header.spec):
        return Levels.none(header.spec)
    file_format = levels_format(header.spec)
    path = file_format.at(directory)
    table = read_table(path, file_format, header).replace_schema_metadata(None)
    levels = checked_levels(table.select(LEVELS.names), header.spec, path, damaged_forest)
    if table.num_columns == len(LEVELS):
        return levels
    value = as_numpy(table["value"], np.nan)
    if not np.isfinite(value).all():
        raise damaged_forest(f"{path}: a level has no finite value")
    return replace(levels, value=value)


# Upper bound of the weight of a tree's vote, log((1 - e) / e): e is at least 0.5 / (rows + 1) (sampling/boosting.py).
_LARGEST_VOTE = 64.0


def write_tree_votes(directory: Path, votes: Sequence[TreeVote], header: Header) -> None:
    columns = {
        "tree": np.arange(len(votes), dtype=np.uint32),
        "error": np.array([one.error for one in votes]),
        "vote": np.array([one.vote for one in votes]),
    }
    write_tables([BOOSTING.table(columns)], BOOSTING.at(directory), BOOSTING, header)


def read_boosting(directory: Path, header: Header) -> pa.Table:
    """Read and check boosting.parquet. Raises FormatError."""
    path = BOOSTING.at(directory)
    table = read_table(path, BOOSTING, header)
    tree, error, vote = (as_numpy(column) for column in table.columns)
    sound = (
        np.array_equal(tree, np.arange(header.config.trees))
        and ((error >= 0.0) & (error <= 1.0)).all()
        and ((vote > 0.0) & (vote <= _LARGEST_VOTE)).all()
        and (header.config.weighs_trees or (vote == 1.0).all())
    )
    if not sound:
        raise damaged_forest(f"{path} does not have an error and a vote for each tree, in order")
    return table


def read_tree_votes(directory: Path, header: Header) -> NDArray[np.float64] | None:
    """Return the weight of each tree's vote, float64 [trees]; None if all votes have the same weight.

    Raises FormatError.
    """
    if not header.config.weighs_trees:
        return None
    return as_numpy(read_boosting(directory, header)["vote"])
