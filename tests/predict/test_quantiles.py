"""Quantiles of predicted numbers: the kernel, whole forests beside the oracle, every way to ask, and damaged files."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest
from bigforest.errors import ConfigError, DataError, FormatError
from bigforest.forest.format import LEAF_TARGETS, TARGET_VALUES
from bigforest.forest.leaf_targets import read_targets
from bigforest.kernels.predict.quantile import add_up_leaves, find_quantiles
from bigforest.predict.forest import Forest
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Store
from tests.commands import Run, folder, run
from tests.naive.predict import is_missing
from tests.naive.quantile import quantile
from tests.thorough import examples
from tests.training.test_run import files

__all__ = ["folder", "run"]  # fixtures

COMPILED = not numba.config.DISABLE_JIT
compiled = pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
SHARES = (0.0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 1.0)

Leaf = dict[int, int]
# So small that the sums of shares of 7 trees are equal, or differ by more than the steps they are counted in.
LEAVES = st.dictionaries(st.integers(0, 30), st.sampled_from([1, 1, 1, 2, 7]), min_size=1, max_size=5)


def laid_out(leaves: list[Leaf]) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint32]]:
    """The leaves as the kernels take them."""
    start = np.cumsum([0, *map(len, leaves)]).astype(np.uint64)
    code = np.array([code for leaf in leaves for code in sorted(leaf)], np.uint32)
    weight = np.array([leaf[code] for leaf in leaves for code in sorted(leaf)], np.uint32)
    return start, code, weight


@settings(max_examples=examples(300 if COMPILED else 40), deadline=None)
@given(st.lists(LEAVES, min_size=1, max_size=9), st.data())
def test_find_quantiles__as_the_oracle(leaves: list[Leaf], draw: st.DataObject) -> None:
    start, code, reach = laid_out(leaves)
    value = np.linspace(-3.0, 9.0, 31)
    with np.errstate(over="ignore"):
        assert add_up_leaves(start, code, reach, np.uint64(31))
        rows = draw.draw(st.lists(st.lists(st.integers(0, len(leaves) - 1), min_size=1, max_size=7), min_size=1))
        for row in rows:
            out = np.empty((1, len(SHARES)))
            find_quantiles(np.array([row], np.uint32), start, code, reach, value, np.array(SHARES), out)
            own = [{float(value[code]): weight for code, weight in leaves[leaf].items()} for leaf in row]
            assert out[0].tolist() == [quantile(own, share) for share in SHARES]


@pytest.mark.parametrize(
    "leaves",
    [[{0: 1}, {}], [{31: 1}], [{1: 2**32 - 1, 2: 1}], [{1: 0, 2: 5}]],
    ids=["empty", "no such target", "too heavy", "no weight"],
)
def test_add_up_leaves__refuses(leaves: list[Leaf]) -> None:
    with np.errstate(over="ignore"):
        assert not add_up_leaves(*laid_out(leaves), np.uint64(31))


def test_add_up_leaves__targets_out_of_order() -> None:
    start = np.array([0, 2], np.uint64)
    for codes in ([3, 3], [4, 3]):
        with np.errstate(over="ignore"):
            assert not add_up_leaves(start, np.array(codes, np.uint32), np.ones(2, np.uint32), np.uint64(31))


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    """Numbers and a category with gaps, weights, and a target of many or few values."""
    random = np.random.default_rng(seed)
    size, kind = random.integers(0, 30, rows), random.integers(0, 5, rows)
    target = np.round(size / 3 + kind + random.gamma(1.0, 2.0, rows), 1)
    return pl.DataFrame(
        {
            "size": np.where(random.random(rows) < 0.1, np.nan, size),
            "kind": pl.Series([None if cell == 4 else f"k{cell}" for cell in kind], dtype=pl.String),
            "noise": random.normal(size=rows),
            "w": random.choice([0.5, 1.0, 2.5], rows),
            "y": target,
        }
    )


def leaf_of(nodes: list[dict[str, Any]], row: dict[str, Any]) -> int:
    """The leaf a row ends in, from the rows of the forest's table of one tree."""
    node = nodes[0]
    while node["kind"] != "leaf":
        cell = row[node["feature"]]
        if node["kind"] == "category":
            left = node["default_left"] != (cell in node["levels"])
        else:
            left = node["default_left"] if is_missing(cell) else cell <= node["threshold"]
        node = nodes[node["left"] if left else node["right"]]
    return int(node["node"])


