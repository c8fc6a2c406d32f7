"""What a billion rows of a hundred features would take on a hundred workers, from rates measured here.

    python benchmarks/projection.py [--rows 2000000] [--trees 4] [--out benchmarks]

Measures the rates (rates.py) and writes projection.md; bytes and passes are those of the program's own model of memory.

How it scales: passes, rows on disk and out-of-bag rows are proportional to rows x trees; subtrees and votes also to the
levels of a tree, of which doubling the rows adds one; histograms to nodes x mtry x buckets x classes. What the client
does by itself is not divided: scoring histograms, putting the store together, and writing the report.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import polars as pl
from rates import DISTINCT, Rates, measure
from runs import HERE, machine
from tables import markdown

from bigforest.common.memory_estimate import Shape
from bigforest.execution.resources import Resources
from bigforest.grow import memory as need
from bigforest.grow.out_of_core.node_search import buckets_for
from bigforest.schema.config import TrainConfig


class Target(NamedTuple):
    """What is projected, and on what; bytes of memory are of each worker, bytes per second of each link and disk."""

    rows: int = 1_000_000_000
    features: int = 100
    classes: int = 2
    trees: int = 100
    workers: int = 100
    threads: int = 16
    memory: int = 64_000_000_000
    network: float = 1.25e9
    disk: float = 1e9


def project(rates: Rates, to: Target) -> tuple[pl.DataFrame, dict[str, float]]:
    """For each stage minutes of the workers and of the client, and gigabytes per worker; facts about the run."""
    config = TrainConfig(trees=to.trees)
    shape = Shape(to.rows, (4,) * to.features, to.rows * to.features, to.classes)
    resources = Resources(threads=to.threads, memory=to.memory)
    way = need.choose_grow_plan(shape, config, resources)
    assert way.limits is not None
    mtry, cores, bag = config.drawn_features(to.features), to.workers * to.threads, DISTINCT * to.rows
    passes = need.grow_estimate(shape, config, resources).passes
    groups = -(-to.trees // way.group)
    histograms = _histogram_bytes(to, way, mtry)
    more = math.log2(to.rows / rates.rows)
    below = rates.levels + more - math.log2(to.rows / way.limits.rows)
    codes = to.rows * to.features * 4
    spilled = bag * to.trees * (to.features * 4 + 4)
    tasks = passes * cores * 4 / 3
    answers = 8 * to.rows * to.classes
    slower = min(to.network, to.disk)
    # A task encodes a column. CPU seconds of all, seconds of the client, bytes over the network and on disk.
    stages = {
        "encode": (
            rates.encode * to.rows * to.features * max(1.0, cores / to.features),
            2 * codes / slower,
            2 * codes,
            2 * codes,
        ),
        "passes": (
            rates.route * bag * to.trees * passes / groups,
            rates.score * histograms * to.trees + rates.task * tasks,
            codes + to.workers * histograms * to.trees,
            codes * passes + 8 * bag * to.trees * passes / groups,
        ),
        "rows of small nodes": (rates.spill * bag * to.trees * to.features, 0.0, 2 * spilled, 2 * spilled),
        "subtrees": (rates.visit * bag * to.trees * mtry * below, 0.0, 0, 0),
        "out of bag": (
            rates.judge * (to.rows - bag) * to.trees * (rates.levels + more),
            rates.report * to.rows + answers / slower,
            codes + answers,
            codes + answers,
        ),
    }
    found = pl.DataFrame(
        [
            {
                "stage": stage,
                "computing": seconds / cores / 60.0,
                "client": client / 60.0,
                "network": network / to.workers / 1e9,
                "disk": disk / to.workers / 1e9,
                "moving": max(network / to.network, disk / to.disk) / to.workers / 60.0,
            }
            for stage, (seconds, client, network, disk) in stages.items()
        ]
    )
    facts = {
        "codes": codes / 1e9,
        "group": way.group,
        "passes": passes,
        "subtree": way.limits.rows,
        "scratch": need.grow_estimate(shape, config, resources).scratch / 1e9,
        "histograms": histograms / 1e6,
        "tasks": tasks,
    }
    return found, facts


def _histogram_bytes(to: Target, way: need.GrowPlan, mtry: int) -> int:
    """Of one tree, over all levels that are split by passes: nodes x mtry x buckets x classes x 4."""
    assert way.limits is not None
    levels = max(0, math.ceil(math.log2(to.rows / way.limits.rows)))
    buckets = [buckets_for(to.rows >> depth, to.classes, way.limits.cells) for depth in range(levels)]
    return sum((1 << depth) * mtry * count * to.classes * 4 for depth, count in enumerate(buckets))


def page(rates: Rates, to: Target) -> str:
    """The page."""
    stages, facts = project(rates, to)
    whole = stages.select(pl.sum_horizontal("computing", "client", "moving")).sum().item()
    total = {
        "stage": "all",
        **{name: stages[name].sum() for name in ("computing", "client", "network", "disk", "moving")},
    }
    measured = pl.DataFrame(
        [
            ("encode, per cell", rates.encode * 1e9),
            ("pass, per row of a bag", rates.route * 1e9),
            ("rows of small nodes, per cell", rates.spill * 1e9),
            ("subtrees, per row, feature looked at and level", rates.visit * 1e9),
            ("out of bag, per row, tree and level", rates.judge * 1e9),
            ("client: scoring, per byte of histograms", rates.score * 1e9),
            ("client: report, per row", rates.report * 1e9),
            ("client: handing out a task", rates.task * 1e9),
        ],
        schema=["what", "ns"],
        orient="row",
    )
    return TEXT.format(
        rows=f"{to.rows:,}",
        measured_rows=f"{rates.rows:,}",
        machine=machine(),
        rates=markdown(measured, {"what": ("what", "{}"), "ns": ("ns", "{:,.1f}")}),
        levels=f"{rates.levels:.1f}",
        target=to,
        memory=f"{to.memory / 1e9:.0f}",
        network=f"{to.network / 1e9:.2f}",
        disk=f"{to.disk / 1e9:.1f}",
        facts={name: f"{value:,.0f}" for name, value in facts.items()},
        table=markdown(pl.concat([stages, pl.DataFrame([total])]), COLUMNS),
        hours=f"{whole / 60.0:.1f}",
    )


COLUMNS = {
    "stage": ("stage", "{}"),
    "computing": ("workers computing (min)", "{:.1f}"),
    "client": ("client (min)", "{:.1f}"),
    "network": ("network (GB per worker)", "{:.1f}"),
    "disk": ("disk (GB per worker)", "{:.1f}"),
    "moving": ("workers moving these (min)", "{:.1f}"),
}
TEXT = """# A billion rows on a hundred workers: a projection

