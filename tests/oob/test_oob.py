"""The out-of-bag report against a recomputation row by row."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import ConfigError, FormatError
from bigforest.events import Notice, StageAdvanced, StageFinished, StageStarted, silent
from bigforest.execution.resources import Resources
from bigforest.forest import leaf_votes
from bigforest.forest.leaf_votes import VOTE_BYTES
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.oob_report import OobReport, oob_rows_files, oob_rows_path
from bigforest.forest.parts import check_parts
from bigforest.grow.forest import ForestJob
from bigforest.oob import plan
from bigforest.oob import report as oob_report
from bigforest.oob.leaves import OobTrees, entry_bytes
from bigforest.oob.plan import choose_oob, oob_estimate
from bigforest.oob.report import write_oob
from bigforest.options.train_config import TrainConfig
from bigforest.planning.sizes import USUAL, Limits
from bigforest.predict import groups, predictor
from bigforest.predict import packed_trees as thresholds_to_codes
from bigforest.predict.forest import read_forest
from bigforest.sampling.bags import uniform_bag
from bigforest.source.open import open_source
from bigforest.store.store import Store
from bigforest.training.candidates import row_scores
from tests.encoded import encode
from tests.forests import random_tree, write_forest
from tests.fuzz import damage
from tests.metrics.test_metrics import check_metrics
from tests.naive.oob import report
from tests.thorough import examples

CLASSES = ("a", "b", "c")
WEIGHTS = (1.0, -1.0, 0.3, -7e-3)  # of oblique nodes
VALUES = [0.0, 0.1, 2.0, -3.5, 1e300, 7.0]  # not all of them float32
FILES = ("rows", "curve", "confusion", "metrics")


def data(rows: int, low_precision: bool = False) -> pl.DataFrame:
    random = np.random.default_rng(rows)
    columns = {f"x{i}": np.round(random.choice(VALUES[:4] if low_precision else VALUES, rows), 1) for i in range(3)}
    if low_precision:
        columns = {name: np.round(column * 2) for name, column in columns.items()}
    return pl.DataFrame({**columns, "y": random.choice(CLASSES, rows)})


def store_of(frame: pl.DataFrame, folder: Path) -> Store:
    folder.mkdir(parents=True, exist_ok=True)
    source = open_source(frame, scratch=folder)
    return encode(source, "y", folder / "table.store", resources=Resources(threads=1), listener=silent)


def trees(count: int, weights: Sequence[float] = ()) -> list[TreeArrays]:
    random = np.random.default_rng(count)
    return [random_tree(random, 3, 3, 5, [0.05, 0.1, 1.0, -1.0, 5e299], weights) for _ in range(count)]


def forest_in(folder: Path, store: Store, grown: list[TreeArrays], parts: list[int], **options: Any) -> TrainConfig:
    return write_forest(
        folder,
        grown,
        store.spec,
        parts,
        **{"bootstrap": True, "shrink": "off", "power": "off", "refine": "off"} | options,
    )


def write(store: Store, config: TrainConfig, folder: Path, threads: int = 1, limits: Limits = USUAL) -> OobReport:
    write_oob(ForestJob(store, config, folder, Resources(threads=threads, limits=limits), silent))
    return OobReport(folder, check_parts(folder)[0])


def check(found: OobReport, store: Store, config: TrainConfig, grown: list[TreeArrays]) -> None:
    """Assert that the report is the oracle's, to the last bit."""
    rows = store.values(0, store.rows).tolist()
    bags = [uniform_bag(store.rows, tree, config).tolist() for tree in range(len(grown))]
    truth = store.target.tolist()
    expected = report(grown, bags, rows, truth, config.vote)
    numbers = range(store.rows) if store.row_numbers is None else store.row_numbers.tolist()
    table = found.rows.collect()
    assert table.columns == ["row", "truth", "prediction", "trees", *(f"p_{label}" for label in CLASSES)]
    assert table["row"].to_list() == list(numbers)
    assert table["truth"].to_list() == [CLASSES[code] for code in truth]
    assert table["prediction"].to_list() == [None if p is None else CLASSES[p] for p in expected.prediction]
    assert table["trees"].to_list() == expected.voters
    assert table.select("p_a", "p_b", "p_c").rows() == [tuple(row or [None] * 3) for row in expected.shares]
    assert found.curve.rows() == [(m + 1, error, reached) for m, (error, reached) in enumerate(expected.curve)]
    pairs = {(t, p): rows for t, p, rows, _ in found.confusion.rows()}
    assert found.confusion["weight"].to_list() == [float(rows) for rows in pairs.values()]
    assert pairs == {(CLASSES[t], CLASSES[p]): rows for (t, p), rows in expected.confusion.items()}
    assert list(pairs) == sorted(pairs)
    used_rows = [i for i, row in enumerate(expected.shares) if row is not None]
    if used_rows:
        shares = np.array([expected.shares[i] for i in used_rows])
        votes = [expected.prediction[i] or 0 for i in used_rows]
        check_metrics(found.metrics, CLASSES, [truth[i] for i in used_rows], votes, shares)
    error, used = expected.curve[-1]
    assert found.rows_used == used == sum(pairs.values())
    assert found.error == error or (error is None and math.isnan(found.error))