def naive_quantiles(forest: Forest, store: Store, table: pl.DataFrame, new: pl.DataFrame) -> list[list[float]]:
    """Of the rows `new`; `table` is the one that the store was made of, without rows left out."""
    sampler = Sampler(store, forest.config)
    trees = forest.nodes.collect().partition_by("tree", maintain_order=True)
    target = store.spec.target
    values = (target.values(store.target) if target.exact else store.numbers(0, store.rows)).tolist()
    weights = [1] * store.rows if store.weight is None else store.weight.tolist()
    rows, asked = table.rows(named=True), new.rows(named=True)
    reached: list[list[dict[float, int]]] = [[] for _ in asked]
    for number, nodes in enumerate(tree.rows(named=True) for tree in trees):
        leaves: dict[int, dict[float, int]] = {}
        for row, value, weight, times in zip(rows, values, weights, sampler.bag(number).tolist(), strict=True):
            if times:
                leaf = leaves.setdefault(leaf_of(nodes, row), {})
                leaf[value] = leaf.get(value, 0) + weight * times
        for found, row in zip(reached, asked, strict=True):
            found.append(leaves[leaf_of(nodes, row)])
    return [[quantile(leaves, share) for share in SHARES] for leaves in reached]


@compiled
@settings(max_examples=examples(15), deadline=None)
@given(
    rows=st.integers(2, 120),
    seed=st.integers(0, 2**31),
    weighted=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "trees": st.integers(1, 6),
            "min_leaf": st.sampled_from([1, 5]),
            "splitter": st.sampled_from(["best", "random"]),
            "max_depth": st.sampled_from([None, 0, 2]),
            "bootstrap": st.booleans(),
            "max_bins": st.sampled_from(["exact", 4]),
        }
    ),
)
def test_predict__quantiles_of_any_table(rows: int, seed: int, weighted: bool, options: dict[str, Any]) -> None:
    table = frame(rows, seed)
    if table["y"].n_unique() < 2:
        return
    table = table if weighted else table.drop("w")
    told = {"weight": "w"} if weighted else {}
    with tempfile.TemporaryDirectory() as folder:
        store = bigforest.encode_store(
            table, Path(folder) / "s", target="y", max_bins=options["max_bins"], **told, scheduler="threads"
        )
        forest = bigforest.train(store, keep_targets=True, threads=1, scheduler="threads", **options)
        new = frame(15, seed + 1)
        found = forest.predict(new, quantiles=SHARES, threads=1)
        assert found.columns == ["prediction", *(f"q{share!r}" for share in SHARES)]
        assert found["prediction"].equals(forest.predict(new)["prediction"])
        expected = naive_quantiles(forest, store, table, new)
        assert [list(row) for row in found.drop("prediction").rows()] == expected


OPTIONS: dict[str, Any] = {"target": "y", "trees": 30, "seed": 4, "keep_targets": True, "exclude": ["w"]}


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Forest:
    out = tmp_path_factory.mktemp("quantiles") / "f"
    bigforest.train(frame(2_000), out=out, threads=2, scheduler="threads", **OPTIONS)
    return bigforest.read_forest(out)


@compiled
def test_predict__quantiles_of_every_kind_of_table(forest: Forest, tmp_path: Path) -> None:
    new = frame(700, 1)
    asked: dict[str, Any] = {"quantiles": [0.1, 0.5, 0.9]}
    expected = forest.predict(new, **asked, threads=1)
    assert (expected["q0.1"] <= expected["q0.5"]).all()
    assert 0.7 < (expected["q0.9"] >= new["y"]).mean() < 0.98
    assert forest.predict(new, **asked, threads=2).equals(expected)
    assert (
        forest.predict(new.lazy(), **asked, keep=["y"])
        .collect()
        .equals(pl.concat([new.select("y"), expected], how="horizontal"))
    )
    array = forest.predict(new.select("size", "kind", "noise").to_numpy(), **asked)
    assert array.shape == (700, 3)
    assert (array == expected.drop("prediction").to_numpy()).all()
    assert forest.predict(new.head(0), **asked).schema == expected.schema
    new.write_parquet(tmp_path / "new.parquet")
    done = bigforest.predict_file(forest, tmp_path / "new.parquet", tmp_path / "p", keep="y", **asked)
    assert done.mse is not None
    assert pl.read_parquet(tmp_path / "p").equals(pl.concat([new.select("y"), expected], how="horizontal"))


@compiled
def test_predict__quantiles_within_a_budget(forest: Forest, tmp_path: Path) -> None:
    new = frame(9_000, 1)
    asked: dict[str, Any] = {"quantiles": [0.5, 0.05]}
    expected = forest.predict(new, **asked)

    def least(**options: Any) -> int:
        """Megabytes that the message about a smaller budget names."""
        with pytest.raises(ConfigError) as caught:
            forest.predict(new, **options, memory="201MB", threads=1)
        found = re.search(r"the stage predict needs at least (\d+)MB", str(caught.value))
        assert found is not None
        return int(found[1])

    assert least(**asked) > least()  # leaves of rows are kept between groups
    for memory in (f"{least(**asked)}MB", "2GB"):
        assert forest.predict(new, **asked, memory=memory, threads=1).equals(expected)


