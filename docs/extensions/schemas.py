"""The files of a forest and their schemas, by the names that the documentation calls them."""

from __future__ import annotations

import pyarrow as pa

from bigforest.forest.format.schema import (
    BOOSTING,
    CURVE,
    FEATURES,
    LEAF_TARGETS,
    NODES,
    NUMBER_METRICS,
    RANKS,
    RUN,
    SPREAD,
    TARGET_VALUES,
    TUNING,
    VALIDATION,
    VOTES,
    confusion,
    metrics,
    oob_rows,
)
from bigforest.store.levels import LEVELS

_LABEL = pa.binary()  # in the place of the type of the target, which no column has

FILES = {
    "trees/part-NNNNNNN.parquet": NODES,
    "features.parquet": FEATURES,
    "ranks.parquet": RANKS,
    "levels.parquet": LEVELS,
    "boosting.parquet": BOOSTING,
    "run.parquet": RUN,
    "oob/rows.parquet": oob_rows(_LABEL, ["p_<class>"]),
    "oob/rows.parquet of numbers": oob_rows(pa.float64(), [SPREAD]),
    "oob/curve.parquet": CURVE,
    "oob/confusion.parquet": confusion(_LABEL),
    "oob/metrics.parquet": metrics(_LABEL),
    "oob/metrics.parquet of numbers": NUMBER_METRICS,
    "oob/votes/part-NNNNNNN.parquet": VOTES,
    "validation/curve.parquet": VALIDATION,
    "tuning/candidates.parquet": TUNING,
    "targets/values.parquet": TARGET_VALUES,
    "targets/part-NNNNNNN.parquet": LEAF_TARGETS,
}


def type_name(kind: pa.DataType) -> str:
    """A type of Arrow in the words of the documentation."""
    if kind == _LABEL:
        return "as the target"
    if pa.types.is_dictionary(kind):
        return f"dictionary of {kind.value_type}"
    if pa.types.is_struct(kind):
        return f"struct ({', '.join(field.name for field in kind)})"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    return {"double": "float64"}.get(str(kind), str(kind))


def column_table(file: str, meanings: dict[str, str]) -> str:
    """A table in Markdown of the columns of a file: names and types by the schema. Raises ValueError."""
    schema = FILES.get(file)
    if schema is None:
        raise ValueError(f"{file} is not a file of a forest; extensions/schemas.py names them")
    if schema.names != list(meanings):
        raise ValueError(f"{file} has the columns {schema.names}, and described are {list(meanings)}")
    rows = [f"| `{field.name}` | {type_name(field.type)} | {meanings[field.name]} |" for field in schema]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])
