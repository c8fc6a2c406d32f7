"""Clusters, tables and forests of the tests of clusters; started once for all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dask
import polars as pl
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

import bigforest
from bigforest.execution import resources as resources_module
from bigforest.execution.resources import Resources
from bigforest.planning.sizes import Limits
from bigforest.store.store import Store
from tests.execution.clusters import CONFIG, QUIET
from tests.grow.test_invariance import frame


@contextmanager
def preloaded(*modules: str) -> Iterator[None]:
    """Have the process that Dask forks workers from load these modules."""
    get_mp_context().set_forkserver_preload(list(modules))
    yield


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    """Two processes with a thread each. They, and those that replace killed ones, are forked from a process that has
    loaded what workers load. Other tests start clusters by spawn, which is the default."""
    with (
        # Otherwise a killed worker is given up after 15 seconds, and a busy machine takes longer to start another; and
        # the others try for 30 seconds to reach it.
        dask.config.set(
            {
                "distributed.deploy.lost-worker-timeout": "10 minutes",
                "distributed.comm.timeouts.connect": "10s",
                "distributed.worker.multiprocessing-method": "forkserver",
            }
        ),
        preloaded("distributed", "bigforest.execution.worker", "bigforest.training.run", "bigforest.kernels.tree.grow"),
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="package")
def one(client: Client) -> Iterator[Client]:
    """One worker of two threads."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, memory_limit="3GB", **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="package")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "flights.parquet"
    frame().with_columns(late=pl.when(pl.int_range(pl.len()) % 1000 > 0).then("late")).write_parquet(path)
    return path


@pytest.fixture(scope="package")
def expected(table: Path) -> Path:
    """The forest that threads grow."""
    bigforest.train(table, out=table.with_name("expected"), threads=2, scheduler="threads", **CONFIG)
    return table.with_name("expected")


@pytest.fixture(scope="package")
def store(table: Path) -> Store:
    return bigforest.encode_store(table, table.with_name("t.store"), target="late", scheduler="threads")


@pytest.fixture
def all_columns_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = partial(Resources, limits=Limits(cells_per_read=1))
    monkeypatch.setattr(resources_module, "Resources", apart)


@pytest.fixture
def both_alive(client: Client) -> None:
    """Wait until there are two workers: an earlier test has killed one, or let a third one join."""
    client.cluster.scale(2)
    end = time.monotonic() + 300
    while len(client.scheduler_info()["workers"]) != 2:
        assert time.monotonic() < end
        time.sleep(0.05)
