"""A part from outside the package, computed per tree out of bag, is explained as those of the package are: also on the
workers of a cluster, where all parts are those on threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster
from numpy.typing import NDArray

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.explain.explain import SECTIONS, Section, register_section
from bigforest.explain.job import (
    ROW_BYTES,
    ExplainJob,
    OutOfBagRows,
    SectionPlan,
    TreeStock,
    leaf_positions,
    load_trees,
    plan_groups,
)
from docs.options import COMMAND_LINE, EXPLAIN, written
from tests.explain.made import grown_case
from tests.thorough import cases


def tree_errors(stock: TreeStock, oob: OutOfBagRows, entries: range) -> NDArray[np.float64]:
    found = []
    for tree in load_trees(stock, oob.table, entries):
        rows = oob.out_of_bag(tree.number)
        leaves = leaf_positions(tree, oob.table.values(), rows) - np.uint32(tree.begin)
        wrong = tree.answer.argmax(axis=1)[leaves] != oob.table.target()[rows]
        found.append(wrong.mean() if rows.size else np.nan)
    return np.array(found)


def plan_errors(job: ExplainJob) -> SectionPlan:
    rows = job.described.rows
    work = job.stock.walk_nanoseconds(job.out_of_bag_share * rows)
    return plan_groups("errors", job.stock, job.resources, ROW_BYTES * rows, work=work)


def write_errors(job: ExplainJob, plan: SectionPlan) -> None:
    folder, errors = job.folder.with_settings(job.options.new_rows), np.empty(job.stock.tree_count)
    if not folder.has("errors"):
        job.over_trees("errors", plan, tree_errors, (job.stock, job.oob), errors.__setitem__)
        folder.write("errors", pl.DataFrame({"error": errors}))


ERRORS = Section("Out-of-bag error of each tree.", plan_errors, write_errors, "out of bag")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with patch.dict(SECTIONS):
        register_section("errors", ERRORS)
        yield


def naive_errors(forest: bf.Forest, frame: pl.DataFrame) -> list[float]:
    """The oracle: the rows that are not in a tree's bag, and what this tree predicts for them."""
    found = []
    for tree in range(forest.trees):
        left_out = forest.inbag([tree]).filter(pl.col(str(tree)) == 0)["row"]
        said = pl.DataFrame(forest.predict(frame, trees=[tree]))["prediction"]
        wrong = [said[row] != frame["y"][row] for row in left_out]
        found.append(sum(wrong) / len(wrong))
    return found


def test_part__from_outside_is_computed_per_tree_out_of_bag() -> None:
    case = grown_case()
    expected = naive_errors(case.forest, case.frame)
    found = case.forest.explain(case.frame, parts="errors")
    assert found.tables == ["errors"]
    assert found["errors"]["error"].to_list() == pytest.approx(expected, abs=1e-12)
    assert [stage.stage for stage in bf.plan_explanation(case.forest, case.frame, parts="errors").stages] == [
        "read",
        "errors",
    ]


@pytest.mark.parametrize("temporary", cases([False, True], quick=1), ids=["in a folder", "temporary"])
def test_explain__is_the_same_on_workers(tmp_path: Path, temporary: bool) -> None:
    options: dict[str, Any] = {"parts": SECTIONS, "sample": 60, "grid": 4}
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, more in {"plain": {}, "refined": {"refine": 3}}.items():
            case = grown_case(**more)
            case.frame.write_parquet(tmp_path / f"{name}.parquet")
            case.forest.write(tmp_path / name)
            forest = case.forest if temporary else bf.read_forest(tmp_path / name)
            data = case.frame if temporary else tmp_path / f"{name}.parquet"
            here = forest.explain(data, scheduler="threads", threads=1, **options)
            there = forest.explain(data, tmp_path / f"{name}.out", scheduler=client, **options)
            assert here.tables == there.tables and "errors" in here.tables
            for table in here.tables:
                assert here[table].equals(there[table], null_equal=True), (name, table)


def test_part__is_not_made_for_boosted_forests_and_needs_a_new_name() -> None:
    frame = grown_case().frame
    boosted = bf.train(frame, "y", trees=3, sampling="arc-x4")
    with pytest.raises(ConfigError, match="errors uses out-of-bag rows"):
        boosted.explain(frame, parts="errors")
    with pytest.raises(ConfigError, match="needs a new name, not 'trees'"):
        register_section("trees", ERRORS)


def test_part__its_option_and_its_docstring_follow_from_the_declaration() -> None:
    texts = written()
    assert '    "errors": flag("Out-of-bag error of each tree.", "--errors", panel="parts"),\n' in texts[COMMAND_LINE]
    assert '"filling", "errors")' in " ".join(texts[EXPLAIN].split())
