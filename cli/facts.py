"""Facts about a forest as plain values, for --json and for the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from bigforest import Forest
    from bigforest.forest.run_file import Choice


def training_facts(forest: Forest) -> dict[str, Any]:
    """Return the facts that `train` prints: table, size, errors and times. An entry is None if the forest lacks it."""
    spec = forest.spec
    return {
        "forest": str(forest.directory),
        "target": spec.target.name,
        "weight": spec.weight and spec.weight.name,
        "rows": spec.rows,
        "dropped": spec.dropped,
        "features": len(spec.features),
        "classes": len(spec.target.classes),
        "trees": forest.trees,
        "nodes": forest.files.node_count,
        "stop": asdict(forest.origin.stop) if forest.origin is not None and forest.origin.stop is not None else None,
        "oob": error_facts(forest),
        "calibration": forest.config.calibration,
        "shrinkage": choice_facts(forest.shrinkage),
        "power": choice_facts(forest.power),
        "refine": choice_facts(forest.rounds),
        "validation": forest.validation.row(-1, named=True) if forest.has_validation else None,
        "seconds": dict(forest.run.select("stage", "seconds").iter_rows()),
    }


def error_facts(forest: Forest) -> dict[str, Any] | None:
    """Return the out-of-bag error, log loss and AUC, or the metrics of a regression, with the number of rows.

    Keys "weighted" and "biased" are present if they are true. Return None without a report.
    """
    if not forest.has_oob:
        return None
    weighted = {"weighted": True} if forest.oob.weighted else {}
    if forest.is_regression:
        return {**forest.oob.metrics.row(0, named=True), **weighted}
    biased = {"biased": True} if forest.config.boosts else {}
    whole = forest.oob.metrics.row(-1, named=True)
    scores = {"log_loss": whole["log_loss"], "auc": whole["auc"]}
    return {"error": forest.oob.error, **scores, "rows": forest.oob.rows_used, **weighted, **biased}


def choice_facts(found: Choice) -> dict[str, Any]:
    """Return a chosen lambda, power or number of rounds, the out-of-bag loss of each value tried, and the cross-fitted
    loss of the choice."""
    name = found.NAME
    return {
        name: found.amount,
        "tried": [{name: each, "loss": loss} for each, loss in zip(found.tried, found.losses, strict=False)],
        "cross_fitted": found.cross_fitted,
    }


def oob_facts(forest: Forest) -> dict[str, Any]:
    """Return the out-of-bag report without its table of rows. Raises ConfigError if there is none."""
    return {
        "forest": str(forest.directory),
        "trees": forest.trees,
        "rounds": int(forest.rounds.amount),
        **(error_facts(forest) or {}),
        "metrics": forest.oob.metrics.to_dicts(),
        **({} if forest.oob.confusion is None else {"confusion": forest.oob.confusion.to_dicts()}),
        "curve": forest.oob.curve.to_dicts(),
    }


def revised_facts(forest: Forest, *names: str) -> dict[str, Any]:
    """Return the path of a forest, and the facts of these names, see `inspection_facts`."""
    facts = inspection_facts(forest, trees=False, features=False)
    return {name: facts[name] for name in ("forest", *names)}


def inspection_facts(forest: Forest, *, trees: bool, features: bool) -> dict[str, Any]:
    """Return facts about a forest. `trees` adds an entry per tree; `features` an entry per feature, by importance."""
    by_tree = (
        forest.nodes.group_by("tree")
        .agg(
            nodes=pl.len(),
            leaves=pl.col("left").is_null().sum(),
            depth=pl.col("depth").max(),
        )
        .sort("tree")
        .collect()
    )
    run = forest.run.row(0, named=True)
    facts = {
        **training_facts(forest),
        "leaves": by_tree["leaves"].sum(),
        "depth": by_tree["depth"].max(),
        "labels": forest.classes,
        "config": asdict(forest.config),
        "versions": {name: run[name] for name in ("bigforest", "python", "numpy", "numba", "polars")},
    }
    if forest.is_tuned:
        facts["chosen"], facts["tuning"] = forest.files.winner, forest.tuning.to_dicts()
    if forest.origin is not None:
        facts["origin"] = asdict(forest.origin)
    if trees:
        facts["by_tree"] = by_tree.to_dicts()
    if features:
        ranked = forest.features.sort("importance", descending=True, maintain_order=True)
        facts["by_feature"] = ranked.to_dicts()
    return facts
