"""The contestants of suite.py, each at the defaults of its makers but for the number of trees, threads and the seed.

LightGBM has no forest without options: its mode "rf" is given bags of 0.632 of the rows and no more, so that its
trees have 31 leaves. scikit-learn takes numbers only, and gets the rank of a category's text; YDF and LightGBM take
categories and missing values as they are. A contestant of ours may have options of training after colons, as
bigforest:mtry=4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from columns_fits import lightgbm_table, option, ordinal, texts, ydf_columns, ydf_labels
from datasets import TARGET
from numpy.typing import NDArray

import bigforest

# Shares of the classes, in ascending order, or numbers, for the rows of a table.
Predict = Callable[[pl.DataFrame], NDArray[np.float64]]


class Asked(NamedTuple):
    """What all contestants are told. classes: of the training rows, ascending; none where numbers are predicted."""

    trees: int
    threads: int
    seed: int
    classes: list[int]


def grown(train: pl.DataFrame, asked: Asked, **options: Any) -> bigforest.Forest:
    """A forest of ours; options: of training."""
    task = "classification" if asked.classes else "regression"
    said = {"task": task, "trees": asked.trees, "seed": asked.seed, "threads": asked.threads}
    return bigforest.train(train, TARGET, **said | options)


def fit_bigforest(train: pl.DataFrame, asked: Asked, **options: Any) -> Predict:
    """options: of training."""
    return predictor(grown(train, asked, **options), asked)


def predictor(forest: bigforest.Forest, asked: Asked) -> Predict:
    """The predictions of a forest of ours as those of the other contestants."""

    def predict(frame: pl.DataFrame) -> NDArray[np.float64]:
        if not asked.classes:
            return forest.predict(frame, threads=asked.threads)["prediction"].to_numpy()
        found = forest.predict_proba(frame, threads=asked.threads)
        return found.select(f"p_{label}" for label in asked.classes).to_numpy()

    return predict


def fit_min_leaf(train: pl.DataFrame, asked: Asked) -> Predict:
    """The forest of ours, not shrunk, whose min_leaf has the least out-of-bag log loss, or mean squared error."""
    losses = {}
    for size in (1, 2, 5, 10, 20):
        forest = grown(train, asked, min_leaf=size, shrink="off")
        losses[size] = forest.oob.metrics["log_loss" if asked.classes else "mse"][-1]
    return fit_bigforest(train, asked, shrink="off", min_leaf=min(losses, key=losses.__getitem__))


def fit_calibrated(train: pl.DataFrame, asked: Asked, *, method: Callable[..., Any]) -> Predict:
    """A forest of ours whose shares are calibrated by `method` on those of the rows out of bag; of numbers as it is."""
    forest = grown(train, asked, shrink="off")
    if not asked.classes:
        return lambda frame: forest.predict(frame, threads=asked.threads)["prediction"].to_numpy()
    names = [f"p_{label}" for label in asked.classes]
    rows = forest.oob.rows.drop_nulls("prediction").select("truth", *names).collect()
    adjust = method(rows.select(names).to_numpy(), np.searchsorted(asked.classes, rows["truth"].cast(pl.Int64)))
    return lambda frame: adjust(forest.predict_proba(frame, threads=asked.threads).select(names).to_numpy())


def fit_aggregated(train: pl.DataFrame, asked: Asked) -> Predict:
    """A forest of ours in which every tree answers by the mean of all its prunings, weighted by their log loss on the
    rows out of its bag: WildWood (Gaiffas, Merad and Yu 2021) with its step 1, shares (n_k + 1/2) / (n + K/2).
    Of numbers as it is."""
    if not asked.classes:
        return fit_bigforest(train, asked, shrink="off")
    forest = grown(train, asked, shrink="off")
    classes = len(asked.classes)
    truth = np.searchsorted(asked.classes, train[TARGET].cast(pl.Int64))
    leaves = forest.apply(train.drop(TARGET), threads=asked.threads)
    bags = forest.inbag()
    tables = []
    for number, tree in enumerate(forest.nodes.collect().partition_by("tree", maintain_order=True)):
        counts = np.array(tree["counts"].to_list(), float)
        shares = (counts + 0.5) / (counts.sum(axis=1) + 0.5 * classes)[:, None]
        left, right = (tree[side].fill_null(0).to_numpy().astype(np.int64) for side in ("left", "right"))
        judged = (bags[str(number)] == 0).to_numpy()
        seen = np.zeros_like(counts)
        np.add.at(seen, (leaves[judged, number], truth[judged]), 1.0)
        tables.append(_pruned_mean(shares, seen, left, right))

    def predict(frame: pl.DataFrame) -> NDArray[np.float64]:
        found = forest.apply(frame.drop(TARGET), threads=asked.threads)
        return np.mean([table[found[:, tree]] for tree, table in enumerate(tables)], axis=0)

    return predict


def _pruned_mean(
    shares: NDArray[np.float64], seen: NDArray[np.float64], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Shares of every node by the prunings of its tree, float64 [nodes, classes], of which those of leaves are used.

    seen  rows out of bag of each class that end in each node; left, right: the children, 0 of leaves.
    """
    inner = np.flatnonzero(left)
    for node in inner[::-1]:  # children have higher numbers than their parents
        seen[node] = seen[left[node]] + seen[right[node]]
    own = (seen * np.log(shares)).sum(axis=1)
    whole = own.copy()
    for node in inner[::-1]:
        whole[node] = np.logaddexp(own[node], whole[left[node]] + whole[right[node]]) - np.log(2.0)
    # From the root down: the share of the prunings above, and what is left of them at this node.
    left_over, mean = np.ones(len(shares)), np.zeros_like(shares)
    for node in inner:
        stops = 0.5 * np.exp(own[node] - whole[node])
        for child in (left[node], right[node]):
            mean[child] = mean[node] + left_over[node] * stops * shares[node]
            left_over[child] = left_over[node] * (1.0 - stops)
    return mean + left_over[:, None] * shares


