"""`frame.bigforest.train` is `bigforest.train` with the frame as its data."""

from __future__ import annotations

import inspect
from typing import Any

import polars as pl
import pytest

from bigforest.training import train as training

FRAME = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 0, 1, 1]})


@pytest.mark.parametrize("frame", [FRAME, FRAME.lazy()], ids=["eager", "lazy"])
def test_train__hands_everything_on(frame: pl.DataFrame | pl.LazyFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def train(*args: Any, **options: Any) -> str:
        seen.append((*args, options))
        return "forest"

    monkeypatch.setattr(training, "train", train)
    assert frame.bigforest.train("y", trees=3, seed=1) == "forest"  # type: ignore[union-attr]
    [(data, target, options)] = seen
    assert (data is frame, target, options) == (True, "y", {"trees": 3, "seed": 1})


def test_train__shows_the_arguments_of_train() -> None:
    own = FRAME.bigforest.train  # type: ignore[attr-defined]
    assert list(inspect.signature(own).parameters) == list(inspect.signature(training.train).parameters)[1:]
    assert inspect.getdoc(own) == inspect.getdoc(training.train)
