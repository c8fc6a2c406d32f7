"""The methods of Randomer forests, and one measurement of each."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import polars as pl

import bigforest

TARGET = "target"
FISHERFACES = "Fisherfaces"

# d: differences of class means, r: ranks. mtry is floor(sqrt p), as many directions as ceil(p^(2/3)).
FORESTS: dict[str, dict[str, Any]] = {
    "RF": {"mtry": "sqrt"},
    "RF(r)": {"mtry": "sqrt", "ranks": True},
    "RerF": {"family": "sparse-oblique"},
    "RerF(r)": {"family": "sparse-oblique", "ranks": True},
    "RerF(d)": {"family": "sparse-oblique", "mean_difference": "consecutive"},
    "RerF(d+r)": {"family": "sparse-oblique", "mean_difference": "consecutive", "ranks": True},
}

# What is left of the within-class scatter where it is singular, as a share of its mean variance.
RIDGE = 1e-3


def forest_errors(method: str, frame: pl.DataFrame, options: dict[str, Any]) -> dict[str, Any]:
    """Out-of-bag error of a forest by majority vote, its course over the trees, and CPU seconds of training.

    The seconds are those of all of `train`: presorting and the out-of-bag report belong to it. Numbers of trees in the
    course grow by about a tenth.
    """
    begin = time.process_time()
    forest = bigforest.train(frame, TARGET, vote="hard", shrink="off", threads=1, **FORESTS[method] | options)
    seconds = time.process_time() - begin
    curve = forest.oob.curve
    steps = np.unique(np.geomspace(1, curve.height, 60).round().astype(int)) - 1
    course = curve[steps]
    return {
        "error": forest.oob.error,
        "seconds": seconds,
        "curve_trees": course["trees"].to_list(),
        "curve_error": course["error"].to_list(),
    }


def fisherfaces_errors(frame: pl.DataFrame) -> dict[str, Any]:
    """Leave-one-out error of principal components followed by linear discriminants (Belhumeur et al. 1997)."""
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import LeaveOneOut, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from threadpoolctl import threadpool_limits

    values, target = frame.drop(TARGET).to_numpy(), frame[TARGET].to_numpy()
    components = min(values.shape[1], len(target) - 1 - len(np.unique(target)))
    model = make_pipeline(PCA(components), LinearDiscriminantAnalysis(solver="eigen", shrinkage=RIDGE))
    begin = time.process_time()
    with threadpool_limits(1):
        found = cross_val_predict(model, values, target, cv=LeaveOneOut())
    seconds = time.process_time() - begin
    error = float((found != target).mean())
    return {"error": error, "seconds": seconds, "curve_trees": [], "curve_error": []}