def bostrom(shares: NDArray[np.float64], truth: NDArray[np.int64]) -> Callable[[NDArray[np.float64]], Any]:
    """Boström 2008: the largest share p becomes p + r (1 - p), the others p (1 - r); r by the least Brier score."""

    def adjusted(some: NDArray[np.float64], r: float) -> NDArray[np.float64]:
        found = some * (1 - r)
        found[np.arange(len(some)), some.argmax(axis=1)] += r
        return found

    own = np.eye(shares.shape[1])[truth]
    best = min(np.linspace(-1, 1, 201).tolist(), key=lambda r: float(((adjusted(shares, r) - own) ** 2).sum()))
    return lambda some: np.clip(adjusted(some, best), 0.0, 1.0)


def isotonic(shares: NDArray[np.float64], truth: NDArray[np.int64]) -> Callable[[NDArray[np.float64]], Any]:
    """An isotonic regression for each class against the rest, made to add up to 1."""
    from sklearn.isotonic import IsotonicRegression

    curves = [
        IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(column, truth == label)
        for label, column in enumerate(shares.T)
    ]

    def adjusted(some: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.stack([curve.predict(column) for curve, column in zip(curves, some.T, strict=True)], axis=1)
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0, found / np.where(total > 0, total, 1.0), 1.0 / some.shape[1])

    return adjusted


