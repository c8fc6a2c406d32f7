"""bigforest plan"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from . import options
from .command import command
from .config import CONFIG
from .config_file import CONFIG_FILE
from .options import Given, option
from .show import Facts, count, duration, lines, print_table, size

if TYPE_CHECKING:
    from bigforest.planning.plan import RunPlan


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """All that a plan says."""
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
    if facts["cluster"] is not None:
        _draw_cluster(facts["cluster"])


def draw_parts(facts: Facts) -> None:
    """Show the plan of a run whose stages read their rows once."""
    lines(*needed(facts))
    typer.echo()
    stages = [_stage(stage) for stage in facts["stages"]]
    print_table(["part", "memory", "at least", "scratch", "time"], [[own[0], *own[3:]] for own in stages])


def needed(facts: Facts, compiling: float = 0.0) -> list[tuple[str, str]]:
    """Lines of what every plan says: scratch, memory, time, and whether it fits."""
    told = f", of it compiling kernels, once per machine, {duration(compiling)}" if compiling else ""
    return [
        ("scratch", f"{size(facts['scratch'])} of {size(facts['scratch_free'])} that are free"),
        ("memory", "no limit" if facts["memory"] is None else size(facts["memory"])),
        ("time", f"about {duration(facts['seconds'])}{told}"),
        ("verdict", _verdict(facts)),
    ]


def _draw_cluster(cluster: Facts) -> None:
    ways = "whole trees, one task per part"
    if cluster["by_passes"]:
        ways = f"by {count(cluster['passes'])} passes, each for {count(cluster['group'])} trees"
    client = sum(stage["client"] for stage in cluster["stages"])
    typer.echo()
    lines(
        ("cluster", f"{count(cluster['workers'], 'worker')} of {count(cluster['threads'], 'thread')}"),
        ("grown", ways),
        ("tasks", count(round(sum(stage["tasks"] for stage in cluster["stages"])))),
        (
            "client",
            f"{duration(client)}, {100 * cluster['client_share']:.1f}% of the workers' processor time",
        ),
        ("time", f"about {duration(cluster['seconds'])}, if stages do not overlap"),
    )
    typer.echo()
    print_table(
        ["stage", "computing", "client", "moving", "network", "disk", "tasks"],
        [
            [
                stage["stage"],
                *(duration(stage[name]) for name in ("computing", "client", "moving")),
                *(size(round(stage[name])) for name in ("network", "disk")),
                count(round(stage["tasks"])),
            ]
            for stage in cluster["stages"]
        ],
    )


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


# By the names of `plan_training`; the order is that of --help.
OUTPUT = {
    "out": option(str, "DIR", "Folder of the forest. Default: in the current folder.", panel=options.RUN),
    **CONFIG_FILE,
}
CLUSTER = {
    "workers": option(
        int, "N", "Also estimate it on a cluster of N workers, each with --threads and --memory.", panel=options.RUN
    ),
    "link": option(str, "SPEED", "Network link of each worker of that cluster. Default: 10Gbit.", panel=options.RUN),
}


@command(
    _draw,
    table=options.TABLE,
    config=CONFIG,
    how=OUTPUT,
    run={**options.run_options("threads", "scratch", "memory"), "scratch": options.SCRATCH_BESIDE},
    cluster=CLUSTER,
    progress=False,
)
def plan(data: options.Data, *, table: Given, config: Given, how: Given, run: Given, cluster: Given) -> Facts:
    """Estimate what training needs: disk, memory, passes, time.

    Exits with 1 if the run does not fit. Times are estimates, accurate within a factor of two or three.

    With --workers it also estimates the run on a cluster, by stage: time of the workers and of the client, tasks, and
    bytes over the network link and on the disk of each worker.

    Example: bigforest plan flights.parquet --target late --memory 1GB
    """
    import bigforest

    found = bigforest.plan_training(data, **table, **config, **how, **run, **cluster)
    facts = plan_facts(found)
    if found.cluster is not None:
        facts["cluster"] |= {"seconds": found.cluster.seconds, "client_share": found.cluster.client_share}
    return facts
