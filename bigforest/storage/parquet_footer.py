"""Counts and bounds of columns from the footer of a Parquet file.

Arrow is not used, because it ends the process at some damaged footers. The format is Thrift's compact protocol. The
numbers of fields are from parquet.thrift of Apache Parquet.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_MAGIC = b"PAR1"
# Fields of FileMetaData that are read, by number: row groups, their column chunks, and the metadata of each chunk.
# None: the value is read as it is. A list: the value is a list of structures.
_STATISTICS = {1: None, 2: None, 3: None, 5: None, 6: None}
_COLUMN = {3: None, 5: None, 12: _STATISTICS}
_WANTED: Mapping[int, Any] = {4: [{1: [{3: _COLUMN}]}]}
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
# Most levels of nested values; a footer with more is damaged.
_DEEPEST = 32


class ColumnChunk(NamedTuple):
    """Facts about the values of a column in a row group; None if the footer does not have them.

    name    name of the column; of a nested column, the names from the outermost on, with dots between them.
    values  number of values, including missing ones and empty lists.
    nulls   number of missing values.
    low     minimum, as stored.
    high    maximum, as stored.
    """

    name: str
    values: int | None
    nulls: int | None
    low: bytes | None
    high: bytes | None


def row_groups(path: Path) -> list[list[ColumnChunk]]:
    """Return the chunks of each row group, in the order of the columns. Raises ValueError for a damaged footer."""
    try:
        metadata = _Reader(_footer(path)).structure(_WANTED)
        return [[_chunk(column.get(3, {})) for column in group.get(1, [])] for group in metadata.get(4, [])]
    except (IndexError, AttributeError, TypeError, struct.error) as error:
        raise ValueError("its footer is damaged") from error


def _footer(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - 8, 0))
        end = file.read(8)
        length = int.from_bytes(end[:4], "little")
        if len(end) < 8 or end[4:] != _MAGIC or length > size - 8:
            raise ValueError("it does not end as a Parquet file does")
        file.seek(size - 8 - length)
        content: bytes = file.read(length)
    return content


def _chunk(column: Mapping[int, Any]) -> ColumnChunk:
    statistics = column.get(12, {})
    low, high = statistics.get(6, statistics.get(2)), statistics.get(5, statistics.get(1))
    name = ".".join(part.decode() for part in column[3]) if 3 in column else ""
    return ColumnChunk(name, _whole(column.get(5)), _whole(statistics.get(3)), _bytes(low), _bytes(high))


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _bytes(value: Any) -> bytes | None:
    return value if type(value) is bytes else None


class _Reader:
    """A reader of values, one after the other. Raises IndexError for bytes that are not values of the protocol."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def structure(self, fields: Mapping[int, Any], depth: int = 0) -> dict[int, Any]:
        """Return the values of `fields` (see _WANTED) in a structure, by number. Other fields are skipped."""
        values: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            value = self._value(head & 15, fields.get(number), depth)
            if number in fields:
                values[number] = value
        return values

    def _value(self, kind: int, fields: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise IndexError("too deep")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return self._integer()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._number())
        if kind in (_LIST, _SET):
            return self._list(fields, depth)
        if kind == _MAP:
            return self._map(depth)
        if kind == _STRUCT:
            return self.structure(fields if isinstance(fields, Mapping) else {}, depth + 1)
        raise IndexError("no such type")

    def _list(self, fields: Any, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._number() if size == 15 else size
        inner = fields[0] if isinstance(fields, list) else None
        return [
            self._byte() == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, inner, depth + 1)
            for _ in range(size)
        ]

    def _map(self, depth: int) -> None:
        if size := self._number():
            kinds = self._byte()
            for _ in range(size):
                for kind in (kinds >> 4, kinds & 15):
                    if kind in (_TRUE, _FALSE):
                        self._byte()
                    else:
                        self._value(kind, None, depth + 1)

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._content):
            raise IndexError("cut short")
        return self._content[self._at - size : self._at]

    def _number(self) -> int:
        """Return an unsigned integer: 7 bits a byte, the lowest first; bit 7 is set in all bytes but the last."""
        content, at = self._content, self._at  # most of the time is spent here
        value = shift = 0
        while (byte := content[at]) & 128:
            value |= (byte & 127) << shift
            shift += 7
            at += 1
            if shift > 63:
                raise IndexError("too large")
        self._at = at + 1
        return value | byte << shift

    def _integer(self) -> int:
        """Return a signed integer, stored as 0, -1, 1, -2, 2, ... for the unsigned 0, 1, 2, 3, 4, ..."""
        value = self._number()
        return (value >> 1) ^ -(value & 1)