@compiled
def test_train__targets_do_not_depend_on_the_run(forest: Forest, tmp_path: Path) -> None:
    expected = files(forest.directory)
    assert sum(name.startswith("targets/") for name in expected) > 2
    options = OPTIONS | {"trees": 12}
    bigforest.train(frame(2_000), out=tmp_path / "f", threads=1, memory="2GB", **options)
    bigforest.train(frame(2_000), resume=tmp_path / "f", trees=30, threads=2)
    assert files(tmp_path / "f") == expected
    forest.write(tmp_path / "copy")
    assert files(tmp_path / "copy") == expected


@compiled
def test_merge__targets_of_both(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        bigforest.train(frame(300), out=tmp_path / name, **OPTIONS | {"trees": 3, "seed": seed})
    both = bigforest.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert both.trees == 6
    targets = [read_targets(path, own.files.header, None, mapped=False) for path, own in opened(tmp_path)]
    assert np.array_equal(targets[2].code, np.concatenate([own.code for own in targets[:2]]))
    assert np.array_equal(targets[2].first, np.append(targets[0].first[:-1], targets[1].first + targets[0].first[-1]))
    assert both.predict(frame(20, 5), quantiles=[0.5]).columns == ["prediction", "q0.5"]


def opened(folder: Path) -> list[tuple[Path, Forest]]:
    return [(folder / name, bigforest.read_forest(folder / name)) for name in "abc"]


def rewritten(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change the rows of a file, and keep its metadata, columns and what else is said of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    made = change(pl.DataFrame(pl.from_arrow(table))).to_arrow()
    columns = [made[name].combine_chunks() for name in table.column_names]
    lists = [
        pa.ListArray.from_arrays(
            pa.array(column.offsets.to_numpy().astype(np.int32)), column.values.cast(pa.uint32()), type=field.type
        )
        if pa.types.is_list(field.type)
        else column.cast(field.type)
        for column, field in zip(columns, table.schema, strict=True)
    ]
    pq.write_table(pa.Table.from_arrays(lists, schema=table.schema), path)


@compiled
@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("leaves", lambda f: f.head(len(f) - 1), "are not the leaves of the trees"),
        ("leaves", lambda f: f.with_columns(pl.col("node").reverse()), "are not the leaves of the trees"),
        ("leaves", lambda f: f.with_columns(node=pl.col("node") + 1), "are not the leaves of the trees"),
        ("leaves", lambda f: f.reverse(), "do not match"),
        ("leaves", lambda f: f.with_columns(pl.col("targets").list.eval(pl.element() + 10**6)), "do not match"),
        ("leaves", lambda f: f.with_columns(pl.col("targets").list.reverse()), "do not match"),
        ("leaves", lambda f: f.with_columns(pl.col("weights").list.eval(pl.element() * 0)), "do not match"),
        ("leaves", lambda f: f.with_columns(pl.col("weights").list.head(1)), "lacks a weight for one"),
        ("leaves", lambda f: f.with_columns(pl.col("weights").list.reverse()), "mean of the targets of a leaf is not"),
        (
            "leaves",
            lambda f: f.with_columns(pl.col("weights").list.eval(pl.element().cum_sum())),
            "mean of the targets of a leaf is not",
        ),
        ("values", lambda f: f.with_columns(pl.col("value") + 1.0), "mean of the targets of a leaf is not"),
        ("values", lambda f: f.head(3), "do not match"),
        ("values", lambda f: f.reverse(), "are not ascending numbers"),
        ("values", lambda f: f.with_columns(value=pl.lit(np.nan)), "are not ascending numbers"),
    ],
)
def test_predict__refuses_damaged_targets(
    forest: Forest, file: str, change: Callable[[pl.DataFrame], pl.DataFrame], words: str, tmp_path: Path
) -> None:
    forest.write(tmp_path / "f")
    path = TARGET_VALUES.at(tmp_path / "f") if file == "values" else LEAF_TARGETS.part(tmp_path / "f", 0)
    rewritten(path, change)
    damaged = bigforest.read_forest(tmp_path / "f")
    assert damaged.predict(frame(3)).height == 3
    with pytest.raises(FormatError, match=words):
        damaged.predict(frame(3), quantiles=[0.5])


