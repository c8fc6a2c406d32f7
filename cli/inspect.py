"""The command inspect: options, training table and size of a forest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .options import toml_of
from .show import Facts, choice_lines, count, lines, out_of_bag, plain, print_table, show, table_lines, words
from .train import draw_candidates

if TYPE_CHECKING:
    from bigforest import Forest

# Maximum number of classes to name.
LABELS = 10
_NO_REPORT = "no estimate, because the forest was merged"


def inspect(
    forest: options.ForestFolder,
    trees: Annotated[bool, typer.Option("--trees", help="Also show the size of every tree.")] = False,
    features: Annotated[
        bool, typer.Option("--features", help="Also show every feature, the most important first.")
    ] = False,
    config: Annotated[
        bool, typer.Option("--config", help="Print its options as a TOML file for train --config, and nothing else.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show the options, training table and size of a forest.

    Example: bigforest inspect flights.forest --features
    """
    import bigforest

    from .facts import inspection_facts

    if config and (trees or features or json):
        raise typer.BadParameter("--config prints a file of options and nothing else; drop the other options")
    found = bigforest.read_forest(forest)
    if config:
        typer.echo(toml_of(_run_options(found)), nl=False)
        return
    show(inspection_facts(found, trees=trees, features=features), _draw, json=json)


def _draw(facts: Facts) -> None:
    from bigforest.options.train_options import options_in_use, value_text

    labels = ", ".join(plain(str(label)) for label in facts["labels"][:LABELS]) + (
        ", ..." if len(facts["labels"]) > LABELS else ""
    )
    used = options_in_use(facts["config"])
    origin = facts.get("origin") or {"data": None, "merged": []}
    merged = origin["merged"]
    lines(
        *table_lines({**facts, "classes": 0}),  # 0: the next line has the classes, with their labels
        *([("classes", f"{count(len(facts['labels']))}: {labels}")] if labels else []),
        ("trees", count(facts["trees"])),
        (
            "nodes",
            f"{count(facts['nodes'])} ({'1 leaf' if facts['leaves'] == 1 else count(facts['leaves']) + ' leaves'})",
        ),
        ("depth", count(facts["depth"])),
        ("out of bag", _NO_REPORT if merged else out_of_bag(facts["oob"], len(facts["labels"]))),
        *choice_lines(facts),
        *([("chosen", facts["chosen"])] if "chosen" in facts else []),
        ("options", words(", ".join(f"{name} {value_text(value)}" for name, value in used.items()))),
        ("grown by", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())),
        *([("grown on", origin["data"])] if origin["data"] else []),
        *([("merged from", "\n".join(map(_merged_forest, merged)))] if merged else []),
        ("forest", facts["forest"]),
    )
    if "tuning" in facts:
        typer.echo()
        draw_candidates(facts["tuning"])
    if "by_feature" in facts:
        typer.echo()
        rows = [
            [row["name"], row["dtype"], count(row["codes"]), f"{row['importance']:.4f}"] for row in facts["by_feature"]
        ]
        print_table(["feature", "type", "values", "importance"], rows, left=2)
    if "by_tree" in facts:
        typer.echo()
        columns = ["tree", "nodes", "leaves", "depth"]
        print_table(columns, [[count(row[name]) for name in columns] for row in facts["by_tree"]], left=0)


def _run_options(forest: Forest) -> dict[str, Any]:
    """Return the options of the forest for `train --config`."""
    from dataclasses import asdict

    from bigforest.options.train_options import options_in_use

    config = asdict(forest.config)
    weights = config["class_weight"]
    if isinstance(weights, tuple):
        config["class_weight"] = dict(weights)
    origin = forest.origin
    return {
        "target": forest.spec.target.name,
        "exclude": () if origin is None else origin.exclude,
        **options_in_use(config),
    }


def _merged_forest(piece: Facts) -> str:
    return (
        f"{piece['forest']} ({count(piece['trees'], 'tree')} from number {piece['first_tree']}, seed {piece['seed']})"
    )