@pytest.mark.parametrize("vote", ["soft", "hard"])
@pytest.mark.parametrize("low_precision", [False, True])
@pytest.mark.parametrize("weights", [(), WEIGHTS])
def test_write_oob__equals_a_recomputation(
    vote: str, low_precision: bool, weights: Sequence[float], tmp_path: Path
) -> None:
    store, grown = store_of(data(150, low_precision), tmp_path), trees(7, weights)
    assert any(tree.terms is not None for tree in grown) == bool(weights)
    config = forest_in(tmp_path / "f", store, grown, [2, 6], vote=vote, seed=3)
    found = write(store, config, tmp_path / "f")
    assert found.rows.filter(pl.col("trees") == 0).collect().height > 0  # seen by every tree
    check(found, store, config, grown)


@pytest.mark.parametrize(
    "options",
    [
        {"replace": False, "sample_fraction": 0.3},
        *({"sample_fraction": 0.5}, {"sample_fraction": 2.5}, {"sample_fraction": 1.0, "replace": False}),
    ],
)
def test_write_oob__any_kind_of_bag(options: dict[str, Any], tmp_path: Path) -> None:
    store, grown = store_of(data(90), tmp_path), trees(3)
    config = forest_in(tmp_path / "f", store, grown, [], **options)
    check(write(store, config, tmp_path / "f"), store, config, grown)


@pytest.mark.parametrize("rows", [2, 3, 255, 256, 257])
def test_write_oob__any_number_of_rows(rows: int, tmp_path: Path) -> None:
    frame = data(rows).with_columns(y=pl.Series([CLASSES[i % 3] for i in range(rows)]))
    store = store_of(frame, tmp_path)
    if len(store.spec.target.classes) < 3:
        frame = pl.concat([frame, data(1).with_columns(y=pl.lit("c"))])
        store = store_of(frame, tmp_path / "more")
    grown = trees(2)
    config = forest_in(tmp_path / "f", store, grown, [])
    check(write(store, config, tmp_path / "f"), store, config, grown)


def test_write_oob__rows_without_a_label_keep_the_others_numbers(tmp_path: Path) -> None:
    frame = data(60).with_columns(pl.when(pl.int_range(60) % 7 != 2).then(pl.col("y")).alias("y"))
    store, grown = store_of(frame, tmp_path), trees(4)
    assert store.row_numbers is not None
    config = forest_in(tmp_path / "f", store, grown, [1])
    found = write(store, config, tmp_path / "f")
    check(found, store, config, grown)
    assert 2 not in found.rows.collect()["row"].to_list()


