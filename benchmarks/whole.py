"""From a Parquet file to a forest, its out-of-bag report and the predictions of the test rows as files, against peers.

    python benchmarks/whole.py --data DIR [--sets synthetic,adult] [--trees 20] [--rounds 2]
        [--contestants bigforest,ydf]

Contestants (`whole_fits.py`) take turns, each measurement in a process of its own that starts with nothing loaded and
makes three files; kernels are compiled before. What is measured: wall and processor time from the start of the process
until the last file is there, and the most memory that was resident (`first`); then the same once more in the same
process, by stage, with everything imported (`again`; not where the first took a minute). By how much the first took
longer is the stage `start`: imports, and whatever else is made at first use. Each uses its own reader,
out-of-bag estimate, where it has one, and way to save. Growing with a report inside is measured without it too, so
that `fit` is growing alone.

Measurements are added to results/whole.parquet, where those of the same set, trees, contestant and round are replaced:
a run may be cut into several. Of all that are there results/whole.md and whole.png are made, whose tables and picture
benchmarks/whole.md keeps; with --rounds 0 they are made and nothing is measured.

The set `large`, 5 million rows, is measured where it is named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from columns import load as load_mixed
from datasets import SETS, TARGET, Dataset, load
from runs import answer_of, arguments, machine, order, plan_of, store
from tables import markdown, save
from whole_fits import CONTESTANTS, STAGES

KEY = ["set", "trees", "contestant"]
OURS = "bigforest"
CLOCKS = {"wall": "again", "cpu": "again_cpu"}
# Those that look at every value, as ours does; the others look at 256 bins.
EXACT = ("scikit-learn", "snapml-exact", "ydf")
LARGE_ROWS, LARGE_FEATURES = 5_000_000, 30
# What whole should take, against the fit alone of the fastest exact peer and of the fastest of all.
BARS = {"synthetic": (8, 4)}
OTHER_BARS = (5, 3)
COLUMNS = {
    "set": ("data", "{}"),
    "trees": ("trees", "{}"),
    "contestant": ("contestant", "{}"),
    "wall": ("first (s)", "{:.2f}"),
    "cpu": ("processor (s)", "{:.2f}"),
    "peak": ("memory (MB)", "{:,.0f}"),
    "again": ("again (s)", "{:.2f}"),
    "again_cpu": ("processor (s)", "{:.2f}"),
    "wall_fit": ("fit alone (s)", "{:.2f}"),
    "cpu_fit": ("processor (s)", "{:.2f}"),
    "wall_ratio": ("fit alone / again of ours", "{:.1f}"),
    "cpu_ratio": ("the same of processor", "{:.1f}"),
    "accuracy": ("test accuracy", "{:.4f}"),
}
STAGE_NAMES = {
    "start": "start and first use",
    "encode": "encode",
    "read": "read",
    "grow": "fit",
    "oob": "out of bag",
    "write": "save",
    "predict": "predict",
}
COLORS = {
    "start": "#bbbbbb",
    "encode": "#8c6bb1",
    "read": "#8c6bb1",
    "grow": "#2b7bba",
    "oob": "#31a354",
    "write": "#e6ab02",
    "predict": "#d95f02",
}


def large() -> Dataset:
    """Two classes that overlap, float32 features; a fiftieth of the rows for testing."""
    random = np.random.default_rng(30)
    rows = LARGE_ROWS + LARGE_ROWS // 50
    values = random.standard_normal((LARGE_FEATURES, rows), np.float32)
    signal = values[0] * values[1] + np.sin(2 * values[2]) + np.abs(values[3]) + 0.5 * values[4]
    target = (signal + 0.5 * random.standard_normal(rows, np.float32) > 0.8).astype(np.uint8)
    frame = pl.DataFrame({f"x{k:02d}": column for k, column in enumerate(values)} | {TARGET: target})
    return Dataset("large", frame[:LARGE_ROWS], frame[LARGE_ROWS:])


def data_of(name: str, data: Path) -> Dataset:
    """The set called `name`; its categories are text."""
    if name == "large":
        return large()
    return load(name, data) if name in SETS else Dataset(name, *load_mixed(name, data))


def measure(options: argparse.Namespace) -> None:
    """Every contestant on every set, each added to the file as soon as it is known."""
    plan = plan_of(options)
    for name in plan.sets if plan.rounds else []:
        data = data_of(name, plan.data)
        size = {"set": name, "rows": data.train.height, "features": len(data.features), "classes": data.classes}
        with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
            folder = store(data, Path(scratch))
            del data
            for round_, contestant in order(plan):
                result = one(folder, contestant, plan.trees, plan.threads, round_)
                row = size | {"contestant": contestant, "round": round_, "trees": plan.trees, "threads": plan.threads}
                add(pl.DataFrame([row | result]), options.out / "whole.parquet")
                print(
                    f"{name} round {round_} {contestant}: {result['wall']:.2f} s, again {result['again']:.2f} s",
                    file=sys.stderr,
                )


def one(folder: Path, contestant: str, trees: int, threads: int, seed: int) -> dict[str, Any]:
    """What one contestant takes; its files go to a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as own:
        for part in ("train", "test"):
            (Path(own) / f"{part}.parquet").symlink_to(folder / f"{part}.parquet")
        told = {"contestant": contestant, "folder": own, "trees": trees, "threads": threads, "seed": seed}
        found: dict[str, Any] = answer_of("whole_fits.py", {**told, "began": time.time()})
        return found


