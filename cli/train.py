"""bigforest train"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import families, options

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


def train(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Parquet, Arrow/Feather, CSV or NDJSON: a file, a folder or a glob. Or a store.",
        ),
    ] = None,
    target: options.Target = None,
    exclude: options.Exclude = None,
    trees: options.Trees = 100,
    seed: Annotated[int, typer.Option(metavar="N", help="The same data, options and seed give the same forest.")] = 0,
    mtry: options.Mtry = "sqrt",
    impurity: Annotated[str, typer.Option(metavar="gini|entropy|error", help="What a split lowers.")] = "gini",
    max_depth: options.MaxDepth = None,
    min_split: Annotated[int, typer.Option(metavar="N", help="Fewest bag rows of a node that is split.")] = 2,
    min_leaf: Annotated[int, typer.Option(metavar="N", help="Fewest bag rows of a leaf.")] = 1,
    max_bins: options.MaxBins = "exact",
    vote: Annotated[
        str,
        typer.Option(metavar="soft|hard", help="Average the leaf posteriors, or count one vote per tree."),
    ] = "soft",
    constants: Annotated[
        str,
        typer.Option(metavar="redraw|count", help="Whether a feature constant in the node uses up a draw."),
    ] = "redraw",
    bootstrap: options.Bootstrap = True,
    sample_fraction: options.SampleFraction = 1.0,
    replace: options.Replace = True,
    sampling: options.Sampling = "uniform",
    group: options.Group = None,
    family: families.Family = "axis",
    feature_fraction: families.FeatureFraction = None,
    ranks: families.Ranks = False,
    projections: families.Projections = "p^2/3",
    projection_kind: families.ProjectionKind = "rerf",
    density: families.Density = None,
    mean_difference: families.MeanDifference = "none",
    mean_difference_scope: families.Scope = "tree",
    normalize: families.Normalize = "none",
    axes: families.Axes = None,
    orthogonal: families.Orthogonal = True,
    rotation: families.Rotation = "random",
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The forest, a folder; <stem of DATA>.forest unless given."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FOREST",
            help="Go on with an interrupted run, or add trees to a forest up to --trees.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.ScratchBeside = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    scheduler_file: options.SchedulerFile = None,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
) -> None:
    """Grow a forest on a table or on a store.

    DATA may also be a store made by `bigforest encode`. An interrupted run goes on with --resume
    and ends in the same forest.

    Example: bigforest train flights.parquet --target late --trees 200
    """
    import bigforest
    from bigforest.api import default_output

    from .cluster import Ledger, scheduler_of
    from .facts import training_facts
    from .progress import watching
    from .show import show

    if data is None and resume is None:
        raise typer.BadParameter("it is missing; name a table, or a forest to --resume", ctx=context, param_hint="DATA")
    if resume is None and out is None and data is not None:
        out = str(default_output(data, ".forest"))
    with (
        scheduler_of(scheduler, scheduler_file, tls_ca, tls_cert, tls_key) as client,
        watching(quiet=quiet) as listener,
    ):
        ledger = Ledger(listener)
        forest = bigforest.train(
            data,
            target,
            out=out,
            listener=ledger,
            scheduler=client,
            overwrite=overwrite,
            threads=threads,
            scratch=scratch,
            memory=memory,
            exclude=exclude or (),
            resume=resume,
            **options.given(context),
        )
    show({**training_facts(forest), **ledger.facts}, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines, out_of_bag, table_size

    seconds = facts["seconds"]
    stages = " · ".join(f"{stage} {duration(spent)}" for stage, spent in seconds.items())
    lines(
        console,
        [
            *table_size(facts),
            ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
            ("out of bag", out_of_bag(facts["oob"])),
            ("time", f"{stages} · total {duration(sum(seconds.values()))}"),
            ("forest", facts["forest"]),
        ],
    )
