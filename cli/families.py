"""Options of train that belong to the families of splits."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Families of splits"


def _option(metavar: str | None, text: str) -> typer.models.OptionInfo:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=PANEL)  # type: ignore[no-any-return]


Family = Annotated[
    str, _option("axis|sparse-oblique|rotation|tree", "What a node splits on; tree is a single CART without bootstrap.")
]
FeatureFraction = Annotated[
    float | None, _option("F", "Chance of each feature to be considered in a node, instead of --mtry.")
]
Ranks = Annotated[bool, typer.Option("--ranks", help="Split on ranks of values in the training table.")]
Projections = Annotated[str, _option("INT|p^E", "sparse-oblique: columns of a node's random matrix of p features.")]
ProjectionKind = Annotated[
    str, _option("rerf|sporf|gaussian|very-sparse", "sparse-oblique: which cells have a weight, and what weights.")
]
Density = Annotated[float | None, _option("F", "sparse-oblique: share of the cells that have a weight.")]
MeanDifference = Annotated[
    str, _option("none|consecutive|vs-largest|all", "sparse-oblique: also offer differences of the means of classes.")
]
Scope = Annotated[str, _option("tree|node", "sparse-oblique: means of the tree's bag or of the node.")]
Normalize = Annotated[str, _option("none|zscore|minmax", "sparse-oblique: what weights are relative to.")]
Axes = Annotated[int | None, _option("N", "rotation: axes of a tree's table; as many as features unless given.")]
Orthogonal = Annotated[bool, _option(None, "rotation: make random axes orthogonal.")]
Rotation = Annotated[
    str, _option("random|pca", "rotation: Gaussian axes, or principal components of disjoint sets of features.")
]
