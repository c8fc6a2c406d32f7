"""Runs trainings in child processes that are killed at a chosen moment.

As a script, a server: it loads everything once and grows a forest, then forks a child per order, which costs
milliseconds where a fresh interpreter costs seconds. It never uses Polars itself, whose threads a fork would lose:
its own store is made of numpy arrays, and has three classes, because Polars sorts the scores of two. An order is one
line of JSON, a list of children that run at once, each with

    train    keywords of bigforest.train
    event    [stage, n]: die by SIGKILL at the n-th advance of the stage, 0 being its start
    call     n: die before the n-th rename or fsync
    end      n: die before the n-th rename, fsync or removal, counted from the first renaming of or to `out` or `resume`
    delay    seconds after which to die
    fsize    the largest file that may be written, in bytes

and the answer is a list of [signal, error]: the signal the child died of or 0, and its exception in words or "".
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KILLED = int(signal.SIGKILL)


class Killing:
    """The server, as the tests see it; a context manager."""

    def __enter__(self) -> Killing:
        self._server = subprocess.Popen(
            [sys.executable, __file__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def __call__(self, *children: dict[str, Any]) -> list[tuple[int, str]]:
        """Run the children at once; see above."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(children) + "\n")
        self._server.stdin.flush()
        return [(died, error) for died, error in json.loads(self._server.stdout.readline())]

    def train(self, train: dict[str, Any], **order: Any) -> bool:
        """One child; whether it was killed. An error of its own fails the test."""
        [(died, error)] = self({"train": train, **order})
        assert died in (0, KILLED)
        assert error == ""
        return died == KILLED


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _listener(stage: str, number: int) -> Any:
    from bigforest.events import StageAdvanced, StageStarted

    seen = -1

    def listen(event: object) -> None:
        nonlocal seen
        if isinstance(event, StageStarted | StageAdvanced) and event.stage == stage:
            seen += 1
            if seen == number:
                _die()

    return listen


def die_at_call(names: tuple[str, ...], number: int, after: str | None) -> None:
    """Die before call `number` of the functions `names` of os, counted from the first with the path `after`."""
    left = number
    begun = after is None

    def counting(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left, begun
            begun = begun or after in map(str, args)
            left -= begun
            if left < 0:
                _die()
            return function(*args, **options)

        return call

    for name in names:
        setattr(os, name, counting(getattr(os, name)))


def _run(order: dict[str, Any]) -> None:
    import bigforest

    if "fsize" in order:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["fsize"], order["fsize"]))
    if "call" in order:
        die_at_call(("rename", "replace", "fsync"), order["call"], None)
    if "end" in order:
        out = order["train"].get("out") or order["train"]["resume"]
        die_at_call(("rename", "replace", "fsync", "unlink", "rmdir"), order["end"], out)
    if "delay" in order:
        timer = threading.Timer(order["delay"], _die)
        timer.daemon = True
        timer.start()
    options = {"listener": _listener(*order["event"])} if "event" in order else {}
    bigforest.train(**order["train"], **options)


def _child(order: dict[str, Any], answer: int) -> None:
    try:
        _run(order)
    except BaseException as error:
        os.write(answer, f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}".encode())
        os._exit(1)
    os._exit(0)


def warm_up(folder: Path) -> None:
    """Load and compile whatever a training needs after encoding."""
    from bigforest.columns.dataspec import TargetSpec
    from bigforest.events import silent
    from bigforest.execution.resources import Resources
    from bigforest.forest.files import write_levels, write_run
    from bigforest.forest.origin import Origin
    from bigforest.grow.forest import ForestJob
    from bigforest.options.train_config import TrainConfig
    from bigforest.store.store import Store
    from bigforest.store.writer import PartWriter, StoreWriter
    from bigforest.training.run import grow_forest, write_report

    codes, values = np.arange(100, dtype=np.uint8), np.arange(100.0)
    with StoreWriter(folder / "s", max_bins="exact") as writer:
        writer.add_rows(codes % 3, None)
        with PartWriter(writer.parts, 0) as part:
            part.values(values, None)
            part.end_feature("x", "Float64", [codes])
            writer.append(part.part())
        writer.finish(TargetSpec("y", "Int64", (0, 1, 2)), 0)
    store = Store.open(folder / "s")
    (folder / "f").mkdir()
    config = TrainConfig(trees=2).for_task("classification")
    job = ForestJob(store, config, folder / "f", Resources(threads=1), silent)
    write_levels(job.directory, job.header())
    choices, _ = write_report(job, grow_forest(job, keep=True))
    write_run(job.directory, {}, 1, job.header(), Origin(None, (), store.fingerprint), choices)


def _serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        warm_up(Path(folder))
    for line in sys.stdin:
        running = []
        for order in json.loads(line):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                _child(order, writing)
            os.close(writing)
            running.append((child, reading))
        answers = []
        for child, reading in running:
            with os.fdopen(reading) as answer:
                error = answer.read()
            status = os.waitpid(child, 0)[1]
            answers.append([os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, error])
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    _serve()
