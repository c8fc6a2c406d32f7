"""Training on tables larger than memory: time, disk and memory, within a control group of Linux. Needs root.

    python benchmarks/larger.py fit    --folder DIR                  # 30 million rows under 1 GB, stage by stage
    python benchmarks/larger.py growth --folder DIR --sizes 1,3,10,30   # millions of rows: time against n log n
    python benchmarks/larger.py record --folder DIR                  # 100 million rows under 1 GB, and 30 million
    python benchmarks/larger.py cost   --folder DIR --rows 8000000   # by passes against in memory, in turn
    python benchmarks/larger.py cost   --folder DIR --rows 10000000 --family sparse-oblique --trees 1
    python benchmarks/larger.py encode --folder DIR                  # against reading and sorting with Polars
    python benchmarks/larger.py peers  --folder DIR                  # what other libraries do within the limit

The tables (larger_table.py: two classes, 30 float32 features, 120 bytes of values a row) are made in DIR and stay
there. Each job (larger_jobs.py) has a process of its own. Before it, the table is dropped from the page cache, so that
its pages are charged to the group. Kernels are compiled before, by training on a few rows: that takes memory of its
own, once. `peak` is anonymous memory, sampled; `projected` is what `bigforest plan` says. Writes
results/larger_PART.parquet and .md.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import polars as pl
from larger_limit import Done, measure
from larger_table import FEATURES
from runs import HERE, machine
from tables import markdown, save

import bigforest
from bigforest.planning.sizes import parse_bytes

_SMALL_ROWS = 20_000
_STAGES = {
    "rows": ("rows", "{:,}"),
    "stage": ("stage", "{}"),
    "seconds": ("seconds", "{:.1f}"),
    "processor": ("of processor", "{:.1f}"),
    "system": ("of these the system", "{:.1f}"),
    "read": ("read (GB)", "{:.2f}"),
    "written": ("written (GB)", "{:.2f}"),
    "disk_read": ("from disk (GB)", "{:.2f}"),
    "disk_written": ("to disk (GB)", "{:.2f}"),
    "peak": ("peak (MB)", "{:.0f}"),
    "projected": ("projected (MB)", "{:.0f}"),
}
_GROWTH = {
    "rows": ("rows", "{:,}"),
    "seconds": ("seconds", "{:.1f}"),
    "processor": ("of processor", "{:.1f}"),
    "per_n_log_n": ("of processor / (n log n), ns", "{:.2f}"),
    "peak": ("peak (MB)", "{:.0f}"),
}
_RECORD = _GROWTH | {name: _STAGES[name] for name in ("read", "written", "disk_read", "disk_written", "projected")}
_COST = {
    "way": ("way", "{}"),
    "round": ("round", "{}"),
    "seconds": ("growing (s)", "{:.1f}"),
    "processor": ("of processor", "{:.1f}"),
    "system": ("of these the system", "{:.1f}"),
    "peak": ("peak (MB)", "{:.0f}"),
    "ratio": ("processor / in memory", "{:.2f}"),
}
_JOBS = {
    "job": ("job", "{}"),
    "status": ("end", "{}"),
    "seconds": ("seconds", "{:.1f}"),
    "processor": ("of processor", "{:.1f}"),
    "peak": ("peak (MB)", "{:.0f}"),
}
_PEERS = ("scikit_learn", "ydf", "lightgbm", "xgboost")


def table_of(folder: Path, rows: int) -> Path:
    """The table of `rows` rows, made if it is not there."""
    path = folder / f"table-{rows}.parquet"
    if not path.exists():
        made = measure("make", None, table=str(path.with_suffix(".part")), rows=rows)
        if made.status != "done":
            raise SystemExit(f"making the table failed: {made.status}")
        path.with_suffix(".part").rename(path)
    return path


def compile_kernels(options: argparse.Namespace) -> None:
    """Train on a few rows, in memory and by passes, so that the kernels are compiled."""
    from bigforest.grow.forest import compile_for
    from bigforest.options.train_config import TrainConfig
    from bigforest.planning.memory import TableTraits

    table = table_of(options.folder, _SMALL_ROWS)
    bigforest.train(table, trees=1, seed=1, threads=1, family=options.family)
    config = TrainConfig.of(family=options.family).for_task("classification")
    compile_for(TableTraits(), config, True, options.folder)


def train(options: argparse.Namespace, table: Path, memory: int | None, limit: int | None) -> Done:
    """Train on a table or a store, and say how it went."""
    out = options.folder / "out.forest"
    done = measure(
        "train", limit, table=str(table), out=str(out), memory=memory, trees=options.trees, threads=options.threads
    )
    print(f"{table.name}, memory {memory}: {done.status}, {done.whole['seconds']:.0f} s", file=sys.stderr)
    return done


def fit(options: argparse.Namespace) -> tuple[pl.DataFrame, str]:
    """Stage by stage: time, bytes read and written, and peak against projection."""
    return _fits(options, [options.rows])


def growth(options: argparse.Namespace) -> tuple[pl.DataFrame, str]:
    """The same for several sizes, and the time against n log n, with a figure."""
    runs, whole, text = _sizes(options, options.sizes or "1,3,10,30")
    draw_growth(runs, options.out / "larger_growth.png")
    return runs, markdown(in_units(whole), _GROWTH) + "\n\n" + text


def record(options: argparse.Namespace) -> tuple[pl.DataFrame, str]:
    """The largest table, and one of fewer rows: seconds, bytes, peak, and the processor time per n log n."""
    runs, whole, text = _sizes(options, options.sizes or "30,100")
    first, last = whole["per_n_log_n"][0], whole["per_n_log_n"][-1]
    told = f"Processor time per n log n is {last / first:.2f} times that of the smallest table."
    return runs, markdown(in_units(whole), _RECORD) + f"\n\n{told}\n\n" + text


def _sizes(options: argparse.Namespace, sizes: str) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Runs on tables of these millions of rows, all stages; the whole runs with their time per n log n; and a table."""
    runs, text = _fits(options, [round(float(size) * 1e6) for size in sizes.split(",")])
    if failed := set(runs["status"]) - {"done"}:
        raise SystemExit(f"not all forests were grown: {'; '.join(failed)}")
    per_n_log_n = pl.col("processor") / (pl.col("rows") * pl.col("rows").log(2)) * 1e9
    return runs, runs.filter(pl.col("stage") == "all").with_columns(per_n_log_n=per_n_log_n), text


