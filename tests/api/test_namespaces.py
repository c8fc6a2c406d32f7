"""`frame.bigforest.train` is `bigforest.train` with the frame as its data."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from bigforest.api import training

FRAME = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 0, 1, 1]})


@pytest.mark.parametrize("frame", [FRAME, FRAME.lazy()], ids=["eager", "lazy"])
def test_train__hands_everything_on(frame: pl.DataFrame | pl.LazyFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def train(*args: Any, **options: Any) -> str:
        seen.append((*args, options))
        return "forest"

    monkeypatch.setattr(training, "train", train)
    assert frame.bigforest.train("y", trees=3, seed=1) == "forest"  # type: ignore[union-attr]
    [(data, options)] = seen
    assert (data is frame, options["target"], options["trees"], options["seed"]) == (True, "y", 3, 1)
    assert "mtry" not in options  # which was not given


@pytest.mark.parametrize("frame", [FRAME, FRAME.lazy()], ids=["eager", "lazy"])
def test_train__grows_a_forest(frame: pl.DataFrame | pl.LazyFrame) -> None:
    forest = frame.bigforest.train(trees=3)  # type: ignore[union-attr]
    assert forest.spec.target.name == "y"
    assert forest.config.trees == 3
