"""Sizes of memory as people write them."""

from __future__ import annotations

import pytest

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
