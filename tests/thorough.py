"""How much is tested: by default every behaviour on some examples, with `pytest --thorough` on all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

_thorough = False


def be_thorough(wanted: bool) -> None:
    """Set before tests are imported; conftest.py does."""
    global _thorough
    _thorough = wanted


def examples(number: int) -> int:
    """How many examples to draw where a thorough run draws `number`."""
    return number if _thorough else min(number, max(number // 5, 8))


def cases(values: Iterable[Any], quick: int) -> list[Any]:
    """Parameters of a test: the first `quick` are always tried, the rest in a thorough run."""
    listed = list(values)
    slow = [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in listed[quick:]
    ]
    return listed[:quick] + slow
