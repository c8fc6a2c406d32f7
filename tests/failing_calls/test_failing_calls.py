"""Every tenth call of every command fails, by turns on a full disk, on a broken one and by a kill."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.failing_calls.commands import COMMANDS, make_home
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


@pytest.mark.parametrize("command", COMMANDS)
def test_failing_call(trials: Trials, command: str) -> None:
    errors = list(ERRORS)
    call = tried = 0
    while trials.fail(command, call, errors[tried % len(errors)]):
        call += 10
        tried += 1
    assert tried