def add(row: pl.DataFrame, place: Path) -> None:
    """Add a measurement to the file, in the place of one that is there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        before = pl.read_parquet(place).join(row, on=[*KEY, "round"], how="anti", maintain_order="left")
        row = pl.concat([before, row], how="diagonal_relaxed")
    row.write_parquet(place)


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """One row per set, trees and contestant, the best of the rounds; CLOCK_fit is growing without a report."""
    best = runs.sort("again_cpu").group_by(KEY, maintain_order=True).first()
    bare = best.filter(pl.col("contestant").str.ends_with("-")).with_columns(pl.col("contestant").str.head(-1))
    best = best.filter(~pl.col("contestant").str.ends_with("-"))
    best = best.join(bare.select(*KEY, wall_fit="wall_grow", cpu_fit="cpu_grow"), on=KEY, how="left")
    ours = best.filter(pl.col("contestant") == OURS).select("set", "trees", own_wall="again", own_cpu="again_cpu")
    sets, names = runs["set"].unique(maintain_order=True), pl.Series(list(CONTESTANTS))
    places = [
        pl.col("set").replace_strict(sets, range(len(sets))).alias("_set"),
        pl.col("contestant").replace_strict(names, range(len(names))).alias("_contestant"),
    ]
    fits = [pl.col(f"{clock}_fit").fill_null(pl.col(f"{clock}_grow")) for clock in CLOCKS]
    return (
        best.join(ours, on=["set", "trees"], how="left")
        .with_columns(*fits, *places, peak=pl.col("peak") / 1e6)
        .with_columns((pl.col(f"{clock}_fit") / pl.col(f"own_{clock}")).alias(f"{clock}_ratio") for clock in CLOCKS)
        .sort("trees", "_set", "_contestant")
    )


def bars(table: pl.DataFrame) -> pl.DataFrame:
    """The fastest exact peer and the fastest of all, by their fit alone, against all that ours does."""
    rows = []
    for (name, trees), own in table.group_by("set", "trees", maintain_order=True):
        peers = own.filter(~pl.col("contestant").str.starts_with(OURS))
        among = {"exact": peers.filter(pl.col("contestant").is_in(EXACT)), "any": peers}
        for (kind, rivals), bar in zip(among.items(), BARS.get(str(name), OTHER_BARS), strict=True):
            if not rivals.height:
                continue
            row: dict[str, Any] = {"set": name, "trees": trees, "kind": kind, "wanted": bar}
            for clock in CLOCKS:
                first = rivals.sort(f"{clock}_fit").row(0, named=True)
                row |= {f"{clock}_peer": first["contestant"], f"{clock}_ratio": first[f"{clock}_ratio"]}
                ours = own.filter(pl.col("contestant") == OURS)
                row[f"{clock}_grow"] = first[f"{clock}_fit"] / ours[f"{clock}_grow"][0] if ours.height else None
            rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def report(table: pl.DataFrame, threads: int) -> str:
    """The tables as Markdown, with what they were measured on."""
    stages = {
        f"{clock}_{name}": (STAGE_NAMES[name] + unit, "{:.2f}")
        for clock, unit in (("wall", " (s)"), ("cpu", ", processor"))
        for name in STAGES
    }
    bar_columns = {
        "set": ("data", "{}"),
        "trees": ("trees", "{}"),
        "kind": ("among", "{}"),
        "wanted": ("wanted", "{}"),
        "cpu_peer": ("least processor time", "{}"),
        "cpu_ratio": ("its fit / again of ours", "{:.1f}"),
        "cpu_grow": ("its fit / our growing", "{:.1f}"),
        "wall_peer": ("fastest by the wall", "{}"),
        "wall_ratio": ("its fit / again of ours ", "{:.1f}"),
        "wall_grow": ("its fit / our growing ", "{:.1f}"),
    }
    compared = bars(table)
    missing = [pl.lit(None, pl.Float64).alias(name) for name in stages if name not in table.columns]
    packages = ("numpy", "numba", "polars", "scikit-learn", "scikit-learn-intelex", "snapml", "ydf", "lightgbm")
    return "\n\n".join(
        [
            f"{threads} threads, {machine(packages)}.",
            markdown(table, COLUMNS),
            *([markdown(compared, bar_columns)] if compared.height else []),
            markdown(table.with_columns(missing), {name: COLUMNS[name] for name in KEY} | stages),
        ]
    )


def picture(table: pl.DataFrame, place: Path) -> None:
    """Time by stage, a panel for each set and number of trees."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(table.group_by("trees", "set", maintain_order=True))
    trees = sorted({int(key[0]) for key, _ in panels})
    sets = list(dict.fromkeys(key[1] for key, _ in panels))
    figure, axes = plt.subplots(
        len(sets), len(trees), figsize=(6.2 * len(trees), 1.0 + 1.9 * len(sets)), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.set_axis_off()
    for key, own in panels:
        axis = axes[sets.index(key[1])][trees.index(int(key[0]))]
        axis.set_axis_on()
        names, left = own["contestant"].to_list(), np.zeros(own.height)
        for name in STAGES:
            if f"wall_{name}" not in own.columns:
                continue
            wide = own[f"wall_{name}"].fill_null(0.0).to_numpy()
            axis.barh(names, wide, left=left, color=COLORS[name])
            left = left + wide
        for row, total in enumerate(left):
            axis.annotate(f" {total:.2f}", (total, row), va="center", fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        size = own.row(0, named=True)
        axis.set_title(f"{key[1]}, {size['rows']:,} x {size['features']}, {key[0]} trees", fontsize=9, loc="left")
        axis.set_xlabel("seconds", fontsize=8)
    named = {name: "encode, read" if name == "encode" else STAGE_NAMES[name] for name in STAGES if name != "read"}
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[name]) for name in named]
    figure.legend(
        handles, list(named.values()), loc="outside upper center", ncols=len(named), fontsize=8, frameon=False
    )
    figure.savefig(place, dpi=110)


def main() -> None:
    """From a Parquet file to a forest, its report and predictions as files, against peers."""
    everyone = ",".join(CONTESTANTS)
    sets = "synthetic,covertype,mnist,flights,adult"
    options = arguments(main.__doc__, sets=sets, contestants=everyone, trees=20, rounds=2).parse_args()
    measure(options)
    runs = pl.read_parquet(options.out / "whole.parquet")
    table = summary(runs)
    save("whole", runs, report(table, options.threads), options.out)
    picture(table, options.out / "whole.png")


if __name__ == "__main__":
    main()
