"""A name is a name, in every role and interface: also one that Polars takes for a pattern of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.columns.types import columns_named, flat_columns
from bigforest.source.open import open_source
from tests.commands import Run, folder, run
from tests.thorough import cases

__all__ = ["folder", "run"]

NAMES = ["^a$", "*", "^g.*$", "", " ", "a.b", "é", "q\"'\n", "[b]"]
ROLES = ["feature", "category", "target", "group", "weight", "exclude"]
# Every role with one name, and every name in one role; the other pairs are tried in a thorough run.
FIRST = [(role, NAMES[0]) for role in ROLES] + [(ROLES[at % len(ROLES)], NAMES[at]) for at in range(1, len(NAMES))]
PAIRS = FIRST + [(role, name) for name in NAMES for role in ROLES if (role, name) not in FIRST]
# Columns that the names would stand for as patterns: another one found instead shows in the trees.
DECOYS = ("a", "g1")


def table(**names: str) -> pl.DataFrame:
    """A column for each role, called by its role or as told, and decoys."""
    draw = np.random.default_rng(3)
    rows = 90
    feature = draw.integers(0, 40, rows)
    columns = {
        **{decoy: draw.normal(size=rows) for decoy in DECOYS},
        "feature": feature,
        "category": draw.choice(["x", "y", "z"], rows),
        "group": draw.integers(0, 12, rows),
        "weight": draw.integers(1, 5, rows),
        "exclude": np.where(feature + draw.normal(size=rows) < 20, "small", "large"),
        "target": np.where(feature < 20, "small", "large"),
    }
    return pl.DataFrame({names.get(role, role): values for role, values in columns.items()})


def grown(data: Any, **names: str) -> bigforest.Forest:
    roles = {role: names.get(role, role) for role in ROLES}
    return bigforest.train(
        data, roles["target"], group=roles["group"], weight=roles["weight"], exclude=[roles["exclude"]], trees=5
    )


@pytest.fixture(scope="module")
def expected() -> bigforest.Forest:
    return grown(table())


@pytest.mark.parametrize(("role", "name"), cases(PAIRS, quick=len(FIRST)))
def test_any_name_in_any_role__same_trees(role: str, name: str, expected: bigforest.Forest, tmp_path: Path) -> None:
    data = table(**{role: name})
    data.write_parquet(tmp_path / "table.parquet")
    back = {name: role} if role in ("feature", "category") else {}
    for given in (data, data.lazy(), data.to_arrow(), tmp_path / "table.parquet"):
        found = grown(given, **{role: name})
        nodes = found.nodes.collect().with_columns(pl.col("feature").cast(pl.String).replace(back))
        assert nodes.equals(expected.nodes.collect().with_columns(pl.col("feature").cast(pl.String)))
        assert found.oob.metrics.equals(expected.oob.metrics)
    _check_predictions(found, data, expected.predict(table())["prediction"], name)


def _check_predictions(forest: bigforest.Forest, data: pl.DataFrame, wanted: pl.Series, name: str) -> None:
    """Eager, lazy, as an expression, and streamed; columns of this name are kept."""
    kept = data[name]
    for given in (forest.predict(data, keep=[name]), forest.predict(data.lazy(), keep=[name]).collect()):
        assert given.columns == [name, "prediction"]
        assert given[name].equals(kept) and given["prediction"].equals(wanted)
    assert forest.predict_proba(data.lazy(), keep=[name]).collect()[name].equals(kept)
    lazy = data.lazy().with_columns(answer=forest.expr()).collect(engine="streaming")
    assert lazy.drop("answer").equals(data) and lazy["answer"].equals(wanted.alias("answer"))


@pytest.mark.parametrize("name", NAMES)
def test_expr__row_of_any_name(name: str) -> None:
    data = table()
    forest = bigforest.train(data, "target", trees=3)
    numbered = data.with_columns(pl.int_range(len(data)).alias(name))
    found = numbered.select(forest.expr(vote="stochastic", row=name)).to_series()
    assert found.equals(forest.predict(data, vote="stochastic")["prediction"])


@pytest.mark.parametrize("name", NAMES)
def test_categories__of_any_name(name: str) -> None:
    data = table(feature=name)
    expected = bigforest.train(table(), "target", trees=3, categories=["feature"], min_level=1)
    forest = bigforest.train(data, "target", trees=3, categories=[name], min_level=1)
    assert forest.features["kind"].equals(expected.features["kind"])
    assert forest.predict(data).equals(expected.predict(table()))
    assert forest.predict(data.lazy()).collect().equals(expected.predict(table()))


@pytest.mark.parametrize("name", NAMES)
def test_nested_columns__of_any_name(name: str, tmp_path: Path) -> None:
    data = table().drop("exclude", "category")
    inner = pl.struct(pl.col("feature").alias(name), "a", "g1")
    nested = data.select(inner.alias(name), pl.concat_arr("group", "weight").alias("x"), "target")
    forest = bigforest.train(data.select("feature", "a", "g1", "group", "weight", "target"), "target", trees=3)
    nested.write_parquet(tmp_path / "table.parquet")
    for given in (nested, tmp_path / "table.parquet"):
        found = bigforest.train(given, "target", trees=3)
        assert found.features["name"][0] == f"{name}.{name}"
        assert found.features["importance"].equals(forest.features["importance"])
    wanted = forest.predict(data)
    assert found.predict(nested).equals(wanted) and found.predict(nested.lazy()).collect().equals(wanted)


def test_columns_named__each_flat_column_is_its_own() -> None:
    inner = {name: number for number, name in enumerate(NAMES)}
    data = pl.DataFrame({"^s$": [{**inner, "deep": inner}], "s": [0]})
    found = flat_columns(data.schema)
    row = data.lazy().select(column.expr.alias(name) for name, column in found.items()).collect().row(0)
    assert row == (*range(len(NAMES)), *range(len(NAMES)), 0)
    assert data.lazy().select(columns_named(["s", "^s$"])).collect_schema().names() == ["s", "^s$"]


def csv(data: pl.DataFrame, path: Path) -> Path:
    data.write_csv(path / "table.csv", quote_style="always")
    return path / "table.csv"


def ndjson(data: pl.DataFrame, path: Path) -> Path:
    data.write_ndjson(path / "table.ndjson")
    return path / "table.ndjson"


def arrow(data: pl.DataFrame, path: Path) -> Path:
    data.write_ipc(path / "table.arrow")
    return path / "table.arrow"


def parquet(data: pl.DataFrame, path: Path) -> Path:
    data.write_parquet(path / "table.parquet")
    return path / "table.parquet"


@pytest.mark.parametrize("write", [csv, ndjson, arrow, parquet])
def test_source__gives_columns_by_their_names(write: Callable[..., Path], tmp_path: Path) -> None:
    names = [*NAMES, *DECOYS]
    data = pl.DataFrame({name: [float(number), -1.0, 2.5] for number, name in enumerate(names)})
    source = open_source(write(data, tmp_path), scratch=tmp_path)
    assert list(source.schema) == names
    for some in (names, names[::-1], *([name] for name in names)):
        assert source.columns(some).equals(data[some])
        assert pl.concat(source.batches(some, 2)).equals(data[some])
        assert pl.concat(source.batches(some, 2)).equals(data[some])


@pytest.mark.parametrize(("role", "name"), cases(PAIRS, quick=len(FIRST)))
def test_command_line__any_name_in_any_role(run: Run, folder: Path, role: str, name: str) -> None:
    table(**{role: name}).write_parquet("table.parquet")
    told = {one: name if one == role else one for one in ROLES}
    options = [word for one in ("target", "group", "weight", "exclude") for word in (f"--{one}", told[one])]
    facts = run.json("train", "table.parquet", *options, "--trees", "3", "--out", "t.forest")
    assert facts["target"] == told["target"]
    Path("table.parquet").rename("new.parquet")  # rows of training would be told of
    run("inspect", "t.forest", "--features")
    assert (run.code, run.err) == (0, "")
    scored = run.json("predict", "t.forest", "new.parquet", "--keep", name, "--out", "p.parquet")
    assert scored["accuracy"] > 0.8
    assert pl.read_parquet("p.parquet").columns == [name, "prediction"]
    assert run("validate", "t.forest", "new.parquet").code == 0
    assert run("plan", "new.parquet", *options).code in (0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_command_line__target_of_any_name(run: Run, folder: Path, name: str) -> None:
    table(target=name).write_parquet("table.parquet")
    text = run("train", "table.parquet", "--target", name, "--trees", "3", "--out", "t.forest", "--overwrite").out
    assert sum(line.startswith("target") for line in text.splitlines()) == 1
    assert run("prune", "t.forest", "table.parquet", "--out", "pruned.forest").code == 0
    assert run("calibrate", "t.forest", "table.parquet", "--out", "calibrated.forest").code == 0