def test_write_oob__does_not_depend_on_threads_chunks_groups_or_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, grown = store_of(data(600), tmp_path), trees(5, WEIGHTS)
    grown[:2] = trees(2)  # groups with and without oblique nodes
    for number, (threads, chunk, nodes, parts) in enumerate(
        [(1, 8 << 20, 1 << 20, []), (2, 1, 1, [1, 2, 4]), (3, 8 << 20, 25, [1, 3]), (2, 8 << 20, 1 << 20, [2])]
    ):
        monkeypatch.setattr(predictor, "CHUNK_BYTES", chunk)
        config = forest_in(tmp_path / f"f{number}", store, grown, parts)
        write(store, config, tmp_path / f"f{number}", threads, Limits(group_bytes=16 * nodes))
    for name in FILES:
        found = [(tmp_path / f"f{number}" / "oob" / f"{name}.parquet").read_bytes() for number in range(4)]
        assert found[1:] == found[:1] * 3, name


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Five row groups and two files of a report; a dictionary that is read in two pieces and a value."""
    codes = np.arange(270_000) % (2 * 65_536 + 1)
    values = np.where(codes == 2 * 65_536, 1.05, codes / 40_000 - 3.0)  # the threshold 1.0 is before the last
    frame = data(270_000).with_columns(x2=pl.Series(np.random.default_rng(1).permutation(values)))
    return store_of(frame, tmp_path_factory.mktemp("stored"))


@settings(max_examples=examples(20) // 2)
@given(draws=st.data())
def test_write_oob__any_memory_gives_the_same(stored: Store, draws: st.DataObject) -> None:
    """Budgets from the smallest on; equal files, byte for byte."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "FITTING_BYTES", draws.draw(st.sampled_from([1, 500, 1 << 12])))  # most are mapped
        patch.setattr(thresholds_to_codes, "ORDERED_NODES", draws.draw(st.sampled_from([1, 5, 1 << 18])))
        patch.setattr(thresholds_to_codes, "LISTED_NODES", draws.draw(st.sampled_from([3, 40, 1 << 20])))
        store, made = stored, trees(6, draws.draw(st.sampled_from([(), WEIGHTS])))
        config = forest_in(
            Path(name) / "whole", store, made, [3, 4], vote=draws.draw(st.sampled_from(["soft", "hard"]))
        )
        write(store, config, Path(name) / "whole")
        shutil.copytree(Path(name) / "whole" / "trees", Path(name) / "small" / "trees")
        surveyed = groups.survey(Path(name) / "small", 1)
        sizes, entries = entry_bytes(surveyed, 0), groups.ENTRY_BYTES * int(surveyed.list_entries.max())
        threads = draws.draw(st.sampled_from([1, 2]))
        least = choose_oob(store.shape, config, sizes, Resources(threads=threads, memory=1), 0, entries).need
        more = draws.draw(st.sampled_from([0, 2_500_000, 10**9]) | st.integers(0, 8_000_000))
        resources = Resources(threads=threads, memory=least.smallest + more)
        way = choose_oob(store.shape, config, sizes, resources, 0, entries)
        assert way.need.memory <= least.smallest + more
        events: list[Any] = []
        write_oob(ForestJob(store, config, Path(name) / "small", resources, events.append))
        assert events[0].total == 6 * (1 + -(-store.rows // way.rows))  # found again, and added up in each range
        if more == 0:
            assert way.rows < store.rows and way.group_bytes < sizes.sum()  # several ranges, several groups
        found, expected = (sorted((Path(name) / kind / "oob").glob("*.parquet")) for kind in ("small", "whole"))
        assert [path.name for path in found] == [path.name for path in expected]
        assert {"rows.parquet", "rows-0000001.parquet"} < {path.name for path in found}
        for one, other in zip(found, expected, strict=True):
            assert one.read_bytes() == other.read_bytes()


def test_write_oob__after_a_run_that_was_killed_between_files_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, made = store_of(data(900), tmp_path), trees(2)
    config = forest_in(tmp_path / "f", store, made, [])
    monkeypatch.setattr(oob_report, "ROWS_OF_FILE", 256)
    monkeypatch.setattr(leaf_votes, "_MOST_STEP", 256)  # row groups
    left = oob_rows_path(tmp_path / "f", 3)  # written before the ones in front of it
    left.parent.mkdir()
    left.write_bytes(b"of the run that was killed")
    check(write(store, config, tmp_path / "f", threads=2), store, config, made)


def test_write_oob__after_a_run_that_was_killed_while_it_found_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of 2, 1 and 3 trees, with a budget: rows go through at most 4 trees together."""
    store, grown = store_of(data(300), tmp_path), trees(6)
    config = forest_in(tmp_path / "f", store, grown, [2, 3])
    monkeypatch.setattr(plan, "_GROUP_TREES", 4)
    job = ForestJob(store, config, tmp_path / "f", Resources(threads=1, memory=10**9), silent)

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OobTrees(job, 0).find_missing(killed, tmp_path)
    check(write(store, config, tmp_path / "f"), store, config, grown)


def test_write_oob__too_little_memory_names_the_least(tmp_path: Path) -> None:
    store, made = store_of(data(60), tmp_path), trees(2)
    config = forest_in(tmp_path / "f", store, made, [])
    with pytest.raises(ConfigError, match=r"the stage oob needs at least \d+MB of memory and may use 1B"):
        write_oob(ForestJob(store, config, tmp_path / "f", Resources(threads=1, memory=1), silent))


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
def test_write_oob__several_blocks(tmp_path: Path) -> None:
    rows = 66_000
    store, grown = store_of(data(rows), tmp_path), [*trees(1), *trees(1, WEIGHTS)]
    config = forest_in(tmp_path / "f", store, grown, [])
    check(write(store, config, tmp_path / "f", threads=2), store, config, grown)


def test_write_oob__tells_of_its_progress(tmp_path: Path) -> None:
    store, grown = store_of(data(50), tmp_path), trees(3)
    config = forest_in(tmp_path / "f", store, grown, [1])
    events: list[Any] = []
    write_oob(ForestJob(store, config, tmp_path / "f", Resources(threads=1), events.append))
    started = [event for event in events if isinstance(event, StageStarted)]
    assert started == [StageStarted("oob", 6, "trees"), StageStarted("oob", 1, "reports")]
    assert [event.done for event in events if isinstance(event, StageAdvanced)][-2:] == [6, 1]
    assert isinstance(events[-1], StageFinished)


def test_write_oob__without_bootstrap(tmp_path: Path) -> None:
    store = store_of(data(20), tmp_path)
    with pytest.raises(ConfigError, match="without bootstrap"):
        write_oob(ForestJob(store, TrainConfig(bootstrap=False), tmp_path, Resources(), silent))


def test_write_oob__trees_are_missing(tmp_path: Path) -> None:
    store = store_of(data(20), tmp_path)
    config = forest_in(tmp_path / "f", store, trees(3), [], trees=4)
    with pytest.raises(FormatError, match="ends with tree 2, not 3"):
        write_oob(ForestJob(store, config, tmp_path / "f", Resources(threads=1), silent))


# The report of a forest that was grown.


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("grown")
    bigforest.train(data(400), "y", out=home / "f", trees=9, threads=2)
    return home / "f"


def test_forest__oob_report(grown: Path) -> None:
    forest = read_forest(grown)
    table = forest.oob.rows.collect()
    used = table.filter(pl.col("trees") > 0)
    assert forest.oob.rows_used == used.height
    assert forest.oob.error == (used["truth"] != used["prediction"]).sum() / used.height
    assert forest.oob.curve["trees"].to_list() == list(range(1, 10))
    assert f"on {used.height} rows" in repr(forest.oob)
    assert forest.oob is forest.oob


@pytest.mark.parametrize("name", FILES)
def test_forest__oob_files_are_checked(name: str, grown: Path, tmp_path: Path) -> None:
    shutil.copytree(grown, tmp_path / "f")
    damage.unlist(tmp_path / "f")
    path = tmp_path / "f" / "oob" / f"{name}.parquet"
    path.unlink()
    with pytest.raises(FormatError, match=f"{name}.parquet is missing"):
        _ = read_forest(tmp_path / "f").oob
    shutil.copy(grown / "features.parquet", path)
    with pytest.raises(FormatError, match="kind 'features'"):
        _ = read_forest(tmp_path / "f").oob


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(CLASSES), pl.Boolean, pl.Int16])
def test_forest__oob_of_any_target_type(kind: Any, tmp_path: Path) -> None:
    target = {pl.Boolean: pl.col("y") == "a", pl.Int16: pl.col("y").str.len_bytes() + (pl.col("x0") > 0)}
    frame = data(200).with_columns(y=target.get(kind, pl.col("y")).cast(kind))
    forest = bigforest.train(frame, "y", trees=4)
    table = forest.oob.rows.collect()
    assert table["truth"].to_list() == frame["y"].to_list()
    assert set(forest.oob.confusion["truth"]) <= set(frame["y"])


@pytest.mark.parametrize("vote", ["soft", "hard"])
def test_write_oob__two_classes_have_an_area(vote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are too many different scores, which go into files then."""
    frame = data(300).with_columns(y=pl.col("y") == "a", x0=pl.Series(np.random.default_rng(1).normal(size=300)))
    options: dict[str, Any] = {"trees": 12, "min_leaf": 5, "vote": vote}
    forest = bigforest.train(frame, "y", **options)
    rows = forest.oob.rows.filter(pl.col("trees") > 0).collect()
    shares = rows.select("p_false", "p_true").to_numpy()
    assert np.unique(shares[:, 1]).size > (15 if vote == "hard" else 200)
    votes = rows["prediction"].cast(pl.Int8).to_list()
    check_metrics(forest.oob.metrics, (False, True), rows["truth"].cast(pl.Int8).to_list(), votes, shares)
    for most in (2, 100):
        monkeypatch.setattr(oob_report, "max_scores", lambda *_, limited, most=most: most)
        assert bigforest.train(frame, "y", **options).oob.metrics.equals(forest.oob.metrics)


@pytest.mark.parametrize(("target", "memory"), [("two", None), ("y", "400MB"), ("x1", None), ("x1", "400MB")])
def test_report__in_several_files_of_rows_says_the_same(
    target: str, memory: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = data(900).with_columns(two=pl.col("y") == "a", x1=pl.Series(np.random.default_rng(1).normal(size=900)))
    options: dict[str, Any] = {"trees": 6, "min_leaf": 5, "seed": 3, "memory": memory}
    whole = bigforest.train(frame, target, out=tmp_path / "whole", threads=1, **options)
    monkeypatch.setattr(oob_report, "ROWS_OF_FILE", 256)
    monkeypatch.setattr(leaf_votes, "_MOST_STEP", 256)  # row groups
    monkeypatch.setattr(oob_report, "max_scores", lambda *_, **__: 7)
    several = bigforest.train(frame, target, out=tmp_path / "several", threads=2, **options)
    assert [path.name for path in oob_rows_files(several.directory)] == [
        "rows.parquet",
        *(f"rows-000000{number}.parquet" for number in (1, 2, 3)),
    ]
    assert several.oob.rows.collect().equals(whole.oob.rows.collect())
    for name in ("curve", "metrics", *([] if target == "x1" else ["confusion"])):
        found, expected = (tmp_path / kind / "oob" / f"{name}.parquet" for kind in ("several", "whole"))
        assert found.read_bytes() == expected.read_bytes()
    metric = "mse" if target == "x1" else "error"
    np.testing.assert_array_equal(row_scores(several, metric).score, row_scores(whole, metric).score)
    damage.unlist(several.directory)
    oob_rows_path(several.directory, 3).rename(tmp_path / "last")
    with pytest.raises(FormatError, match="has 768 rows, and the table has 900"):
        _ = read_forest(tmp_path / "several").oob
    (tmp_path / "last").rename(oob_rows_path(several.directory, 3))
    first, second = oob_rows_path(several.directory, 1), oob_rows_path(several.directory, 2)
    for path, to in ((first, tmp_path / "first"), (second, first), (tmp_path / "first", second)):
        path.rename(to)
    swapped = read_forest(tmp_path / "several")
    for read in (lambda: swapped.oob, lambda: row_scores(swapped, metric)):
        with pytest.raises(FormatError, match=r"rows-0000002.* rows that come before rows of the previous file"):
            read()
    second.unlink()
    with pytest.raises(FormatError, match="lacks one of its files"):
        _ = read_forest(tmp_path / "several").oob


def test_oob_rows_files__a_footer_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "oob").mkdir()
    for number, name in enumerate(["row", "other"]):
        pl.DataFrame({name: [number]}, schema={name: pl.UInt32}).write_parquet(oob_rows_path(tmp_path, number))
    with pytest.raises(FormatError, match=r"rows-0000001.* \(its footer does not say which rows it has\)"):
        oob_rows_files(tmp_path)


def test_write_oob__no_row_out_of_bag() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]})
    forest = bigforest.train(frame, "y", trees=1, replace=False)
    nothing = [None] * 6
    assert forest.oob.metrics.rows() == [("a", 0, 0, *nothing), ("b", 0, 0, *nothing), (None, 0, 0, *nothing)]


