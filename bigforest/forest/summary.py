"""The two small files that describe a grown forest: its features and its run."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.encode.dataspec import DataSpec
from bigforest.forest.files import write_table
from bigforest.forest.parts import part_paths, read_parts
from bigforest.forest.table import FEATURES, RUN
from bigforest.version import __version__


def write_features(directory: Path, spec: DataSpec, config: TrainConfig) -> None:
    """Write features.parquet of the forest in `directory`, reading its parts once, one at a time."""
    features = spec.features
    table = pa.table(
        {
            "feature": np.arange(len(features), dtype=np.uint32),
            "name": [feature.name for feature in features],
            "kind": [feature.kind for feature in features],
            "dtype": [feature.dtype for feature in features],
            "codes": [feature.codes for feature in features],
            "importance": importance(directory, len(features)),
        },
        schema=FEATURES,
    )
    write_table(table, directory / "features.parquet", "features", spec, config)


def importance(directory: Path, features: int) -> NDArray[np.float64]:
    """Share of each feature in all decrease of impurity, float64 [features].

    Summed tree by tree, so that the cut into parts cannot change a bit of it.
    """
    total = np.zeros(features)
    for part in read_parts(part_paths(directory)):
        for start, stop in zip(part.starts[:-1], part.starts[1:], strict=True):
            inner = part.feature[start:stop] >= 0
            decrease = (part.gain[start:stop] * part.weight[start:stop])[inner]
            total += np.bincount(part.feature[start:stop][inner], decrease, minlength=features)
    whole = total.sum()
    return total / whole if whole > 0 else np.zeros(features)


def write_run(
    directory: Path, seconds: Mapping[str, float], threads: int, spec: DataSpec, config: TrainConfig
) -> None:
    """Write run.parquet of the forest `directory`: `seconds` of wall time by stage, in order."""
    import numba
    import polars as pl

    same = {
        "threads": threads,
        "bigforest": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "polars": pl.__version__,
        "config": config.to_json(),
    }
    rows = [{"stage": stage, "seconds": spent, **same} for stage, spent in seconds.items()]
    write_table(pa.Table.from_pylist(rows, RUN), directory / "run.parquet", "run", spec, config)
