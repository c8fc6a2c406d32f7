"""One trial: a command of which a call fails, and the check of everything that may be seen afterwards."""

from __future__ import annotations

import errno
import os
import pickle
import re
from pathlib import Path

from bigforest.kernels.compiler.cache import folders
from tests.failing_calls.commands import COMMANDS, READERS, content, lay
from tests.failing_calls.server import KILLED, NONE, Answer, Server

# Errors of a call; 0 is SIGKILL.
ERRORS = {
    "full": errno.ENOSPC,
    "broken": errno.EIO,
    "killed": 0,
    "too large": errno.EFBIG,
    "stays full": errno.ENOSPC,
    "read-only": errno.EROFS,
}
# Errors after which further calls fail, see `Server.__call__`.
_STAYS = {"stays full": 1, "read-only": 2}


class Trials:
    """Trials of commands in a folder with a subfolder `home`, which has their tables and forests."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._home, self._place = folder / "home", folder / "place"
        self._before: dict[str, dict[str, bytes]] = {}
        self._expected: dict[str, dict[str, bytes]] = {}
        self._right: set[tuple[str, bytes]] = set()  # commands and contents from which they went on as they should

    def undisturbed(self, command: str) -> Answer:
        """Run a command undisturbed, and keep what it makes for comparison."""
        before = None
        while (kernels := len(list(folders()[0].iterdir()))) != before:  # again if it has compiled some
            before = kernels
            lay(COMMANDS[command], self._home, self._place)
            self._before[command] = content(self._place)
            answer = self._run(COMMANDS[command].line)
            if answer.code != 0:
                raise ValueError(f"{command} does not run: {answer}")
        self._expected[command] = content(self._place)
        return answer

    def fail(self, command: str, call: int, error: str) -> None:
        """Let a call of a command fail, let it go on, and check all. After `undisturbed`."""
        lay(COMMANDS[command], self._home, self._place)
        answer = self._run(COMMANDS[command].line, call, ERRORS[error], stays=_STAYS.get(error, 0))
        about = f"{command}, call {call} {error}: {answer}"
        assert answer.code in (0, 2, KILLED), about
        made = content(self._place)
        if answer.code == 0 and (
            error == "read-only" or answer.call.startswith("remove")
        ):  # the next command removes it
            assert {**made, **self._expected[command]} == made, about
        elif answer.code == 0:  # the call does not matter
            assert made == self._expected[command], about
            return
        assert answer.code == 0 or (answer.code == KILLED) == (error == "killed"), about
        if answer.code == 2:
            assert answer.call, about
            lines = answer.error.splitlines()
            assert len(lines) == 1, about
            assert lines[0].startswith("error: "), about
            assert _names_file(answer) or (error in _STAYS and str(self._place) in answer.error), about
        self._check_output(command, made, about)
        state = command, pickle.dumps(made)
        if state not in self._right:
            self._go_on(command, about)
            self._right.add(state)

    def readings(self, command: str) -> int:
        """Return the number of calls of a command that read."""
        lay(READERS[command], self._home, self._place)
        return self._run(READERS[command].line, reads=True).calls

    def fail_reading(self, command: str, call: int, error: int) -> None:
        """Let a call that reads fail: an error names the file, and calls nothing damaged that may be sound."""
        lay(READERS[command], self._home, self._place)
        answer = self._run(READERS[command].line, call, error, reads=True)
        about = f"{command}, call {call}: {answer}"
        assert answer.code in (0, 2), about
        if answer.code == 2:
            assert answer.error.count("\n") == 1, about
            assert not re.search("damaged|restore|not a", answer.error), about
            assert _names_file(answer), about
            assert os.strerror(error) in answer.error, about

    def _check_output(self, command: str, left: dict[str, bytes], about: str) -> None:
        """What has the name of the output is all of it, or still the output from before."""
        if COMMANDS[command].line[0] in ("compare", "explain", "plot"):  # folders of files, each of which is whole
            return
        there, expected, before = (
            {name: bytes for name, bytes in found.items() if name.split("/")[0] == COMMANDS[command].out}
            for found in (left, self._expected[command], self._before[command])
        )
        assert there in ({}, expected, before), about
        kept = [bytes for name, bytes in sorted(left.items()) if re.match(r"\.?out\.[^/]*/replaced", name)]
        assert there or [bytes for _, bytes in sorted(before.items())] in ([], kept), about

    def _go_on(self, command: str, about: str) -> None:
        trial = COMMANDS[command]
        old = trial.before[1] if trial.before is not None else None
        begun = any((self._place / name).exists() for name in ("out", "out.unfinished/forest") if name != old)
        answer = self._run(trial.again if begun and trial.again is not None else trial.line)
        complete = answer.code == 2 and "already exists" in answer.error
        assert answer.code == 0 or complete, (about, answer)
        made, expected = content(self._place), self._expected[command]
        differ = sorted(name for name in made | expected if made.get(name) != expected.get(name))
        assert not differ, (about, differ)

    def _run(self, line: list[str], call: int = NONE, error: int = 0, *, reads: bool = False, stays: int = 0) -> Answer:
        memory = (self._home / "memory").read_text()
        words = [word.replace("SMALLEST", memory).replace("HOME", str(self._home)) for word in line]
        return self._server(words, self._place, call, error, reads=reads, stays=stays)


def _names_file(answer: Answer) -> bool:
    """Return True if an error names the file of the failed call, its folder, the output of these, or a disk.

    Advice on resuming names the output too, but does not count.
    """
    path = Path("place", answer.call.partition(" ")[2].lstrip("/"))
    working = r"^(?:\.(.*)\.(?:[0-9a-f]{16}\.tmp|[0-9a-f]{8}-\w+)|(.*)\.unfinished)$"
    names = [re.sub(working, r"\1\2", name) for name in path.parts[1:] or path.parts]
    error = answer.error.partition("; continue with ")[0]
    told = re.search("on the disk of|largest size|cannot write to", error)
    return told is not None or any(re.search(rf"[ /]{re.escape(name)}\b", error) for name in names)
