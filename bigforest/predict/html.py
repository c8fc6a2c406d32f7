"""A forest as an HTML table, for notebooks."""

from __future__ import annotations

from bigforest.errors import counted
from bigforest.forest.forest_files import ForestFiles
from bigforest.html import facts_table


def html_of(files: ForestFiles) -> str:
    """Return a table of facts about a forest."""
    spec = files.spec
    facts = {
        "trees": f"{files.trees:,} ({files.config.family})",
        "target": spec.target.name,
        "rows": f"{spec.rows:,}",
        "features": f"{len(spec.features):,}",
    }
    if not files.is_regression:
        facts["classes"] = f"{len(files.classes):,}"
    if files.has_oob:
        rows = counted(files.oob.rows_used, "row")
        facts["out of bag"] = f"{files.oob.measure} {files.oob.error:.6g} on {rows}"
    if files.is_tuned:
        facts["chosen"] = chosen_of(files)
    return facts_table("Forest", facts)


def chosen_of(files: ForestFiles) -> str:
    """Return which candidate of a comparison the forest is."""
    tuning = files.tuning
    [winner] = tuning.filter("winner").to_dicts()
    what = winner["metric"].replace("_", " ")
    crossed = "" if winner["cross_fitted"] is None else f", {winner['cross_fitted']:.6g} cross-fitted"
    loss = "" if winner["loss"] is None else f": {what} {winner['loss']:.6g} on the rows that chose it{crossed}"
    return f"{winner['candidate']}, of {tuning.height} candidates{loss}"
