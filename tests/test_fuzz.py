"""Damaged forests, stores and tables are refused or read, and nothing else: see tests/fuzz."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fuzz.cases import KINDS
from tests.fuzz.corpus import CASES
from tests.fuzz.server import Server

# Of each kind.
SOME = 100

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forked children"),
    pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="takes minutes when nothing is compiled"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_corpus(server: Server, name: str) -> None:
    [(_, verdict)] = server([(name.split()[0], 0, name)])
    assert verdict.startswith("fine")


@pytest.mark.parametrize("kind", KINDS)
def test_some(server: Server, kind: str) -> None:
    verdicts = dict(server((kind, seed, None) for seed in range(SOME)))
    assert {case: verdict for case, verdict in verdicts.items() if not verdict.startswith("fine")} == {}
    refused = sum(verdict != "fine 0" for verdict in verdicts.values())
    assert refused > SOME / 3  # or nothing was damaged