@pytest.mark.parametrize("options", [{}, {"sampling": "balanced"}, {"group": "g"}, {"sampling": "adaboost"}], ids=str)
def test_oob_estimate__has_room_for_the_leaves_of_rows_out_of_bag(options: dict[str, Any], tmp_path: Path) -> None:
    """Balanced bags leave out nearly all rows of a large class, and late trees of boosting all rows but hard ones."""
    random = np.random.default_rng(1)
    table = pl.DataFrame({"x": random.normal(size=3000), "g": random.integers(0, 1000, 3000)})
    table = table.with_columns(y=pl.Series(np.where(random.random(3000) < 0.02, "rare", "usual")))
    store = bigforest.encode_store(table, tmp_path / "s", target="y", group=options.get("group"))
    forest = bigforest.train(store, out=tmp_path / "f", trees=80, min_leaf=20, keep_votes=True, **options)
    written = VOTE_BYTES * len(pl.read_parquet(tmp_path / "f" / "oob" / "votes"))  # a row per tree and row out of bag
    nodes = forest.loader.survey(1).nodes
    found = oob_estimate(store.shape, forest.config, Resources(threads=1), nodes).scratch
    assert found >= written


def test_write_oob__tells_of_classes_that_are_in_every_bag() -> None:
    table = bigforest.simulate("trunk", rows=90, dims=2).with_columns(target=pl.int_range(90) // 80)
    told: list[object] = []
    options = {"task": "classification", "sampling": "balanced", "trees": 20, "mtry": 1}
    bigforest.train(table, "target", replace=False, listener=told.append, **options)
    assert any(isinstance(event, Notice) and "all rows of class 1 are in every bag" in event.text for event in told)
    told.clear()
    bigforest.train(table, "target", listener=told.append, **options)
    assert not any(isinstance(event, Notice) and "in every bag" in event.text for event in told)
