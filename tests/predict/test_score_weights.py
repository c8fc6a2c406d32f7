"""Scores of predictions weigh rows where the table has the weights of training."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, precision_score, r2_score, roc_auc_score

import bigforest
from bigforest.events import Event, Notice
from bigforest.predict.score import FilePrediction


def frame(seed: int, rows: int = 900) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    noise = draw.normal(size=(rows, 3))
    return pl.DataFrame(
        {
            "a": noise[:, 0],
            "b": noise[:, 1],
            "w": np.where(draw.random(rows) < 0.1, 0.0, 10.0 ** draw.uniform(-4, 4, rows)),
            "y": pl.Series(np.where(noise[:, 0] + noise[:, 2] > 0, "yes", "no")),
            "z": noise[:, 0] * 3 + noise[:, 2],
        }
    )


@cache
def grown(target: str) -> bigforest.Forest:
    """The weighted forest of twenty trees that tests of a target share."""
    return grown_with(target)


def grown_with(target: str, **options: Any) -> bigforest.Forest:
    other = "z" if target == "y" else "y"
    return bigforest.train(frame(1), target, weight="w", trees=20, exclude=[other], min_leaf=5, **options)


def scored(
    table: pl.DataFrame, out: Path, target: str, forest: bigforest.Forest | None = None
) -> tuple[FilePrediction, pl.DataFrame]:
    done = bigforest.predict_file(forest or grown(target), table, out, proba=target == "y", overwrite=True)
    return done, pl.read_parquet(out)


@pytest.mark.parametrize("class_weight", [None, {"yes": 3.0, "no": 0.5}])
def test_predict_file__scores_of_classes_by_weight(tmp_path: Path, class_weight: Any) -> None:
    table = frame(2).with_columns(y=pl.when(pl.int_range(pl.len()) % 9 > 0).then("y"))
    forest = grown_with("y", class_weight=class_weight) if class_weight else None
    done, answers = scored(table, tmp_path / "p", "y", forest)
    known = table["y"].is_not_null() & (table["w"] > 0)
    truth, answers = table["y"].filter(known), answers.filter(known)
    weight = table["w"].filter(known) * truth.replace_strict(class_weight or {"yes": 1.0, "no": 1.0})
    own = {"sample_weight": weight.to_numpy()}
    assert (done.weighted, done.scored) == (True, len(truth))
    assert done.accuracy == pytest.approx(accuracy_score(truth, answers["prediction"], **own), rel=1e-9)
    assert done.log_loss == pytest.approx(log_loss(truth, answers.select("p_no", "p_yes"), **own), rel=1e-6)
    assert done.metrics[-1]["auc"] == pytest.approx(roc_auc_score(truth == "yes", answers["p_yes"], **own), rel=1e-9)
    precision = precision_score(truth, answers["prediction"], pos_label="yes", **own)
    assert done.metrics[1]["precision"] == pytest.approx(precision, rel=1e-9)
    assert abs(done.accuracy - accuracy_score(truth, answers["prediction"])) > 1e-3


def test_predict_file__scores_of_numbers_by_weight(tmp_path: Path) -> None:
    table = frame(2)
    done, answers = scored(table, tmp_path / "p", "z")
    own = {"sample_weight": table["w"].to_numpy()}
    assert done.weighted
    assert done.scored == (table["w"] > 0).sum()
    assert done.mse == pytest.approx(mean_squared_error(table["z"], answers["prediction"], **own), rel=1e-9)
    assert done.r2 == pytest.approx(r2_score(table["z"], answers["prediction"], **own), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "by"),
    [
        ({"weight": "w"}, "'w'"),
        ({"class_weight": {"yes": 3.0}, "exclude": ["w", "z"]}, "class_weight"),
        ({"weight": "w", "class_weight": "balanced"}, "'w' and class_weight"),
        ({"exclude": ["w", "z"]}, None),
    ],
    ids=str,
)
def test_predict_file__a_notice_says_that_rows_count_alike(
    tmp_path: Path, options: dict[str, Any], by: str | None
) -> None:
    table, heard = frame(2, 90), list[Event]()
    forest = bigforest.train(table, "y", trees=2, **{"exclude": ["z"], **options})
    done = bigforest.predict_file(forest, table.drop("w"), tmp_path / "p", listener=heard.append)
    assert done.accuracy is not None and not done.weighted
    told = [event.message for event in heard if isinstance(event, Notice)]
    alike = "the metrics count all rows alike; training and the out-of-bag report weight them by"
    assert told == ([f"{alike} {by}"] if by else [])


def test_predict_file__without_weights_rows_count_alike(tmp_path: Path) -> None:
    table = frame(2)
    done, answers = scored(table.drop("w"), tmp_path / "p", "y")
    assert (done.weighted, done.scored) == (False, len(table))
    assert done.accuracy == pytest.approx((answers["prediction"] == table["y"]).mean())
    for wrong in (pl.lit(-1.0), pl.lit(None, pl.Float64), pl.lit("heavy"), pl.lit(0.0)):
        done, _ = scored(table.with_columns(w=wrong), tmp_path / "p", "y")
        assert (done.weighted, done.accuracy, done.rows) == (False, None, len(table))
        assert done.unscored is not None and "weight" in done.unscored


def test_predict_file__labels_of_weightless_rows_are_not_looked_at(tmp_path: Path) -> None:
    table = frame(2)
    done, _ = scored(table, tmp_path / "p", "y")
    odd = table.with_columns(y=pl.when(pl.col("w") == 0).then(pl.lit("never")).otherwise("y"))
    assert scored(odd, tmp_path / "q", "y")[0] == done and done.scored


def test_predict_file__numbers_against_text(tmp_path: Path) -> None:
    done, _ = scored(frame(2).with_columns(z=pl.lit("many")), tmp_path / "p", "z")
    assert (done.scored, done.mse) == (0, None)
    assert done.unscored == "the forest predicts the number 'z', which is String in the table; convert it"
