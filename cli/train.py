"""Commands that train forests or prepare training: train, compare, plan, encode and warm-up."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .command import command
from .config import CONFIG, STORE
from .options import CONFIG_FILE, RUN, Given, chosen, number_or_word, option
from .running import default_output, table_of
from .show import (
    Facts,
    choice_lines,
    count,
    duration,
    lines,
    number_cells,
    out_of_bag,
    print_table,
    rounded,
    size,
    stop_lines,
    table_lines,
    validation_lines,
)

if TYPE_CHECKING:
    from bigforest.planning.memory import RunPlan


def _draw_train(facts: Facts) -> None:
    seconds = facts["seconds"]
    stages = " · ".join(f"{stage} {duration(spent)}" for stage, spent in seconds.items())
    lines(
        *table_lines(facts),
        ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
        *stop_lines(facts),
        ("out of bag", out_of_bag(facts["oob"], facts["classes"])),
        *choice_lines(facts),
        *validation_lines(facts["validation"], facts["refine"]["rounds"]),
        ("time", f"{stages} · total {duration(sum(seconds.values()))}"),
        ("forest", facts["forest"]),
    )


# Options by argument of `train`, in the order of --help.
TRAIN = {
    "out": option(str, "DIR", "The forest, a folder. Default: <stem of DATA>.forest.", panel=RUN),
    "resume": option(str, "FOREST", "Continue an interrupted run, or add trees to a forest up to --trees.", panel=RUN),
    "validate": option(str, "TABLE", "Also measure the error on the rows of this table, tree by tree.", panel=RUN),
    "tune": option(
        str,
        "N|TIME",
        "Compare N default configurations, or all of them within a time such as 10m, and keep the best; see compare.",
        panel=RUN,
        read=number_or_word,
    ),
    **CONFIG_FILE,
}


@command(
    _draw_train,
    settings={**options.TABLE, **CONFIG, **TRAIN},
    run={
        **options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
        "scratch": options.SCRATCH_BESIDE,
    },
)
def train(
    data: Annotated[str | None, options.argument("DATA", f"{options.TABLE_KINDS} Or a store.", table_of)] = None,
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Train a forest on a table or a store.

    `bigforest encode` makes stores. An interrupted run continues with --resume, and the forest is the same as without
    the interruption.

    Example: bigforest train flights.parquet --target late --trees 200
    """
    import bigforest

    from .facts import training_facts

    if data is None and "resume" not in settings:
        raise typer.BadParameter("it is missing; give a table, or a forest to --resume", param_hint="DATA")
    if data is not None and not {"resume", "out"} & set(settings):
        settings["out"] = default_output(data, ".forest")
    forest = bigforest.train(data, **settings, **run)
    return training_facts(forest)


def draw_candidates(candidates: list[Facts]) -> None:
    """Print a line for each candidate of a comparison, and the reason for each that was retired."""
    headings = ["candidate", "trees", "loss", "difference", "standard error", "time", ""]
    numbers = [number_cells(row[name] for row in candidates) for name in ("loss", "difference", "standard_error")]
    rows = [
        [
            row["candidate"],
            count(row["trees"]),
            *cells,
            duration(row["seconds"]),
            "winner" if row["winner"] else "retired" if row["retired"] else "",
        ]
        for row, *cells in zip(candidates, *numbers, strict=True)
    ]
    print_table(headings, rows)
    retired = [(row["candidate"], row["retired"]) for row in candidates if row["retired"]]
    if retired:
        typer.echo()
        lines(*retired)


def _draw_compare(facts: Facts) -> None:
    draw_candidates(facts["candidates"])
    typer.echo()
    metric = facts["metric"].replace("_", " ")
    won = next(row for row in facts["candidates"] if row["winner"])
    why = ", the first within a standard error of the lowest loss" if won["difference"] else ""
    crossed = "" if facts["cross_fitted"] is None else f", {rounded(facts['cross_fitted'])} cross-fitted"
    lines(
        ("winner", f"{facts['winner']}, of {count(len(facts['candidates']), 'candidate')}{why}"),
        (metric, f"{rounded(facts['loss'])} on the rows that chose it{crossed}"),
        *([("stopped", facts["stopped"])] if facts["stopped"] else []),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )


