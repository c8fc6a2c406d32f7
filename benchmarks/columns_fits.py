"""The contestants of columns.py: how each is fitted to a table with categories and missing values, and timed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from datasets import TARGET
from numpy.typing import NDArray

MOST_ONE_HOT = 10**7  # cells of a one-hot table

Predict = Callable[[pl.DataFrame], NDArray[Any]]


class Clock:
    """Seconds of growing a forest.

    grow   by the clock on the wall
    cpu    of the processor, in all threads: what a busy machine changes least
    whole  by the clock on the wall, since this object was made
    saved  `grow` and saving the forest into the folder `place`, by the clock on the wall; `grow` alone where growing
           writes it, and where there is no place
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._made = time.perf_counter()

    def start(self) -> None:
        """Growing begins."""
        self._begin, self._spent = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Growing ends."""
        end = time.perf_counter()
        self.grow, self.cpu, self.whole = end - self._begin, time.process_time() - self._spent, end - self._made
        self.saved = self.grow

    def timed(self, work: Callable[[], Any], save: Callable[[Any, Path], Any]) -> Any:
        """What `work` gives, which is growing; `save` puts it into a folder."""
        self.start()
        result = work()
        self.stop()
        if self._place is not None:
            begin = time.perf_counter()
            save(result, self._place)
            self.saved += time.perf_counter() - begin
        return result


def texts(frame: pl.DataFrame) -> list[str]:
    """The columns that are categories."""
    return [name for name, dtype in frame.schema.items() if dtype == pl.String]


def ordinal(train: pl.DataFrame) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Replaces categories by the rank of their text in training, others by null."""
    levels = {name: train[name].drop_nulls().unique().sort() for name in texts(train)}

    def coded(frame: pl.DataFrame) -> pl.DataFrame:
        columns = [
            pl.col(name).replace_strict(found, pl.arange(len(found), eager=True), default=None)
            for name, found in levels.items()
        ]
        return frame.with_columns(column.cast(pl.Float64) for column in columns)

    return coded


