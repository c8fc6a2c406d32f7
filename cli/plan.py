"""bigforest plan"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .config import CONFIG
from .config_file import ConfigFile
from .groups import grouped

if TYPE_CHECKING:
    from rich.console import Console

    from bigforest import Plan

    from .show import Facts


@grouped(config=CONFIG)
def plan(
    data: options.Data,
    target: options.Target = None,
    exclude: options.Exclude = None,
    *,
    config: dict[str, Any],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where the forest would be; in the current folder unless given.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    config_file: ConfigFile = None,
    json: options.Json = False,
    memory: options.Memory = None,
    threads: options.Threads = None,
    scratch: options.ScratchBeside = None,
) -> None:
    """Say what training would take: disk, memory, passes, time.

    Exits with 1 when it would not fit. Times are estimates, within a factor of two or three.

    Example: bigforest plan flights.parquet --target late --memory 1GB
    """
    del config_file  # its options have become those of the command
    import bigforest

    from .show import show

    found = bigforest.plan_training(
        data,
        target,
        out=out,
        memory=memory,
        threads=threads,
        scratch=scratch,
        exclude=exclude or (),
        **config,
    )
    show(_facts(found), _draw, json=json)
    if not found.fits:
        raise typer.Exit(1)


def _facts(found: Plan) -> dict[str, Any]:
    return {**asdict(found), "seconds": found.seconds, "fits": found.fits}


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, lines, size, table

    widths = ", ".join(
        f"{count(number)} of {count(width, 'byte')}" for width, number in facts["widths"].items() if number
    )
    lines(
        console,
        [
            ("rows", count(facts["rows"])),
            ("features", f"{count(facts['features'])}: {widths} per code at most"),
            *([("classes", f"at most {count(facts['classes'])}")] if facts["classes"] > 1 else []),
            ("store", f"at most {size(facts['store'])}" if facts["store"] else "kept already"),
            ("scratch", f"{size(facts['scratch'])} of {size(facts['scratch_free'])} that are free"),
            ("output", f"{size(facts['output_free'])} are free"),
            ("memory", "no limit" if facts["memory"] is None else size(facts["memory"])),
            ("time", _time(facts)),
            ("verdict", _verdict(facts)),
        ],
    )
    console.print()
    table(
        console,
        ["stage", "passes", "trees a pass", "memory", "at least", "scratch", "about"],
        list(map(_stage, facts["stages"])),
    )


def _time(facts: Facts) -> str:
    from .show import duration

    compiling = f", of it compiling kernels, once per machine, {duration(facts['compiling'])}"
    return f"about {duration(facts['seconds'])}{compiling if facts['compiling'] else ''}"


def _stage(stage: Facts) -> list[str]:
    from .show import count, duration, size

    need = stage["need"]
    sizes = [size(need[name]) for name in ("memory", "smallest", "scratch")]
    trees = count(need["trees"]) if need["trees"] else ""
    return [stage["stage"], count(need["passes"]), trees, *sizes, duration(stage["seconds"])]


def _verdict(facts: Facts) -> str:
    from bigforest.common.sizes import megabytes

    from .show import size

    if facts["fits"]:
        return "it fits"
    problems = []
    if facts["memory"] is not None and facts["smallest"] > facts["memory"]:
        problems.append(f"the memory is too little: give at least {megabytes(facts['smallest'])}")
    if facts["scratch"] > facts["scratch_free"]:
        problems.append(f"the disk lacks {size(facts['scratch'] - facts['scratch_free'])}: name another with --scratch")
    return f"it does not fit; {' and '.join(problems)}"
