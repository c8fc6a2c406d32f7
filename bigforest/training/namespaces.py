"""`frame.bigforest.train(...)` on Polars frames, eager and lazy."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import polars as pl


@pl.api.register_dataframe_namespace("bigforest")
@pl.api.register_lazyframe_namespace("bigforest")
class FrameNamespace:
    """Methods of a frame under the name `bigforest`.

    Examples
    --------
    >>> import bigforest, polars as pl
    >>> table = pl.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "a", "b", "b"]})
    >>> table.bigforest.train(target="kind", trees=5).trees
    5
    """

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    @property
    def train(self) -> Callable[..., Any]:  # with MethodType here, a notebook would not complete arguments
        """Train a forest on the frame. Arguments, result and errors are the same as for `bigforest.train`."""
        from bigforest.training.train import train

        return MethodType(train, self._frame)
