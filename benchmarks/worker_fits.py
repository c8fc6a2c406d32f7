"""The contestants of worker.py, for constants.py and oblique.py, which grow the same kind of forest.

Alike for all: the number of trees, mtry = floor(sqrt(features)), trees grown until pure, bags of N draws with
replacement, class shares averaged over the trees, the given number of threads, numeric features only. Nobody
computes out-of-bag figures inside the fit: bigforest always does, but as a stage of its own, timed apart.

What each library needs before it can grow (bigforest: the encoded store, scikit-learn: one float32 matrix,
YDF: its VerticalDataset) is timed apart as well, as `prepare`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from datasets import TARGET, Dataset
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Settings:
    """How the forest is grown; mtry and depth are the same for all and not options."""

    trees: int
    threads: int
    seed: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """A grown forest. `predict` takes what `prepare_test` gave and returns one class per row.

    fit_seconds grows the trees and nothing else; prepare_seconds is the work before it. `facts` holds what
    only some contestants can tell, under the names of the result table.
    """

    prepare_seconds: float
    fit_seconds: float
    predict: Callable[[Any], NDArray[np.int64]]
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A name in the tables and the two things it does."""

    name: str
    fit: Callable[[Dataset, Settings], Fitted]
    prepare_test: Callable[[Dataset], Any]


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def _matrix(data: Dataset) -> NDArray[np.float32]:
    return data.arrays("test")[0]


def _features(data: Dataset) -> pl.DataFrame:
    return data.test.select(data.features)


def _columns(data: Dataset) -> dict[str, NDArray[np.float32]]:
    return {name: data.test[name].cast(pl.Float32).to_numpy() for name in data.features}


# Oblique forests: k = ceil(p**(2/3)) random sums in each node, of two features with weights of +-1 on average.
OBLIQUE_TERMS = 2.0


def _projections(features: int) -> int:
    return math.ceil(round(features ** (2 / 3), 9))


def _oblique(features: int) -> dict[str, Any]:
    return {
        "family": "sparse-oblique",
        "projection_kind": "sporf",
        "projections": _projections(features),
        "density": min(1.0, OBLIQUE_TERMS / features),
    }


def _fit_bigforest(options: Callable[[int], dict[str, Any]]) -> Callable[[Dataset, Settings], Fitted]:
    def fit(data: Dataset, settings: Settings) -> Fitted:
        import bigforest

        forest = bigforest.train(
            data.train,
            target=TARGET,
            trees=settings.trees,
            seed=settings.seed,
            threads=settings.threads,
            **options(len(data.features)),
        )
        stages = dict(forest.run.select("stage", "seconds").iter_rows())
        splits = forest.nodes.filter(pl.col("kind") != "leaf").select(pl.len()).collect().item()
        facts = {"oob_error": forest.oob.error, "splits_per_tree": splits / settings.trees}
        return Fitted(stages["encode"], stages["grow"], _predictor(forest, settings.threads), facts)

    return fit


def _predictor(forest: Any, threads: int) -> Callable[[pl.DataFrame], NDArray[np.int64]]:
    return lambda frame: forest.predict(frame, threads=threads)["prediction"].cast(pl.Int64).to_numpy()


def _fit_sklearn(data: Dataset, settings: Settings) -> Fitted:
    from sklearn.ensemble import RandomForestClassifier

    (values, target), prepare = _timed(lambda: data.arrays("train"))
    learner = RandomForestClassifier(
        settings.trees, max_features="sqrt", n_jobs=settings.threads, random_state=settings.seed
    )
    model, seconds = _timed(lambda: learner.fit(values, target))
    splits = sum(int((one.tree_.feature >= 0).sum()) for one in model.estimators_)
    return Fitted(prepare, seconds, model.predict, {"splits_per_tree": splits / settings.trees})


def _ydf_oblique() -> dict[str, Any]:
    return {
        "split_axis": "SPARSE_OBLIQUE",
        "sparse_oblique_num_projections_exponent": 2 / 3,
        "sparse_oblique_projection_density_factor": OBLIQUE_TERMS,
        "sparse_oblique_weights": "BINARY",
        "sparse_oblique_normalization": "NONE",
    }


def _fit_ydf(data: Dataset, settings: Settings, **options: Any) -> Fitted:
    import ydf

    ydf.verbose(0)
    columns = [(name, ydf.Semantic.NUMERICAL) for name in data.features]
    columns.append((TARGET, ydf.Semantic.CATEGORICAL))

    def vertical() -> Any:
        arrays = {name: data.train[name].cast(pl.Float32).to_numpy() for name in data.features}
        arrays[TARGET] = data.train[TARGET].cast(pl.Int64).to_numpy()
        return ydf.create_vertical_dataset(arrays, columns=columns, label=TARGET)

    table, prepare = _timed(vertical)
    learner = ydf.RandomForestLearner(
        label=TARGET,
        num_trees=settings.trees,
        num_threads=settings.threads,
        random_seed=settings.seed + 1,
        num_candidate_attributes=max(1, math.isqrt(len(data.features)) - 1),  # it looks at one more
        max_depth=-1,
        min_examples=1,
        winner_take_all=False,
        compute_oob_performances=False,
        keep_non_leaf_label_distribution=False,
        **options,
    )
    model, seconds = _timed(lambda: learner.train(table))
    classes = np.array([int(label) for label in model.label_classes()])

    def predict(values: Any) -> NDArray[np.int64]:
        shares = model.predict(values)
        chosen = (shares > 0.5).astype(np.int64) if shares.ndim == 1 else shares.argmax(axis=1)
        return classes[chosen]

    return Fitted(prepare, seconds, predict)


def _fit_treeple(data: Dataset, settings: Settings) -> Fitted:
    from treeple import ObliqueRandomForestClassifier

    (values, target), prepare = _timed(lambda: data.arrays("train"))
    learner = ObliqueRandomForestClassifier(
        settings.trees,
        max_features=_projections(len(data.features)),
        feature_combinations=OBLIQUE_TERMS,
        n_jobs=settings.threads,
        random_state=settings.seed,
    )
    model, seconds = _timed(lambda: learner.fit(values, target))
    return Fitted(prepare, seconds, model.predict)


CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("bigforest-redraw", _fit_bigforest(lambda _: {"mtry": "sqrt", "constants": "redraw"}), _features),
        Contestant("bigforest-count", _fit_bigforest(lambda _: {"mtry": "sqrt", "constants": "count"}), _features),
        Contestant("bigforest-oblique", _fit_bigforest(_oblique), _features),
        Contestant("scikit-learn", _fit_sklearn, _matrix),
        Contestant("ydf-oblique", lambda data, settings: _fit_ydf(data, settings, **_ydf_oblique()), _columns),
        Contestant("treeple", _fit_treeple, _matrix),
    )
}