def _fits(options: argparse.Namespace, sizes: list[int]) -> tuple[pl.DataFrame, str]:
    rows = []
    for size in sizes:
        table = table_of(options.folder, size)
        where = options.folder / "plan.forest"
        plan = bigforest.plan_training(
            table, memory=options.memory, threads=options.threads, trees=options.trees, out=where
        )
        needs = {stage.stage: stage.need.memory for stage in plan.stages}
        done = train(options, table, options.memory, options.limit)
        for stage in done.stages:
            projected = needs.get(stage["stage"], max(needs.values()) if stage["stage"] == "all" else None)
            rows.append({"rows": size, "status": done.status, **stage, "projected": projected, **done.facts})
    runs = pl.DataFrame(rows, infer_schema_length=None)
    return runs, markdown(in_units(runs), _STAGES)


def draw_growth(runs: pl.DataFrame, path: Path) -> None:
    """Processor time of the stages against rows, and n log n through the smallest table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for stage, label in (("all", "whole run"), ("grow", "grow"), ("encode", "encode"), ("oob", "out of bag")):
        here = runs.filter(pl.col("stage") == stage).sort("rows")
        axes.plot(here["rows"] / 1e6, here["processor"], marker="o", label=label)
    whole = runs.filter(pl.col("stage") == "all").sort("rows")
    first, least = float(whole["rows"][0]), float(whole["processor"][0])
    expected = [least * n * math.log(n) / (first * math.log(first)) for n in whole["rows"].to_list()]
    axes.plot(whole["rows"] / 1e6, expected, linestyle="--", color="grey", label="n log n")
    axes.set(xscale="log", yscale="log", xlabel="million rows of 30 features", ylabel="seconds of processor")
    axes.set_xticks((whole["rows"] / 1e6).to_list(), [f"{size / 1e6:g}" for size in whole["rows"].to_list()])
    axes.minorticks_off()
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def cost(options: argparse.Namespace) -> tuple[pl.DataFrame, str]:
    """Growing from one store with a quarter of the bytes of the table's values, and without limit, in turn."""
    table = table_of(options.folder, options.rows)
    store = options.folder / f"table-{options.rows}.store"
    if not store.exists():
        bigforest.encode_store(table, store, threads=options.threads)
    budget = options.rows * FEATURES * 4 // 4
    out, rows = str(options.folder / "out.trees"), []
    same = {"table": str(store), "out": out, "trees": options.trees, "family": options.family}
    for number in range(options.rounds):
        for way, memory in (("in memory", None), ("by passes", budget)):
            done = measure("grow", None, threads=options.threads, memory=memory, **same)
            grown = next((stage for stage in done.stages if stage["stage"] == "grow"), done.whole)
            rows.append({"way": way, "round": number, "status": done.status, **grown, **done.facts})
            print(f"{way}: {done.status}, {done.whole['seconds']:.0f} s", file=sys.stderr)
    runs = pl.DataFrame(rows, infer_schema_length=None)
    if failed := set(runs["status"]) - {"done"}:
        raise SystemExit(f"not all forests were grown: {'; '.join(failed)}")
    if runs["digest"].n_unique() != 1:
        raise SystemExit("the forests differ")
    memory = pl.col("processor").filter(pl.col("way") == "in memory").first().over("round")
    runs = runs.with_columns(ratio=pl.col("processor") / memory)
    head = f"{options.rows:,} rows, a budget of {budget:,} bytes, trees of the family {options.family}.\n\n"
    return runs, head + markdown(in_units(runs), _COST)


