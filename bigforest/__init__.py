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
from bigforest.execution import forks as _forks  # noqa: F401  notes every fork from now on
from bigforest.options.train_config import TrainConfig
from bigforest.training import namespaces as _namespaces  # noqa: F401  registers the Polars namespaces
from bigforest.version import __version__

if _TYPE_CHECKING:
    from bigforest.compiling.warm_up import warm_up
    from bigforest.encode.encode import encode_store
    from bigforest.explain.explain import ExplanationPlan, explain_forest, plan_explanation
    from bigforest.explain.tables import Explanation
    from bigforest.images.convert import ImageFeatures, images_to_features
    from bigforest.plot.plot import Pictures, plot_forest
    from bigforest.predict.export_file import export_forest
    from bigforest.predict.files import predict_file
    from bigforest.predict.forest import Forest, read_forest
    from bigforest.report.report import report_forest
    from bigforest.revise.revision import calibrate_forest, merge, prune_forest
    from bigforest.revise.validate import validate_forest
    from bigforest.simulation.simulate import BayesError, bayes_error, simulate
    from bigforest.store.store import Store
    from bigforest.training.compare import compare
    from bigforest.training.comparison import Comparison
    from bigforest.training.plan import Plan
    from bigforest.training.train import plan_training, shrink_forest, train

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

# Public names by the module that defines them; _HOMES has the module of each name.
_MODULES = {
    "compiling.warm_up": "warm_up",
    "encode.encode": "encode_store",
    "explain.explain": "ExplanationPlan explain_forest plan_explanation",
    "explain.tables": "Explanation",
    "images.convert": "ImageFeatures images_to_features",
    "plot.plot": "Pictures plot_forest",
    "predict.export_file": "export_forest",
    "predict.files": "predict_file",
    "predict.forest": "Forest read_forest",
    "report.report": "report_forest",
    "revise.revision": "calibrate_forest merge prune_forest",
    "revise.validate": "validate_forest",
    "simulation.simulate": "BayesError bayes_error simulate",
    "store.store": "Store",
    "training.compare": "compare",
    "training.comparison": "Comparison",
    "training.plan": "Plan",
    "training.train": "plan_training shrink_forest train",
}
_HOMES = {name: f"bigforest.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> _Any:
    if name == "sklearn":
        return _importlib.import_module("bigforest.sklearn")
    if name not in _HOMES:
        where = "; the estimators are in bigforest.sklearn" if name.startswith("BigForest") else ""
        raise AttributeError(f"module 'bigforest' has no attribute {name!r}{where}")
    from bigforest.execution.resources import check_thread_variables
    from bigforest.kernels.compiler.gc_pause import gc_paused

    check_thread_variables()
    with gc_paused():
        value = getattr(_importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
