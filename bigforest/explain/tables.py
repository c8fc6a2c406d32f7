"""The folder of an explanation: Parquet files, each complete or absent, with a digest of their inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.errors import ConfigError, FormatError, OutputExistsError, api, shown, system_error
from bigforest.execution.forks import check_polars_threads
from bigforest.forest.files import file_kind, file_mark
from bigforest.forest.run_file import RunStamp, same_run
from bigforest.forest.tables import write_pieces
from bigforest.html import facts_table, rows_table
from bigforest.options.values import check_flag
from bigforest.source.source import scan_parquet
from bigforest.storage.atomic import OutputKind, check_output, write_durably
from bigforest.storage.paths import absolute_path, can_write, files_in, is_remote, known_folder, remove_half_made_as

KIND = "explanation"
VERSION = 1
_EXPLANATION = OutputKind(KIND, Path.is_dir)  # `_check_ours` checks the content
# Most columns of a table that a notebook shows.
_SHOWN_COLUMNS = 12


def digest(*facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


class ExplanationFolder:
    """Folder in which the tables of an explanation are written.

    An existing table from the same forest, data and options is kept, so an interrupted run continues where it stopped.
    All tables of a folder belong to one forest, with one lambda, one power and one number of rounds.
    """

    def __init__(self, path: str | Path, forest: str, rows: str, stamp: RunStamp | None, *, overwrite: bool) -> None:
        """Check the folder. Raises ConfigError and OutputExistsError.

        forest     digest of the forest.
        rows       digest of the rows.
        stamp      stamp of the forest, checked before a table is renamed into place; None for no check.
        overwrite  replace existing tables from other forests, rows or options.
        """
        self.path = absolute_path(path)
        self._stamp = stamp
        self._forest, self._rows, self._settings = forest, rows, ""
        self._overwrite = overwrite
        check_flag(overwrite, "overwrite")
        check_output(self.path, _EXPLANATION, overwrite=True)
        self._check_ours()
        if self._tables_of_other_forests() and not overwrite:
            raise self._taken_error(self._tables_of_other_forests()[0])
        if (is_remote(self.path) or self.path.exists()) and not can_write(self.path):
            raise ConfigError(f"cannot write to {path}; choose another output")

    def without_rows(self) -> ExplanationFolder:
        """Return the same folder for tables that do not depend on the explained rows."""
        folder = copy(self)
        folder._rows = ""
        return folder

    def with_settings(self, settings: object) -> ExplanationFolder:
        """Return the same folder for tables that depend on options. The digest of a table includes their `repr`."""
        folder = copy(self)
        folder._settings = repr(settings)
        return folder

    def _check_ours(self) -> None:
        """Raise OutputExistsError for another folder of bigforest, or a folder with Parquet files other than tables."""
        kind = known_folder(self.path)
        foreign = next((file for file in files_in(self.path, "*.parquet") if file_kind(file) != KIND), None)
        if kind is None and foreign is None:
            return
        problem = f"is {kind}" if kind else f"holds {foreign.name if foreign else ''}"
        raise OutputExistsError(f"{self.path} {problem}, which is no table of an explanation; choose another output")

    def _tables_of_other_forests(self) -> list[Path]:
        files = [*files_in(self.path, "*.parquet"), *files_in(self.path, "*/part-*.parquet")]
        marks = {file: file_mark(file) for file in files if file_kind(file) == KIND}
        return sorted(file for file, mark in marks.items() if mark.get("forest") != self._forest)

    def remove_other_forests(self) -> None:
        """Remove tables of other forests. To be called after all checks; the constructor has checked `overwrite`."""
        for file in self._tables_of_other_forests():
            file.unlink(missing_ok=True)

    def _taken_error(self, path: Path) -> OutputExistsError:
        return OutputExistsError(
            f"{path} already exists, for another forest, table or options; choose another output, or replace it with "
            f"{api('overwrite')}"
        )

    def has(self, name: str) -> bool:
        """Return True if the table exists. Raises OutputExistsError if it has other inputs and `overwrite` is False."""
        path = self.file(name)
        if not path.exists():
            return False
        if file_mark(path) == self._mark(name):
            return True
        if self._overwrite:
            return False
        raise self._taken_error(path)

    def has_all(self, names: Iterable[str]) -> bool:
        """Return True if all of these tables exist. Raises OutputExistsError, see `has`."""
        exists = [self.has(name) for name in names]
        return all(exists)

    def remove_other_files(self, name: str, kept: Iterable[str]) -> None:
        """Remove the files `NAME/part-N.parquet` of a table except `kept`. The others have outdated ranges of rows.

        Raises OutputExistsError if such a file exists and `overwrite` is False.
        """
        files = [self.file(kept_name) for kept_name in kept]
        for file in sorted(set(files_in(self.path / name, "part-*.parquet")).difference(files)):
            if not self._overwrite:
                raise self._taken_error(file)
            file.unlink()

    def write(self, name: str, table: pl.DataFrame) -> None:
        self.write_pieces(name, [table])

    def write_pieces(self, name: str, pieces: Iterable[pl.DataFrame]) -> None:
        """Write a table from one or more pieces. NaN becomes null."""
        remove_half_made_as(self.file(name))
        defined = (piece.with_columns(pl.col(pl.Float64).fill_nan(None)) for piece in pieces)
        tables = (piece.to_arrow(compat_level=pl.CompatLevel.oldest()) for piece in defined)
        with write_durably(self.file(name)) as temporary, same_run(self._stamp):
            write_pieces(temporary, tables, self._mark(name), compression="zstd", compression_level=1)

    def file(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def _mark(self, name: str) -> dict[str, Any]:
        made_of = digest(self._forest, self._rows, self._settings)
        return {"version": VERSION, "kind": KIND, "table": name, "forest": self._forest, "made_of": made_of}


class Explanation:
    """The tables of an explanation, by name: for example `["permutation"]`, a DataFrame.

    path  the folder of the files: `NAME.parquet`, or `NAME/part-N.parquet` for tables with many rows.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> explanation = bf.explain_forest(forest, table, "why", parts=["importance", "permutation"])
    >>> explanation.tables
    ['importance', 'importance-trees', 'permutation', 'permutation-classes', 'permutation-trees']
    >>> explanation["permutation"]["feature"].to_list()
    ['length', 'width']
    """

    def __init__(self, path: str | Path, holding: object = None) -> None:
        """Open a folder.

        holding  object to keep alive as long as the Explanation, because it removes the folder when it is deleted.
        """
        self.path = absolute_path(path)
        if not self.path.is_dir():
            raise ConfigError(f"{path} is not an explanation; check the path, or make one with {api('explain_forest')}")
        self._holding = holding

    @property
    def tables(self) -> list[str]:
        """Names of the available tables."""
        files = {file.stem for file in files_in(self.path, "*.parquet")}
        return sorted(files | {file.parent.name for file in files_in(self.path, "*/part-*.parquet")})

    def scan(self, name: str) -> pl.LazyFrame:
        """Return a table as a LazyFrame.

        Parameters
        ----------
        name : str
            One of `tables`.

        Returns
        -------
        LazyFrame

        Raises
        ------
        ConfigError
            If there is no table of this name.

        Examples
        --------
        >>> explanation.scan("importance").collect().columns[:2]
        ['feature', 'decrease']
        """
        if not isinstance(name, str) or name not in self.tables:
            raise ConfigError(f"there is no table {shown(name)}; there are {', '.join(self.tables) or 'none'}")
        check_polars_threads()
        parts = sorted(files_in(self.path / name, "part-*.parquet"))
        return scan_parquet(parts or [self.path / f"{name}.parquet"])

    def __getitem__(self, name: str) -> pl.DataFrame:
        try:
            return self.scan(name).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            named = None if isinstance(error, FileNotFoundError) else system_error(error, self.path)
            raise named or FormatError(
                f"the table {name!r} in {self.path} cannot be read: {error}; explain the forest again"
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self.tables

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __repr__(self) -> str:
        return f"Explanation({', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        rows = []
        for name in self.tables:
            table = self.scan(name)
            height = table.select(pl.len()).collect().item()
            rows.append([name, f"{height:,}", ", ".join(table.collect_schema().names()[:_SHOWN_COLUMNS])])
        return facts_table("Explanation", {"folder": str(self.path)}) + rows_table(["table", "rows", "columns"], rows)