Written by `benchmarks/projection.py`; nothing here was run at this size. The task: {target.trees} trees of the axis
family on {rows} rows of {target.features} features (float32, all values different) and {target.classes} classes. The
cluster, assumed: {target.workers} workers of {target.threads} threads as fast as the one below, with {memory} GB of
memory, a link of {network} GB/s and {disk} GB/s to disk each; the client has a link and a disk like them.

## Measured

One thread, CPU time, the synthetic set with {measured_rows} rows of 28 features grown by passes (mean depth of a row
{levels} levels); handing out a task is wall time, with two workers on this machine.
{machine}.

{rates}

What goes over the wire was measured by `benchmarks/network.py` with two workers: 2.0 to 2.2 times the histograms of a
pass, for each worker sends them once; and 0.15% of the codes in all where trees grow whole.

## Projected

The codes are {facts[codes]} GB, so blocks of rows are spread over the workers. The program's own model of memory says:
{facts[group]} trees share passes, {facts[passes]} passes in all, until nodes have {facts[subtree]} rows, of which each
thread grows one at a time; {facts[scratch]} GB of rows on scratch at a time. Histograms of a tree are
{facts[histograms]} MB in all its passes, each sent by every worker once. Tasks: {facts[tasks]}.

{table}

Were nothing of it done side by side, it would take {hours} hours.

- Memory: the budget of {memory} GB per worker is held to in training, as everywhere, and checked before.
- The client is what does not scale: it scores the histograms of every pass and hands out a task for each thread of the
  cluster, puts the store together from the columns that workers have encoded, and writes the report of the rows.
  Scoring is taken at the rate of the small histograms measured here, where calls cost most, so it is an upper bound.
- Columns are encoded by one thread each, so by no more threads than there are features.
- Every doubling of the rows is taken to add a level to all trees. Tables with few distinct values or little noise have
  fewer levels.
- A worker gets the same blocks in every pass, so codes cross the network once, into its local copy, and are read from
  there. Where rows stand between passes, and the rows of small nodes, go to scratch.
- Not in it: workers of unequal speed, and lost ones.
"""


def main() -> None:
    """Measure the rates and write the page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    text = page(measure(options.rows, options.trees), Target())
    (options.out / "projection.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
