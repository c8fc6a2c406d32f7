"""Children that each try one case, and may die of it; as a script the server that forks them.

The server has loaded and compiled what they need. It has no threads of Polars: of those a child would have none, and
would wait for them for ever.

Each line it reads is a JSON list [kind, seed, name], each that it prints what came of it: "fine n" where n of the steps
were refused with a BigForestError, or else what was wrong.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

import bigforest
from bigforest.common.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.format.levels import write_levels
from bigforest.forest.format.summary import write_features
from bigforest.forest.load.row_batch import RowBatch
from bigforest.grow.forest import grow_forest
from bigforest.oob.pipeline import write_oob
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60
MEMORY = 2 << 30
FILE = 1 << 28


class Server:
    """The server, as the tests see it; a context manager."""

    def __enter__(self) -> Server:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        originals = Path(self._folder.name, "originals")
        originals.mkdir()
        environment = {**os.environ, "RUST_BACKTRACE": "0", "POLARS_MAX_THREADS": "1"}
        command = [sys.executable, "-m", "tests.fuzz.originals", str(originals)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        command = [sys.executable, "-m", "tests.fuzz.server", str(originals)]
        self._server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        self._folder.cleanup()

    def __call__(
        self, cases: Iterable[tuple[str, int, str | None]]
    ) -> Iterator[tuple[tuple[str, int, str | None], str]]:
        """Try cases, each a kind, a seed and perhaps a name of the corpus: each, and what came of it."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        for case in cases:
            self._server.stdin.write(json.dumps(case) + "\n")
            self._server.stdin.flush()
            yield case, json.loads(self._server.stdout.readline())


def _child(case: tuple[str, int, str | None], originals: Path, folder: Path, answer: int) -> None:
    """Try a case, and write lines about it: the step before it is tried, and at the end what came of it."""
    from tests.fuzz import cases

    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    tempfile.tempdir = str(folder / "tmp")
    (folder / "tmp").mkdir()

    def tell(what: str) -> None:
        os.write(answer, (json.dumps(what) + "\n").encode())

    kind, seed, name = case
    try:
        place, what = cases.damaged(kind, originals, seed, name, folder)
        for limit, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
        tell(cases.run(kind, place, what, originals, folder, tell))
    except BaseException as error:
        tell(f"the case itself failed: {type(error).__name__}: {error}")
    os._exit(0)


def _tried(case: tuple[str, int, str | None], originals: Path) -> str:
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=originals.parent))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(case, originals, folder, writing)
    os.close(writing)
    end, said = time.monotonic() + SECONDS, b""
    with os.fdopen(reading, "rb", buffering=0) as lines:
        while (left := end - time.monotonic()) > 0 and select.select([lines], [], [], left)[0]:
            piece = lines.read(1 << 16)
            if not piece:
                break
            said += piece
    hangs = time.monotonic() >= end
    if hangs:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    shutil.rmtree(folder, ignore_errors=True)
    last = json.loads(said.splitlines()[-1]) if said else "before the first step"
    if hangs:
        return f"{last}: more than {SECONDS} seconds"
    return f"{last}: signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else str(last)


def _warm_up(originals: Path) -> None:
    """Load and compile what cases need, as far as it can be done without threads of Polars."""
    for name in (
        "revise.calibrate",
        "revise.prune",
        "revise.merge",
        "training.plan",
        "predict.files",
        "predict.in_memory",
        "source.spool",
    ):
        importlib.import_module(f"bigforest.{name}")
    importlib.import_module("tests.fuzz.cases")
    for place in sorted((originals / "forest").iterdir()):
        _predict(bigforest.read_forest(place))
    for place in sorted((originals / "store").iterdir()):
        with tempfile.TemporaryDirectory(dir=originals.parent) as folder:
            _grow(Store.open(place), Path(folder))


def _predict(forest: bigforest.Forest) -> None:
    columns = [np.zeros(3, np.uint8 if f.kind == "category" else np.float64) for f in forest.spec.features]
    for quantiles in [(), (0.5,)] if forest.has_targets else [()]:
        predictor = forest.predictor(forest.rule(quantiles=quantiles))
        rows = RowBatch.of([columns[int(place)] for place in predictor.packed.used])
        predictor.answer(rows, 0, proba=not forest.is_regression)


def _grow(store: Store, folder: Path) -> None:
    config = TrainConfig(trees=1, max_depth=3).settled(store.spec.target.task)
    for name, memory in (("whole", None), ("passes", 400_000_000)):
        resources, directory = Resources(threads=1, memory=memory), folder / name
        directory.mkdir()
        write_levels(directory, store.levels(), store.spec, config)
        grow_forest(store, config, directory, resources=resources, listener=silent)
        write_oob(store, config, directory, resources=resources, listener=silent)
        write_features(directory, store.spec, config)


def _serve(originals: Path) -> None:
    _warm_up(originals)
    threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in threads if name == "polars-0"], threads
    for line in sys.stdin:
        print(json.dumps(_tried(tuple(json.loads(line)), originals)), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