def one_hot(train: pl.DataFrame) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Replaces categories by a column of 0 and 1 for each level."""
    levels = {name: train[name].drop_nulls().unique().sort().to_list() for name in texts(train)}
    if train.height * sum(map(len, levels.values())) > MOST_ONE_HOT:
        raise SystemExit("too many levels")

    def coded(frame: pl.DataFrame) -> pl.DataFrame:
        columns = [
            (pl.col(name) == level).fill_null(False).cast(pl.UInt8).alias(f"{name}={level}")
            for name, found in levels.items()
            for level in found
        ]
        return frame.select(pl.exclude(levels), *columns)

    return coded


def drawn(frame: pl.DataFrame, regression: bool) -> int:
    """Features that a node draws."""
    features = frame.width - 1
    return max(1, features // 3) if regression else math.isqrt(features)


def fit_bigforest(
    train: pl.DataFrame, regression: bool, options: Any, clock: Clock, coding: Any = None, **given: Any
) -> Predict:
    """given: options of training, instead of those of the benchmark."""
    import bigforest
    from bigforest.events import Event, StageFinished, StageStarted

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "grow":
            clock.start()
        if isinstance(event, StageFinished) and event.stage == "grow":
            clock.stop()

    code = (lambda frame: frame) if coding is None else coding(train)
    table = code(train)
    same = {"trees": options.trees, "mtry": drawn(table, regression), "min_leaf": options.min_leaf, "refine": "off"}
    forest = bigforest.train(table, target=TARGET, threads=options.threads, listener=listen, **same | given)
    return lambda frame: forest.predict(code(frame))["prediction"].to_numpy()


def fit_sklearn(train: pl.DataFrame, regression: bool, options: Any, clock: Clock, coding: Any = ordinal) -> Predict:
    import joblib
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    code = coding(train)

    def matrix(frame: pl.DataFrame) -> NDArray[np.float32]:
        return code(frame).drop(TARGET).cast(pl.Float32).to_numpy()

    learner = (RandomForestRegressor if regression else RandomForestClassifier)(
        options.trees,
        max_features=drawn(code(train.head(1)), regression),
        min_samples_leaf=options.min_leaf,
        n_jobs=options.threads,
        random_state=0,
    )
    values, target = matrix(train), train[TARGET].to_numpy()
    clock.timed(lambda: learner.fit(values, target), lambda forest, place: joblib.dump(forest, place / "forest.joblib"))
    return lambda frame: learner.predict(matrix(frame))


def ydf_columns(frame: pl.DataFrame) -> dict[str, Any]:
    """The features of a frame as YDF takes them: categories as text, empty where missing, numbers as float32."""
    categories = texts(frame)
    return {
        name: frame[name].fill_null("").to_numpy().astype(str)
        if name in categories
        else frame[name].cast(pl.Float32).to_numpy()
        for name in frame.columns
        if name != TARGET
    }


def likeliest(shares: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """The label with the largest share in each row; of two classes the shares may be those of the second alone."""
    return labels[(shares > 0.5).astype(int) if shares.ndim == 1 else shares.argmax(axis=1)]


def ydf_labels(model: Any) -> NDArray[np.int64]:
    """The classes of a model of YDF in its order."""
    return np.array([int(label) for label in model.label_classes()])


def lightgbm_table(train: pl.DataFrame) -> Callable[[pl.DataFrame], Any]:
    """Converts frames to tables of pandas, with the categories of the training rows."""
    import pandas as pd

    categories = {name: train[name].drop_nulls().unique().sort().to_list() for name in texts(train)}

    def table(frame: pl.DataFrame) -> Any:
        found = frame.drop(TARGET).to_pandas()
        for name, levels in categories.items():
            found[name] = pd.Categorical(found[name], categories=levels)
        return found

    return table


def lightgbm_forest(classes: int, share: float, threads: int, **parameters: Any) -> dict[str, Any]:
    """Parameters of LightGBM's forests, with bags of 0.632 of the rows.

    classes  0 for regression; share: of the features, drawn in each node.
    """
    many = {"num_class": classes} if classes > 2 else {}
    return {
        "boosting": "rf",
        "objective": "multiclass" if many else "binary" if classes else "regression",
        "bagging_freq": 1,
        "bagging_fraction": 0.632,
        "feature_fraction_bynode": share,
        "num_threads": threads,
        "verbose": -1,
        **many,
        **parameters,
    }


def fit_ydf(train: pl.DataFrame, regression: bool, options: Any, clock: Clock) -> Predict:
    import ydf

    ydf.verbose(0)

    target = train[TARGET].to_numpy()
    semantic = ydf.Semantic.NUMERICAL if regression else ydf.Semantic.CATEGORICAL
    table = ydf.create_vertical_dataset(
        ydf_columns(train) | {TARGET: target}, columns=[(TARGET, semantic)], include_all_columns=True, label=TARGET
    )
    learner = ydf.RandomForestLearner(
        label=TARGET,
        task=ydf.Task.REGRESSION if regression else ydf.Task.CLASSIFICATION,
        num_trees=options.trees,
        num_threads=options.threads,
        num_candidate_attributes=max(1, drawn(train, regression) - 1),  # it looks at one more
        max_depth=-1,
        min_examples=options.min_leaf,
        winner_take_all=False,
        compute_oob_performances=False,
    )
    model = clock.timed(lambda: learner.train(table), lambda forest, place: forest.save(str(place / "forest")))

    def predict(frame: pl.DataFrame) -> NDArray[Any]:
        found = model.predict(ydf_columns(frame))
        return found if regression else likeliest(found, ydf_labels(model))

    return predict


def fit_lightgbm(train: pl.DataFrame, regression: bool, options: Any, clock: Clock) -> Predict:
    import lightgbm

    table = lightgbm_table(train)
    classes = train[TARGET].unique().sort().to_numpy()
    share = drawn(train, regression) / (train.width - 1)
    parameters = lightgbm_forest(
        0 if regression else len(classes),
        share,
        options.threads,
        num_leaves=1 << 15,
        min_data_in_leaf=options.min_leaf,
    )
    target = train[TARGET].to_numpy() if regression else np.searchsorted(classes, train[TARGET].to_numpy())
    data = lightgbm.Dataset(table(train), target, params=parameters).construct()
    model = clock.timed(
        lambda: lightgbm.train(parameters, data, options.trees),
        lambda forest, place: forest.save_model(str(place / "forest.txt")),
    )

    def predict(frame: pl.DataFrame) -> NDArray[Any]:
        found = model.predict(table(frame))
        return found if regression else likeliest(found, classes)

    return predict


FITS: dict[str, Callable[[pl.DataFrame, bool, Any, Clock], Predict]] = {
    "bigforest": fit_bigforest,
    "bigforest-ordinal": partial(fit_bigforest, coding=ordinal),
    "bigforest-onehot": partial(fit_bigforest, coding=one_hot),
    "ydf": fit_ydf,
    "lightgbm": fit_lightgbm,
    "scikit-learn": fit_sklearn,
    "scikit-learn-onehot": partial(fit_sklearn, coding=one_hot),
}


def fit_of(contestant: str) -> Callable[[pl.DataFrame, bool, Any, Clock], Predict]:
    """How a contestant is fitted; one of ours may have options of training after colons, as bigforest:mtry=4."""
    name, *given = contestant.split(":")
    return partial(FITS[name], **dict(map(option, given)))


def option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
