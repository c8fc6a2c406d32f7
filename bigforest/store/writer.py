"""Writing a store (format.py): columns come in any order from several threads and are appended in order."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec, FeatureSpec, TargetSpec, code_width
from bigforest.store.format import (
    BLOCK_ROWS,
    CHECKSUM_TYPE,
    CHECKSUMS,
    CODE_TYPES,
    CODES,
    HIGH,
    LOW,
    MANIFEST,
    ROW_NUMBER_TYPE,
    ROW_NUMBERS,
    TARGET,
    TARGET_TYPE,
    VALUE_TYPE,
    Manifest,
    block_checksums,
)

COPY_BYTES = 1 << 20


class Column(NamedTuple):
    """A feature in memory: codes [rows], unsigned of any width, and each code's low and high value [codes].

    `high` is None without max_bins.
    """

    name: str
    dtype: str
    codes: NDArray[Any]
    low: NDArray[np.float64]
    high: NDArray[np.float64] | None


class Part(NamedTuple):
    """Features written by `StoreWriter.write_part` and not yet appended: their specs but for the slot, the
    checksums of each one's blocks, and the files they are in, by the name of the file they belong to."""

    features: list[FeatureSpec]
    checksums: list[NDArray[np.uint32]]
    files: dict[str, Path]


class StoreWriter:
    """A store in the making, in a folder that is not there yet; complete when `finish` has returned.

    Parts are written by any thread, in any order, to files of their own; `append` copies them while they are
    still in the page cache. So no codes wait in memory for a slow column before them.
    """

    def __init__(self, folder: Path, *, max_bins: str | int) -> None:
        self._folder = folder
        self._max_bins = max_bins
        self._parts = folder / "parts"
        self._features: list[FeatureSpec] = []
        self._checksums: list[NDArray[np.uint32]] = []
        self._slots = dict.fromkeys(CODES, 0)
        self._files: dict[str, IO[bytes]] = {}
        self._crc: dict[str, int] = {}

    def __enter__(self) -> StoreWriter:
        self._folder.mkdir()
        self._parts.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def write_part(self, index: int, columns: Sequence[Column]) -> Part:
        """Write features that follow each other, as part `index`."""
        part = Part([], [], {})
        pieces: dict[str, list[NDArray[Any]]] = {}
        for column in columns:
            width = code_width(len(column.low))
            cells = np.ascontiguousarray(column.codes, dtype=CODE_TYPES[width])
            pieces.setdefault(CODES[width], []).append(cells)
            pieces.setdefault(LOW, []).append(column.low.astype(VALUE_TYPE, copy=False))
            if column.high is not None:
                pieces.setdefault(HIGH, []).append(column.high.astype(VALUE_TYPE, copy=False))
            part.features.append(FeatureSpec(column.name, "numeric", column.dtype, len(column.low), width, 0))
            part.checksums.append(block_checksums(cells))
        for name, arrays in pieces.items():
            part.files[name] = self._parts / f"{index}-{name}"
            with part.files[name].open("wb") as file:
                for array in arrays:
                    file.write(array.data)
        return part

    def append(self, part: Part) -> None:
        """Make the features of `part` the next ones, and remove its files."""
        for name, path in part.files.items():
            self._move(path, name)
        for feature in part.features:
            self._features.append(replace(feature, slot=self._slots[feature.width]))
            self._slots[feature.width] += 1
        self._checksums.extend(part.checksums)

    def finish(self, target: TargetSpec, classes: NDArray[Any], kept: NDArray[Any] | None, dropped: int) -> None:
        """Write what belongs to no feature, the manifest last.

        classes  [rows] class codes.
        kept     [rows] ascending rows of the source that are here; None when `dropped` is 0.
        """
        cells = np.ascontiguousarray(classes, dtype=TARGET_TYPE)
        self._file(TARGET).write(cells.data)
        if kept is not None:
            self._write_whole(ROW_NUMBERS, kept.astype(ROW_NUMBER_TYPE))
        self._write_whole(CHECKSUMS, np.stack([*self._checksums, block_checksums(cells)]).astype(CHECKSUM_TYPE))
        for file in self._files.values():
            file.close()
        self._parts.rmdir()
        spec = DataSpec(rows=len(cells), dropped=dropped, features=tuple(self._features), target=target)
        manifest = Manifest(spec=spec, block_rows=BLOCK_ROWS, max_bins=self._max_bins, crc=self._crc)
        (self._folder / MANIFEST).write_text(manifest.to_json() + "\n", encoding="utf-8")

    def _move(self, path: Path, name: str) -> None:
        """Move the content of `path` to the end of the file `name`."""
        with path.open("rb") as content:
            while piece := content.read(COPY_BYTES):
                self._file(name).write(piece)
                if name in (LOW, HIGH):  # the codes have checksums of their own
                    self._crc[name] = zlib.crc32(piece, self._crc.get(name, 0))
        path.unlink()

    def _write_whole(self, name: str, content: NDArray[Any]) -> None:
        self._file(name).write(content.data)
        self._crc[name] = zlib.crc32(content.data)

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._files:
            self._files[name] = (self._folder / name).open("wb")
        return self._files[name]
