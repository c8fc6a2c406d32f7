"""A forest for the tests of the command line that read one."""

from __future__ import annotations

from pathlib import Path

import pytest

import bigforest
from tests.commands import frame


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forest of five trees on things.parquet, which lies beside it. Tests that change it copy it."""
    out = tmp_path_factory.mktemp("grown") / "things.forest"
    frame().write_parquet(out.parent / "things.parquet")
    bigforest.train(out.parent / "things.parquet", trees=5, out=out)
    return out
