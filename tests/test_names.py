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

__all__ = ["folder", "run"]

NAMES = ["^a$", "*", "^g.*$", "", " ", "a.b", "é", "q\"'\n", "[b]"]
ROLES = ["feature", "category", "target", "group", "weight", "exclude"]
# Tables of which each role has another name: together every role has every name.
TABLES = [{role: NAMES[(first + at) % len(NAMES)] for at, role in enumerate(ROLES)} for first in range(len(NAMES))]
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
    """Five trees on the table whose columns are called by their roles."""
    return grown(table())


def csv(data: pl.DataFrame, folder: Path) -> Path:
    data.write_csv(folder / "table.csv", quote_style="always")
    return folder / "table.csv"


def ndjson(data: pl.DataFrame, folder: Path) -> Path:
    data.write_ndjson(folder / "table.ndjson")
    return folder / "table.ndjson"


def arrow(data: pl.DataFrame, folder: Path) -> Path:
    data.write_ipc(folder / "table.arrow")
    return folder / "table.arrow"


def parquet(data: pl.DataFrame, folder: Path) -> Path:
    data.write_parquet(folder / "table.parquet")
    return folder / "table.parquet"


# Tables that have types, and files of text and others, whose names alone are tested.
TYPED: list[Callable[[pl.DataFrame, Path], Any]] = [
    lambda data, _: data,
    lambda data, _: data.lazy(),
    lambda data, _: data.to_arrow(),
    parquet,
]
FILES = [csv, ndjson, arrow]


# Two kinds of each table, in turn: each name is read in each role from two kinds, and from each kind in some role.
@pytest.mark.parametrize("number", range(len(TABLES)))
def test_any_name_in_any_role__same_trees(number: int, expected: bigforest.Forest, tmp_path: Path) -> None:
    names, data = TABLES[number], table(**TABLES[number])
    back = {names[role]: role for role in ("feature", "category")}
    for place in (number, number + 1):
        found = grown(TYPED[place % len(TYPED)](data, tmp_path), **names)
        nodes = found.nodes.collect().with_columns(pl.col("feature").cast(pl.String).replace(back))
        assert nodes.equals(expected.nodes.collect().with_columns(pl.col("feature").cast(pl.String)))
        assert found.oob.metrics.equals(expected.oob.metrics)
    _check_predictions(found, data, expected.predict(table())["prediction"], list(names.values()))


def _check_predictions(forest: bigforest.Forest, data: pl.DataFrame, wanted: pl.Series, names: list[str]) -> None:
    """Eager, lazy, as an expression, and streamed; columns of these names are kept."""
    kept = data[names]
    for given in (forest.predict(data, keep=names), forest.predict(data.lazy(), keep=names).collect()):
        assert given.equals(kept.with_columns(wanted))
    shares = forest.predict_proba(data.lazy(), keep=names).collect()
    assert all(shares[name].equals(data[name]) for name in names)
    lazy = data.lazy().with_columns(answer=forest.expr()).collect(engine="streaming")
    assert lazy.drop("answer").equals(data) and lazy["answer"].equals(wanted.alias("answer"))


def test_expr__row_of_any_name(expected: bigforest.Forest) -> None:
    data = table()
    wanted = expected.predict(data, vote="stochastic")["prediction"]
    for name in NAMES:
        numbered = data.with_columns(pl.int_range(len(data)).alias(name))
        assert numbered.select(expected.expr(vote="stochastic", row=name)).to_series().equals(wanted), name


def numbered_columns(*columns: str) -> pl.DataFrame:
    """These columns once for each name, in another order, as `3 feature` for the fourth; and the target."""
    data = table()
    drawn = [data[one].shuffle(seed=at).alias(f"{at} {one}") for at in range(len(NAMES)) for one in columns]
    return data.select(*drawn, "group", "weight", "target")


