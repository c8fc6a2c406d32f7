"""A forest written into a file of another engine's format."""

from __future__ import annotations

from pathlib import Path

from bigforest.common.errors import ConfigError
from bigforest.execution.arguments import column_names
from bigforest.export.trees import library
from bigforest.predict.forest import Forest, opened_forest
from bigforest.storage.atomic import staged
from bigforest.storage.paths import as_path

# The formats, and how the names of their files end.
SUFFIXES = {"onnx": ".onnx", "treelite": ".treelite", "sklearn": ".joblib", "sql": ".sql"}


def export_forest(
    forest: Forest | str | Path,
    out: str | Path,
    *,
    to: str,
    dtype: str = "float32",
    table: str = "rows",
    keep: str | list[str] | tuple[str, ...] = (),
    overwrite: bool = False,
) -> Path:
    """Write a forest into a file that another engine reads: see `Forest.to_onnx` and its like.

    Parameters
    ----------
    forest : Forest, str or Path
        The forest, or the path of one.
    out : str or Path
        The file: .onnx, .treelite (`treelite.Model.deserialize`), .joblib (`joblib.load`) or .sql.
    to : {"onnx", "treelite", "sklearn", "sql"}
        The format.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows of an ONNX model.
    table : str, default="rows"
        Name of the table that a query reads.
    keep : sequence of str, default=()
        Columns of it that a query copies.
    overwrite : bool, default=False
        Replace a file that is already there.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ConfigError
        For what the format cannot say, a library that is not installed, and a name that ends otherwise.
    FormatError
        For a damaged forest.
    OutputExistsError
        When `out` is taken.
    """
    if to not in SUFFIXES:
        raise ConfigError(f"to must be one of {', '.join(SUFFIXES)}, not {to!r}")
    out = as_path(out)
    if out.suffix.lower() != SUFFIXES[to]:
        raise ConfigError(
            f"the name of a file for {to} ends in {SUFFIXES[to]}, not {out.name!r}; choose another output"
        )
    forest = opened_forest(forest)
    with staged(out, overwrite=overwrite, kind=f"export to {to}", is_ours=Path.is_file) as made:
        if to == "onnx":
            made.write_bytes(forest.to_onnx(dtype).SerializeToString())
        elif to == "treelite":
            forest.to_treelite().serialize(str(made))
        elif to == "sklearn":
            library("joblib", "sklearn").dump(forest.to_sklearn(), made)
        else:
            made.write_text(forest.to_sql(table, column_names(keep, "keep")), encoding="utf-8")
    return out
