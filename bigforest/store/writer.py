"""Writing a store (format.py): columns come in any order from several threads and are appended in order."""

from __future__ import annotations

import secrets
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec, FeatureSpec, TargetSpec, code_width
from bigforest.errors import OutputExistsError
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
    is_store,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A column written by `StoreWriter.write_part` and not yet appended."""

    name: str
    dtype: str
    codes: int
    width: int
    checksums: NDArray[np.uint32]


class StoreWriter:
    """A store in the making. Use it as a context manager: without `finish` it leaves nothing behind.

    Parts are written by any thread, in any order, to files of their own; appending copies them while they are still in
    the page cache. So no codes wait in memory for a slow column before them.
    """

    def __init__(self, path: Path, *, max_bins: str | int, overwrite: bool = False) -> None:
        self.path = path
        self._max_bins = max_bins
        self._overwrite = overwrite
        self._check_output()
        self._folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"
        self._parts = self._folder / "parts"
        self._features: list[FeatureSpec] = []
        self._checksums: list[NDArray[np.uint32]] = []
        self._slots = dict.fromkeys(CODES, 0)
        self._files: dict[str, IO[bytes]] = {}
        self._crc: dict[str, int] = {}

    def __enter__(self) -> StoreWriter:
        self._parts.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def write_part(
        self,
        index: int,
        name: str,
        dtype: str,
        codes: NDArray[Any],
        low: NDArray[Any],
        high: NDArray[Any] | None,
    ) -> Part:
        """Write feature `index`: its codes [rows] (unsigned, any width), and low and high [codes] (high if binned)."""
        width = code_width(len(low))
        cells = np.ascontiguousarray(codes, dtype=CODE_TYPES[width])
        cells.tofile(self._part(index, CODES[width]))
        for values, file in ((low, LOW), (high, HIGH)):
            if values is not None:
                values.astype(VALUE_TYPE).tofile(self._part(index, file))
        return Part(name=name, dtype=dtype, codes=len(low), width=width, checksums=block_checksums(cells))

    def append(self, part: Part) -> None:
        """Make `part` the next feature. Its index must be the number of features appended before."""
        index = len(self._features)
        for name in (CODES[part.width], LOW, HIGH) if self._max_bins != "exact" else (CODES[part.width], LOW):
            source = self._part(index, name)
            with source.open("rb") as content:
                if name in (LOW, HIGH):
                    self._append(name, content.read())
                else:
                    shutil.copyfileobj(content, self._file(name), 1 << 20)
            source.unlink()
        slot = self._slots[part.width]
        self._slots[part.width] += 1
        self._checksums.append(part.checksums)
        self._features.append(
            FeatureSpec(
                name=part.name,
                kind="numeric",
                dtype=part.dtype,
                codes=part.codes,
                width=part.width,
                slot=slot,
            )
        )

    def finish(
        self, target: TargetSpec, classes: NDArray[Any], kept: NDArray[Any] | None, dropped: int
    ) -> DataSpec:
        """Write the class codes [rows] and the numbers of the rows kept [rows] (None when all are), and give the store
        its name. Raises OutputExistsError when something has taken that name meanwhile."""
        cells = np.ascontiguousarray(classes, dtype=TARGET_TYPE)
        self._file(TARGET).write(cells)
        if kept is not None:
            self._append(ROW_NUMBERS, kept.astype(ROW_NUMBER_TYPE))
        self._append(CHECKSUMS, np.stack([*self._checksums, block_checksums(cells)]).astype(CHECKSUM_TYPE))
        for file in self._files.values():
            file.close()
        self._parts.rmdir()
        spec = DataSpec(rows=len(cells), dropped=dropped, features=tuple(self._features), target=target)
        manifest = Manifest(spec=spec, block_rows=BLOCK_ROWS, max_bins=self._max_bins, crc=self._crc)
        (self._folder / MANIFEST).write_text(manifest.to_json() + "\n", encoding="utf-8")
        self._rename()
        return spec

    def _rename(self) -> None:
        self._check_output()
        if self.path.exists():
            old = self._folder.with_suffix(".old")
            self.path.rename(old)
            self._folder.rename(self.path)
            shutil.rmtree(old)
        else:
            self._folder.rename(self.path)

    def _check_output(self) -> None:
        if not self.path.exists():
            return
        if not self._overwrite:
            raise OutputExistsError(f"{self.path} exists; allow overwriting or name another output")
        if not is_store(self.path):
            raise OutputExistsError(
                f"{self.path} exists and is not a store; remove it or name another output"
            )

    def _part(self, index: int, name: str) -> Path:
        return self._parts / f"{index}-{name}"

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._files:
            self._files[name] = (self._folder / name).open("wb")
        return self._files[name]

    def _append(self, name: str, content: bytes | NDArray[Any]) -> None:
        """Append to a file that has one checksum for the whole."""
        self._file(name).write(content)
        self._crc[name] = zlib.crc32(content, self._crc.get(name, 0))
