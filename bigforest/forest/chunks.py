"""Columns of a table as column chunks of a Parquet file: their pages, and what the footer says of them.

A node of a forest table has a dozen small columns, most of them null in leaves. Arrow takes 180 ns to encode one, a
quarter of the time in which a tree grows. So what such tables are made of is encoded here: numbers, flags, names of a
dictionary, lists of equally many numbers, and columns that are null throughout. Arrow encodes all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.forest import pages
from bigforest.forest.pages import DELTA, DICTIONARY, LZ4, PLAIN, RAW, RLE, SPLIT, Pages

# Physical types and encodings by their numbers in the format.
_TYPES = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6}
_ENCODINGS = {
    "PLAIN": PLAIN,
    "PLAIN_DICTIONARY": 2,
    "RLE": RLE,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": DELTA,
    "RLE_DICTIONARY": DICTIONARY,
    "BYTE_STREAM_SPLIT": SPLIT,
}

# Values in a page, so that one stays in the core's cache while it is encoded.
PAGE_VALUES = 1 << 16

# What repeats from row to row is worth compressing; decreases of impurity have random digits.
_COMPRESSED = ("threshold", "value")
# Columns whose range readers may want to know, to skip row groups.
_RANGED = ("tree", "row")


class Chunk(NamedTuple):
    """A leaf column of a row group.

    path       its names, from the column on
    kind       physical type by its number
    encodings  of values and levels in its pages
    range      smallest and largest value, encoded; None where that is not said
    """

    path: tuple[str, ...]
    kind: int
    encodings: tuple[int, ...]
    pages: Pages
    range: tuple[bytes, bytes] | None = None


class _Coding(NamedTuple):
    """How values of a type are written: see Chunk, and a function from those that are not null to bytes."""

    kind: int
    encoding: int
    encode: Callable[[NDArray[Any]], Any]
    codec: int = RAW


def chunks_of(table: pa.Table) -> Iterator[Chunk]:
    """The chunks of a row group, in the order of its columns; a nested column has several."""
    arrays = {field.name: _whole(table[field.name]) for field in table.schema}
    own = {field.name: found for field in table.schema if (found := _encoded(field, arrays[field.name])) is not None}
    others = table.select([name for name in arrays if name not in own])
    by_arrow = _by_arrow(others) if others.num_columns else iter(())
    for field in table.schema:
        if field.name in own:
            yield from own[field.name]
        else:
            yield from (next(by_arrow) for _ in _leaves(field))


def _whole(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _encoded(field: pa.Field, array: Any) -> Iterator[Chunk] | None:
    """The chunks of a column; None where they are left to Arrow."""
    kind = field.type
    if array.null_count == len(array):
        leaves = list(_leaves(field))
        known = [(path, deep, own) for path, deep, leaf in leaves if (own := _physical(leaf)) is not None]
        return (_no_values(*leaf, len(array)) for leaf in known) if len(known) == len(leaves) else None
    if pa.types.is_dictionary(kind) and kind.value_type == pa.string():
        return iter([_names(field, array)])
    if _is_list_of_numbers(kind) and array.null_count == 0:
        width, odd = divmod(len(array.flatten()), len(array))
        if width and not odd and (np.diff(_values(array.offsets)) == width).all():
            return iter([_equal_lists(field, array.flatten(), width)])
        return None
    coding = _coding(field.name, kind)
    return None if coding is None else iter([_flat(field, array, coding)])


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and kind.value_type == pa.uint32() and not kind.value_field.nullable


def _physical(kind: pa.DataType) -> int | None:
    """The physical type of what is encoded here."""
    coding = _coding("", kind)
    return _TYPES["BYTE_ARRAY"] if kind == pa.string() else coding and coding.kind


def _coding(name: str, kind: pa.DataType) -> _Coding | None:
    """How numbers and flags are written."""
    if kind == pa.uint32():
        return _Coding(_TYPES["INT32"], DELTA, pages.differences)
    if kind == pa.uint64():
        return _Coding(_TYPES["INT64"], DELTA, pages.differences)
    if kind == pa.float64() and name in _COMPRESSED:
        return _Coding(_TYPES["DOUBLE"], SPLIT, pages.split, LZ4)
    if kind == pa.float64():
        return _Coding(_TYPES["DOUBLE"], PLAIN, lambda values: values)
    if kind == pa.bool_():
        return _Coding(_TYPES["BOOLEAN"], PLAIN, pages.bits)
    return None


def _leaves(field: pa.Field, path: tuple[str, ...] = (), repeated: bool = False) -> Iterator[Any]:
    """Path, whether it is in a list, and type of each leaf of a column."""
    path, kind = (*path, field.name), field.type
    if pa.types.is_list(kind):
        yield from _leaves(kind.value_field.with_name("element"), (*path, "list"), repeated=True)
    elif pa.types.is_struct(kind):
        for inner in kind:
            yield from _leaves(inner, path, repeated)
    else:
        yield path, repeated, kind.value_type if pa.types.is_dictionary(kind) else kind


# Columns


def _flat(field: pa.Field, array: Any, coding: _Coding) -> Chunk:
    made = Pages(codec=coding.codec, encoding=coding.encoding)
    for part in _slices(array, PAGE_VALUES):
        levels, values = _present(field, part)
        made.add(len(part), levels, coding.encode(values))
    given = _range(array) if field.name in _RANGED else None
    return Chunk((field.name,), coding.kind, (coding.encoding, RLE), made, given)


def _names(field: pa.Field, array: pa.DictionaryArray) -> Chunk:
    """Places in a dictionary, and all of that."""
    made = Pages(codec=RAW, encoding=DICTIONARY)
    words = [word.encode() for word in array.dictionary.to_pylist()]
    made.add_dictionary(len(words), b"".join(len(word).to_bytes(4, "little") + word for word in words))
    width = max(1, (len(words) - 1).bit_length())
    for part in _slices(array.indices, PAGE_VALUES):
        levels, values = _present(field, part)
        made.add(len(part), levels, bytes([width]) + pages.packed(values, width))
    return Chunk((field.name,), _TYPES["BYTE_ARRAY"], (PLAIN, RLE, DICTIONARY), made)


def _equal_lists(field: pa.Field, numbers: Any, width: int) -> Chunk:
    """Lists of `width` numbers each, which are given one after the other; none is null."""
    made = Pages(codec=RAW, encoding=DELTA)
    deepest = 2 if field.nullable else 1
    for part in _slices(numbers, width * max(1, PAGE_VALUES // width)):
        levels = pages.starts(len(part), width) + pages.sized(pages.run(deepest, len(part)))
        made.add(len(part), levels, pages.differences(_values(part)))
    return Chunk((field.name, "list", "element"), _TYPES["INT32"], (DELTA, RLE), made)


def _no_values(path: tuple[str, ...], repeated: bool, kind: int, rows: int) -> Chunk:
    """A leaf of a column that is null in all rows."""
    made = Pages(codec=RAW, encoding=PLAIN)
    made.add(rows, pages.sized(pages.run(0, rows)) * (2 if repeated else 1), b"")
    return Chunk(path, kind, (PLAIN, RLE), made)


def _by_arrow(table: pa.Table) -> Iterator[Chunk]:
    """The chunks of other columns: those of a file of its own that Arrow writes."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema.remove_metadata(),
        compression="lz4",  # a sixth less time than zstd for a tenth more bytes
        use_dictionary=[field.name for field in table.schema if not pa.types.is_primitive(field.type)],
        column_encoding={
            ".".join(path): "DELTA_BINARY_PACKED"
            for field in table.schema
            for path, repeated, kind in _leaves(field)
            if repeated and kind == pa.uint32()
        },
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    content = sink.getvalue()
    group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    for number, (path, _, _) in enumerate(leaf for field in table.schema for leaf in _leaves(field)):
        column = group.column(number)
        begin, size = column.data_page_offset, column.total_compressed_size
        dictionary = 0
        if column.has_dictionary_page:
            dictionary = begin - column.dictionary_page_offset
            begin = column.dictionary_page_offset
        made = Pages(
            codec=LZ4,
            encoding=PLAIN,
            values=column.num_values,
            plain=column.total_uncompressed_size,
            dictionary=dictionary,
            pages=[content[begin : begin + size].to_pybytes()],
        )
        yield Chunk(path, _TYPES[column.physical_type], tuple(_ENCODINGS[name] for name in column.encodings), made)