# Options by argument of `compare`, in the order of --help.
COMPARE = {
    "candidates": option(
        str,
        "FILE|N",
        "TOML file with a table of options for each candidate, the simplest first; or the number of default candidates "
        "to compare. Default: all default candidates.",
        read=number_or_word,
    ),
    "metric": option(
        str,
        "log_loss|error|auc|mse|poisson_deviance",
        "Loss to compare. Default: log_loss; regression: mse, or poisson_deviance with --impurity poisson.",
    ),
    "budget": option(str, "TIME", "Time limit after which no more trees are grown, such as 10m."),
    "out": option(
        str,
        "DIR",
        "Folder of the comparison, which is continued if it was interrupted. Default: <stem of DATA>.comparison.",
        panel=options.RUN,
    ),
}


@command(
    _draw_compare,
    config=CONFIG,
    settings={**options.TABLE, **COMPARE},
    run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
)
def compare(data: options.Data, *, settings: Given, config: Given, run: Given) -> Facts:
    """Compare sets of options out of bag and keep the best forest.

    All candidates grow on one table, at first 25 trees at a time. Candidates that fall behind are retired. Options of
    training apply to all candidates.

    Example: bigforest compare flights.parquet --target late --trees 200 --budget 10m --out chosen
    """
    import bigforest

    if "out" not in settings:
        settings["out"] = default_output(data, ".comparison")
    comparison = bigforest.compare(data, options=config, **settings, **run)
    return {
        "comparison": str(comparison.path),
        "winner": comparison.winner,
        "forest": str(Path(comparison.path) / "winner.forest"),
        "metric": comparison.metric,
        "loss": comparison.loss,
        "cross_fitted": comparison.cross_fitted,
        "stopped": comparison.stopped,
        "candidates": comparison.candidates.to_dicts(),
    }


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """Return the fields of a plan with the estimated time, and `fits`, True if memory and disk suffice."""
    return {**asdict(plan), "seconds": plan.seconds, "fits": plan.fits}


def _draw_plan(facts: Facts) -> None:
    widths = ", ".join(
        f"{count(number)} of {count(width, 'byte')}" for width, number in facts["widths"].items() if number
    )
    lines(
        ("rows", count(facts["rows"])),
        ("features", f"{count(facts['features'])}: {widths} per code at most"),
        *([("classes", f"at most {count(facts['classes'])}")] if facts["classes"] > 1 else []),
        ("store", _store_size(facts) if facts["store"] else "exists"),
        ("output", f"{size(facts['output_free'])} are free"),
        *_plan_lines(facts, compiling=facts["compiling"]),
    )
    typer.echo()
    print_table(
        ["stage", "passes", "trees per pass", "memory", "at least", "scratch", "time"],
        list(map(_stage, facts["stages"])),
    )


def _store_size(facts: Facts) -> str:
    levels = f", and the text of the levels of {count(facts['categories'], 'feature')}" if facts["categories"] else ""
    return f"at most {size(facts['store'])}{levels}"


def draw_explanation_plan(facts: Facts) -> None:
    """Print the plan of an explanation: as for training, but without passes, which explanations do not have."""
    lines(*_plan_lines(facts))
    typer.echo()
    stages = [_stage(stage) for stage in facts["stages"]]
    print_table(["part", "memory", "at least", "scratch", "time"], [[cells[0], *cells[3:]] for cells in stages])