def fit_sklearn(train: pl.DataFrame, asked: Asked) -> Predict:
    """Classes ascend in scikit-learn, too."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    code = ordinal(train)

    def matrix(frame: pl.DataFrame) -> NDArray[np.float32]:
        return code(frame).drop(TARGET).cast(pl.Float32).to_numpy()

    kind = RandomForestClassifier if asked.classes else RandomForestRegressor
    learner = kind(asked.trees, n_jobs=asked.threads, random_state=asked.seed)
    learner.fit(matrix(train), train[TARGET].to_numpy())
    answer = learner.predict_proba if asked.classes else learner.predict
    return lambda frame: answer(matrix(frame))


def fit_ydf(train: pl.DataFrame, asked: Asked) -> Predict:
    import ydf

    ydf.verbose(0)
    learner = ydf.RandomForestLearner(
        label=TARGET,
        task=ydf.Task.CLASSIFICATION if asked.classes else ydf.Task.REGRESSION,
        num_trees=asked.trees,
        num_threads=asked.threads,
        random_seed=asked.seed + 1,
    )
    model = learner.train(ydf_columns(train) | {TARGET: train[TARGET].to_numpy()})

    def predict(frame: pl.DataFrame) -> NDArray[np.float64]:
        found = model.predict(ydf_columns(frame))
        if not asked.classes:
            return found
        shares = np.zeros((frame.height, len(asked.classes)))
        known = np.searchsorted(asked.classes, ydf_labels(model))
        shares[:, known] = np.stack([1 - found, found], axis=1) if found.ndim == 1 else found
        return shares

    return predict


def fit_lightgbm(train: pl.DataFrame, asked: Asked, seconds: float | None = None, **parameters: Any) -> Predict:
    """LightGBM's boosting.

    seconds     of the processor, for as many trees as fit into them: a fifth of the rows is held out, by which the best
                number of them is taken, and no more are grown when 100 have made it no better. None: the trees asked
                for, from all rows.
    parameters  what is not at its default.
    """
    import lightgbm

    end = math.inf if seconds is None else time.process_time() + seconds
    table = lightgbm_table(train)
    losses: list[float] = []

    def stop(state: Any) -> None:
        losses.append(state.evaluation_result_list[0][2])
        best = int(np.argmin(losses))
        if time.process_time() > end or len(losses) > best + 100:
            raise lightgbm.callback.EarlyStopException(best, state.evaluation_result_list)

    said = {"n_estimators": asked.trees, "n_jobs": asked.threads, "random_state": asked.seed, "verbose": -1}
    learner = (lightgbm.LGBMClassifier if asked.classes else lightgbm.LGBMRegressor)(**said | parameters)
    if seconds is None:
        learner.fit(table(train), train[TARGET].to_numpy())
    else:
        held, rest = _held_out(train, asked)
        learner.set_params(n_estimators=_MOST_ROUNDS)
        judged = {"eval_X": table(held), "eval_y": held[TARGET].to_numpy()}
        learner.fit(table(rest), rest[TARGET].to_numpy(), **judged, callbacks=[stop])
    answer = learner.predict_proba if asked.classes else learner.predict
    return lambda frame: answer(table(frame))


def fit_xgboost(train: pl.DataFrame, asked: Asked) -> Predict:
    """Its default is 100 trees a class, too."""
    import xgboost

    table, said = lightgbm_table(train), {"n_jobs": asked.threads, "random_state": asked.seed}
    learner = (xgboost.XGBClassifier if asked.classes else xgboost.XGBRegressor)(enable_categorical=True, **said)
    target = train[TARGET].to_numpy()
    learner.fit(table(train), np.searchsorted(asked.classes, target) if asked.classes else target)
    answer = learner.predict_proba if asked.classes else learner.predict
    return lambda frame: answer(table(frame))


def fit_catboost(train: pl.DataFrame, asked: Asked, **parameters: Any) -> Predict:
    """Its default of 1,000 trees is kept, because it sets its learning rate by the number of trees."""
    import catboost

    names, numbered = texts(train), lightgbm_table(train)

    def table(frame: pl.DataFrame) -> Any:
        found = numbered(frame)
        for name in names:
            found[name] = found[name].astype(object).where(found[name].notna(), "missing").astype(str)
        return found

    said = {"thread_count": asked.threads, "random_seed": asked.seed, "verbose": False, "allow_writing_files": False}
    kind = catboost.CatBoostClassifier if asked.classes else catboost.CatBoostRegressor
    learner = kind(cat_features=names, **said | parameters)
    learner.fit(table(train), train[TARGET].to_numpy())
    answer = learner.predict_proba if asked.classes else learner.predict
    return lambda frame: answer(table(frame))


def _held_out(train: pl.DataFrame, asked: Asked) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A fifth of the rows, drawn at random, and the others, among which is at least one of each class."""
    drawn = train.sample(fraction=1.0, shuffle=True, seed=asked.seed)
    first = drawn[TARGET].is_first_distinct() & bool(asked.classes)
    begin = train.height - train.height // 5
    held = (pl.int_range(train.height, eager=True) >= begin) & ~first
    return drawn.filter(held), drawn.filter(~held)


