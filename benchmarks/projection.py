"""What a billion rows of a hundred features would take on a hundred workers, from rates measured here.

    python benchmarks/projection.py [--rows 2000000] [--trees 4] [--out benchmarks]

Measures the rates (rates.py) and writes projection.md; bytes and passes are those of the program's own model of memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
from projection_model import Machines, Projection, Rates, project_training
from rates import measure
from runs import HERE, machine
from tables import markdown

from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape

ROWS, FEATURES, CLASSES, TREES = 1_000_000_000, 100, 2, 100
CLUSTER = Machines(workers=100, threads=16, memory=64_000_000_000)


def stages_of(found: Projection) -> pl.DataFrame:
    """A row per stage in minutes, gigabytes and tasks."""
    rows = [
        {
            "stage": stage.stage,
            "computing": stage.computing / 60.0,
            "client": stage.client / 60.0,
            "network": stage.network / 1e9,
            "disk": stage.disk / 1e9,
            "moving": stage.moving / 60.0,
            "tasks": stage.tasks,
        }
        for stage in found.stages
    ]
    total = {"stage": "all", **{name: sum(row[name] for row in rows) for name in rows[0] if name != "stage"}}
    return pl.DataFrame([*rows, total])


def page(rates: Rates) -> str:
    """The page."""
    shape = Shape(ROWS, (4,) * FEATURES, ROWS * FEATURES, CLASSES, (4,) * FEATURES)
    found = project_training(shape, TrainConfig(trees=TREES), CLUSTER, rates)
    measured = pl.DataFrame(
        [
            ("encode, per cell", rates.encode * 1e9),
            ("pass, per row of a bag", rates.route * 1e9),
            ("rows of small nodes, per cell", rates.spill * 1e9),
            ("subtrees, per row, feature looked at and level", rates.visit * 1e9),
            ("out of bag, per row, tree and level", rates.vote * 1e9),
            ("scoring, per byte of histograms", rates.score * 1e9),
            ("report, per row", rates.report * 1e9),
            ("client: report, per row", rates.client * 1e9),
            ("client: a node that a pass is asked about", rates.node * 1e9),
            ("client and scheduler: a task", rates.task * 1e9),
        ],
        schema=["what", "ns"],
        orient="row",
    )
    return TEXT.format(
        rows=f"{ROWS:,}",
        features=FEATURES,
        classes=CLASSES,
        trees=TREES,
        measured_rows=f"{rates.rows:,}",
        machine=machine(),
        rates=markdown(measured, {"what": ("what", "{}"), "ns": ("ns", "{:,.1f}")}),
        levels=f"{rates.levels:.1f}",
        cluster=CLUSTER,
        memory=f"{(CLUSTER.memory or 0) / 1e9:.0f}",
        link=f"{CLUSTER.link / 1e9:.2f}",
        disk=f"{CLUSTER.disk / 1e9:.1f}",
        codes=f"{ROWS * FEATURES * 4 / 1e9:,.0f}",
        found=found,
        subtree=f"{found.subtree:,}",
        scratch=f"{found.scratch / 1e9:,.0f}",
        histograms=f"{found.histograms / TREES / 1e6:,.0f}",
        share=f"{100 * found.client_share:.2f}",
        table=markdown(stages_of(found), COLUMNS),
        hours=f"{found.seconds / 3600.0:.1f}",
    )


COLUMNS = {
    "stage": ("stage", "{}"),
    "computing": ("workers computing (min)", "{:.1f}"),
    "client": ("client (min)", "{:.1f}"),
    "network": ("network (GB per worker)", "{:.1f}"),
    "disk": ("disk (GB per worker)", "{:.1f}"),
    "moving": ("workers moving these (min)", "{:.1f}"),
    "tasks": ("tasks", "{:,.0f}"),
}
TEXT = """# A billion rows on a hundred workers: a projection

How long would a billion rows take on a hundred workers, and what would client and network do?
`python benchmarks/projection.py` measures the rates and writes this page; nothing was run at this size. If no stages
overlapped, it would take **{hours} hours**; the client takes {share}% of the processor time of the workers.

The task: {trees} trees of the axis
family on {rows} rows of {features} features (float32, all values different) and {classes} classes. The
cluster, assumed: {cluster.workers} workers of {cluster.threads} threads as fast as the one below, with {memory} GB of
memory, a link of {link} GB/s and {disk} GB/s to disk each; the client has a link and a disk like them.
The model is `benchmarks/projection_model.py`.

## Measured

One thread, processor time, the synthetic set with {measured_rows} rows of 28 features grown by passes (mean depth of a
row {levels} levels); and the processor time of client and scheduler per task, with two workers on this machine.
{machine}.

{rates}

## Projected

The codes are {codes} GB, so blocks of rows are spread over the workers. By the program's model of memory,
{found.group} trees share passes, {found.passes} passes in all, until nodes have {subtree} rows, of which each
thread grows one at a time; {scratch} GB of rows on scratch at a time. Histograms of a tree are
{histograms} MB in all its passes; workers send their own, compressed, up a tree of merging tasks, the last of which
score the trees.

{table}

- Memory: the budget of {memory} GB per worker applies to training and is checked before.
- Histograms are scored by a third of the threads of at most eight workers. Scoring is taken at the rate of the small
  histograms measured here, where calls cost most, so it is an upper bound.
- The client and the scheduler do not scale: they take some milliseconds for each task, and the number of tasks grows
  with the workers.
- A column is encoded by one task, so threads are idle during encoding where there are fewer columns than threads.
- It is assumed that doubling the rows adds a level to all trees. Tables with few distinct values or little noise have
  fewer levels.
- A worker gets the same blocks in every pass, so codes cross the network once, into its local copy. The node of each
  row between passes, and the rows of small nodes, go to scratch.
- Votes are added up by a few workers, each of which loads what the leaves of all trees cast. This is not in the model;
  by the rates in `benchmarks/cluster.md` it takes one or two minutes.
- Slow and lost workers are not included.
"""


def main() -> None:
    """Measure the rates and write the page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    text = page(measure(options.rows, options.trees))
    (options.out / "projection.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