@compiled
def test_predict__refuses_missing_and_foreign_targets(forest: Forest, tmp_path: Path) -> None:
    forest.write(tmp_path / "f")
    shutil.rmtree(tmp_path / "f/targets")
    with pytest.raises(
        FormatError,
        match=r"values\.parquet is missing; the forest is damaged: restore",
    ):
        bigforest.read_forest(tmp_path / "f").predict(frame(3), quantiles=[0.5])
    forest.write(tmp_path / "g")
    other = bigforest.train(frame(2_000), out=tmp_path / "h", **OPTIONS | {"seed": 5})
    shutil.copy(LEAF_TARGETS.part(other.directory, 0), LEAF_TARGETS.part(tmp_path / "g", 0))
    with pytest.raises(FormatError, match="belongs to another forest"):
        bigforest.read_forest(tmp_path / "g").predict(frame(3), quantiles=[0.5])
    data = bytearray(LEAF_TARGETS.part(other.directory, 0).read_bytes())
    data[len(data) // 2] ^= 1
    LEAF_TARGETS.part(other.directory, 0).write_bytes(data)
    with pytest.raises(FormatError, match="checksum differs"):
        other.predict(frame(3), quantiles=[0.5])


@compiled
def test_predict__quantiles_that_cannot_be(forest: Forest) -> None:
    for shares in ([1.5], [0.5, 0.5], [-0.1], [float("nan")], ["many"]):
        with pytest.raises(ConfigError, match="quantiles must be different numbers from 0 to 1"):
            forest.predict(frame(3), quantiles=shares)
    assert forest.predict(frame(3), quantiles=0.5).equals(forest.predict(frame(3), quantiles=[0.5]))
    with pytest.raises(DataError, match=r"'q0\.5'"):
        forest.predict(frame(3), quantiles=[0.1], keep=["q0.5"])
    with pytest.raises(ConfigError, match="has the name of a prediction column"):
        forest.predict(frame(3).with_columns(pl.lit(1).alias("q0.5")), quantiles=[0.5], keep=["q0.5"])
    plain = bigforest.train(frame(50), **OPTIONS | {"keep_targets": False, "trees": 1})
    with pytest.raises(ConfigError, match="train it with keep_targets"):
        plain.predict(frame(3), quantiles=[0.5])
    classes = bigforest.train(frame(50).drop("y"), "kind", trees=1, exclude=["size"])
    with pytest.raises(ConfigError, match="predicts classes, which have no quantiles"):
        classes.predict(frame(3), quantiles=[0.5])
    with pytest.raises(ConfigError, match="keep_targets is for regression"):
        bigforest.train(frame(50), "kind", keep_targets=True)


def test_quantiles__of_single_precision_are_named_as_they_are_written() -> None:
    forest = bigforest.train(frame(60), "y", keep_targets=True, trees=3, exclude="w")
    expected = forest.predict(frame(60), quantiles=[0.1, 0.9])
    for quantiles in (np.array([0.1, 0.9], np.float32), [np.float32(0.1), np.float64(0.9)]):
        assert forest.predict(frame(60), quantiles=quantiles).equals(expected)


def test_predict__quantile_that_the_shares_of_a_leaf_just_reach() -> None:
    """A third of the rows have the lowest target; in steps of shares, a third is rounded down."""
    table = pl.DataFrame({"x": [1.0] * 30 + [2.0] * 3, "y": [0.0, 1.0, 2.0] * 10 + [9.0] * 3})
    forest = bigforest.train(table, "y", family="tree", task="regression", max_depth=1, keep_targets=True)
    found = forest.predict(table.head(1), quantiles=[1 / 3, 2 / 3])
    assert found.row(0)[1:] == (0.0, 1.0)


@compiled
def test_cli__quantiles(folder: Path, run: Run) -> None:
    frame(60).write_parquet("t.parquet")
    told = run.json("train", "t.parquet", "--target", "y", "--keep-targets", "--trees", "3", "--exclude", "w")
    assert "targets" in told["seconds"]
    assert run("predict", "t.forest", "t.parquet", "--quantiles", "0.1,0.9", "--out", "p", "--keep", "w").code == 0
    assert pl.read_parquet("p").columns == ["w", "prediction", "q0.1", "q0.9"]
    assert run("predict", "t.forest", "t.parquet", "--quantiles", "0.1;0.9", "--out", "q").code == 2
    assert run.err.startswith("error: --quantiles must be different numbers from 0 to 1")


@pytest.mark.parametrize("offset", [1e12, -1e15])
def test_predict__quantiles_of_targets_far_from_zero(offset: float) -> None:
    """The means of their leaves are known to the last digits of the targets alone, which was taken for damage."""
    table = frame(60).with_columns(pl.col("y") / 7 + offset)
    found = bigforest.train(table, **OPTIONS).predict(table, quantiles=[0.1, 0.9])
    assert found["q0.1"].is_in(table["y"].implode()).all()
    assert (found["q0.1"] <= found["q0.9"]).all()