# More than fit into any time.
_MOST_ROUNDS = 100_000

FITS: dict[str, Callable[..., Predict]] = {
    "bigforest": fit_bigforest,
    "scikit-learn": fit_sklearn,
    "ydf": fit_ydf,
    "lightgbm-rf": partial(fit_lightgbm, boosting_type="rf", subsample_freq=1, subsample=0.632),
    "lightgbm": fit_lightgbm,
}
# Further libraries for boosting, in refine.py.
BOOSTED: dict[str, Callable[..., Predict]] = {"xgboost": fit_xgboost, "catboost": fit_catboost}
# What shrinkage is compared with (shrinkage.md).
SMOOTHED: dict[str, Callable[..., Predict]] = {
    "bigforest-min-leaf": fit_min_leaf,
    "bigforest-wildwood": fit_aggregated,
    "bigforest-bostrom": partial(fit_calibrated, method=bostrom),
    "bigforest-isotonic": partial(fit_calibrated, method=isotonic),
}
FORESTS = ("bigforest", "scikit-learn", "ydf", "lightgbm-rf")


def measure(contestant: str, parts: tuple[pl.DataFrame, pl.DataFrame], asked: Asked) -> dict[str, float | None]:
    """Scores and seconds of a contestant that learns from the first part and is asked about the second.

    Seconds are from frame to model (encoding and, where made unasked, out-of-bag figures included), and from frame to
    answers; cpu_seconds those of the processor, in all threads, of the former.
    """
    name, *given = contestant.split(":")
    train, test = parts
    begin, spent = time.perf_counter(), time.process_time()
    predict = (FITS | SMOOTHED | BOOSTED)[name](train, asked, **dict(map(option, given)))
    fitted, cpu = time.perf_counter(), time.process_time()
    found = predict(test)
    end = time.perf_counter()
    seconds = {"fit_seconds": fitted - begin, "cpu_seconds": cpu - spent, "predict_seconds": end - fitted}
    return seconds | scores(found, test[TARGET].to_numpy(), asked.classes)


def scores(found: NDArray[np.float64], truth: NDArray[Any], classes: list[int]) -> dict[str, float | None]:
    """Accuracy, log loss (shares at least the eps of float64), Brier score (halved of two classes) and of two classes
    the area under the curve; or R2."""
    from sklearn.metrics import r2_score, roc_auc_score

    if not classes:
        return {"score": float(r2_score(truth, found)), "log_loss": None, "brier": None, "auc": None}
    labels = np.array(classes)
    own = labels == truth[:, np.newaxis]
    held = np.where(own, found, 0.0).sum(axis=1)
    both = len(classes) == 2 and len(np.unique(truth)) == 2
    return {
        "score": float((labels[found.argmax(axis=1)] == truth).mean()),
        "log_loss": float(-np.log(np.clip(held, np.finfo(np.float64).eps, 1.0)).mean()),
        "brier": float(((found - own) ** 2).sum(axis=1).mean()) / (2 if len(classes) == 2 else 1),
        "auc": float(roc_auc_score(truth == labels[1], found[:, 1])) if both else None,
    }
