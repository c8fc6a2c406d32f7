"""What can be wrong with files: bytes, the kind of file, entries of JSON, values and columns of Parquet."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bigforest.forest.files import _BLANK, CHECKSUM_KEY, METADATA_KEY, _checksum_place, _seal

EXTREMES: list[Any] = [
    *(
        0,
        1,
        -1,
        2,
        255,
        256,
        65_535,
        65_536,
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**32,
        2**53,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
    ),
    *(10**30, 1e308, 5e-324, -0.0, 0.5, float("nan"), float("inf"), 2.0**1000, 2.0**-1000),
    *(
        "",
        "x",
        "\0",
        "é" * 3,
        "../../x",
        "^a.*$",
        "/dev/zero",
        "Int64",
        "Datetime(time_unit='us', time_zone='No/Where')",
    ),
    *(None, True, False, [], {}, [[]], [None], ["a", "a"], {"a": {}}),
]

# Types that tables seldom have, with a value or two.
ODD_COLUMNS: list[Callable[[int], Any]] = [
    lambda rows: pa.nulls(rows, pa.timestamp("us", "No/Where")),
    lambda rows: pa.nulls(rows, pa.timestamp("ns", "+99:99")),
    lambda rows: pa.array([10**60] * rows, pa.decimal256(70, 2)),
    lambda rows: pa.nulls(rows, pa.decimal128(38, 38)),
    lambda rows: pa.nulls(rows, pa.list_(pa.int32(), 0)),
    lambda rows: pa.array([[1, 2]] * rows, pa.list_(pa.int32(), 2)),
    lambda rows: pa.array([[]] * rows, pa.list_(pa.string())),
    lambda rows: pa.array([{"a": 1, "b": {"c": "x"}}] * rows),
    lambda rows: pa.array([{}] * rows, pa.struct([])),
    lambda rows: pa.array([b"\xff\xfe"] * rows, pa.binary()),
    lambda rows: pa.array([b"\xff\xfe"] * rows, pa.binary()).view(pa.string()),
    lambda rows: pa.array([[("a", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
    lambda rows: pa.array([2**62] * rows, pa.duration("s")),
    lambda rows: pa.array([2**62] * rows, pa.timestamp("s")),
    lambda rows: pa.array([2**40] * rows, pa.date64()),
    lambda rows: pa.array([-1] * rows, pa.time32("s")),
    lambda rows: pa.array(["x"] * rows, pa.large_string()).dictionary_encode(),
    lambda rows: pa.array([1.5] * rows, pa.float16()),
    lambda rows: pa.array([2**64 - 1] * rows, pa.uint64()),
    lambda rows: pa.nulls(rows),
    lambda rows: pa.array([float("nan")] * rows),
    lambda rows: pa.array([["a"]] * rows, pa.list_view(pa.string())),
    lambda rows: pa.array([0] * rows, pa.int8()).cast(pa.bool_()),
]
ODD_NAMES = ["", "*", "^.*$", "\0", "a\0b", "y", "x0", "x" * 70_000, "p_0", "prediction", "\ud7ff", "a.b", "a[0]"]


def flip(draw: random.Random, path: Path, most: int = 4) -> None:
    """Change some bits, or some bytes to extremes, anywhere or near the end."""
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, most) if content else 0):
        place = draw.randrange(len(content))
        if draw.random() < 0.3:
            place = max(0, len(content) - 1 - draw.randrange(min(len(content), 600)))
        content[place] = draw.choice([content[place] ^ (1 << draw.randrange(8)), 0, 0xFF, 0x7F, 0x80])
    path.write_bytes(content)


def cut(draw: random.Random, path: Path) -> None:
    """Cut a file short, make it longer, or take or put bytes in its middle."""
    content = path.read_bytes()
    place = draw.randrange(len(content) + 1)
    some = draw.randbytes(draw.choice([1, 4, 100]))
    path.write_bytes(
        draw.choice([content[:place], b"", content + some, content[:place] + some + content[place:], content[place:]])
    )


def replace(draw: random.Random, path: Path) -> None:
    """Put something else in the place of a file."""
    kind = draw.choice(["none", "folder", "pipe", "zero", "nowhere", "self", "moved", "sparse"])
    if kind == "moved":
        shutil.move(path, path.parent.parent / "elsewhere")
        path.symlink_to(path.parent.parent / "elsewhere")
        return
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 1 << 40)
    elif kind != "none":
        path.symlink_to({"zero": Path("/dev/zero"), "nowhere": Path("/no/where"), "self": path}[kind])


def change_json(draw: random.Random, raw: Any, changes: int) -> Any:
    """A JSON value with some of its entries changed to extremes, removed, repeated or exchanged."""
    raw = json.loads(json.dumps(raw))
    for _ in range(changes):
        at, key = _somewhere(draw, raw)
        act = draw.random()
        if act < 0.7:
            at[key] = draw.choice(EXTREMES)
        elif act < 0.8 and isinstance(at[key], int | float):
            at[key] = at[key] * draw.choice([-1, 2, 1000]) + draw.choice([0, 1, -1])
        elif act < 0.9:
            del at[key]
        elif isinstance(at, list):
            at.insert(draw.randrange(len(at) + 1), at[key])
        else:
            at[key] = at[draw.choice(list(at))]
    return raw


def _somewhere(draw: random.Random, raw: Any) -> tuple[Any, Any]:
    """A place in a JSON value: an object or list, and a key of it."""
    at = raw
    while True:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if not isinstance(at[key], dict | list) or not at[key] or draw.random() < 0.1:
            return at, key
        at = at[key]


def change_metadata(draw: random.Random, paths: Sequence[Path]) -> None:
    """Change entries of the JSON in the metadata of files of a forest, alike in all of them."""
    first = json.loads(pq.read_schema(paths[0]).metadata[METADATA_KEY])
    shared = {name: first[name] for name in ("version", "spec", "config")}
    changed = change_json(draw, shared, draw.randint(1, 2))
    for path in paths:
        table = pq.read_table(path)
        raw = {**json.loads(table.schema.metadata[METADATA_KEY]), **changed}
        metadata = json.dumps(raw, sort_keys=True).encode()
        if draw.random() < 0.02:
            metadata = draw.choice([b"", b"\xff", b"[" * 100_000, metadata[:-1]])
        write(table.replace_schema_metadata({METADATA_KEY: metadata}), path)


def change_splits(draw: random.Random, path: Path, levels: str) -> None:
    """Change thresholds, weights, levels and the sides of missing values of some nodes. The trees stay trees."""
    table = pq.read_table(path)
    nodes = table.to_pylist()
    for node in draw.choices([node for node in nodes if node["kind"] != "leaf"], k=draw.randint(1, 5)):
        if node["threshold"] is not None:
            node["threshold"] = draw.choice([0.0, 1.0, 2.0, -1e308, 5e-324, float("inf"), draw.gauss(0, 1)])
        if node["default_left"] is not None:
            node["default_left"] = draw.random() < 0.5
        if node["levels"] is not None:
            node["levels"] = [None] * draw.randint(0, 1) + sorted(draw.sample(levels, draw.randint(1, len(levels))))
        if node["terms"] is not None:
            draw.choice(node["terms"])["weight"] = draw.choice([1.0, -1e-300, draw.gauss(0, 1)])
    write(pa.Table.from_pylist(nodes, schema=table.schema), path)


def change_columns(draw: random.Random, path: Path) -> None:
    """Change values or columns of a Parquet file; of one of a forest its checksum as well."""
    table = pq.read_table(path)
    metadata = table.schema.metadata
    for _ in range(draw.randint(1, 2)):
        if table.num_columns:
            table = _changed(draw, table)
    write(table.replace_schema_metadata(metadata), path)


def _changed(draw: random.Random, table: pa.Table) -> pa.Table:
    place = draw.randrange(table.num_columns)
    field, column = table.schema.field(place), table.column(place)
    act = draw.random()
    if act < 0.55 and table.num_rows:
        return table.set_column(place, *_with_values(draw, field, column))
    if act < 0.65:
        odd = draw.choice(ODD_COLUMNS)(table.num_rows)
        return table.set_column(place, field.name if draw.random() < 0.7 else draw.choice(ODD_NAMES), odd)
    if act < 0.7:
        return table.rename_columns(
            [draw.choice(ODD_NAMES) if at == place else name for at, name in enumerate(table.column_names)]
        )
    if act < 0.75:
        return table.remove_column(place)
    if act < 0.8:
        order = draw.sample(range(table.num_columns), table.num_columns)
        return table.select(order)
    if act < 0.85:
        return table.append_column(field.with_name(draw.choice(ODD_NAMES)), column)
    rows = list(range(table.num_rows))
    begin = draw.randrange(len(rows) + 1)
    chosen = draw.choice([[], rows[begin:], rows[:begin], rows + rows, rows[::-1], rows[:1], rows[1:] + rows[:1]])
    return table.take(pa.array(chosen, pa.int64()))


def _with_values(draw: random.Random, field: pa.Field, column: Any) -> tuple[pa.Field, Any]:
    """A column some of whose cells are others: extremes, nulls, or those of other rows."""
    cells = column.to_pylist()
    for _ in range(draw.choice([1, 1, 1, 3, len(cells)])):
        at = draw.randrange(len(cells))
        near = [cells[draw.randrange(len(cells))], None, draw.choice(EXTREMES)]
        if type(cells[at]) in (int, float):
            near += [cells[at] + 1, cells[at] - 1, -cells[at], cells[at] * 2]
        if isinstance(cells[at], list):
            near += [[], cells[at] + cells[at], cells[at][:-1], [draw.choice(EXTREMES)]]
            near += [change_json(draw, cells[at], 1)] if cells[at] else []
        before = cells[at]
        cells[at] = draw.choice(near)
        try:
            _array(cells, field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            cells[at] = before
    return field.with_nullable(field.nullable or None in cells), _array(cells, field.type)


def _array(cells: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(kind):
        return pa.array(cells, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(cells, kind)


def write(table: pa.Table, path: Path) -> None:
    """Write a Parquet file, sealed as files of a forest are."""
    fields = [
        field.with_nullable(field.nullable or bool(table[place].null_count)) for place, field in enumerate(table.schema)
    ]
    table = pa.Table.from_arrays(table.columns, schema=pa.schema(fields, table.schema.metadata))
    with pq.ParquetWriter(path, table.schema, compression="lz4", write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({CHECKSUM_KEY: _BLANK})
    reseal(path)


def unlist(forest: Path) -> None:
    """Remove the checksums of the other files from run.parquet, as in older forests: damaged files are sealed again."""
    list_files(forest, None)


def list_files(forest: Path, files: Any) -> None:
    """Replace the checksums of the other files in run.parquet."""
    path = forest / "run.parquet"
    table = pq.read_table(path)
    mark = json.loads(table.schema.metadata[METADATA_KEY])
    mark["files"] = files
    write(table.replace_schema_metadata({METADATA_KEY: json.dumps(mark)}), path)


def reseal(path: Path) -> None:
    """Put the checksum that the bytes now have, where the file has one."""
    with path.open("rb") as file:
        place = _checksum_place(file)
    if place is not None:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(_BLANK)
        _seal(path)
