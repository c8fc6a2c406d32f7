"""`train --tune` and plain `train` against LightGBM's boosting at its defaults, by log loss on sets with classes.

    python benchmarks/compare.py --data DIR [--half report] [--least-rows 1000] [--max-rows 5000] [--rounds 1]
        [--trees 100] [--minutes 15] [--threads 1]

Contestants (suite_fits.py): the forest at its defaults, the winner of the default candidates (`tune`), LightGBM's
boosting at its defaults with as many trees, and the same in the processor time that `tune` took, with as many trees as
a held-out fifth of the rows asks for. Sets and how they are split: suite_sets.py; the half
"report" was not used to choose a default. The sets with the fewest cells come first. No set is begun after `--minutes`;
the result says which were run. Measurements that are in results/compare.parquet are not made again, so that a
further run goes on with other sets. Contestants take turns in one process, each after an uncounted small run.

Writes compare.md and results/compare.parquet beside itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
from datasets import TARGET
from runs import machine
from suite_fits import Asked, measure
from suite_sets import HALVES, Set, sets_of
from tables import markdown

PLAIN, TUNED, PEER = "bigforest", "bigforest:tune=1h", "lightgbm"
EQUAL = "lightgbm, equal time"
CONTESTANTS = (PLAIN, TUNED, PEER, EQUAL)
NAMES = {PLAIN: "bigforest", TUNED: "bigforest, tuned", PEER: "LightGBM", EQUAL: "LightGBM, equal time"}
# Sets that are no test: of this one the official training rows are scaled, and the test rows are not.
UNFIT = ("uci/image-segmentation",)
HERE = Path(__file__).resolve().parent
MEANS = {
    "contestant": ("contestant", "{}"),
    "log_loss": ("mean log loss", "{:.4f}"),
    "rank": ("mean rank", "{:.2f}"),
    "behind": ("above LightGBM's, mean", "{:+.4f}"),
    "error": ("error over sets", "{:.4f}"),
    "wins": ("less than LightGBM's on", "{}"),
    "score": ("mean accuracy", "{:.4f}"),
    "cpu_seconds": ("mean processor seconds of fitting", "{:.2f}"),
}


def chosen_sets(options: argparse.Namespace) -> Iterator[Set]:
    """The sets with classes that are asked for, those with the fewest cells first."""
    found = []
    for name, one in sets_of(options.data).items():
        wanted = name not in UNFIT and not one.regression and name.partition("/")[0] in ("uci", "real")
        if wanted and options.half in (None, one.half):
            table = one.read()
            if table.height >= options.least_rows:
                found.append((min(table.height, options.max_rows) * table.width, name, one))
    for _, _, one in sorted(found, key=lambda each: each[:2]):
        yield one


def measured(one: Set, round_: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each contestant on one split."""
    parts = train, test = one.parts(round_, options.max_rows)
    classes = sorted(train[TARGET].unique().cast(pl.Int64).to_list())
    asked = Asked(options.trees, options.threads, round_, classes)
    sizes = {
        "trees": options.trees,
        "max_rows": options.max_rows,
        "rows": train.height,
        "test_rows": test.height,
        "features": train.width - 1,
        "classes": len(classes),
    }
    took = 0.0
    for contestant in CONTESTANTS:
        found = measure(f"{PEER}:seconds={took}" if contestant == EQUAL else contestant, parts, asked)
        took = found["cpu_seconds"] if contestant == TUNED else took  # type: ignore[assignment]
        yield {"set": one.name, "round": round_, "contestant": contestant} | sizes | found


def by_set(runs: pl.DataFrame) -> pl.DataFrame:
    """The means over the rounds, and the rank of the log loss among the contestants of a set."""
    means = runs.group_by("set", "contestant", maintain_order=True).agg(
        pl.col("rows", "features", "classes").first(), pl.col("log_loss", "score", "cpu_seconds").mean()
    )
    return means.with_columns(rank=pl.col("log_loss").rank("average").over("set"))


