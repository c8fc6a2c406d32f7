"""Exact decision forests for tables that need not fit in memory.

    import bigforest
    forest = bigforest.train("flights.parquet", target="late")
    forest.predict(frame)

The public names are loaded when they are first used: importing bigforest costs no more than importing polars.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bigforest import namespaces as namespaces  # registers the Polars namespaces
from bigforest.config import TrainConfig
from bigforest.errors import BigForestError, ConfigError, DataError, FormatError, OutputExistsError
from bigforest.version import __version__

if TYPE_CHECKING:
    from bigforest.api import encode_store, predict_file, train
    from bigforest.forest.forest import Forest, read_forest
    from bigforest.prune import prune_forest
    from bigforest.store.store import Store

__all__ = [
    "BigForestError",
    "ConfigError",
    "DataError",
    "Forest",
    "FormatError",
    "OutputExistsError",
    "Store",
    "TrainConfig",
    "__version__",
    "encode_store",
    "predict_file",
    "prune_forest",
    "read_forest",
    "train",
]

_HOMES = {
    "Forest": "bigforest.forest.forest",
    "Store": "bigforest.store.store",
    "encode_store": "bigforest.api",
    "predict_file": "bigforest.api",
    "prune_forest": "bigforest.prune",
    "read_forest": "bigforest.forest.forest",
    "train": "bigforest.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bigforest' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
