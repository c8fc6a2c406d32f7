"""Should a feature that is constant in a node use up a draw? Accuracy against time, decided by measurement.

    python benchmarks/constants.py --data DIR [--trees 100] [--rounds 3]

"redraw" draws again, "count" does not, as scikit-learn does. The same run answers whether a forest of 100
trees is as accurate as scikit-learn's and whether its out-of-bag error tells the test error. Every round is
another seed. Writes results/constants.parquet and results/constants.md.
"""

from __future__ import annotations

import polars as pl
from runs import arguments, machine, plan_of, run
from tables import markdown, save, sized, summary

COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "accuracy": ("test accuracy", "{:.4f}"),
    "spread": ("its range over the seeds", "{:.4f}"),
    "ahead": ("points ahead of scikit-learn", "{:+.2f}"),
    "test_error": ("test error", "{:.4f}"),
    "oob_error": ("out-of-bag error", "{:.4f}"),
    "fit_seconds": ("fit, best (s)", "{:.2f}"),
    "splits_per_tree": ("splits per tree", "{:,.0f}"),
}


def report(runs: pl.DataFrame) -> str:
    """The table as Markdown."""
    spread = runs.group_by("set", "contestant").agg(
        (pl.col("accuracy").max() - pl.col("accuracy").min()).alias("spread")
    )
    table = sized(summary(runs)).join(spread, on=["set", "contestant"], how="left", maintain_order="left")
    sklearn = table.filter(pl.col("contestant") == "scikit-learn").select("set", pl.col("accuracy").alias("theirs"))
    table = table.join(sklearn, on="set", how="left", maintain_order="left").with_columns(
        ahead=100.0 * (pl.col("accuracy") - pl.col("theirs"))
    )
    trees, threads, rounds = table["trees"][0], table["threads"][0], table["rounds"][0]
    head = f"{trees} trees, mtry sqrt, grown until pure, {threads} threads, means over {rounds} seeds."
    return "\n".join([head, f"Machine: {machine()}.", "", markdown(table, COLUMNS)])


def main() -> None:
    """Accuracy against time of both rules for constant features, with scikit-learn beside them."""
    contestants = "bigforest-redraw,bigforest-count,scikit-learn"
    real = "digits,covertype,mnist,flights"
    options = arguments(main.__doc__, sets=real, contestants=contestants, trees=100, rounds=3).parse_args()
    runs = run(plan_of(options))
    save("constants", runs, report(runs), options.out)


if __name__ == "__main__":
    main()
