"""Explanations on the workers of a cluster are those on threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import bigforest as bf
from bigforest.explain.explain import SECTIONS
from tests.explain.test_importance import grown_case
from tests.thorough import cases


@pytest.mark.parametrize("temporary", cases([False, True], quick=1), ids=["in a folder", "temporary"])
def test_explain__is_the_same_on_workers(tmp_path: Path, temporary: bool) -> None:
    options = {"parts": SECTIONS, "sample": 60, "grid": 4}
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, more in {"plain": {}, "refined": {"refine": 3}}.items():
            case = grown_case(150, **more)
            case.frame.write_parquet(tmp_path / f"{name}.parquet")
            case.forest.write(tmp_path / name)
            forest = case.forest if temporary else bf.read_forest(tmp_path / name)
            data = case.frame if temporary else tmp_path / f"{name}.parquet"
            here = forest.explain(data, scheduler="threads", threads=1, **options)
            there = forest.explain(data, tmp_path / f"{name}.out", scheduler=client, **options)
            assert here.tables == there.tables
            for table in here.tables:
                assert here[table].equals(there[table], null_equal=True), (name, table)