def _plan_lines(facts: Facts, compiling: float = 0.0) -> list[tuple[str, str]]:
    """Return the lines that all plans have: scratch, memory, time, and whether the run fits.

    compiling  seconds of compiling kernels, which are part of the time.
    """
    included = f", including {duration(compiling)} to compile kernels, once per machine" if compiling else ""
    return [
        ("scratch", f"{size(facts['scratch'])} of {size(facts['scratch_free'])} that are free"),
        ("memory", "no limit" if facts["memory"] is None else size(facts["memory"])),
        ("time", f"about {duration(facts['seconds'])}{included}"),
        ("verdict", _verdict(facts)),
    ]


def _stage(stage: Facts) -> list[str]:
    need = stage["need"]
    sizes = [size(need[name]) for name in ("memory", "smallest", "scratch")]
    trees = count(need["trees"]) if need["trees"] else ""
    return [stage["stage"], count(need["passes"]), trees, *sizes, duration(stage["seconds"])]


def _verdict(facts: Facts) -> str:
    from bigforest.planning.sizes import megabytes

    if facts["fits"]:
        return "it fits"
    problems = []
    if facts["memory"] is not None and facts["smallest"] > facts["memory"]:
        problems.append(f"not enough memory: at least {megabytes(facts['smallest'])} are needed")
    if facts["scratch"] > facts["scratch_free"]:
        missing = size(facts["scratch"] - facts["scratch_free"])
        problems.append(f"not enough disk space: {missing} are missing; use another disk with --scratch")
    return f"it does not fit; {' and '.join(problems)}"


# Options by argument of `plan_training`, in the order of --help.
OUTPUT = {
    "out": option(
        str, "DIR", "Folder of the forest, whose disk is checked. Default: in the current folder.", panel=options.RUN
    ),
    **CONFIG_FILE,
}


@command(
    _draw_plan,
    settings={**options.TABLE, **CONFIG, **OUTPUT},
    run={**options.run_options("threads", "scratch", "memory"), "scratch": options.SCRATCH_BESIDE},
    progress=False,
)
def plan(data: options.Data, *, settings: Given, run: Given) -> Facts:
    """Estimate what training needs: disk, memory, passes, time.

    Exits with 1 if the run does not fit. Times are estimates, accurate within a factor of two or three.

    Example: bigforest plan flights.parquet --target late --memory 1GB
    """
    import bigforest

    return plan_facts(bigforest.plan_training(data, **settings, **run))


def _draw_encode(facts: Facts) -> None:
    lines(*table_lines(facts), ("size", size(facts["bytes"])), ("store", facts["store"]))


@command(
    _draw_encode,
    settings={**options.TABLE, **chosen(CONFIG, STORE), **CONFIG_FILE},
    run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
)
def encode(
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="STORE", show_default=False, help="The store, a folder.")],
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Presort a table into a store, to train on it many times.

    Example: bigforest encode flights.parquet --out flights.store
    """
    import bigforest

    store = bigforest.encode_store(data, out, **settings, **run)
    return {
        "store": str(store.path),
        "target": store.spec.target.name,
        "weight": store.spec.weight and store.spec.weight.name,
        "rows": store.rows,
        "dropped": store.spec.dropped,
        "features": len(store.spec.features),
        "task": store.spec.target.task,
        "classes": len(store.spec.target.classes),
        "bytes": sum(file.stat().st_size for file in store.path.iterdir()),
    }


def _draw_warm_up(facts: Facts) -> None:
    lines(("compiled", ", ".join(facts["kinds"])))


@command(_draw_warm_up, run=options.run_options("scheduler"))
def warm_up(
    kinds: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Kinds of forests, separated by commas, such as classification, regression-categories or rotation; or "
            "all. An unknown kind prints the list.",
        ),
    ] = "classification",
    *,
    passes: Annotated[
        bool, typer.Option("--passes", help="Also compile the kernels for tables larger than memory.")
    ] = False,
    run: Given,
) -> Facts:
    """Compile kernels in advance, once per machine.

    Example: bigforest warm-up --kinds all
    """
    import bigforest

    named = kinds if kinds == "all" else [kind.strip() for kind in kinds.split(",")]
    return {"kinds": bigforest.warm_up(named, passes=passes, **run)}
