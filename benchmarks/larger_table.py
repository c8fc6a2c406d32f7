"""A table of any size for the benchmark larger.py: two classes, 30 float32 features, in one Parquet file.

The recipe is that of the set `synthetic` (datasets.py): 23 measured features and 7 derived ones, of 8 hidden numbers.
The classes overlap, so that trees grown until pure are deep and large. Each chunk of rows has a stream of its own, so
the first rows of a larger table are those of a smaller one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

FEATURES = 30
TARGET = "target"
CHUNK_ROWS = 250_000
_SEED = 28
_HIDDEN = 8
_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (1, 2), (3, 4), (0, 5))
_MEASURED = FEATURES - len(_PAIRS)
# About the median of the signal: the classes are of equal size.
_MIDDLE = -1.1


def write_table(path: Path, rows: int) -> None:
    """Write `rows` rows; about 300 MB of memory."""
    names = [f"x{number:02d}" for number in range(FEATURES)]
    schema = pa.schema([*((name, pa.float32()) for name in names), (TARGET, pa.uint8())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for number, first in enumerate(range(0, rows, CHUNK_ROWS)):
            values, target = _chunk(number)
            columns = [*np.ascontiguousarray(values.T), target]
            table = pa.table([pa.array(column) for column in columns], schema=schema)
            writer.write_table(table.slice(0, min(CHUNK_ROWS, rows - first)))


def _chunk(number: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    mixing = np.random.default_rng(_SEED).standard_normal((_HIDDEN, _MEASURED)) / np.sqrt(_HIDDEN)
    random = np.random.default_rng([_SEED, number])
    hidden = random.standard_normal((CHUNK_ROWS, _HIDDEN))
    measured = hidden @ mixing + 0.35 * random.standard_normal((CHUNK_ROWS, _MEASURED))
    measured[:, 1::3] = np.exp(0.7 * measured[:, 1::3])
    lengths = [np.hypot(hidden[:, a], hidden[:, b]) for a, b in _PAIRS]
    derived = np.stack(lengths, axis=1) + 0.3 * random.standard_normal((CHUNK_ROWS, len(_PAIRS)))
    signal = (
        1.6 * hidden[:, 0] * hidden[:, 1]
        + 1.2 * np.sin(2.0 * hidden[:, 2])
        - np.abs(hidden[:, 3] - hidden[:, 4])
        + 0.8 * hidden[:, 5]
    )
    chance = 1.0 / (1.0 + np.exp(-2.5 * (signal - _MIDDLE)))
    target = (random.random(CHUNK_ROWS) < chance).astype(np.uint8)
    return np.concatenate([measured, derived], axis=1).astype(np.float32), target
