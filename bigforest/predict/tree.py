"""One tree of a forest, looked at and asked by itself."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from bigforest.predict.forest import Forest


class Tree:
    """A tree of a forest, `forest[number]`.

    forest  whose tree it is.
    number  of the tree, from 0.
    """

    def __init__(self, forest: Forest, number: int) -> None:
        self.forest = forest
        self.number = number

    def __len__(self) -> int:
        return self.nodes.height

    def __repr__(self) -> str:
        return f"Tree({self.number}, {len(self)} nodes, {self.leaves} leaves, depth {self.depth})"

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """One row per node, in the order of their numbers; columns as in forest/format/schema.py NODES."""
        return self.forest.nodes.filter(pl.col("tree") == self.number).collect()

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return int(self.nodes["left"].null_count())

    @property
    def depth(self) -> int:
        """Level of the deepest leaf, the root having 0."""
        return int(self.nodes["depth"].to_numpy().max())

    def predict(self, data: Any, **options: Any) -> Any:
        """`Forest.predict` by this tree alone."""
        return self.forest.predict(data, trees=[self.number], **options)

    def predict_proba(self, data: Any, **options: Any) -> Any:
        """`Forest.predict_proba` by this tree alone."""
        return self.forest.predict_proba(data, trees=[self.number], **options)

    def apply(self, data: Any, threads: int | None = None) -> Any:
        """Number of the leaf that each row of `data` ends in, uint32 [rows]."""
        return self.forest.apply(data, trees=[self.number], threads=threads)[:, 0]
