"""Kinds of table files, by their names and by their first bytes.

flights.parquet    Parquet
flights.csv.gz     CSV, compressed as a whole
"""

from __future__ import annotations

from pathlib import Path

# Kinds of files by suffix.
KINDS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".ndjson": "NDJSON",
    ".jsonl": "NDJSON",
}
# Suffixes of files of text. Only these files may be compressed as a whole.
TEXT = tuple(suffix for suffix, kind in KINDS.items() if kind in ("CSV", "NDJSON"))
# Compressed files that are read: Arrow's codec by suffix. PACKED also lists suffixes that are refused.
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
PACKED = (*CODECS, ".xz", ".lz4", ".zip")
# Suffixes of formats that bigforest does not write by default: it writes Parquet files and folders.
OTHERS = (*(suffix for suffix, kind in KINDS.items() if kind != "Parquet"), *PACKED, ".json", ".txt", ".xlsx")

_COMPRESSED = "is compressed; unpack it, or give it as a file with a name such as table.csv{}"
_WIDE = "is text in UTF-16 or UTF-32; convert it to UTF-8"
# By the first bytes of a file, at most eight: the suffix of a kind that is read, or why the file is not read.
_BEGINNINGS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"FEA1": "is in Feather format 1, which is not read; write it again as Parquet or in Feather format 2",
    b"\x1f\x8b": _COMPRESSED.format(".gz"),
    b"BZh": _COMPRESSED.format(".bz2"),
    b"\xfd7zXZ\0": "is compressed; unpack it",
    b"\x28\xb5\x2f\xfd": _COMPRESSED.format(".zst"),
    b"PK\x03\x04": "is a ZIP archive or a workbook; unpack it, or save its table as CSV",
    b"\xff\xfe": _WIDE,
    b"\xfe\xff": _WIDE,
    b"\0": "begins with zero bytes; check that it was written completely and is not UTF-16 or UTF-32",
}


def kind_of_file(file: Path) -> str | None:
    """Return the kind of a table file by its name, such as flights.csv or flights.csv.gz; None for another file."""
    suffixes = [suffix.lower() for suffix in file.suffixes[-2:]]
    if len(suffixes) == 2 and suffixes[1] in CODECS and suffixes[0] in TEXT:
        return KINDS[suffixes[0]]
    return KINDS.get(suffixes[-1]) if suffixes else None


def suffix_of_content(begin: bytes) -> str:
    """Return the suffix for a table that has no file name, by its first bytes.

    Text is NDJSON if it begins with an object, and CSV otherwise.
    """
    suffix = next((found for mark, found in _BEGINNINGS.items() if begin.startswith(mark)), "")
    return suffix if suffix in KINDS else ".ndjson" if begin.startswith(b"{") else ".csv"


def what_it_is(file: Path) -> str | None:
    """Return the kind of a file by its first bytes, with advice; None if the kind is unknown. Raises OSError."""
    with file.open("rb") as content:
        begin = content.read(8)
    unmarked = _WIDE if begin[1:4:2] == b"\0\0" else None  # without a byte order mark
    found = next((found for mark, found in _BEGINNINGS.items() if begin.startswith(mark)), unmarked)
    return f"is {KINDS[found]}; rename it to end with {found}" if found in KINDS else found
