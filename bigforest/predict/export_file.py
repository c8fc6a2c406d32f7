"""`bigforest.export_forest`: export a forest to a file for another engine."""

from __future__ import annotations

from pathlib import Path

from bigforest.errors import ConfigError, api, shown
from bigforest.events import Listener
from bigforest.export.onnx import to_onnx
from bigforest.export.sklearn import to_sklearn
from bigforest.export.sql import to_sql
from bigforest.export.treelite import to_treelite
from bigforest.export.trees import library
from bigforest.options.values import check_word, names_of
from bigforest.predict.forest import Forest, opened_forest
from bigforest.progress import watching
from bigforest.storage.atomic import OutputKind, staged
from bigforest.storage.paths import as_path

# The suffix of file names, by format.
SUFFIXES = {"onnx": ".onnx", "treelite": ".treelite", "sklearn": ".joblib", "sql": ".sql"}


def format_of(to: str | None, out: str | Path | None) -> str:
    """Return the format of an export: `to` if given, else by the suffix of the file `out`. Raises ConfigError."""
    if to is not None:
        check_word(to, tuple(SUFFIXES), "to")
        return to
    suffix = "" if out is None else as_path(out).suffix.lower()
    for kind, ending in SUFFIXES.items():
        if suffix == ending:
            return kind
    words, endings = ", ".join(SUFFIXES), ", ".join(SUFFIXES.values())
    raise ConfigError(
        f"the format is not known; set {api('to')} to one of {words}, or {api('out')} to a file whose name ends in one "
        f"of {endings}"
    )


def export_forest(
    forest: Forest | str | Path,
    out: str | Path,
    *,
    to: str | None = None,
    dtype: str = "float32",
    table: str = "rows",
    keep: str | list[str] | tuple[str, ...] = (),
    dialect: str = "standard",
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Path:
    """Export a forest to a file for another engine: see `Forest.to_onnx` and the other `to_` methods.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    out : str or Path
        The file: .onnx, .treelite (`treelite.Model.deserialize`), .joblib (`joblib.load`) or .sql.
    to : {"onnx", "treelite", "sklearn", "sql"}, optional
        The format. None derives it from the ending of `out`.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows of an ONNX model.
    table : str, default="rows"
        Name of the table that an SQL query reads.
    keep : sequence of str, default=()
        Columns of the table that an SQL query copies.
    dialect : {"standard", "mysql"}, default="standard"
        Databases that an SQL query is for: DuckDB, SQLite and PostgreSQL, or MySQL and MariaDB.
    overwrite : bool, default=False
        Replace an existing file.
    listener : callable, optional
        As for `train`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ConfigError
        If the format does not support the forest, a library is not installed, or the ending of the name does not match.
    FormatError
        For a damaged forest.
    OutputExistsError
        If `out` exists and `overwrite` is False.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.export_forest(forest, "kind.sql")
    PosixPath('kind.sql')
    """
    out = as_path(out)
    to = format_of(to, out)
    if out.suffix.lower() != SUFFIXES[to]:
        raise ConfigError(
            f"the name of a file for {to} ends in {SUFFIXES[to]}, not {out.name!r}; choose another output"
        )
    check_word(dtype, ("float32", "float64"), "dtype")
    if not isinstance(table, str) or not table:
        raise ConfigError(f"{api('table')} must be the name of a table, not {shown(table)}")
    keep = names_of(keep, "keep")
    for name, changed, owner in (
        ("dtype", dtype != "float32", "onnx"),
        ("table", table != "rows", "sql"),
        ("keep", bool(keep), "sql"),
        ("dialect", dialect != "standard", "sql"),
    ):
        if changed and to != owner:
            raise ConfigError(f"{api(name)} is an option of {owner}, not of {to}; drop it")
    files = opened_forest(forest).files
    with (
        watching(listener) as listener,
        staged(out, OutputKind(f"export to {to}"), overwrite=overwrite) as made,
    ):
        if to == "onnx":
            made.write_bytes(to_onnx(files, dtype, listener).SerializeToString())
        elif to == "treelite":
            # treelite's own writer does not report a full disk.
            made.write_bytes(to_treelite(files, listener).serialize_bytes())
        elif to == "sklearn":
            library("joblib", "sklearn").dump(to_sklearn(files, listener), made)
        else:
            made.write_text(to_sql(files, table, keep, dialect, listener), encoding="utf-8")
    return out
