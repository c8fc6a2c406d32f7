"""`frame.bigforest.train(...)` on Polars frames, eager and lazy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from bigforest.predict.forest import Forest


@pl.api.register_dataframe_namespace("bigforest")
@pl.api.register_lazyframe_namespace("bigforest")
class FrameNamespace:
    """The methods bigforest adds to a frame."""

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    def train(self, target: str | None = None, **options: Any) -> Forest:
        """Grow a forest on the frame: `bigforest.train` with its options and errors."""
        from bigforest.api.functions import train

        return train(self._frame, target, **options)
