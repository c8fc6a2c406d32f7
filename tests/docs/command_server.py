"""Runs what a shell calls `bigforest` in one process that stays: Python, Polars and the kernels are loaded once, not
for each command of a page. A command gets the words, folder, environment and open files that the shell gave it.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import traceback
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent


class CommandServer:
    """The process, as the tests see it; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "socket")

    def __enter__(self) -> CommandServer:
        command = [sys.executable, "-m", "tests.docs.command_server", self._address]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def shell_function(self) -> str:
        """Bash by which `bigforest` is run by this process."""
        client = shlex.join([sys.executable, "-I", "-S", str(FOLDER / "command_client.py"), self._address])
        return f'bigforest() {{ {client} "$@"; }}'


def _receive(connection: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Words, folder and environment of a command; its files become our files 0, 1 and 2."""
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    with connection.makefile("rb") as stream:
        words, folder, environment = json.loads(stream.read(int.from_bytes(size, "big")))
    return words, folder, environment


def _run(words: list[str], folder: str, environment: dict[str, str]) -> int:
    """The exit code of a command."""
    from cli.app import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["bigforest", *words]
    with open(0, closefd=False) as stdin, open(1, "w", closefd=False) as out, open(2, "w", closefd=False) as err:
        sys.stdin, sys.stdout, sys.stderr = stdin, out, err
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            return 1
    return 0


def _serve(address: str) -> None:
    """Run commands until the process is ended."""
    import typer

    from cli import app as command_line

    command_line.app = typer.main.get_command(command_line.app)
    nothing = os.open(os.devnull, os.O_RDWR)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            with connection:
                code = _run(*_receive(connection))
                for number in range(3):  # a reader of a pipe waits until nobody has it open
                    os.dup2(nothing, number)
                connection.sendall(bytes([code]))


if __name__ == "__main__":
    _serve(sys.argv[1])