def encode(options: argparse.Namespace) -> tuple[pl.DataFrame, str]:
    """Encoding within the budget against reading the table once and sorting each column with Polars, in turn.

    Both from the disk and within the limit: where only one finds the table in the page cache, the disk is compared.
    """
    table, rows = str(table_of(options.folder, options.rows)), []
    for number in range(options.rounds):
        store = options.folder / "out.store"
        for done in (
            measure("read_and_sort", options.limit, threads=options.threads, table=table),
            measure(
                "encode", options.limit, table=table, out=str(store), memory=options.memory, threads=options.threads
            ),
        ):
            rows.append({"round": number, "job": done.job, "status": done.status, **done.whole})
    runs = pl.DataFrame(rows, infer_schema_length=None)
    return runs, markdown(in_units(runs), _JOBS)


def peers(options: argparse.Namespace) -> tuple[pl.DataFrame, str]:
    """What other libraries do with the same table within the same limit."""
    table, rows = str(table_of(options.folder, options.rows)), []
    shared = {"table": table, "trees": options.trees, "threads": options.threads}
    for name in options.contestants.split(","):
        extra = {"cache": str(options.folder / "xgboost-cache")} if name == "xgboost" else {}
        done = measure(name, options.limit, options.patience, **shared, **extra)
        print(f"{name}: {done.status}, {done.whole['seconds']:.0f} s", file=sys.stderr)
        rows.append({"rows": options.rows, "job": name, "status": done.status, **done.whole})
    runs = pl.DataFrame(rows, infer_schema_length=None)
    return runs, markdown(in_units(runs), _JOBS)


def in_units(runs: pl.DataFrame) -> pl.DataFrame:
    """Bytes in the units of the tables; columns that a killed job lacks are empty."""
    missing = [name for name in _STAGES | _JOBS if name not in runs.columns]
    runs = runs.with_columns(pl.lit(None, pl.Float64).alias(name) for name in missing)
    return runs.with_columns(
        pl.col("peak", "projected") / 1e6, pl.col("read", "written", "disk_read", "disk_written") / 1e9
    )


PARTS = {part.__name__: part for part in (fit, growth, record, cost, encode, peers)}


def main() -> None:
    """Measure one part and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--folder", type=Path, required=True, help="existing folder for tables, stores and forests")
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--sizes", help="million rows, comma-separated, for growth (1,3,10,30) and record (30,100)")
    parser.add_argument("--memory", type=parse_bytes, default=10**9, help="budget")
    parser.add_argument("--limit", type=parse_bytes, default=1_250_000_000, help="bytes of the control group")
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--family", default="axis", help="of cost; sparse-oblique and rotation grow by passes, too")
    parser.add_argument("--rounds", type=int, default=2, help="of cost and encode")
    parser.add_argument("--contestants", default=",".join(_PEERS), help="comma-separated, of peers")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds before a peer is stopped")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    compile_kernels(options)
    runs, text = PARTS[options.part](options)
    limits = f"{options.trees} trees to purity, {options.threads} threads, budget {options.memory / 1e9:g} GB, "
    head = f"{limits}limit {options.limit / 1e9:g} GB.\n{machine()}."
    save(f"larger_{options.part}", runs, head + "\n\n" + text, options.out)


if __name__ == "__main__":
    main()
