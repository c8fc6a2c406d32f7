"""Tables with nested columns, made flat before they are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bigforest.schema.columns import Leaf, is_nested
from bigforest.source import Source
from bigforest.source.source import source_of_files
from bigforest.storage.paths import write_atomically

# Bytes of rows unnested at a time, with the bytes guessed for a value of any type.
_SLICE_BYTES = 32 << 20
_VALUE_BYTES = 16


def flattened(source: Source, leaves: dict[str, Leaf], names: Sequence[str], scratch: Path) -> Source:
    """The Source of the columns `names` among `leaves`, which are those of `source`.

    A table in memory is unnested as it is read. Of files, every read of one feature would read its whole column, so
    they are copied flat to Parquet files in `scratch` first, some rows at a time.
    """
    columns = list(dict.fromkeys(leaves[name].column for name in names))
    if not any(is_nested(source.schema[column]) for column in columns):
        return source
    flat = [leaves[name].expr.alias(name) for name in names]
    schema = {name: leaves[name].dtype for name in names}
    if source.frame is not None and not source.files:
        return replace(source, schema=schema, frame=source.frame.select(flat))
    rows = max(1, _SLICE_BYTES // (_VALUE_BYTES * len(names)))
    files = []
    for number, frame in enumerate(source.slices(columns, rows)):
        files.append(scratch / f"flat-{number:06}.parquet")
        with write_atomically(files[-1]) as file:
            frame.select(flat).write_parquet(file, compression="lz4", statistics=False)
    return source_of_files(files, source.name)
