"""Data, store, scratch and forest in an S3-compatible store, and workers that share no folder."""

from __future__ import annotations

import importlib.util
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster

import bigforest
from bigforest.errors import BusyError, ConfigError, DataError, FormatError, OutputExistsError, StorageError
from bigforest.events import Event, StageAdvanced, silent
from bigforest.execution.dask_cluster import Cluster
from bigforest.execution.resources import Resources
from bigforest.forest.parts import part_paths
from bigforest.grow.forest import ForestJob
from bigforest.options.train_config import TrainConfig
from bigforest.planning.sizes import Limits
from bigforest.source.open import open_source
from bigforest.storage import locks, paths
from bigforest.storage.object_store import ObjectPath
from bigforest.storage.paths import as_path, is_remote, local_path
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.encoded import encode
from tests.execution.clusters import BY_PASSES, CONFIG, QUIET
from tests.grow.test_invariance import frame
from tests.s3 import BUCKET, using_store

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.skipif(
        importlib.util.find_spec("moto") is None, reason="moto is not installed; install the extra test"
    ),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the store for this module."""
    with using_store(tmp_path_factory.mktemp("cache")):
        yield as_path(f"s3://{BUCKET}/tests")


@pytest.fixture(scope="module")
def client(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two processes, each with folders of its own for its work, its copies and its temporary files."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for number, address in enumerate(client.scheduler_info()["workers"]):
            client.run(_move_apart, str(tmp_path_factory.mktemp(f"worker-{number}")), workers=[address])
        yield client


def _move_apart(folder: str) -> None:
    """Work in a folder that no other process uses, and fail where a file of another one is opened."""
    import sys
    import tempfile

    os.chdir(folder)
    os.environ["BIGFOREST_CACHE"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
    parent = str(Path(folder).parent)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            path = os.path.abspath(arguments[0])  # noqa: PTH100 (no further files are to be looked at)
            if path.startswith(parent) and not path.startswith(folder):
                raise PermissionError(f"{path} is of another process")

    sys.addaudithook(watch)


@pytest.fixture(scope="module")
def table(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The table here and there."""
    local = tmp_path_factory.mktemp("table") / "flights.parquet"
    frame().with_columns(late=pl.when(pl.int_range(pl.len()) % 1000 > 0).then("late")).write_parquet(local)
    paths.copy(local, home / "flights.parquet")
    return local, home / "flights.parquet"


@pytest.fixture(scope="module")
def expected(table: tuple[Path, Path]) -> Path:
    """The forest that threads grow from local files."""
    out = table[0].with_name("expected")
    bigforest.train(table[0], out=out, threads=2, scheduler="threads", **CONFIG)
    return out


@pytest.fixture(scope="module")
def store(table: tuple[Path, Path], home: Path, client: Client) -> Store:
    return bigforest.encode_store(table[1], home / "t.store", target="late", scheduler=client)


def assert_same_files(out: Path, expected: Path) -> None:
    """All files that do not hold times are the same."""
    for file in sorted(expected.rglob("*.parquet")):
        if file.name != "run.parquet":
            assert local_path(out / file.relative_to(expected)).read_bytes() == file.read_bytes(), file.name


def test_workers__cannot_read_files_of_each_other(client: Client, tmp_path_factory: pytest.TempPathFactory) -> None:
    (tmp_path_factory.getbasetemp() / "secret").write_text("local")
    with pytest.raises(PermissionError, match="of another process"):
        client.submit(_read, str(tmp_path_factory.getbasetemp() / "secret")).result()


def _read(path: str) -> str:
    return Path(path).read_text()


def test_train__all_in_the_object_store(client: Client, table: tuple[Path, Path], expected: Path, home: Path) -> None:
    out = home / "a.forest"
    forest = bigforest.train(str(table[1]), out=str(out), scheduler=client, **CONFIG)
    assert_same_files(out, expected)
    assert not (home / "a.forest.unfinished").exists()
    assert forest.nodes.collect().height == pl.read_parquet(expected / "trees" / "*.parquet").height
    assert forest.oob.rows.collect().height == bigforest.read_forest(expected).oob.rows.collect().height
    with pytest.raises(OutputExistsError):
        bigforest.train(str(table[1]), out=str(out), scheduler="threads", **CONFIG)
    bigforest.train(resume=out, trees=8, scheduler="threads")
    bigforest.train(table[0], out=expected.with_name("eight"), scheduler="threads", **(CONFIG | {"trees": 8}))
    assert_same_files(out, expected.with_name("eight"))


