"""Fitting and predicting against scikit-learn and YDF, side by side in one run.

    python benchmarks/fit.py --data DIR [--sets synthetic,mnist] [--trees 20] [--rounds 3] [--threads 2]

Compare ratios within one run, never seconds of two runs. Writes results/fit.parquet (every measurement) and
results/fit.md (the tables that benchmarks/fit.md keeps).
"""

from __future__ import annotations

import polars as pl
from runs import arguments, machine, plan_of, run
from tables import markdown, save, sized, summary

RACE = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "fit_seconds": ("fit, best (s)", "{:.2f}"),
    "fit_median": ("median (s)", "{:.2f}"),
    "fit_ratio": ("times as fast as the faster peer", "{:.1f}"),
    "accuracy": ("test accuracy", "{:.4f}"),
    "visit_ns": ("ns per visit", "{:.1f}"),
    "predict_seconds": ("predict (s)", "{:.3f}"),
    "predict_ratio": ("times as fast as scikit-learn", "{:.1f}"),
}
OURS = {
    "set": ("data", "{}"),
    "contestant": ("contestant", "{}"),
    "prepare_seconds": ("encode (s)", "{:.2f}"),
    "encode_share": ("encode / fit of 100 trees", "{:.3f}"),
    "fit_seconds": ("grow (s)", "{:.2f}"),
    "oob_seconds": ("out-of-bag report (s)", "{:.2f}"),
    "whole_seconds": ("whole call of train (s)", "{:.2f}"),
    "oob_error": ("out-of-bag error", "{:.4f}"),
    "test_error": ("test error", "{:.4f}"),
    "splits_per_tree": ("splits per tree", "{:,.0f}"),
    "depth": ("depth", "{:.0f}"),
}


def report(runs: pl.DataFrame) -> str:
    """Both tables as Markdown, with what they were measured on."""
    table = sized(summary(runs))
    trees, threads, rounds = table["trees"][0], table["threads"][0], table["rounds"][0]
    ours = table.filter(pl.col("contestant").str.starts_with("bigforest"))
    return "\n".join(
        [
            f"{trees} trees, mtry sqrt, grown until pure, {threads} threads, {rounds} rounds interleaved, "
            "every run in a fresh process after a one-tree warm-up.",
            f"Machine: {machine()}.",
            "",
            markdown(table, RACE),
            "",
            "Fit is growing the trees from prepared data; preparing is timed apart for everybody. A visit is "
            "one row looked at for one feature in one node; ns per visit counts the time of all threads.",
            "",
            markdown(ours, OURS),
        ]
    )


def main() -> None:
    """Fitting and predicting against scikit-learn and YDF, side by side in one run."""
    everyone = "bigforest-redraw,bigforest-count,scikit-learn,ydf"
    timed = "synthetic,mnist,covertype,flights"
    options = arguments(main.__doc__, sets=timed, contestants=everyone, trees=20, rounds=3).parse_args()
    runs = run(plan_of(options))
    save("fit", runs, report(runs), options.out)


if __name__ == "__main__":
    main()
