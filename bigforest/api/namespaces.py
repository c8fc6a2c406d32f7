"""`frame.bigforest.train(...)` on Polars frames, eager and lazy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

import bigforest  # whose Forest is loaded when it is named
from bigforest.api.given import passed_on, with_options
from bigforest.common.events import Listener
from bigforest.schema.docstrings import with_entries

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
else:
    ArrayLike = Any  # whose module loads numpy


@pl.api.register_dataframe_namespace("bigforest")
@pl.api.register_lazyframe_namespace("bigforest")
class FrameNamespace:
    """The methods bigforest adds to a frame."""

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    @with_entries
    @with_options
    def train(
        self,
        target: str | ArrayLike | None = None,
        *,
        # Options, written by docs/options.py.
        trees: int = 100,
        seed: int = 0,
        family: Literal["axis", "tree", "rotation", "sparse-oblique", "subspace-cap", "subspace-perceptron"] = "axis",
        mtry: Literal["sqrt", "log2", "half", "all"] | int | float | None = None,
        feature_fraction: float | None = None,
        splitter: Literal["best", "random"] = "best",
        impurity: Literal["gini", "entropy", "error", "variance", "poisson"] | None = None,
        max_depth: int | None = None,
        min_split: int = 2,
        min_leaf: int | None = None,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        max_bins: Literal["exact"] | int = "exact",
        ranks: bool = False,
        constants: Literal["redraw", "count"] = "redraw",
        vote: Literal["soft", "hard"] = "soft",
        shrink: Literal["auto", "off"] | float = "auto",
        stop_oob: float | None = None,
        bootstrap: bool = True,
        sample_fraction: float = 1.0,
        replace: bool = True,
        calibration: float | None = None,
        sampling: Literal["uniform", "stratified", "balanced", "arc-x4", "adaboost"] = "uniform",
        group: str | ArrayLike | None = None,
        weight: str | ArrayLike | None = None,
        class_weight: Mapping[Any, float] | str | Path | None = None,
        task: Literal["classification", "regression"] | None = None,
        categories: str | Sequence[str] = (),
        missing: str | Sequence[str] = (),
        min_level: str | int | None = None,
        keep_targets: bool = False,
        keep_votes: bool = False,
        projections: str | int | None = None,
        projection_kind: Literal["rerf", "sporf", "gaussian", "very-sparse"] = "rerf",
        density: float | None = None,
        mean_difference: Literal["none", "consecutive", "vs-largest", "all"] = "none",
        mean_difference_scope: Literal["tree", "node"] = "tree",
        normalize: Literal["none", "zscore", "minmax"] = "none",
        axes: int | None = None,
        orthogonal: bool = True,
        rotation: Literal["random", "pca", "pca-classes"] = "random",
        axis_features: int | None = None,
        axes_from: str | Sequence[str] = (),
        subspace: str | int | None = None,
        subspace_per: Literal["tree", "node"] = "tree",
        steps: int = 50,
        max_epochs: int = 100,
        ties: Literal["lowest", "reject", "random"] | None = None,
        exclude: Sequence[str] = (),
        out: str | Path | None = None,
        overwrite: bool = False,
        resume: str | Path | None = None,
        validate: Any = None,
        tune: int | str | None = None,
        memory: str | int | None = None,
        threads: int | None = None,
        scratch: str | Path | None = None,
        scheduler: Any = None,
        listener: Listener | None = None,
        # End of the options.
    ) -> bigforest.Forest:
        """Grow a forest on the frame, by `bigforest.train`, whose arguments and errors these are.

        Parameters
        ----------
        target : str or array-like, optional
            The column to learn, or its values, [rows] or [rows, 1]; None for the first of target, label, class and y
            that there is.
        exclude, out, overwrite, resume, validate, tune, memory, threads, scratch, scheduler, listener
            As for `bigforest.train`.

        Returns
        -------
        Forest
        """
        arguments = passed_on(locals())
        from bigforest.api.training import train

        return train(self._frame, **arguments)
