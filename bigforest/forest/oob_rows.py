"""The rows of an out-of-bag report on the disk: files of ROWS_OF_FILE rows each, in order.

The first is rows.parquet, the next rows-0000001.parquet; most tables have one. Their rows are those of the table alone,
so that they do not depend on who wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bigforest.common.errors import FormatError
from bigforest.forest.format.files import decoding, row_batches
from bigforest.storage.parquet_footer import row_groups

ROWS_OF_FILE = 1 << 18


def oob_rows_path(directory: Path, number: int) -> Path:
    """The file with this number of the report of a forest."""
    return directory / "oob" / (f"rows-{number:07d}.parquet" if number else "rows.parquet")


def oob_rows_files(directory: Path) -> list[Path]:
    """The files of a forest that are there, in order.

    Raises FormatError where one is missing among them, or where rows do not ascend from file to file, as footers say.
    """
    names = {path.name for path in (directory / "oob").glob("rows-*.parquet")}
    files = [oob_rows_path(directory, number) for number in range(len(names) + 1)]
    if {path.name for path in files[1:]} != names:
        raise FormatError(f"{directory / 'oob'} lacks one of its files rows-*.parquet; the forest is damaged")
    highest = -1
    for path in files if len(files) > 1 else []:
        first, last = _row_bounds(path)
        if first <= highest:
            raise FormatError(f"{path} has rows that come before those of the file before it; the forest is damaged")
        highest = last
    return files


def _row_bounds(path: Path) -> tuple[int, int]:
    """The lowest and the highest row number of a file. Raises FormatError."""
    with decoding(path):
        chunks = [chunk for group in row_groups(path) for chunk in group if chunk.name == "row"]
        bounds = [int.from_bytes(bound, "little") for chunk in chunks for bound in (chunk.low, chunk.high) if bound]
        if not bounds:
            raise ValueError("its footer does not say which rows it has")
        return min(bounds), max(bounds)


def oob_row_batches(directory: Path, names: list[str] | None = None) -> Iterator[Any]:
    """The rows of all files as record batches, validated by Arrow; of the named columns, all when None."""
    for path in oob_rows_files(directory):
        yield from row_batches(path, names)
