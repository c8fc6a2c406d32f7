"""Values that tasks of a process share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier

import pytest

from bigforest.execution.process_cache import ProcessCache


def test_get__makes_a_value_once_whoever_asks() -> None:
    cache: ProcessCache[int] = ProcessCache(3)
    made, together = count(), Barrier(8)

    def ask(key: int) -> int:
        together.wait()
        return cache.get(key % 2, lambda: next(made))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert len(set(found[::2])) == len(set(found[1::2])) == 1
    assert set(found) == {0, 1}
    assert next(made) == 2


def test_get__keeps_those_asked_for_last() -> None:
    cache: ProcessCache[int] = ProcessCache(2)
    made = count()
    assert [cache.get(key, lambda: next(made)) for key in "abacab"] == [0, 1, 0, 2, 0, 3]  # c took the place of b
    cache.forget("a")
    cache.forget("a")
    assert cache.get("a", lambda: next(made)) == 4


def test_get__keeps_nothing_that_failed() -> None:
    cache: ProcessCache[int] = ProcessCache(1)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)
    assert cache.get("a", lambda: 7) == 7
