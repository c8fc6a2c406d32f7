"""bigforest plan"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from . import options
from .command import command
from .config import CONFIG
from .options import CONFIG_FILE, Given, option
from .show import Facts, count, duration, lines, print_table, size

if TYPE_CHECKING:
    from bigforest.planning.memory import RunPlan


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    return {**asdict(plan), "seconds": plan.seconds, "fits": plan.fits}


def _draw(facts: Facts) -> None:
    widths = ", ".join(
        f"{count(number)} of {count(width, 'byte')}" for width, number in facts["widths"].items() if number
    )
    lines(
        ("rows", count(facts["rows"])),
        ("features", f"{count(facts['features'])}: {widths} per code at most"),
        *([("classes", f"at most {count(facts['classes'])}")] if facts["classes"] > 1 else []),
        ("store", f"at most {size(facts['store'])}" if facts["store"] else "exists"),
        ("output", f"{size(facts['output_free'])} are free"),
        *needed(facts, compiling=facts["compiling"]),
    )
    typer.echo()
    print_table(
        ["stage", "passes", "trees per pass", "memory", "at least", "scratch", "time"],
        list(map(_stage, facts["stages"])),
    )


def draw_parts(facts: Facts) -> None:
    """Show the plan of a run whose stages read their rows once."""
    lines(*needed(facts))
    typer.echo()
    stages = [_stage(stage) for stage in facts["stages"]]
    print_table(["part", "memory", "at least", "scratch", "time"], [[cells[0], *cells[3:]] for cells in stages])


def needed(facts: Facts, compiling: float = 0.0) -> list[tuple[str, str]]:
    """Return the lines that all plans have: scratch, memory, time, and whether it fits."""
    told = f", of it compiling kernels, once per machine, {duration(compiling)}" if compiling else ""
    return [
        ("scratch", f"{size(facts['scratch'])} of {size(facts['scratch_free'])} that are free"),
        ("memory", "no limit" if facts["memory"] is None else size(facts["memory"])),
        ("time", f"about {duration(facts['seconds'])}{told}"),
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
    "out": option(str, "DIR", "Folder of the forest. Default: in the current folder.", panel=options.RUN),
    **CONFIG_FILE,
}


@command(
    _draw,
    table=options.TABLE,
    config=CONFIG,
    settings=OUTPUT,
    run={**options.run_options("threads", "scratch", "memory"), "scratch": options.SCRATCH_BESIDE},
    progress=False,
)
def plan(data: options.Data, *, table: Given, config: Given, settings: Given, run: Given) -> Facts:
    """Estimate what training needs: disk, memory, passes, time.

    Exits with 1 if the run does not fit. Times are estimates, accurate within a factor of two or three.

    Example: bigforest plan flights.parquet --target late --memory 1GB
    """
    import bigforest

    return plan_facts(bigforest.plan_training(data, **table, **config, **settings, **run))
