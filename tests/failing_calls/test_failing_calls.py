"""Six calls of every command fail: by turns on a full disk, on a broken one, by a kill, as a file may not grow, and on
disks that stay full or turn read-only. Its last renamings are killed."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.failing_calls.commands import COMMANDS, READERS, make_home
from tests.failing_calls.server import Server, compiled
from tests.failing_calls.trials import ERRORS, Trials

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    folder = tmp_path_factory.mktemp("failing")
    make_home(folder / "home", folder / "place")
    with Server(compiled(folder)) as server:
        yield Trials(server, folder)


# A report draws charts for seconds, and is one file, as an export is. The others write in the ways of quick commands.
_SLOW = {"report", "plot", "all parts", "columns", "oblique", "rotation", "tuned", "predict csv", "images", "simulate"}


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=pytest.mark.slow if one in _SLOW else ()) for one in COMMANDS]
)
def test_failing_call(trials: Trials, command: str) -> None:
    found, errors = trials.undisturbed(command), list(ERRORS)
    spread = range(found.calls // 12, found.calls, max(1, found.calls // 6))
    for number, call in enumerate(spread, list(COMMANDS).index(command)):
        trials.fail(command, call, errors[number % len(errors)])
    for call in found.renamings[-3:]:  # where an output takes its place
        trials.fail(command, call, "killed")


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=pytest.mark.slow if one == "report" else ()) for one in READERS]
)
def test_failing_reading(trials: Trials, command: str) -> None:
    calls, errors = trials.readings(command), (errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOENT)
    for number, call in enumerate(range(0, calls, max(1, calls // 12))):
        trials.fail_reading(command, call, errors[number % len(errors)])
