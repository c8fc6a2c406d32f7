"""The files of a forest as tables of the documentation."""

from __future__ import annotations

import pyarrow as pa

from bigforest.forest.format import FILES, LABEL


def type_name(kind: pa.DataType) -> str:
    """A type of Arrow in the words of the documentation."""
    if kind == LABEL:
        return "as the target"
    if pa.types.is_dictionary(kind):
        return f"dictionary of {kind.value_type}"
    if pa.types.is_struct(kind):
        return f"struct ({', '.join(field.name for field in kind)})"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    return {"double": "float64"}.get(str(kind), str(kind))


def column_table(file: str) -> str:
    """A table in Markdown of the columns of a file, as its schema declares them. Raises ValueError."""
    columns = FILES.get(file)
    if columns is None:
        raise ValueError(f"{file} is not a file of a forest; bigforest/forest/format.py names them")
    rows = [f"| `{column.name}` | {type_name(column.type)} | {column.meaning} |" for column in columns]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])
