"""Runs the command line in forked children, in which a call of the system fails.

As a script, a server: it loads everything once and forks a child for each order, a line of JSON. It never uses Polars
itself, whose threads a fork would lose.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pickle
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
KILLED = -int(signal.SIGKILL)
# Exit code of a child whose command raised something.
_RAISED = 99
# Number of a call that no command has.
NONE = 1 << 40
# Seconds after which a child is taken for hanging.
_PATIENCE = 120
# Kernels that this process has loaded since it was started or forked: module, name, and types of the arguments.
_kernels: list[tuple[str, str, Any]] = []


@dataclass(frozen=True)
class Answer:
    """The end of a command.

    code   its exit code, or the negative number of its signal
    error  standard error
    call   the call that failed, with the path in the folder, or "" if none did. Unknown of a killed child
    calls  the number of calls, if none failed
    renamings  numbers of the calls that rename something
    """

    code: int
    error: str
    call: str
    calls: int
    renamings: list[int]


class Server:
    """The server, as the tests see it; a context manager. `failing` is the compiled library."""

    def __init__(self, failing: Path) -> None:
        self._failing = failing

    def __enter__(self) -> Server:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.failing_calls.server"],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(self._failing)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def __call__(
        self, command: list[str], folder: Path, call: int = NONE, error: int = 0, *, reads: bool = False, stays: int = 0
    ) -> Answer:
        """Run a command in `folder`, where call number `call` fails with an error; 0 kills.

        reads  True if it is a call that reads, not one that writes.
        stays  which calls fail from then on: 0 none, 1 all that need room, 2 all that change something.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        order = {"command": command, "folder": str(folder), "call": call, "error": error}
        order |= {"reads": reads, "stays": stays}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return Answer(**json.loads(self._server.stdout.readline()))


def compiled(folder: Path) -> Path:
    """Compile the library that makes calls fail. Raises FileNotFoundError where there is no C compiler."""
    library = folder / "failing.so"
    source = Path(__file__).with_name("failing.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def _run(command: list[str], folder: str, call: int, error: int, reads: int, stays: int) -> int:
    """Run a command as a process of its own would; return its exit code."""
    from bigforest_cli.app import main

    os.chdir(folder)
    tempfile.tempdir = str(Path(folder) / "temporary")
    sys.argv = ["bigforest", *command]
    _library().fail_at(folder.encode(), call, error, reads, stays)
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    atexit._run_exitfuncs()
    gc.collect()
    return code


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.fail_at.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    library.failed_call.restype = ctypes.c_char_p
    library.calls_left.restype = ctypes.c_long
    library.renamings.restype = ctypes.c_char_p
    return library


def _answer(order: dict[str, object], home: Path) -> Answer:
    """Fork a child that carries out an order. The server then loads the kernels that the child had to load."""
    printed, call, kernels = home / "printed", home / "call", home / "kernels"
    call.write_text("")
    kernels.write_bytes(pickle.dumps([]))
    child = os.fork()
    if child == 0:
        code = _RAISED
        signal.alarm(_PATIENCE)
        file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(file, 1)
        os.dup2(file, 2)
        try:
            code = _run(**order)  # type: ignore[arg-type]
        finally:
            library = _library()
            call.write_bytes(b"%d\n%s\n%s" % (library.calls_left(), library.renamings(), library.failed_call()))
            kernels.write_bytes(pickle.dumps(_kernels))
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for module, name, types in pickle.loads(kernels.read_bytes()):
        getattr(sys.modules[module], name).compile(types)
    _kernels.clear()
    left, renamings, failed = (call.read_text() or "0\n\n").split("\n", 2)
    return Answer(code, printed.read_text(), failed, NONE - int(left), [*map(int, renamings.split())])


def _warm_up(folder: Path) -> None:
    """Compile the kernels that grow trees, without Polars: the store is of numpy arrays, and no report follows,
    because Polars sorts the scores of classes."""
    from bigforest.columns.dataspec import TargetSpec
    from bigforest.events import silent
    from bigforest.execution.resources import Resources
    from bigforest.forest.files import write_levels
    from bigforest.grow.forest import ForestJob
    from bigforest.options.train_config import TrainConfig
    from bigforest.store.store import Store
    from bigforest.store.writer import PartWriter, StoreWriter
    from bigforest.training.run import grow_forest

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
    grow_forest(job)


def _note_kernels() -> None:
    """Note each kernel that is loaded from now on, and for which types."""
    from bigforest.kernels.compiler.jit import _Kernel

    load = _Kernel.compile

    def compile_and_note(kernel: Any, types: Any) -> Any:
        _kernels.append((kernel.__module__, kernel.__name__, types))
        return load(kernel, types)

    _Kernel.compile = compile_and_note  # type: ignore[method-assign]


def _load() -> None:
    """Load all modules, the command line and the kernels that growing needs, so that children do not."""
    import typer
    from bigforest_cli import app as command_line

    import bigforest

    for module in pkgutil.walk_packages(bigforest.__path__, "bigforest."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    for extra in ("altair", "vl_convert"):  # of plots, which load them when they draw
        with contextlib.suppress(ImportError):
            importlib.import_module(extra)
    importlib.import_module("numba.np.arrayobj")  # of kernels that predict
    command_line.app = typer.main.get_command(command_line.app)
    sys.argv = ["bigforest", "train", "missing.parquet"]
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
        _warm_up(Path(folder))
        with contextlib.redirect_stderr(io.StringIO()):
            command_line.main()
    gc.unfreeze()  # the end of a command freezes, and pauses of the collector count what is frozen
    _note_kernels()


def _serve() -> None:
    _load()
    home = Path(tempfile.mkdtemp())  # a TemporaryDirectory would be removed by the exit handlers of the first child
    for line in sys.stdin:
        print(json.dumps(vars(_answer(json.loads(line), home))), flush=True)
    shutil.rmtree(home)


if __name__ == "__main__":
    _serve()