def test_categories__of_any_name() -> None:
    plain = numbered_columns("feature")
    renamed = {f"{at} feature": name for at, name in enumerate(NAMES)}
    data = plain.rename(renamed)
    expected = bigforest.train(plain, "target", trees=3, categories=list(renamed), min_level=1)
    forest = bigforest.train(data, "target", trees=3, categories=NAMES, min_level=1)
    assert forest.features["kind"].equals(expected.features["kind"])
    assert forest.features["importance"].equals(expected.features["importance"])
    wanted = expected.predict(plain)
    assert forest.predict(data).equals(wanted) and forest.predict(data.lazy()).collect().equals(wanted)


def test_nested_columns__of_any_name(tmp_path: Path) -> None:
    plain = numbered_columns("feature", "a", "g1")
    inner = [
        pl.struct(pl.col(f"{at} feature").alias(name), a=f"{at} a", g1=f"{at} g1").alias(name)
        for at, name in enumerate(NAMES)
    ]
    nested = plain.select(*inner, pl.concat_arr("group", "weight").alias("x"), "target")
    forest = bigforest.train(plain, "target", trees=3)
    wanted = forest.predict(plain)
    for given in (nested, parquet(nested, tmp_path)):
        found = bigforest.train(given, "target", trees=3)
        assert found.features["name"][: 3 * len(NAMES) : 3].to_list() == [f"{name}.{name}" for name in NAMES]
        assert found.features["importance"].equals(forest.features["importance"])
        assert found.predict(nested).equals(wanted) and found.predict(nested.lazy()).collect().equals(wanted)


def test_columns_named__each_flat_column_is_its_own() -> None:
    inner = {name: number for number, name in enumerate(NAMES)}
    data = pl.DataFrame({"^s$": [{**inner, "deep": inner}], "s": [0]})
    found = flat_columns(data.schema)
    row = data.lazy().select(column.expr.alias(name) for name, column in found.items()).collect().row(0)
    assert row == (*range(len(NAMES)), *range(len(NAMES)), 0)
    assert data.lazy().select(columns_named(["s", "^s$"])).collect_schema().names() == ["s", "^s$"]


@pytest.mark.parametrize("make", [*TYPED, *FILES])
def test_source__gives_columns_by_their_names(make: Callable[..., Any], tmp_path: Path) -> None:
    names = [*NAMES, *DECOYS]
    data = pl.DataFrame({name: [float(number), -1.0, 2.5] for number, name in enumerate(names)})
    source = open_source(make(data, tmp_path), scratch=tmp_path)
    assert list(source.schema) == names
    for some in (names, names[::-1], *([name] for name in names)):
        assert source.columns(some).equals(data[some])
        assert pl.concat(source.batches(some, 2)).equals(data[some])


@pytest.mark.parametrize("names", TABLES, ids=lambda names: names["target"])
def test_command_line__any_name_in_any_role(run: Run, folder: Path, names: dict[str, str]) -> None:
    table(**names).write_parquet("table.parquet")
    options = [word for role in ("target", "group", "weight", "exclude") for word in (f"--{role}", names[role])]
    text = run("train", "table.parquet", *options, "--trees", "3", "--out", "t.forest").out
    assert sum(line.startswith("target") for line in text.splitlines()) == 1
    Path("table.parquet").rename("new.parquet")  # rows of training would be told of
    assert run.json("inspect", "t.forest")["target"] == names["target"]
    run("inspect", "t.forest", "--features")
    assert (run.code, run.err) == (0, "")
    keep = [word for name in names.values() for word in ("--keep", name)]
    scored = run.json("predict", "t.forest", "new.parquet", *keep, "--out", "p.parquet")
    assert scored["accuracy"] > 0.8
    assert pl.read_parquet("p.parquet").columns == [*names.values(), "prediction"]
    assert run("validate", "t.forest", "new.parquet").code == 0
    assert run("plan", "new.parquet", *options).code in (0, 1)
    for command in ("prune", "calibrate"):
        assert run(command, "t.forest", "new.parquet", "--out", f"{command}.forest").code == 0, run.err
