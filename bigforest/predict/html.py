"""A forest as a notebook shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigforest.common.html import facts_table

if TYPE_CHECKING:
    from bigforest.forest.grown import GrownForest


def html_of(forest: GrownForest) -> str:
    """The facts of a forest as a table."""
    spec = forest.spec
    facts = {
        "trees": f"{forest.trees:,} ({forest.config.family})",
        "target": spec.target.name,
        "rows": f"{spec.rows:,}",
        "features": f"{len(spec.features):,}",
    }
    if not forest.is_regression:
        facts["classes"] = f"{len(forest.classes):,}"
    if forest.has_oob:
        what = "mean squared error" if forest.is_regression else "error"
        facts["out of bag"] = f"{what} {forest.oob.error:.6g} on {forest.oob.rows_used:,} rows"
    return facts_table("Forest", facts)
