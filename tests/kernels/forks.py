"""Runs scripts in forks of a process that has imported Numba and compiled with it, but knows none of our kernels.

Importing Numba and its first compilation take most of the time of a script that compiles two small kernels. As a
script, the server: it forks a child for each order, a line of JSON.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

from numba.core import config, registry

ROOT = Path(__file__).resolve().parents[2]


@cache
def _server() -> subprocess.Popen[str]:
    """The server, which ends when this process does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.kernels.forks"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)  # type: ignore[call-overload]


def run_forked(script: Path, settings: dict[str, str]) -> str:
    """Run a script in a fork whose environment has the settings, too; return what it prints."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps([str(script), settings]) + "\n")
    server.stdin.flush()
    code, printed = json.loads(server.stdout.readline())
    assert code == 0, printed
    return printed


def _run(script: str, settings: dict[str, str]) -> None:
    """Run a script, as a process of its own would."""
    os.environ.update(settings)
    config.reload_config()
    runpy.run_path(script, run_name="__main__")


def _serve() -> None:
    registry.CPUDispatcher(lambda number: number * 2)(1)
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as printed:
            if os.fork() == 0:
                os.dup2(printed.fileno(), 1)
                os.dup2(printed.fileno(), 2)
                code = 1
                try:
                    _run(*json.loads(line))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.wait()[1])
            printed.seek(0)
            print(json.dumps([code, printed.read()]), flush=True)


if __name__ == "__main__":
    _serve()
