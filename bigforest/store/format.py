"""The store: a table presorted into codes, in one directory. This docstring describes the format.

    file             shape                    type     content
    manifest.json                             JSON     one object, see `Manifest`
    codes-u8.bin     [columns, rows]          uint8    codes of the features of up to 256 codes
    codes-u16.bin    [columns, rows]          uint16   codes of the features of 257 to 65,536 codes
    codes-u32.bin    [columns, rows]          uint32   codes of all other features
    low.bin          [all codes]              float64  smallest value of each code, one feature after the other
    high.bin         [all codes]              float64  largest value of each code; only with max_bins
    target.bin       [rows]                   uint16   class code of each row; for regression int64, the target as a
                                                       whole number of steps (TargetSpec)
    numbers.bin      [rows]                   float64  target of each row; only for regression if whole numbers of steps
                                                       are not exact
    row_numbers.bin  [rows]                   uint64   row in the source, ascending; only if rows were dropped
    groups.bin       [rows]                   uint32   code of the group of each row; only with a column of groups
    weight.bin       [rows]                   uint16   weight of each row in steps, uint64 for wide weights
                                                       (WeightSpec); only if rows have weights
    levels.parquet                            Parquet  levels of the categories, see store/levels.py; only with
                                                       categories
    checksums.bin    [features + 1, blocks]   uint32   CRC-32 of each block of `block_rows` rows of the codes of
                                                       every feature, and of the target in the last row

All numbers are little-endian. All matrices are in C order, so the cells of a feature are contiguous. A feature is in
the codes file of cells of `width` bytes, in row `slot` of the matrix (FeatureSpec). Features are in the order of the
dataspec, in all files and in each matrix, so the same table always has the same bytes. A file that would be empty is
absent. The value of the code of missing cells is NaN. The value of any other code of a category is the code itself.

The directory is written under another name and renamed when it is complete. A directory with the final name is
therefore complete, unless the machine or its disk failed, which the checksums reveal. Version 3; a reader refuses other
versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigforest.columns.dataspec import LARGEST_NUMBER, DataSpec, json_object, max_number
from bigforest.errors import FormatError, damaged_store
from bigforest.options.values import MAX_BINS, Exact, Task, is_integer
from bigforest.storage.atomic import OutputKind
from bigforest.storage.paths import is_remote, known_folder
from bigforest.storage.regular_files import read_json_text

FORMAT = "bigforest-store"
VERSION = 3
# Rows of a block, the unit of checksums and of random draws. Another number would change every forest.
BLOCK_ROWS = 65_536
EXACT = "exact"

MANIFEST = "manifest.json"
CODES = {1: "codes-u8.bin", 2: "codes-u16.bin", 4: "codes-u32.bin"}
LOW = "low.bin"
HIGH = "high.bin"
TARGET = "target.bin"
NUMBERS = "numbers.bin"
ROW_NUMBERS = "row_numbers.bin"
GROUPS = "groups.bin"
WEIGHT = "weight.bin"
LEVELS = "levels.parquet"
CHECKSUMS = "checksums.bin"

CODE_TYPES = {width: np.dtype(f"<u{width}") for width in CODES}
VALUE_TYPE = np.dtype("<f8")
# Types of a target: a class code, or a whole number of steps.
TARGET_TYPES: dict[Task, np.dtype[Any]] = {"classification": np.dtype("<u2"), "regression": np.dtype("<i8")}
WEIGHT_TYPES: dict[bool, np.dtype[Any]] = {False: np.dtype("<u2"), True: np.dtype("<u8")}
ROW_NUMBER_TYPE = np.dtype("<u8")
GROUP_TYPE = np.dtype("<u4")
CHECKSUM_TYPE = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a store.

    spec      the dataspec.
    max_bins  "exact", or the most codes of a numeric feature. If it has more values, its codes are ranges of values.
    crc       CRC-32 of every file that has no checksums of blocks.
    levels    bytes of levels.parquet; 0 if it is absent.
    """

    spec: DataSpec
    max_bins: Exact | int
    crc: Mapping[str, int]
    levels: int = 0

    @property
    def binned(self) -> bool:
        """True if codes may be ranges of values."""
        return self.max_bins != EXACT

    def sizes(self) -> dict[str, int]:
        """Return the number of bytes of each file of the store, without the manifest."""
        rows, features = self.spec.rows, self.spec.features
        codes = sum(feature.codes for feature in features)
        sizes = {name: rows * width * sum(f.width == width for f in features) for width, name in CODES.items()}
        sizes[LOW] = codes * VALUE_TYPE.itemsize
        sizes[HIGH] = codes * VALUE_TYPE.itemsize if self.binned else 0
        sizes[TARGET] = rows * TARGET_TYPES[self.spec.target.task].itemsize
        sizes[NUMBERS] = 0 if self.spec.target.exact else rows * VALUE_TYPE.itemsize
        sizes[ROW_NUMBERS] = rows * ROW_NUMBER_TYPE.itemsize if self.spec.dropped else 0
        sizes[GROUPS] = rows * GROUP_TYPE.itemsize if self.spec.group is not None else 0
        sizes[WEIGHT] = rows * WEIGHT_TYPES[self.spec.wide_weights].itemsize if self.spec.weight is not None else 0
        sizes[LEVELS] = self.levels
        sizes[CHECKSUMS] = (len(features) + 1) * block_count(self.spec.rows) * CHECKSUM_TYPE.itemsize
        return {name: size for name, size in sizes.items() if size}

    def to_json(self) -> str:
        entries = {
            "format": json.dumps(FORMAT),
            "version": json.dumps(VERSION),
            "block_rows": json.dumps(BLOCK_ROWS),
            "max_bins": json.dumps(self.max_bins),
            "bytes": json.dumps(self.sizes(), sort_keys=True),
            "crc32": json.dumps(dict(self.crc), sort_keys=True),
            "dataspec": self.spec.to_json(),
        }
        return json_object(entries)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Return the manifest of the store at `path`.

        Raises FormatError if it is missing, damaged or of another version.
        """
        if not (path / MANIFEST).is_file():
            raise FormatError(f"{path}: not a store (it has no {MANIFEST}); check the path")
        try:
            raw = json.loads(read_json_text(path / MANIFEST))
        except (ValueError, RecursionError, MemoryError) as error:
            raise damaged_store(f"{path / MANIFEST}: not JSON ({error})") from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise FormatError(f"{path}: not a store of bigforest; check the path")
        version = raw.get("version")
        if type(version) is int and 0 < version < VERSION:
            raise FormatError(f"{path}: a store of version {version}, of an older bigforest; encode the table again")
        if type(version) is not int or version != VERSION:
            raise FormatError(f"{path}: a store of version {version}; upgrade bigforest to read it")
        return cls._checked(raw, path)

    @classmethod
    def _checked(cls, raw: dict[str, Any], path: Path) -> Manifest:
        damaged = damaged_store(f"{path / MANIFEST}: not the entries of a manifest")
        expected = {"format", "version", "block_rows", "max_bins", "bytes", "crc32", "dataspec"}
        if (
            set(raw) != expected
            or type(raw["block_rows"]) is not int
            or raw["block_rows"] != BLOCK_ROWS
            or not (raw["max_bins"] == EXACT or is_integer(raw["max_bins"], 2, MAX_BINS))
        ):
            raise damaged
        try:
            spec = DataSpec.from_entries(raw["dataspec"])
        except FormatError as error:
            raise damaged_store(f"{path / MANIFEST}: {error.text}") from error
        if (problem := _contradiction(spec)) is not None:
            raise damaged_store(f"{path / MANIFEST}: {problem}")
        levels = raw["bytes"].get(LEVELS, 0) if isinstance(raw["bytes"], dict) else 0
        manifest = cls(spec, raw["max_bins"], raw["crc32"], levels)
        whole = {LOW, HIGH, NUMBERS, ROW_NUMBERS, GROUPS, WEIGHT, LEVELS, CHECKSUMS} & set(manifest.sizes())
        has_levels = any(feature.levels for feature in spec.features)
        agrees = type(levels) is int and (levels > 0) == has_levels
        if not agrees or spec.rows < 1 or raw["bytes"] != manifest.sizes() or not _is_crc_table(raw["crc32"], whole):
            raise damaged
        return manifest


def is_meant_as_store(path: Path) -> bool:
    """Return True if `path` is a store, or has the files of a store with a damaged manifest."""
    return is_store(path) or known_folder(path) == "a store"


def is_store(path: Path) -> bool:
    """Return True if `path` is a directory with the manifest of a store of any version, complete or damaged.

    Raises OSError for a folder whose manifest cannot be read.
    """
    try:
        raw = json.loads(read_json_text(path / MANIFEST))
    except (ValueError, RecursionError, MemoryError, FormatError):
        return False
    except OSError:
        # `Path.is_dir` raises an error if the folder around it cannot be read.
        if not is_remote(path) and os.path.isdir(path):  # noqa: PTH112
            raise
        return False
    return isinstance(raw, dict) and raw.get("format") == FORMAT


STORE = OutputKind("store", is_store)


def target_span(spec: DataSpec) -> tuple[int, int]:
    """Return the smallest and the largest number that target.bin may hold."""
    if not spec.target.is_regression:
        return 0, len(spec.target.classes) - 1
    most = max_number(spec.rows, weighted=spec.weight is not None)
    return -most, most


def _contradiction(spec: DataSpec) -> str | None:
    target = spec.target
    if len(target.classes) > spec.rows:
        return f"it names {len(target.classes):,} classes of {spec.rows:,} rows"
    if abs(target.offset) > LARGEST_NUMBER or target.step * target_span(spec)[1] > 4 * LARGEST_NUMBER:
        return f"targets of offset {target.offset!r} and step {target.step!r} are too large to be learned"
    return None


def block_count(rows: int) -> int:
    """Return the number of blocks of a table. Only the last block may have fewer rows than BLOCK_ROWS."""
    return -(-rows // BLOCK_ROWS)


def block_span(rows: int, block: int) -> range:
    return range(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, rows))


def _is_crc_table(raw: object, names: set[str]) -> bool:
    return isinstance(raw, dict) and set(raw) == names and all(type(crc) is int for crc in raw.values())
