"""Sizes of memory as people write them."""

from __future__ import annotations

import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.execution.resources import Resources
from bigforest.planning.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("4gb", 4 * 10**9), ("512MiB", 512 * 2**20), ("1.5 GiB", 3 * 2**29), ("1000", 1000), (7, 7)],
)
def test_parse_bytes__sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", 0, -5, True, 1.5, None, "1 XB", "1GBGB"])
def test_parse_bytes__anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="memory must be a size"):
        parse_bytes(text)


def test_resources__memory_is_checked():
    with pytest.raises(ConfigError, match="memory"):
        Resources(memory=-1)


@pytest.mark.parametrize(("name", "number"), [("NUMBA_NUM_THREADS", "0"), ("POLARS_MAX_THREADS", "many")])
def test_thread_variables__are_checked_before_others_start(
    monkeypatch: pytest.MonkeyPatch, name: str, number: str
) -> None:
    monkeypatch.setenv(name, number)
    with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 1, not '{number}'"):
        bigforest.__getattr__("train")
