"""Exact decision forests for tables that need not fit in memory.

    import bigforest
    forest = bigforest.train("flights.parquet", target="late")
    forest.predict(frame)

The public names are loaded when they are first used: importing bigforest costs no more than importing polars.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from bigforest.api import namespaces as _namespaces  # registers the Polars namespaces  # noqa: F401
from bigforest.common.errors import (
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
from bigforest.common.version import __version__
from bigforest.schema.config import TrainConfig

if _TYPE_CHECKING:
    from bigforest.api.compare import compare
    from bigforest.api.export import export_forest
    from bigforest.api.files import encode_store, predict_file
    from bigforest.api.training import plan_training, train
    from bigforest.api.warm_up import warm_up
    from bigforest.explain.explain import explain_forest
    from bigforest.explain.plan import ExplanationPlan, plan_explanation
    from bigforest.explain.tables import Explanation
    from bigforest.images.convert import ImageFeatures, images_to_features
    from bigforest.plot.pictures import Pictures
    from bigforest.plot.plot import plot_forest
    from bigforest.predict.forest import Forest, read_forest
    from bigforest.race.comparison import Comparison
    from bigforest.report.report import report_forest
    from bigforest.revise.calibrate import calibrate_forest
    from bigforest.revise.merge import merge
    from bigforest.revise.prune import prune_forest
    from bigforest.revise.validate import validate_forest
    from bigforest.simulation.simulate import BayesError, bayes_error, simulate
    from bigforest.store.store import Store
    from bigforest.training.plan import Plan
    from bigforest.training.shrink import shrink_forest

__all__ = [
    "BayesError",
    "BigForestError",
    "BusyError",
    "ClusterError",
    "Comparison",
    "ConfigError",
    "DataError",
    "DiskFullError",
    "Explanation",
    "ExplanationPlan",
    "Forest",
    "FormatError",
    "ImageFeatures",
    "OutputExistsError",
    "Pictures",
    "Plan",
    "StorageError",
    "Store",
    "TrainConfig",
    "__version__",
    "bayes_error",
    "calibrate_forest",
    "compare",
    "encode_store",
    "explain_forest",
    "export_forest",
    "images_to_features",
    "merge",
    "plan_explanation",
    "plan_training",
    "plot_forest",
    "predict_file",
    "prune_forest",
    "read_forest",
    "report_forest",
    "shrink_forest",
    "simulate",
    "train",
    "validate_forest",
    "warm_up",
]

_HOMES = {
    "BayesError": "bigforest.simulation.simulate",
    "Comparison": "bigforest.race.comparison",
    "Explanation": "bigforest.explain.tables",
    "ExplanationPlan": "bigforest.explain.plan",
    "Forest": "bigforest.predict.forest",
    "ImageFeatures": "bigforest.images.convert",
    "Pictures": "bigforest.plot.pictures",
    "Plan": "bigforest.training.plan",
    "Store": "bigforest.store.store",
    "bayes_error": "bigforest.simulation.simulate",
    "calibrate_forest": "bigforest.revise.calibrate",
    "compare": "bigforest.api.compare",
    "encode_store": "bigforest.api.files",
    "explain_forest": "bigforest.explain.explain",
    "export_forest": "bigforest.api.export",
    "images_to_features": "bigforest.images.convert",
    "merge": "bigforest.revise.merge",
    "plan_explanation": "bigforest.explain.plan",
    "plan_training": "bigforest.api.training",
    "plot_forest": "bigforest.plot.plot",
    "predict_file": "bigforest.api.files",
    "prune_forest": "bigforest.revise.prune",
    "read_forest": "bigforest.predict.forest",
    "shrink_forest": "bigforest.training.shrink",
    "report_forest": "bigforest.report.report",
    "simulate": "bigforest.simulation.simulate",
    "train": "bigforest.api.training",
    "validate_forest": "bigforest.revise.validate",
    "warm_up": "bigforest.api.warm_up",
}


def __getattr__(name: str) -> _Any:
    if name == "sklearn":
        return _importlib.import_module("bigforest.sklearn")
    if name not in _HOMES:
        where = "; the estimators are in bigforest.sklearn" if name.startswith("BigForest") else ""
        raise AttributeError(f"module 'bigforest' has no attribute {name!r}{where}")
    from bigforest.kernels.compiler.collection import uncollected

    with uncollected():
        value = getattr(_importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
