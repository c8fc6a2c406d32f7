"""Children that try cases, and may die of them; as a script the server that forks them.

The server has loaded and compiled what they need. It has no threads of Polars: of those a child would have none, and
would wait for them for ever.

Each line it reads is a JSON list of cases [kind, seed, name], each that it prints a list of what came of them: "fine n"
where n of the steps were refused with a BigForestError, or else what was wrong. A child tries several cases, because to
start one takes as long as to try one. A case that is not fine there is tried again by a child of its own.
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
from itertools import islice
from pathlib import Path
from types import TracebackType

import numpy as np

import bigforest
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.forest.decreases import importance
from bigforest.forest.files import Header, write_features, write_levels
from bigforest.grow.forest import ForestJob
from bigforest.oob.report import write_oob
from bigforest.options.train_config import TrainConfig
from bigforest.predict.rows import RowBatch
from bigforest.store.store import Store
from bigforest.training.run import grow_forest

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60
MEMORY = 2 << 30
FILE = 1 << 28
TOGETHER = 20  # cases of a child
Case = tuple[str, int, str | None]


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

    def __call__(self, cases: Iterable[Case]) -> Iterator[tuple[Case, str]]:
        """Try cases, each a kind, a seed and perhaps a name of the corpus: each, and what came of it."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        left = iter(cases)
        while batch := list(islice(left, TOGETHER)):
            self._server.stdin.write(json.dumps(batch) + "\n")
            self._server.stdin.flush()
            yield from zip(batch, json.loads(self._server.stdout.readline()), strict=True)


def _child(cases: list[Case], originals: Path, folder: Path, answer: int) -> None:
    """Try cases, and write a line [what, ended] before each step and at the end of each case, which it goes on after
    if it is fine."""
    from tests.fuzz.cases import damaged, run

    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    tempfile.tempdir = str(folder / "tmp")
    (folder / "tmp").mkdir()

    def tell(what: str, ended: bool = False) -> None:
        os.write(answer, (json.dumps([what, ended]) + "\n").encode())

    for number, (kind, seed, name) in enumerate(cases):
        own = folder / str(number)
        own.mkdir()
        try:
            _limit(resource.RLIM_INFINITY, resource.RLIM_INFINITY)  # some cases damage by writing a terabyte of zeros
            place, what = damaged(kind, originals, seed, name, own)
            _limit(MEMORY, FILE)
            verdict = run(kind, place, what, originals, own, tell)
        except BaseException as error:
            verdict = f"the case itself failed: {type(error).__name__}: {error}"
        tell(verdict, ended=True)
        if not verdict.startswith("fine"):
            break
        shutil.rmtree(own, ignore_errors=True)
    os._exit(0)


def _limit(memory: int, file: int) -> None:
    for limit, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_FSIZE, file), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (most, resource.RLIM_INFINITY))


def _tried(cases: list[Case], originals: Path) -> list[str]:
    """What came of the first cases, up to one that is not fine."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=originals.parent))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(cases, originals, folder, writing)
    os.close(writing)
    verdicts: list[str] = []
    last, begun, hangs = "before the first step", time.monotonic(), False
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said = b""
        while True:
            patience = begun + SECONDS - time.monotonic()
            hangs = patience <= 0 or not select.select([pipe], [], [], patience)[0]
            piece = b"" if hangs else pipe.read(1 << 16)
            if not piece:
                break
            *lines, said = (said + piece).split(b"\n")
            for last, ended in map(json.loads, lines):
                if ended:
                    verdicts.append(last)
                    last, begun = "before the first step", time.monotonic()
    if hangs:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    shutil.rmtree(folder, ignore_errors=True)
    if hangs:
        verdicts.append(f"{last}: more than {SECONDS} seconds")
    elif os.WIFSIGNALED(status):
        verdicts.append(f"{last}: signal {os.WTERMSIG(status)}")
    return verdicts


def _verdicts(cases: list[Case], originals: Path) -> list[str]:
    """What came of each case."""
    verdicts: list[str] = []
    while left := cases[len(verdicts) :]:
        verdicts += _tried(left, originals)
        if len(left) > 1 and not verdicts[-1].startswith("fine"):
            verdicts[-1] = _tried(cases[len(verdicts) - 1 : len(verdicts)], originals)[0]
    return verdicts


def _warm_up(originals: Path) -> None:
    """Load and compile what cases need, as far as it can be done without threads of Polars."""
    for name in (
        "revise.revision",
        "training.plan",
        "predict.files",
        "predict.in_memory",
        "source.spool",
        "export.onnx",
        "export.sklearn",
        "export.treelite",
    ):
        importlib.import_module(f"bigforest.{name}")
    for name in importlib.import_module("tests.fuzz.cases").EXPORTS:
        if name != "sql":
            importlib.import_module({"sklearn": "sklearn.ensemble"}.get(name, name))
    for place in sorted((originals / "forest").iterdir()):
        if place.name != "dates":  # Polars makes such classes, with threads
            _predict(bigforest.read_forest(place))
    for place in sorted((originals / "store").iterdir()):
        with tempfile.TemporaryDirectory(dir=originals.parent) as folder:
            _grow(Store.open(place), Path(folder))


def _predict(forest: bigforest.Forest) -> None:
    columns = [np.zeros(3, np.uint8 if f.kind == "category" else np.float64) for f in forest.spec.features]
    for quantiles in [(), (0.5,)] if forest.has_targets else [()]:
        predictor = forest.loader.predictor(forest.rules.make(quantiles=quantiles))
        rows = RowBatch.of([columns[int(place)] for place in predictor.packed.used])
        predictor.predict(rows, 0, proba=not forest.is_regression)


def _grow(store: Store, folder: Path) -> None:
    config = TrainConfig(trees=1, max_depth=3).for_task(store.spec.target.task)
    for name, memory in (("whole", None), ("passes", 400_000_000)):
        resources, directory = Resources(threads=1, memory=memory), folder / name
        directory.mkdir()
        header = Header(store.spec, config, store.levels())
        write_levels(directory, header)
        grow_forest(ForestJob(store, config, directory, resources, silent))
        if store.spec.target.is_regression:  # Polars sorts the scores of classes, with threads
            write_oob(ForestJob(store, config, directory, resources, silent))
        write_features(directory, header, importance(directory, header))


def _serve(originals: Path) -> None:
    _warm_up(originals)
    threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in threads if name == "polars-0"], threads
    for line in sys.stdin:
        print(json.dumps(_verdicts([tuple(case) for case in json.loads(line)], originals)), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
