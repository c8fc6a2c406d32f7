"""Leaves of out-of-bag rows, found in growing, read back and kept, against `forest.apply` and `forest.inbag`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError, FormatError
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.leaf_votes import FOLDER, found_leaves
from bigforest.forest.ranks import ranked_store
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.oob.report import write_oob
from bigforest.predict.forest import Forest
from bigforest.training.run import grow_forest

CASES: dict[str, dict[str, Any]] = {
    "numbers": {},
    "random splits": {"splitter": "random"},
    "few rows in a bag": {"sample_fraction": 0.1},
    "all rows in a bag": {"sample_fraction": 1.0, "replace": False},
    "missing values and categories": {"columns": ("a", "level", "gaps", "whole")},
    "weights": {"weight": "weight"},
    "wide weights": {"weight": "wide"},
    "regression": {"target": "number", "columns": ("a", "level", "gaps")},
    "regression, wide weights": {"target": "number", "weight": "wide"},
    "hard votes": {"target": "three", "vote": "hard"},
    "groups": {"group": "few"},
    "rows without a target": {"target": "holes"},
    "ranks": {"ranks": True},
    "sparse-oblique": {"family": "sparse-oblique"},
    "differences of means": {"family": "sparse-oblique", "mean_difference": "all", "target": "three"},
    "dense projections": {"family": "sparse-oblique", "projection_kind": "gaussian"},
    "rotation": {"family": "rotation"},
    "components": {"family": "rotation", "rotation": "pca", "bootstrap": True},
    "components of classes": {"family": "rotation", "rotation": "pca-classes", "bootstrap": True},
    "sparse-oblique, regression": {"family": "sparse-oblique", "target": "number", "weight": "weight"},
    "rotation, regression": {"family": "rotation", "target": "number", "weight": "wide"},
    "until settled": {"stop_oob": 0.5, "trees": 60},
    "until settled, wide weights": {"stop_oob": 0.5, "trees": 60, "weight": "wide"},
}


def table(rows: int = 300) -> pl.DataFrame:
    """Features of many and few values, with infinities, missing values and levels, and targets of each kind."""
    draw = np.random.default_rng(rows)
    a, b = np.round(draw.normal(size=(2, rows)), 1)
    a[:3] = [np.inf, -np.inf, np.inf]
    gaps = [None if number < 0.3 else round(number, 2) for number in draw.random(rows)]
    level = [None if number == 0 else f"level {number}" for number in draw.integers(0, 12, rows)]
    signal = np.clip(a, -3, 3) + 0.5 * b + 0.3 * draw.normal(size=rows)
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "few": draw.integers(0, 40, rows),
            "whole": [None if number < 9 else int(number) for number in draw.integers(0, 1000, rows)],
            "level": level,
            "gaps": gaps,
            "two": (signal > 0).astype(int),
            "three": np.digitize(signal, (-0.5, 0.5)),
            "holes": [None if number == 0 else bool(number > 2) for number in draw.integers(0, 5, rows)],
            "number": np.round(signal, 6),
            "weight": draw.integers(1, 8, rows),
            "wide": draw.lognormal(0, 3, rows),
        }
    )


def grown(options: dict[str, Any], frame: pl.DataFrame, **more: Any) -> tuple[Forest, pl.DataFrame]:
    """A forest of these options that keeps its votes, and the columns that it was given."""
    options = {"target": "two", "trees": 7, "seed": 5, "keep_votes": True, **options, **more}
    columns = options.pop("columns", ("a", "b", "few"))
    wanted = [*columns, options["target"], *filter(None, [options.get("weight"), options.get("group")])]
    frame = frame.select(list(dict.fromkeys(wanted)))
    if options.get("family") or options.get("ranks"):
        frame = frame.with_columns(pl.col("a").clip(-9, 9))
    return bf.train(frame, **options), frame


def expected(forest: Forest, frame: pl.DataFrame, group: Any = None) -> pl.DataFrame:
    """What `oob_votes` has to be."""
    bags = forest.inbag(group=group)
    leaves = forest.apply(frame[bags["row"].to_numpy()], unseen="error")
    votes = [
        pl.DataFrame({"row": bags["row"], "leaf": leaves[:, tree]})
        .filter(bags[str(tree)] == 0)
        .select(pl.lit(tree, pl.UInt32).alias("tree"), "row", "leaf")
        for tree in range(forest.trees)
    ]
    return pl.concat(votes)


@pytest.mark.parametrize("case", CASES)
def test_votes__are_the_leaves_of_rows_that_are_in_no_bag(case: str) -> None:
    forest, frame = grown(CASES[case], table())
    assert forest.oob_votes.collect().equals(expected(forest, frame, frame["few"] if case == "groups" else None))


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("wide", [0, 300])
def test_votes__of_several_chunks_of_narrow_and_wide_rows(wide: int) -> None:
    draw = np.random.default_rng(7)
    frame = table(40_000).select("a", "level", "gaps", "few", "two")
    frame = frame.with_columns(pl.Series(f"w{number}", draw.integers(0, 3, frame.height)) for number in range(wide))
    forest = bf.train(frame, "two", trees=2, keep_votes=True, max_depth=9, refine="off")
    assert forest.oob_votes.collect().equals(expected(forest, frame))


@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith("until")])
def test_leaf_files__by_passes_are_those_of_growing_in_memory(case: str, tmp_path: Path) -> None:
    """Rows go down the trees block by block; the files are the same byte for byte, and scratch is left empty."""
    options = {"trees": 3, "bootstrap": True, **CASES[case]}
    columns, target = options.pop("columns", ("a", "b", "few")), options.pop("target", "two")
    given = {name: options.pop(name) for name in ("weight", "group") if name in options}
    frame = table().select(list(dict.fromkeys([*columns, target, *given.values()])))
    if options.get("family") or options.get("ranks"):
        frame = frame.with_columns(pl.col("a").clip(-9, 9))
    store = bf.encode_store(frame, tmp_path / "t.store", target=target, **given)
    config = bf.TrainConfig.of(**options).for_task(store.spec.target.task)
    (tmp_path / "ranks").mkdir()
    store = ranked_store(store, config, tmp_path / "ranks")
    limits = MemoryLimits(20, 64, 4096, 1 << 16, nodes=100, routed=100, values=50, training=0)
    for name, way in (("whole", None), ("passes", GrowPlan(2, limits, 2, 1 << 30))):
        (tmp_path / "scratch" / name).mkdir(parents=True)
        resources = Resources(threads=2, scratch=tmp_path / "scratch" / name)
        grow_forest(ForestJob(store, config, tmp_path / name, resources, silent), plan=way)
        assert not any((tmp_path / "scratch" / name).iterdir())
    files = [sorted((tmp_path / name / FOLDER).iterdir()) for name in ("whole", "passes")]
    assert [path.name for path in files[0]] == [path.name for path in files[1]]
    assert len(files[0]) == 6
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


REPORTED = {"bins": {"max_bins": 5}} | {
    case: CASES[case] for case in ("missing values and categories", "wide weights", "regression", "sparse-oblique")
}


@pytest.mark.parametrize("case", REPORTED)
def test_report__is_the_same_however_leaves_are_found(case: str, tmp_path: Path) -> None:
    """In growing, by any number of threads, or afterwards."""
    forest, _ = grown(REPORTED[case], table(200), out=tmp_path / "one", threads=1)
    for name, options in {"threads": {}, "memory": {"memory": "400MB"}}.items():
        other, _ = grown(REPORTED[case], table(200), out=tmp_path / name, threads=2, **options)
        assert not (other.directory / FOLDER).exists()
        assert other.shrinkage == forest.shrinkage
        for file in sorted((forest.directory / "oob").glob("*.parquet")):
            assert (other.directory / "oob" / file.name).read_bytes() == file.read_bytes(), file.name
        assert forest.oob_votes.collect().equals(other.oob_votes.collect())


def test_leaf_files__of_large_tables_have_large_chunks(tmp_path: Path) -> None:
    """Found in memory, by passes, or read back: the report and the kept votes are the same."""
    rows = 1 << 18
    frame = table().select("a", "b", "few", "two")[np.random.default_rng(0).integers(0, 300, rows)]
    forest = bf.train(frame, "two", trees=2, max_depth=3, keep_votes=True, refine="off", out=tmp_path / "usual")
    store = bf.encode_store(frame, tmp_path / "t.store", target="two")
    limits = MemoryLimits(100_000, 64, 4096, 1 << 16, nodes=100, routed=100, values=50, training=0)
    for number, way in enumerate((None, GrowPlan(2, limits, 2, 1 << 30), None)):
        home, resources = tmp_path / str(number), Resources(threads=2)
        grow_forest(ForestJob(store, forest.config, home, resources, silent), plan=way)
        if number == 2:
            shutil.rmtree(home / FOLDER)
        else:
            assert {file.leaves.blocks for file in found_leaves(home, store.spec)} == {4}
        write_oob(ForestJob(store, forest.config, home, resources, silent))
        for name in ("rows", "curve", "metrics"):
            one, other = ((folder / "oob" / f"{name}.parquet").read_bytes() for folder in (tmp_path / "usual", home))
            assert one == other, name
        assert pl.read_parquet(home / "oob" / "votes" / "*.parquet").equals(forest.oob_votes.collect())


def test_leaf_files__of_some_trees_are_found_again(tmp_path: Path) -> None:
    """A run killed between a part and its leaves, or whose files of leaves are cut off, is gone on with."""
    frame = table().select("a", "b", "few", "two")
    store = bf.encode_store(frame, tmp_path / "t.store", target="two")
    config = bf.TrainConfig(trees=30).for_task("classification")
    reports = []
    for number, damage in enumerate((None, "one", "all", "short", "other")):
        home = tmp_path / str(number)
        home.mkdir()
        grow_forest(ForestJob(store, config, home, Resources(threads=2), silent))
        files = sorted((home / FOLDER).glob("*.leaves"))
        assert len(files) > 3
        for path in files[1:2] if damage in ("one", "short") else files if damage == "all" else []:
            path.write_bytes(path.read_bytes()[: -1 if damage == "short" else 0])
        if damage == "other":
            shutil.copy(files[2], files[1])  # of other trees
        write_oob(ForestJob(store, config, home, Resources(threads=1 + number % 2), silent))
        reports.append([(home / "oob" / f"{name}.parquet").read_bytes() for name in ("rows", "curve", "metrics")])
    assert reports == reports[:1] * 5


@pytest.mark.parametrize("ending", ["leaves", "ballots"])
def test_leaf_files__damaged_ones_are_refused(ending: str, tmp_path: Path) -> None:
    frame = table().select("a", "b", "few", "two")
    store = bf.encode_store(frame, tmp_path / "t.store", target="two")
    config = bf.TrainConfig(trees=4, shrink="off").for_task("classification")
    (tmp_path / "f").mkdir()
    grow_forest(ForestJob(store, config, tmp_path / "f", Resources(threads=1), silent))
    path = sorted((tmp_path / "f" / FOLDER).glob(f"*.{ending}"))[0]
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is damaged; remove it and resume"):
        write_oob(ForestJob(store, config, tmp_path / "f", Resources(threads=1), silent))


def test_votes__survive_resuming_writing_and_merging(tmp_path: Path) -> None:
    frame = table().select("a", "b", "few", "two")
    bf.train(frame, "two", trees=5, keep_votes=True, out=tmp_path / "a")
    more = bf.train(frame, resume=tmp_path / "a", trees=9)
    whole = bf.train(frame, "two", trees=9, keep_votes=True)
    assert more.oob_votes.collect().equals(whole.oob_votes.collect())
    more.write(tmp_path / "copy")
    assert bf.read_forest(tmp_path / "copy").oob_votes.collect().equals(whole.oob_votes.collect())
    other = bf.train(frame, "two", trees=3, seed=8, keep_votes=True)
    merged = bf.merge([more, other], tmp_path / "merged")
    own = pl.concat([more.oob_votes, other.oob_votes.with_columns(pl.col("tree") + 9)]).collect()
    assert merged.oob_votes.collect().equals(own)
    assert merged.oob_votes.collect().equals(expected(merged, frame))


def test_votes__are_asked_for() -> None:
    frame = table(40).select("a", "two")
    forest = bf.train(frame, "two", trees=2)
    assert not forest.has_votes
    with pytest.raises(ConfigError, match="train it with keep_votes"):
        _ = forest.oob_votes
    with pytest.raises(ConfigError, match="keep_votes needs bags, and bootstrap is off"):
        bf.train(frame, "two", bootstrap=False, keep_votes=True)
