"""Leaves of out-of-bag rows, found in growing, read back and kept, against `forest.apply` and `forest.inbag`."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
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
from bigforest.grow.out_of_core import passed_leaves
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.passed_leaves import SplitFiles, appending, cut_exactly, keeping_splits, split_types
from bigforest.oob import leaves as oob_leaves
from bigforest.oob.report import write_oob
from bigforest.predict.forest import Forest
from bigforest.predict.groups import outline
from bigforest.sampling.bags import Sampler
from bigforest.training.run import grow_forest
from tests.forests import random_tree, spec_of

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
    forest = bf.train(frame, "two", trees=2, keep_votes=True, max_depth=9)
    assert forest.oob_votes.collect().equals(expected(forest, frame))


@pytest.mark.parametrize("family", ["axis", "sparse-oblique", "rotation"])
def test_leaf_files__are_written_in_growing_in_memory(family: str, tmp_path: Path) -> None:
    """And they are those that are found when the parts are read back."""
    frame = table().select(pl.col("a").clip(-9, 9), "b", "few", "two")
    store = bf.encode_store(frame, tmp_path / "t.store", target="two")
    config = bf.TrainConfig.of(trees=3, family=family, bootstrap=True).for_task("classification")
    grow_forest(ForestJob(store, config, tmp_path / "f", Resources(threads=2), silent))
    grown = leaves_by_tree(tmp_path / "f", store.rows)
    assert sorted(grown) == [0, 1, 2]
    shutil.rmtree(tmp_path / "f" / FOLDER)
    files, missing = oob_leaves.known_leaves(ForestJob(store, config, tmp_path / "f", Resources(), silent))
    assert not files
    trees = outline(tmp_path / "f", missing)
    oob_leaves.write_leaf_files(
        Sampler(store, config), trees, tmp_path / "f", 1, tmp_path, 0, range(trees.nodes.size)
    )  # by mapped trees
    read = leaves_by_tree(tmp_path / "f", store.rows)
    assert sorted(read) == sorted(grown)
    for tree, (rows, leaves) in grown.items():
        np.testing.assert_array_equal(rows, read[tree][0])
        np.testing.assert_array_equal(leaves, read[tree][1])


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


def test_splits_in_scratch__that_are_damaged_are_refused(tmp_path: Path) -> None:
    tree = random_tree(np.random.default_rng(1), 3, 2, 5, [0.5, 1.5])
    pieces = [tree.rows(0, 2), tree.rows(2, tree.feature.size)]
    spec = spec_of(3, ("no", "yes"))
    split = split_types(spec, projected=False)
    with keeping_splits(spec, tmp_path, tmp_path, range(1), split) as (through, splits):
        assert [*through(0, iter(pieces))] == pieces
    threshold = splits[0].arrays["threshold"]
    np.testing.assert_array_equal(threshold.load(), tree.threshold)
    content = threshold.path.read_bytes()
    for damaged in (content[:-8], content[:-1] + bytes([content[-1] ^ 1])):
        threshold.path.write_bytes(damaged)
        with pytest.raises(FormatError, match="is damaged"):
            threshold.load()


@pytest.mark.parametrize(
    ("kind", "projected", "names"),
    [
        ("numeric", False, {"feature", "right", "threshold", "below", "default_left"}),
        ("category", False, {"feature", "right", "threshold", "below", "default_left", "lists", "level"}),
        ("numeric", True, {"feature", "right", "threshold", "parts", "term", "weight"}),
    ],
)
def test_splits_in_scratch__are_what_rows_are_sent_by(
    kind: str, projected: bool, names: set[str], tmp_path: Path
) -> None:
    """Every worker reads and checks all of it."""
    spec = spec_of(3, ("no", "yes"))
    spec = replace(spec, features=(*spec.features[:-1], replace(spec.features[-1], kind=kind)))
    split = split_types(spec, projected=projected)
    tree = random_tree(np.random.default_rng(1), 3, 2, 5, [0.5, 1.5])
    with keeping_splits(spec, tmp_path, tmp_path, range(1), split) as (through, splits):
        assert [*through(0, iter([tree]))] == [tree]
    assert {path.name for path in tmp_path.glob("splits-0-*")} == {f"splits-0-{name}.bin" for name in names}
    assert all(splits[0].arrays[name].load().size > 1 for name in names - {"level", "term", "weight"})


def test_splits_in_scratch__of_two_attempts_at_the_same_time(tmp_path: Path) -> None:
    tree = random_tree(np.random.default_rng(1), 3, 2, 5, [0.5, 1.5])
    spec = spec_of(3, ("no", "yes"))
    given = spec, tmp_path, tmp_path, range(1), split_types(spec, projected=False)
    with keeping_splits(*given) as (one, splits):
        with keeping_splits(*given) as (two, others):
            for through in (one, two):
                assert [*through(0, iter([tree]))] == [tree]
        [written] = (tmp_path / FOLDER).iterdir()
        content = written.read_bytes()
    assert written.read_bytes() == content
    for kept in (splits, others):
        np.testing.assert_array_equal(kept[0].arrays["threshold"].load(), tree.threshold)


def test_cut_exactly__takes_twenty_bytes_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_leaves, "replace_thresholds", lambda *_: None)  # a threshold is the code itself
    nodes = 1 << 20
    below = np.arange(nodes, dtype=np.uint32)
    threshold = np.where(below % 2 == 0, np.nan, below + 7.0)
    spec = spec_of(3, ("no", "yes"))
    with appending(tmp_path, "splits-4", split_types(spec, projected=False)) as (arrays, add):
        add(feature=below % 3, below=below, threshold=threshold)
    store: Any = SimpleNamespace(spec=spec)
    tracemalloc.start()
    try:
        found = cut_exactly(store, {4: SplitFiles(arrays, 1)})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 20 * nodes
    cut = np.where(below % 2 == 0, below, below + 7)
    np.testing.assert_array_equal(found[4].arrays["below"].load(), cut)
    assert "threshold" not in found[4].arrays


def leaves_by_tree(directory: Path, rows: int) -> dict[int, tuple[Any, Any]]:
    """Rows out of bag of each tree, of a table of one chunk, and their leaves."""
    found: dict[int, tuple[Any, Any]] = {}
    for file in found_leaves(directory, rows, 2):
        with file.leaves.reading() as opened:
            chunk = file.chunk(opened, 0)
        cuts = np.cumsum(chunk.counts)[:-1]
        both = zip(np.split(chunk.rows, cuts), np.split(chunk.leaves, cuts), strict=True)
        found |= dict(zip(file.trees, both, strict=True))
    return found


REPORTED = {"bins": {"max_bins": 5}} | {
    case: CASES[case] for case in ("missing values and categories", "wide weights", "regression", "sparse-oblique")
}


@pytest.mark.parametrize("case", REPORTED)
@pytest.mark.parametrize("by", ["memory", "threads", "read back"])
def test_report__is_the_same_however_leaves_are_found(
    case: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table(200)
    forest, _ = grown(REPORTED[case], frame, out=tmp_path / "one", threads=1)
    if by == "read back":
        monkeypatch.setattr(oob_leaves, "found_leaves", lambda *_: _found_again(*_, seen=set()))
    other, _ = grown(
        REPORTED[case], frame, out=tmp_path / "two", threads=2, **({"memory": "400MB"} if by == "memory" else {})
    )
    assert not (other.directory / FOLDER).exists()
    for name in ("rows", "curve", "metrics"):
        one, two = (grown.directory / "oob" / f"{name}.parquet" for grown in (forest, other))
        assert one.read_bytes() == two.read_bytes(), name
    assert forest.oob_votes.collect().equals(other.oob_votes.collect())


def _found_again(directory: Path, rows: int, classes: int, seen: set[Path]) -> list[Any]:
    """No files of leaves but those that were not written in growing."""
    files = found_leaves(directory, rows, classes)
    if not (directory / "read back").exists():
        (directory / "read back").mkdir()
        for file in files:
            file.remove()
        return []
    return files


def test_leaf_files__of_large_tables_have_large_chunks(tmp_path: Path) -> None:
    """Found in memory, by passes, or read back: the report and the kept votes are the same."""
    rows = 1 << 18
    frame = table().select("a", "b", "few", "two")[np.random.default_rng(0).integers(0, 300, rows)]
    forest = bf.train(frame, "two", trees=2, max_depth=3, keep_votes=True, out=tmp_path / "usual")
    store = bf.encode_store(frame, tmp_path / "t.store", target="two")
    limits = MemoryLimits(100_000, 64, 4096, 1 << 16, nodes=100, routed=100, values=50, training=0)
    for number, way in enumerate((None, GrowPlan(2, limits, 2, 1 << 30), None)):
        home, resources = tmp_path / str(number), Resources(threads=2)
        grow_forest(ForestJob(store, forest.config, home, resources, silent), plan=way)
        if number == 2:
            shutil.rmtree(home / FOLDER)
        else:
            assert {file.leaves.blocks for file in found_leaves(home, rows, 2)} == {4}
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
    with pytest.raises(ConfigError, match="there are none without bootstrap"):
        bf.train(frame, "two", bootstrap=False, keep_votes=True)
