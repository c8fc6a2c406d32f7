"""Forests and boosting of other libraries against bigforest, from an input file to forest and predictions as files.

    python benchmarks/peers.py --data DIR [--parts sets,small,rows,also] [--sets adult,rows/1000] [--rounds 1]
        [--contestants bigforest,ranger] [--threads 1] [--most 120]

Parts:

sets   five data sets, 20 trees, the same kind of forest for all
small  ten data sets of 1,000 to 20,000 rows, 100 trees, all at their defaults
rows   one table of 1,000 to 10,000,000 rows x 30, 20 trees, the same kind of forest for all
also   permutation importance, and three quantiles of the test rows: a regression, 100 trees, all at their defaults

Contestants (`peers_fits.py`) take turns, each measurement in a process of its own. The second run of the process
counts, or the first where it took more than `--again` seconds, and of R. The measure is the processor time of all
threads, because it depends least on other work of the machine. With one thread no library waits for its other threads,
which some count as work. A contestant is not given a table of the part "rows" that would take more than `--most`
seconds by its time for the table before.

Needs the extras `bench` and `bench-boosting`, and for some contestants h2o, quantile-forest, and R with ranger and
randomForest. Measurements are added to results/peers.parquet; one that is there is not made again, so that a run may be
cut into several. Of all that are there results/peers.md and peers.png are made; with --rounds 0 nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from columns import load as load_mixed
from datasets import SETS, TARGET, Dataset, load
from peers_fits import CONTESTANTS, STAGES
from runs import HERE, arguments, environment, machine, order, plan_of, store
from suite_sets import sets_of
from tables import markdown, save

OURS = "bigforest"
BOOSTING = ("lightgbm", "xgboost", "catboost")
# Those that can do what the part "also" asks.
ALSO = {
    "importance": (OURS, "ranger", "randomForest", "scikit-learn"),
    "quantiles": (OURS, "ranger", "quantile-forest"),
}
FORESTS_AND_BOOSTING = [name for name in CONTESTANTS if name != "quantile-forest"]
SMALL = (
    *("statlog-german-credit", "yeast", "statlog-image", "spambase", "waveform"),
    *("page-blocks", "statlog-landsat", "ringnorm", "magic", "letter"),
)
PARTS = {
    "sets": ["adult", "covertype", "mnist", "synthetic", "flights"],
    "small": [f"uci/{name}" for name in SMALL],
    "rows": [f"rows/{10**power}" for power in range(3, 8)],
    "also": [f"{kind}/california" for kind in ALSO],
}
TREES = {"sets": 20, "small": 100, "rows": 20, "also": 100}
FEATURES, TEST_ROWS = 30, 20_000


def simulated(rows: int) -> Dataset:
    """Return two classes that overlap, float32 features."""
    random = np.random.default_rng(30)
    values = random.standard_normal((FEATURES, rows + TEST_ROWS), np.float32)
    signal = values[0] * values[1] + np.sin(2 * values[2]) + np.abs(values[3]) + 0.5 * values[4]
    target = (signal + 0.5 * random.standard_normal(rows + TEST_ROWS, np.float32) > 0.8).astype(np.uint8)
    frame = pl.DataFrame({f"x{k:02d}": column for k, column in enumerate(values)} | {TARGET: target})
    return Dataset(f"rows/{rows}", frame[:rows], frame[rows:])


def data_of(name: str, data: Path) -> Dataset:
    """Return the data set of a name in PARTS; its categories are text."""
    kind, _, rest = name.partition("/")
    if kind == "rows":
        return simulated(int(rest))
    if kind in ("uci", *ALSO):
        found = sets_of(data)[name if kind == "uci" else f"real/{rest}"]
        return Dataset(name, *found.parts(0, 1 << 40))
    return load(name, data) if name in SETS else Dataset(name, *load_mixed(name, data))


def measure(options: argparse.Namespace) -> None:
    """Measure every contestant on every set, and add each to the file as soon as it is known.

    The small sets have one process of each contestant, because most of the time of a process would be its start.
    """
    plan = plan_of(options)
    place = options.out / "peers.parquet"
    for part in options.parts.split(",") if plan.rounds else []:
        names = [name for name in PARTS[part] if not options.sets or name in options.sets.split(",")]
        for together in [names] if part == "small" else [[name] for name in names]:
            with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
                sizes: dict[str, dict[str, Any]] = {}
                for round_, contestant in order(plan):
                    due = [name for name in together if _is_due(part, name, round_, contestant, place, options.most)]
                    for name in due:
                        if name not in sizes:
                            data = data_of(name, plan.data)
                            store(data, Path(scratch, name.replace("/", "-")))
                            sizes[name] = {"rows": data.train.height, "features": len(data.features)}
                            del data
                    told = {"contestant": contestant, "trees": TREES[part], "threads": plan.threads, "seed": round_}
                    told |= {"defaults": int(part in ("small", "also")), "again": options.again}
                    told |= {"also": due[0].partition("/")[0]} if part == "also" and due else {}
                    folders = [Path(scratch, name.replace("/", "-")) for name in due]
                    for name, found in zip(due, results(folders, told), strict=True):
                        row = {"part": part, "set": name, "contestant": contestant, "round": round_} | sizes[name]
                        add(pl.DataFrame([row | {"trees": TREES[part]} | found]), place)


def _is_due(part: str, name: str, round_: int, contestant: str, place: Path, most: float) -> bool:
    """Return whether a measurement is not made yet, and the contestant can do the task, and does it in time."""
    if contestant not in (ALSO[name.partition("/")[0]] if part == "also" else FORESTS_AND_BOOSTING):
        return False
    known = _known(place)
    own = known.drop_nulls("score").filter(part=part, contestant=contestant, round=round_) if known.height else known
    if own.height and name in own["set"]:
        return False
    if part != "rows" or name == PARTS["rows"][0]:
        return True
    before = own.sort("rows").tail(1) if own.height else own
    rows = int(name.partition("/")[2])
    return bool(before.height) and 1.2 * before["cpu_grow"][0] * rows / before["rows"][0] <= most


def _known(place: Path) -> pl.DataFrame:
    return pl.read_parquet(place) if place.exists() else pl.DataFrame()


def results(folders: list[Path], told: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a contestant takes on each set, no score from the first on where it fails; its files are removed."""
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        command = [sys.executable, str(HERE / "peers_fits.py")]
        for folder in folders:
            own = Path(scratch, folder.name)
            own.mkdir()
            for part in ("train", "test"):
                (own / f"{part}.parquet").symlink_to(folder / f"{part}.parquet")
            command += ["--folder", str(own)]
        for name, value in told.items():
            command += [f"--{name}", str(value)]
        environ = environment(told["threads"])
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False) if folders else None
    if done is None:
        return []
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]  # others: of libraries
    for folder, row in zip(folders, found, strict=False):
        print(f"{folder.name} {told['contestant']}: fit {row['cpu_grow']:.3f} s, {row['score']:.4f}", file=sys.stderr)
    if done.returncode:
        print(f"{told['contestant']}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
    return found + [{"score": None}] * (len(folders) - len(found))


def add(row: pl.DataFrame, place: Path) -> None:
    """Add a measurement to the file."""
    place.parent.mkdir(parents=True, exist_ok=True)
    pl.concat([_known(place), row], how="diagonal_relaxed").write_parquet(place)


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per set and contestant, the round of the least time.

    fit     processor seconds of growing; of bigforest, encoding, report and files too
    memory  the most that was resident, in MB
    """
    stages = [f"cpu_{name}" for name in STAGES]
    runs = runs.with_columns(pl.lit(None, pl.Float64).alias(name) for name in stages if name not in runs.columns)
    whole = pl.sum_horizontal(stages)
    own = pl.col("contestant").str.starts_with(OURS)
    fit = pl.when(own).then(whole - pl.col("cpu_predict") - pl.col("cpu_also").fill_null(0.0)).otherwise("cpu_grow")
    table = runs.drop_nulls("score").with_columns(whole=whole, fit=fit, memory=pl.col("peak") / 1e6)
    table = table.sort("whole").group_by("part", "set", "contestant", maintain_order=True).first()
    names = {name: index for index, name in enumerate(CONTESTANTS)}
    places = {name: index for index, name in enumerate(name for names in PARTS.values() for name in names)}
    return table.with_columns(
        also=pl.col("cpu_also"),
        _set=pl.col("set").replace_strict(places),
        _contestant=pl.col("contestant").replace_strict(names),
    ).sort("_set", "_contestant")


def wide(table: pl.DataFrame, value: str, pattern: str) -> str:
    """Return a Markdown table with a row for each contestant and a column for each set."""
    found = table.pivot("set", index="contestant", values=value, maintain_order=True)
    order = table.unique("contestant").sort("_contestant")["contestant"]
    found = pl.DataFrame({"contestant": order}).join(found, on="contestant", how="left", maintain_order="left")
    sizes = {name: f"{rows:,} x {features}" for name, rows, features in table.select("set", "rows", "features").rows()}
    heads = {name: (f"{name.rpartition('/')[2]} ({size})", pattern) for name, size in sizes.items()}
    if set(table["part"]) == {"rows"}:
        heads = {name: (f"{int(name.partition('/')[2]):,}", pattern) for name in sizes}
    return markdown(found, {"contestant": ("", "{}")} | heads)


def report(table: pl.DataFrame, threads: int) -> str:
    """Return the tables as Markdown, with what they were measured on."""
    packages = ("numpy", "numba", "polars", "scikit-learn", "scikit-learn-intelex", "snapml", "ydf", "lightgbm")
    packages = (*packages, "xgboost-cpu", "catboost", "h2o", "quantile-forest")
    texts = [f"Threads: {threads}. {machine(packages)}."]
    for part in table["part"].unique(maintain_order=True):
        own = table.filter(part=part)
        if part == "also":
            for name in own["set"].unique(maintain_order=True):
                columns = {"contestant": ("", "{}"), "fit": ("fit (s)", "{:.2f}"), "also": (name, "{:.2f}")}
                texts.append(markdown(own.filter(set=name), columns | {"score": ("R2", "{:.3f}")}))
            continue
        texts += [f"{part}: fit (processor seconds)", wide(own, "fit", "{:.2f}")]
        texts += [f"{part}: accuracy of the test rows", wide(own, "score", "{:.4f}")]
        if part == "rows":
            texts += ["memory (MB)", wide(own, "memory", "{:,.0f}")]
    return "\n\n".join(texts)


def picture(table: pl.DataFrame, place: Path) -> None:
    """Draw processor time by rows, with a line for each contestant; that of boosting is dashed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9.5, 6.0), layout="constrained")
    own = table.filter(part="rows")
    colors = iter([*plt.get_cmap("Dark2").colors, *plt.get_cmap("Set1").colors])
    ends = []
    for name in own.unique("contestant").sort("_contestant")["contestant"]:
        line = own.filter(contestant=name).sort("rows")
        color = "black" if name == OURS else next(colors)
        style = {"linestyle": "--" if name in BOOSTING else "-", "linewidth": 2.6 if name == OURS else 1.3}
        axis.plot(line["rows"], line["fit"], color=color, marker="o", markersize=3.5, **style)
        ends.append((line["rows"][-1], line["fit"][-1], name, color))
    # Names at the ends of the lines, moved apart where lines end close together.
    least: dict[int, float] = {}
    for rows, seconds, name, color in sorted(ends):
        height = max(seconds, least.get(rows, 0.0) * 1.35)
        least[rows] = height
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.8}
        place_of = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        axis.annotate(name, (rows, height), color=color, fontsize=8, bbox=box, **place_of)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(700, 6e7)
    axis.set_xlabel(f"rows, of {FEATURES} float32 features, two classes")
    axis.set_ylabel("processor seconds of fitting 20 trees, or 100 rounds of boosting (dashed)")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(place, dpi=110)


def main() -> None:
    """Forests and boosting of other libraries against bigforest."""
    everyone = ",".join(CONTESTANTS)
    parser = arguments(main.__doc__, sets="", contestants=everyone, trees=0, rounds=1)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated, of {', '.join(PARTS)}")
    parser.add_argument("--most", type=float, default=120, help="seconds of fitting, in the part rows")
    parser.add_argument("--again", type=float, default=10, help="seconds of a first run that is followed by a second")
    parser.set_defaults(threads=1)
    options = parser.parse_args()
    measure(options)
    runs = pl.read_parquet(options.out / "peers.parquet")
    table = summary(runs)
    save("peers", runs, report(table, options.threads), options.out)
    picture(table, options.out / "peers.png")


if __name__ == "__main__":
    main()
