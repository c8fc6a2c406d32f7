"""A forest in a notebook: from its facts to a table in HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigforest.errors import counted
from bigforest.html import facts_table

if TYPE_CHECKING:
    from bigforest.predict.contents import Contents
    from bigforest.predict.grown import GrownForest


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
        rows = counted(forest.oob.rows_used, "row")
        facts["out of bag"] = f"{forest.oob.measure} {forest.oob.error:.6g} on {rows}"
    if forest.is_tuned:
        facts["chosen"] = chosen_of(forest)
    return facts_table("Forest", facts)


def chosen_of(forest: Contents) -> str:
    """Which candidate a tuned forest is, and of how many."""
    tuning = forest.tuning
    [winner] = tuning.filter("winner").to_dicts()
    what = winner["metric"].replace("_", " ")
    crossed = "" if winner["cross_fitted"] is None else f", {winner['cross_fitted']:.6g} cross-fitted"
    loss = "" if winner["loss"] is None else f": {what} {winner['loss']:.6g} on the rows that chose it{crossed}"
    return f"{winner['candidate']}, of {tuning.height} candidates{loss}"
