"""The command line on an object store: every path may be s3://, and what is wrong is said in one line."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numba
import polars as pl
import pytest

from bigforest.explain.tables import Explanation
from bigforest.storage import paths
from bigforest.storage.object_store import ObjectPath
from bigforest.storage.paths import as_path, local_path
from tests.commands import Run, folder, frame, run
from tests.s3 import BUCKET, credentials, forget_store, free_port, using_store

__all__ = ["folder", "run"]  # fixtures

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="compiles a forest several times over"),
    pytest.mark.skipif(
        importlib.util.find_spec("moto") is None, reason="moto is not installed; install the extra test"
    ),
]
HOME = f"s3://{BUCKET}/cli"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table in a store of this module."""
    folder = tmp_path_factory.mktemp("table")
    with using_store(folder):
        frame().write_parquet(folder / "things.parquet")
        paths.copy(folder / "things.parquet", as_path(f"{HOME}/things.parquet"))
        yield f"{HOME}/things.parquet"


def test_commands__all_paths_in_the_store(table: str, folder: Path, run: Run) -> None:
    here = run.json("train", "things.parquet", "--out", "a.forest", "--trees", "4")
    there = run.json("train", table, "--out", f"{HOME}/a.forest", "--trees", "3", "--scratch", HOME)
    assert there["forest"] == f"{HOME}/a.forest"
    again = run.json("train", "--resume", f"{HOME}/a.forest", "--trees", "4")
    assert again["oob"] == here["oob"]
    assert run.json("inspect", f"{HOME}/a.forest")["origin"]["data"] == table
    run.json("encode", table, "--out", f"{HOME}/things.store")
    run.json("train", f"{HOME}/things.store", "--out", f"{HOME}/b.forest", "--trees", "4", "--seed", "1")
    for place in (HOME, "."):
        data = table if place == HOME else "things.parquet"
        run("predict", f"{place}/a.forest", data, "--out", f"{place}/answers.parquet", "--proba", "--json")
        assert run.code == 0, run.err
    assert pl.read_parquet(local_path(as_path(f"{HOME}/answers.parquet"))).equals(pl.read_parquet("answers.parquet"))
    merged = run.json("merge", f"{HOME}/a.forest", f"{HOME}/b.forest", "--out", f"{HOME}/both.forest")
    assert (merged["trees"], merged["merged"][0]["forest"]) == (8, f"{HOME}/a.forest")
    assert run.json("oob", f"{HOME}/a.forest")["error"] == run.json("oob", "a.forest")["error"]
    assert run.json("prune", f"{HOME}/a.forest", table, "--out", f"{HOME}/c.forest")["forest"] == f"{HOME}/c.forest"
    run.json("simulate", "trunk", "--rows", "20", "--dims", "2", "--out", f"{HOME}/trunk.parquet")
    assert run.json("plan", f"{HOME}/trunk.parquet", "--out", f"{HOME}/x.forest")["rows"] == 20
    left = [path.name for path in as_path(HOME).iterdir()]
    made = ["a.forest", "answers.parquet", "b.forest", "both.forest", "c.forest", "things.parquet", "things.store"]
    assert left == [*made, "trunk.parquet"]


def test_overwrite__replaces_what_is_ours_only(table: str, folder: Path, run: Run) -> None:
    out = f"{HOME}/over.forest"
    for trees in (5, 2):
        run("train", table, "--out", out, "--trees", str(trees), "--overwrite", "--quiet")
        assert run.code == 0, run.err
    assert run.json("inspect", out)["trees"] == 2
    paths.copy(folder / "things.parquet", as_path(f"{HOME}/yours/things.parquet"))
    run("train", table, "--out", f"{HOME}/yours", "--overwrite")
    assert (run.code, "is not overwritten" in run.err) == (2, True)
    run("train", table, "--out", out)
    assert (run.code, "already exists" in run.err) == (2, True)


def test_explanation__lists_its_folder_as_often_with_many_tables(
    table: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lists(path: str) -> int:
        """How often the store is asked for the names in a folder while a table of an explanation is opened."""
        asked = []
        with monkeypatch.context() as patch:
            patch.setattr(ObjectPath, "_list_entries", lambda *a, **k: asked.append(a) or listed(*a, **k))
            Explanation(path).scan("b")
        return len(asked)

    listed = ObjectPath._list_entries
    for name in ("few/b", "many/a", "many/b", *(f"many/{letter}/part-0" for letter in "cdef")):
        paths.copy(folder / "things.parquet", as_path(f"{HOME}/{name}.parquet"))
    assert Explanation(f"{HOME}/many").tables == ["a", "b", "c", "d", "e", "f"]
    assert lists(f"{HOME}/many") == lists(f"{HOME}/few")


@contextmanager
def refusing() -> Iterator[str]:
    """The address of a server that denies everything, as a store does to clients without credentials."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(403)
            self.end_headers()

        do_GET = do_PUT = do_HEAD

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_errors__one_line_and_exit_2(table: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*args: str) -> str:
        run(*args)
        assert (run.code, run.out, run.err.count("\n")) == (2, "", 1), run.err
        return run.err

    nowhere = "s3://bigforest-nowhere/x"
    for args in (
        ("train", f"{nowhere}.parquet"),
        ("train", table, "--out", f"{nowhere}.forest"),
        ("train", table, "--out", "x.forest", "--scratch", nowhere),
        ("train", "--resume", f"{nowhere}.forest"),
        ("inspect", f"{nowhere}.forest"),
        ("predict", f"{nowhere}.forest", table, "--out", "x.parquet"),
    ):
        assert "there is no such bucket at http://127.0.0.1" in check(*args)
    assert "no such file" in check("train", f"{HOME}/none.parquet")
    assert not list(folder.glob("x*"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    forget_store()
    assert "does not answer; check AWS_ENDPOINT_URL" in check("train", table)
    with refusing() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        for name in credentials("http://unused"):
            if "KEY" in name:
                monkeypatch.delenv(name)
        forget_store()
        assert "denies access; check the credentials" in check("train", table)
    monkeypatch.undo()
    forget_store()