def _slices(array: Any, size: int) -> Iterator[Any]:
    return (array.slice(begin, size) for begin in range(0, len(array), size))


def _present(field: pa.Field, array: Any) -> tuple[bytes, NDArray[Any]]:
    """The levels of a flat column, and its values that are not null."""
    from bigforest.kernels.pages import keep_values

    values = _values(array)
    if not field.nullable:
        return b"", values
    if array.null_count == 0:
        return pages.sized(pages.run(1, len(array))), values
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    there = bits[array.offset : array.offset + len(array)].view(np.bool_)
    kept = np.empty_like(values)
    return pages.sized(pages.bit_run(there)), _frozen(kept[: keep_values(values, there, kept)])


def _values(array: Any) -> NDArray[Any]:
    """Values of numbers and flags as unsigned numbers of 8, 32 or 64 bits; where null, anything."""
    content, size = array.buffers()[1], len(array)
    if array.type == pa.bool_():
        flags = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        return _frozen(flags[array.offset : array.offset + size])
    width = array.type.bit_width // 8
    values = np.frombuffer(content, f"u{width}", size, width * array.offset)
    return _frozen(values.astype(np.uint32) if width < 4 else values)


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    """Read-only, as what comes from Arrow often is: kernels are compiled for one kind of array."""
    values = values.view()
    values.flags.writeable = False
    return values


def _range(array: Any) -> tuple[bytes, bytes]:
    values = _values(array)
    return values.min().tobytes(), values.max().tobytes()
