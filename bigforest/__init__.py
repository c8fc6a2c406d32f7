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
from bigforest.errors import (
    BigForestError,
    BusyError,
    ClusterError,
    ConfigError,
    DataError,
    DiskFullError,
    FormatError,
    OutputExistsError,
    StorageError,
)
from bigforest.version import __version__

if TYPE_CHECKING:
    from bigforest.ahead import warm_up
    from bigforest.api import encode_store, plan_training, predict_file, train
    from bigforest.calibrate import calibrate_forest
    from bigforest.forest.forest import Forest, read_forest
    from bigforest.forest.merge import merge
    from bigforest.images.api import images_to_features
    from bigforest.images.convert import ImageFeatures
    from bigforest.plan import Plan
    from bigforest.prune import prune_forest
    from bigforest.simulation.simulate import BayesError, bayes_error, simulate
    from bigforest.store.store import Store
    from bigforest.validate import validate_forest

__all__ = [
    "BayesError",
    "BigForestError",
    "BusyError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "DiskFullError",
    "Forest",
    "FormatError",
    "ImageFeatures",
    "OutputExistsError",
    "Plan",
    "StorageError",
    "Store",
    "TrainConfig",
    "__version__",
    "bayes_error",
    "calibrate_forest",
    "encode_store",
    "images_to_features",
    "merge",
    "plan_training",
    "predict_file",
    "prune_forest",
    "read_forest",
    "simulate",
    "train",
    "validate_forest",
    "warm_up",
]

_HOMES = {
    "BayesError": "bigforest.simulation.simulate",
    "Forest": "bigforest.forest.forest",
    "ImageFeatures": "bigforest.images.convert",
    "Plan": "bigforest.plan",
    "Store": "bigforest.store.store",
    "bayes_error": "bigforest.simulation.simulate",
    "calibrate_forest": "bigforest.calibrate",
    "encode_store": "bigforest.api",
    "images_to_features": "bigforest.images.api",
    "merge": "bigforest.forest.merge",
    "plan_training": "bigforest.api",
    "predict_file": "bigforest.api",
    "prune_forest": "bigforest.prune",
    "read_forest": "bigforest.forest.forest",
    "simulate": "bigforest.simulation.simulate",
    "train": "bigforest.api",
    "validate_forest": "bigforest.validate",
    "warm_up": "bigforest.ahead",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bigforest' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
