"""Writes a Parquet file whose footer holds the checksum of the whole file, without reading it again.

Arrow says what the schema is (`_footer`); row groups are put into what it says, and are encoded by chunks.py.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bigforest.forest.chunks import Chunk, chunks_of
from bigforest.forest.thrift import Field, binary, i32, i64, many, struct

_MAGIC = b"PAR1"
# In a footer: no rows, and a list of no row groups.
_NO_ROWS = b"\x16\x00\x19\x0c"
_Entries = tuple[tuple[bytes, bytes], ...]


class TableWriter:
    """Writes a table of `schema`, row group by row group; `finish` makes the file whole.

    entries  of the key-value metadata, besides that of the schema
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, entries: dict[bytes, bytes]) -> None:
        self._file = file
        metadata = tuple((schema.metadata or {}).items())
        self._before, self._after = _footer(schema.remove_metadata(), metadata, tuple(entries.items()))
        self._size = self._crc = self._rows = 0
        self._groups: list[Field] = []
        self._append(_MAGIC)

    def write(self, table: pa.Table) -> None:
        """Append the table as a row group; nothing where it has no rows."""
        if table.num_rows == 0:
            return
        columns, plain = [], 0
        begin = self._size
        for chunk in chunks_of(table):
            columns.append(self._column(chunk))
            plain += chunk.pages.plain
        sizes = {5: i64(begin), 6: i64(self._size - begin)}
        self._groups.append(struct({1: many(columns), 2: i64(plain), 3: i64(table.num_rows), **sizes}))
        self._rows += table.num_rows

    def finish(self, checksum: bytes) -> None:
        """Write the footer. The value that ends the entry `checksum` in it becomes the CRC-32 of the file as it is."""
        groups = many(self._groups)[1] if self._groups else b"\x0c"
        footer = self._before + b"\x16" + i64(self._rows)[1] + b"\x19" + groups + self._after
        end = footer + len(footer).to_bytes(4, "little") + _MAGIC
        digits = b"%08x" % zlib.crc32(end, self._crc)
        place = end.rindex(checksum) + len(checksum) - len(digits)
        self._file.write(end[:place] + digits + end[place + len(digits) :])

    def _append(self, content: bytes) -> None:
        self._file.write(content)
        self._size += len(content)
        self._crc = zlib.crc32(content, self._crc)

    def _column(self, chunk: Chunk) -> Field:
        """Append the pages of a column; what the footer says of it."""
        begin = self._size
        for page in chunk.pages.pages:
            self._append(page)
        about = {
            1: i32(chunk.kind),
            2: many([i32(encoding) for encoding in chunk.encodings]),
            3: many([binary(name.encode()) for name in chunk.path]),
            4: i32(chunk.pages.codec),
            5: i64(chunk.pages.values),
            6: i64(chunk.pages.plain),
            7: i64(self._size - begin),
            9: i64(begin + chunk.pages.dictionary),
        }
        if chunk.pages.dictionary:
            about[11] = i64(begin)
        if chunk.range is not None:
            smallest, largest = map(binary, chunk.range)
            about[12] = struct({3: i64(0), 5: largest, 6: smallest})
        return struct({2: i64(0), 3: struct(about)})


@lru_cache(maxsize=8)
def _footer(schema: pa.Schema, metadata: _Entries, entries: _Entries) -> tuple[bytes, bytes]:
    """The footer of a file without rows before and after it says so: what Arrow makes of the schema.

    After it come text that is ASCII, and numbers that cannot look like it.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema.with_metadata(dict(metadata))) as writer:
        writer.add_key_value_metadata(dict(entries))
    content = sink.getvalue().to_pybytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    place = footer.rindex(_NO_ROWS)
    return footer[:place], footer[place + len(_NO_ROWS) :]