@pytest.mark.slow
def test_train__wide_weights(client: Client, home: Path, tmp_path: Path) -> None:
    from tests.execution.test_cluster_train import WEIGHTED, weighted

    weighted("classification").write_parquet(tmp_path / "w.parquet")
    paths.copy(tmp_path / "w.parquet", home / "w.parquet")
    options = WEIGHTED | {"trees": 24}
    forest = bigforest.train(tmp_path / "w.parquet", out=tmp_path / "w.forest", scheduler="threads", **options)
    assert forest.spec.wide_weights
    for number, scheduler in enumerate((client, "threads")):
        out = home / f"w-{number}.forest"
        bigforest.train(str(home / "w.parquet"), out=str(out), scheduler=scheduler, **options)
        assert_same_files(out, tmp_path / "w.forest")
        assert not (out / "light").exists()


@pytest.mark.slow
def test_train__on_a_store(client: Client, store: Store, table: tuple[Path, Path], expected: Path, home: Path) -> None:
    assert is_remote(store.path)
    here = bigforest.encode_store(table[0], expected.with_name("t.store"), target="late", scheduler="threads")
    assert here.fingerprint == store.fingerprint
    forest = bigforest.train(store.path, out=home / "b.forest", scheduler=client, **CONFIG)
    assert_same_files(home / "b.forest", expected)
    bigforest.predict_file(forest, table[1], home / "b.parquet", scheduler=client, proba=True)
    bigforest.predict_file(expected, table[0], expected.with_name("b.parquet"), scheduler="threads", proba=True)
    assert pl.read_parquet(local_path(home / "b.parquet")).equals(pl.read_parquet(expected.with_name("b.parquet")))


def test_grow__by_passes(client: Client, store: Store, table: tuple[Path, Path], tmp_path: Path, home: Path) -> None:
    config = TrainConfig(trees=1, seed=3, max_depth=5)
    scratch = home / "scratch"
    scratch.mkdir()
    cluster = Resources(threads=1, scratch=scratch, cluster=Cluster(client))
    here = bigforest.encode_store(table[0], tmp_path / "t.store", target="late", scheduler="threads")
    grow_forest(ForestJob(here, config, tmp_path / "a", Resources(threads=1), silent))
    grow_forest(ForestJob(store, config, home / "passes", cluster, silent), plan=BY_PASSES)
    contents = [
        [local_path(path).read_bytes() for path in part_paths(place)] for place in (tmp_path / "a", home / "passes")
    ]
    assert contents[0] == contents[1]
    assert not list(scratch.rglob("*"))


def test_encode__in_pieces(client: Client, table: tuple[Path, Path], tmp_path: Path, home: Path) -> None:
    scratch = home / "pieces"
    scratch.mkdir()
    limits = Limits(presort_rows=20_000, slice_rows=7_000)
    for data, out, resources in (
        (table[0], tmp_path / "s", Resources(threads=1)),
        (table[1], home / "s", Resources(threads=1, scratch=scratch, cluster=Cluster(client), limits=limits)),
    ):
        source = open_source(str(data), scratch=tmp_path)
        encode(source, "late", out, resources=resources, listener=silent)
    for file in (tmp_path / "s").iterdir():
        assert local_path(home / "s" / file.name).read_bytes() == file.read_bytes(), file.name
    assert not list(scratch.rglob("*"))