def summary(sets: pl.DataFrame) -> pl.DataFrame:
    """A row per contestant: means over the sets, and the paired difference of the log loss to LightGBM's."""
    peer = sets.filter(pl.col("contestant") == PEER).select("set", peer="log_loss")
    more = sets.join(peer, on="set").with_columns(behind=pl.col("log_loss") - pl.col("peer"))
    return more.group_by("contestant", maintain_order=True).agg(
        pl.col("log_loss", "rank", "score", "cpu_seconds", "behind").mean(),
        error=pl.col("behind").std() / pl.len().sqrt(),
        wins=pl.format("{} of {}", (pl.col("behind") < 0).sum(), pl.len()),
    )


def better(sets: pl.DataFrame) -> str:
    """On how many sets the log loss of the tuned forest is below that of LightGBM in equal time, of how many."""
    tuned, equal = (sets.filter(pl.col("contestant") == name).select("set", "log_loss") for name in (TUNED, EQUAL))
    both = tuned.join(equal, on="set", suffix="_equal")
    return f"{(both['log_loss'] < both['log_loss_equal']).sum()} of {both.height}"


def report(runs: pl.DataFrame, options: argparse.Namespace, left: list[str]) -> str:
    """The text of compare.md."""
    sets = by_set(runs)
    wide = sets.pivot("contestant", index=["set", "rows", "features", "classes"], values=["log_loss", "cpu_seconds"])
    columns = {"set": ("set", "{}"), "rows": ("rows", "{:,}"), "features": ("features", "{}")}
    columns["classes"] = ("classes", "{}")
    for value, said, pattern in (("log_loss", "log loss", "{:.4f}"), ("cpu_seconds", "seconds", "{:.2f}")):
        columns |= {f"{value}_{name}": (f"{said}, {NAMES[name]}", pattern) for name in CONTESTANTS}
    command = f"python benchmarks/compare.py --data DIR --max-rows {options.max_rows} --rounds {options.rounds}"
    command += f" --trees {options.trees}"
    named = summary(sets).with_columns(pl.col("contestant").replace(NAMES))
    missing = f"Not run for lack of time: {', '.join(left)}." if left else "All sets were run."
    lightgbm = f"LightGBM {version('lightgbm')}"
    return f"""# Choosing options, against boosting

Do options chosen by `train --tune` predict better than LightGBM's boosting, for the same time?
`{command}` writes this page.

*Tuned* has the lower log loss than boosting in equal time on {better(sets)} sets.

{sets["set"].n_unique()} sets of the reporting half, on which no default was chosen; of larger sets
{options.max_rows:,} rows are drawn, and a fifth of the rows is for testing. All forests have
{options.trees} trees. *Tuned* is `train --tune` with all default candidates. *Equal time* is LightGBM's boosting at its
defaults, with as many processor seconds as *tuned* took on that set: it holds out a fifth of the rows, takes the number
of trees that is best on these, and stops early if 100 more trees are no better. Seconds are processor seconds, from the
table to the model, on a machine with other work. {missing} Excluded:
{", ".join(UNFIT)}, whose official training rows are scaled while its test rows are not.
{datetime.now(UTC):%Y-%m-%d}, {machine()}, {lightgbm}.

{markdown(named, MEANS)}

{markdown(wide, columns)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=HALVES, default="report")
    parser.add_argument("--least-rows", type=int, default=1000)
    parser.add_argument("--max-rows", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=15.0, help="no set is begun after that")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    begin, left, warm = time.monotonic(), [], False
    kept = HERE / "results" / "compare.parquet"
    found = pl.read_parquet(kept).to_dicts() if kept.exists() else []
    there = {(row["set"], row["round"], row["trees"], row["max_rows"]) for row in found}
    for one in chosen_sets(options):
        rounds = [own for own in range(options.rounds) if (one.name, own, options.trees, options.max_rows) not in there]
        if rounds and time.monotonic() - begin > 60 * options.minutes:
            left.append(one.name)
            continue
        for round_ in rounds:
            if not warm:  # what is loaded and compiled once is not counted
                list(measured(one, 0, argparse.Namespace(**vars(options) | {"trees": 2})))
                warm = True
            found += measured(one, round_, options)
            print(*found[-len(CONTESTANTS) :], sep="\n", flush=True)
            pl.DataFrame(found, infer_schema_length=None).write_parquet(kept)
    same = (pl.col("trees") == options.trees) & (pl.col("max_rows") == options.max_rows)
    same &= ~pl.col("set").is_in(UNFIT)
    text = report(pl.DataFrame(found, infer_schema_length=None).filter(same), options, left)
    (HERE / "compare.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
