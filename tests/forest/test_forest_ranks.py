"""Forests on ranks: as if the columns had been replaced by their ranks, in training, out of bag and in prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import FormatError
from bigforest.forest.ranks import Ranks, average_ranks
from bigforest.predict.predictor import PartialVotes
from bigforest.predict.rows import check_schema
from tests.naive import ranks as naive
from tests.strategies import EXTREMES

FAMILIES: list[dict[str, Any]] = [
    {"family": "axis"},
    {"family": "sparse-oblique", "mean_difference": "consecutive", "projections": 4},
]


def table(rows: int = 300, seed: int = 0) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    signal = draw.normal(size=rows)
    return pl.DataFrame(
        {
            "a": signal + draw.normal(size=rows),
            "b": np.round(2 * signal + draw.normal(size=rows)),
            "c": draw.integers(0, 40, rows),
            "y": (signal + draw.normal(0, 0.5, rows) > 0).astype(int),
        }
    )


def ranked(frame: pl.DataFrame, training: pl.DataFrame) -> pl.DataFrame:
    """The features of `frame` replaced by their ranks in `training`."""
    new = {name: [naive.rank_of(value, training[name].to_list()) for value in frame[name].to_list()] for name in "abc"}
    return frame.with_columns(**{name: pl.Series(name, column, pl.Float64) for name, column in new.items()})


@given(st.lists(st.sampled_from([*EXTREMES, 0.5, 7.0]), min_size=1, max_size=12), st.data())
def test_ranks__are_those_of_the_oracle(column: list[float], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.sampled_from([*EXTREMES, *column, 0.25, 3.0]) | st.floats(allow_nan=False), min_size=1))
    distinct, counts = np.unique(column, return_counts=True)
    known = Ranks(np.array([0, distinct.size]), distinct, average_ranks(counts), len(column))
    assert known.of(0, np.array(column)).tolist() == naive.average_ranks(column)
    found = known.of(0, np.array([*new, np.nan]))
    assert np.isnan(found[-1])
    assert found[:-1].tolist() == [naive.rank_of(value, column) for value in new]
    assert (np.diff(known.of(0, np.sort(new))) >= 0).all()


@pytest.mark.parametrize("options", FAMILIES, ids=lambda options: options["family"])
def test_train__on_ranks_is_training_on_the_ranked_table(options: dict[str, Any]) -> None:
    training, new = table(120), table(40, seed=1).with_columns(pl.col("a") * 3)
    forest = bf.train(training, "y", trees=5, ranks=True, **options)
    plain = bf.train(ranked(training, training), "y", trees=5, **options)
    assert forest.nodes.collect().equals(plain.nodes.collect())
    assert forest.oob.rows.collect().equals(plain.oob.rows.collect())
    expected = plain.predict_proba(ranked(new, training))
    assert forest.predict_proba(new).equals(expected)
    assert forest.predict_proba(new.lazy()).collect().equals(expected)
    matrix = new.select("a", "b", "c").to_numpy()
    assert (forest.predict_proba(matrix) == expected.to_numpy()).all()


@pytest.mark.parametrize("options", FAMILIES, ids=lambda options: options["family"])
def test_train__on_ranks_does_not_see_a_monotone_change(options: dict[str, Any]) -> None:
    plain = table()
    bent = plain.with_columns(pl.col("a").exp(), pl.col("b") ** 3, pl.col("c").cast(pl.Float64).sqrt() * 1e-9)
    one, other = (bf.train(frame, "y", trees=5, ranks=True, **options) for frame in (plain, bent))
    assert one.nodes.collect().equals(other.nodes.collect())
    assert one.predict(plain).equals(other.predict(bent))


def test_forest__on_ranks_is_written_and_read(tmp_path: Path) -> None:
    forest = bf.train(table(), "y", trees=3, ranks=True, max_bins=16, out=tmp_path / "one")
    forest.write(tmp_path / "two")
    again = bf.read_forest(tmp_path / "two")
    assert again.predict_proba(table()).equals(forest.predict_proba(table()))
    knots = pl.read_parquet(tmp_path / "two" / "ranks.parquet").filter(pl.col("feature") == 0)
    assert 16 < knots.height <= 32
    assert knots["value"].is_sorted()
    assert knots["rank"].n_unique() == 16


def test_read_ranks__refuses_damage(tmp_path: Path) -> None:
    bf.train(table(), "y", trees=2, ranks=True, out=tmp_path / "f")
    path = tmp_path / "f" / "ranks.parquet"
    found = pq.read_table(path)
    feature = found["feature"].to_numpy()
    reversed_columns = [(name, found[name].to_numpy()[::-1]) for name in ("value", "rank", "feature")]
    for name, column in [*reversed_columns, ("feature", np.maximum(feature, 1)), ("feature", feature + 2**31)]:
        changed = found.set_column(found.schema.get_field_index(name), found.schema.field(name), [column])
        pq.write_table(changed, path)
        with pytest.raises(FormatError, match="not ascending for each feature"):
            bf.read_forest(tmp_path / "f").predict(table())
    path.unlink()
    with pytest.raises(FormatError, match=r"ranks\.parquet is missing"):
        bf.read_forest(tmp_path / "f")


def test_voting__adds_votes_on_ranks() -> None:
    forest = bf.train(table(), "y", trees=5, ranks=True, vote="hard")
    predictor, new = forest.loader.predictor(forest.rules.make(None)), table(50, seed=2)
    found = check_schema(new.schema, forest.spec)
    rows = forest.reader.frame(new, found, predictor.packed.used)
    votes = np.zeros((50, 2))
    predictor.add(rows, PartialVotes(votes, None, None), 1)
    assert (votes / 5 == forest.predict_proba(new).to_numpy()).all()
