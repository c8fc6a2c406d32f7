"""Damaged forests, stores and tables are refused or read, and nothing else: see tests/fuzz."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz import cases, server
from tests.fuzz.cases import KINDS
from tests.fuzz.corpus import CASES
from tests.fuzz.server import Server
from tests.thorough import examples

# Of each kind.
SOME = examples(150)
# Cases that once ended the process (views of missing text, and footers at which Arrow throws where nobody catches), and
# row groups whose numbers of rows contradict that of their file.
FOUND = [
    *((kind, number, None) for kind, number in (("table", 6_001_073), ("table", 6_004_373), ("table", 6_004_845))),
    ("table", 52_474, None),
    ("forest", 60_001_589, None),
]

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forked children"),
    pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="takes minutes when nothing is compiled"),
]


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_verdicts__name_the_step_that_dies_hangs_or_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before: list[int] = []

    def run(kind: str, place: Path, what: str, originals: Path, folder: Path, tell: Callable[[str], None]) -> str:
        seed = int(what)
        tell(f"{what}: step")
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 2:
            time.sleep(30)
        before.append(seed)
        return {3: "3: step: no", 4: "fine 0" if len(before) == 1 else "4: only after others"}.get(seed, "fine 1")

    monkeypatch.setattr(cases, "damaged", lambda kind, originals, seed, *_: (originals, str(seed)))
    monkeypatch.setattr(cases, "run", run)
    monkeypatch.setattr(server, "SECONDS", 1)
    originals = tmp_path / "originals"
    found = server._verdicts([("forest", seed, None) for seed in range(6)], originals)
    assert found == ["fine 1", "1: step: signal 9", "2: step: more than 1 seconds", "3: step: no", "fine 0", "fine 1"]
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def corpus(running: Server) -> dict[str, str]:
    """What came of each case of the corpus."""
    return {str(name): verdict for (_, _, name), verdict in running((name.split()[0], 0, name) for name in CASES)}


@pytest.mark.parametrize("name", CASES)
def test_corpus(corpus: dict[str, str], name: str) -> None:
    assert corpus[name].startswith("fine")


def test_found(running: Server) -> None:
    assert [verdict[:4] for _, verdict in running(FOUND)] == ["fine"] * len(FOUND)


@pytest.mark.parametrize("kind", KINDS)
def test_some(running: Server, kind: str) -> None:
    verdicts = dict(running((kind, seed, None) for seed in range(SOME)))
    assert {case: verdict for case, verdict in verdicts.items() if not verdict.startswith("fine")} == {}
    refused = sum(verdict != "fine 0" for verdict in verdicts.values())
    assert SOME / 3 < refused < SOME  # or nothing was damaged, or everything refused