def test_resume__on_another_machine(client: Client, table: tuple[Path, Path], expected: Path, home: Path) -> None:
    out = home / "c.forest"

    def fail(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        bigforest.train(table[1], out=out, scheduler=client, listener=fail, **CONFIG)
    assert f"train(resume='{out}')" in caught.value.__notes__[0]
    assert not out.exists()
    with pytest.raises(OutputExistsError, match="unfinished run"):
        bigforest.train(table[1], out=out, scheduler="threads", **CONFIG)
    bigforest.train(resume=out, threads=1, scheduler="threads")
    assert_same_files(out, expected)


def test_lock__of_a_dead_process_is_given_up(home: Path) -> None:
    folder = home / "locked"
    folder.mkdir()
    first = locks.take_lock(folder / "lock")
    assert first is not None
    assert first.held()
    assert locks.take_lock(folder / "lock") is None
    first.close()
    again = locks.take_lock(folder / "lock")
    assert again is not None
    after = locks.take_lock(folder / "lock", dead=-1.0)
    assert after is not None
    assert not again.held()
    for taken in (again, after):
        taken.close()
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_lock__outlives_a_store_that_does_not_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "outage"
    folder.mkdir()
    taken = locks.take_lock(folder / "lock", beat=0.05)
    assert taken is not None
    lease = next(folder.glob("lease-*"))
    asked = threading.Event()

    def fails(path: ObjectPath, **_: Any) -> bool:
        asked.set()
        raise StorageError("the store does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(ObjectPath, "exists", fails)
        assert asked.wait(60)
    put = lease.stat().st_mtime_ns
    deadline = time.monotonic() + 60
    while lease.stat().st_mtime_ns == put and time.monotonic() < deadline:
        time.sleep(0.2)
    assert lease.stat().st_mtime_ns > put
    taken.close()
    assert not lease.exists()


def test_train__while_another_run_writes(table: tuple[Path, Path], home: Path) -> None:
    folder = home / "d.forest.unfinished"
    folder.mkdir()
    taken = locks.take_lock(folder / "lock")
    assert taken is not None
    with pytest.raises(BusyError, match="another run"):
        bigforest.train(table[1], out=home / "d.forest", scheduler="threads", **CONFIG)
    taken.close()


def test_store__fetches_what_is_asked_for(store: Store) -> None:
    store = Store.open(store.path)
    here = sum(block.st_blocks * 512 for block in (path.stat() for path in store.folder.iterdir()))
    store.fetch([0], range(1, 2))
    assert store._files is not None
    assert store._files.copy is not None
    assert store._files.copy._fetched.sum() == 2  # of one feature and the target
    assert here < sum(path.stat().st_size for path in store.folder.iterdir())
    threads = [threading.Thread(target=store.fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store._files.copy._fetched.all()
    store.verify()
    folder = store.folder
    del store
    assert not folder.exists()


def test_store__some_of_its_rows_have_their_values(store: Store) -> None:
    """Trees by which options are chosen: their thresholds were 0."""
    store = Store.open(store.path, verify=False)
    some = store.of_rows(np.arange(2))
    found = some.values(0, 2)
    assert np.array_equal(found, store.values(0, 2))
    assert found.any()


def test_store__goes_on_after_a_fetch_that_failed(store: Store, home: Path, tmp_path: Path) -> None:
    target = home / "gone.store" / "target.bin"
    paths.copy_folder(store.path, target.parent)
    paths.copy(target, tmp_path / "target.bin")
    store = Store.open(target.parent)
    target.unlink()  # the codes of features can still be fetched
    with pytest.raises(OSError):
        store.fetch()
    paths.copy(tmp_path / "target.bin", target)
    again = threading.Thread(target=store.fetch, daemon=True)
    again.start()
    again.join(60)
    assert not again.is_alive()
    store.verify()


def test_store__damage_is_found_when_it_is_fetched(store: Store, home: Path, tmp_path: Path) -> None:
    paths.copy_folder(store.path, tmp_path / "copy")
    victim = tmp_path / "copy" / "target.bin"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    paths.copy_folder(tmp_path / "copy", home / "damaged.store")
    damaged = Store.open(home / "damaged.store")
    damaged.labels(0, 10)
    for _ in range(2):
        with pytest.raises(
            FormatError,
            match=r"target\.bin, block 1: the checksum differs; the store is",
        ):
            _ = damaged.target


def test_copies__stay_within_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGFOREST_CACHE", str(tmp_path))
    monkeypatch.setenv("BIGFOREST_CACHE_SIZE", "100")
    held = paths.ObjectCache()
    first = held.file(("a",), 60, lambda path: path.write_bytes(b"a" * 60))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="BIGFOREST_CACHE_SIZE"), held.counting(60):
        pass
    held = paths.ObjectCache(keep_seconds=-1.0)
    first = held.file(("a",), 60, lambda path: path.write_bytes(b"a" * 60))  # type: ignore[arg-type, return-value]
    second = held.file(("b",), 60, lambda path: path.write_bytes(b"b" * 60))  # type: ignore[arg-type, return-value]
    assert (first.exists(), second.exists()) == (False, True)
    with pytest.raises(ConfigError), held.counting(101):
        pass
    copy = tmp_path / "folder"
    for _ in range(2):  # a folder that was dropped does not count, nor a block that failed
        with held.counting(60, copy):
            copy.mkdir()
        held.drop(copy)
        with pytest.raises(ValueError, match="failed"), held.counting(60, copy):
            raise ValueError("failed")
    assert not copy.exists()


def test_place__is_never_a_local_path(home: Path) -> None:
    place = as_path(Path("s3://bucket/a/b.parquet"))
    assert str(place) == "s3://bucket/a/b.parquet" == str(pickle.loads(pickle.dumps(place)))
    assert (place.name, str(place.parent), str(place.with_suffix(".x"))) == (
        "b.parquet",
        "s3://bucket/a",
        "s3://bucket/a/b.x",
    )
    for careless in (os.fspath, open, os.listdir, np.fromfile):
        with pytest.raises(TypeError):
            careless(place)  # type: ignore[operator]
    with pytest.raises(ValueError, match="reading"):
        place.open("wb")


@pytest.mark.parametrize("text", ["http://host/t.parquet", "gs://bucket/a.forest", "S3://b/x"])
def test_place__of_another_scheme(text: str) -> None:
    scheme = text.partition("//")[0]
    for call in (bigforest.read_forest, lambda path: bigforest.train(path, "y")):
        with pytest.raises(ConfigError, match=f"URLs of {scheme}// are not read; .* or s3://bucket/name"):
            call(text)


@pytest.mark.parametrize("text", ["s3://", "s3:///", "s3://*/x.parquet"])
def test_place__without_a_bucket(text: str) -> None:
    with pytest.raises(ConfigError, match="names no bucket"):
        as_path(text)


def test_glob__same_files_as_on_a_disk(home: Path, tmp_path: Path) -> None:
    files = ["1.csv", ".2.csv", "a/3.csv", "a/b/4.csv", "a/.c/5.csv", ".d/6.csv"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
        paths.copy(tmp_path / file, home / "globs" / file)
    for pattern in ("*", ".*", "**", "**/*.csv", "a/**/*.csv", "**/b/**", "**/.c/*", "*/*", ".d/*"):
        found = [file.relative_to(tmp_path).parts for file in paths.expanded(tmp_path / pattern)]
        objects = [file.relative_to(home / "globs").parts for file in paths.expanded(home / "globs" / pattern)]
        assert objects == found, pattern


def test_source__kinds_of_tables(table: tuple[Path, Path], home: Path, tmp_path: Path) -> None:
    data = pl.read_parquet(table[0]).head(300)
    for name, write in (("x.csv", data.write_csv), ("x.ndjson", data.write_ndjson), ("x.arrow", data.write_ipc)):
        write(tmp_path / name)
        paths.copy(tmp_path / name, home / "tables" / name)
        forests = [
            bigforest.train(
                place / name,
                target="late",
                trees=2,
                exclude=["carrier"] if "carrier" in data.columns else [],
                scheduler="threads",
            )
            for place in (tmp_path, home / "tables")
        ]
        assert forests[0].nodes.collect().equals(forests[1].nodes.collect())
    data.head(200).write_parquet(tmp_path / "0.parquet")
    data.tail(100).write_parquet(tmp_path / "1.parquet")
    for name in ("0.parquet", "1.parquet"):
        paths.copy(tmp_path / name, home / "parts" / name)
    for pattern in (
        home / "parts",
        str(home / "pa*" / "[01].parquet"),
        str(home.parent / "**" / "parts" / "*.parquet"),
    ):
        source = bigforest.train(pattern, target="late", trees=1, scheduler="threads")
        assert source.spec.rows + source.spec.dropped == 300
    for missing in (home / "none", str(home / "none*")):
        with pytest.raises(DataError, match=r"no such|no file"):
            bigforest.train(missing, target="late", scheduler="threads")
