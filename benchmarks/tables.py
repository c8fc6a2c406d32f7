"""From measurements (one row per run) to tables (one row per set and contestant) to Markdown."""

from __future__ import annotations

from pathlib import Path

import polars as pl

PEERS = ("scikit-learn", "ydf", "ydf-oblique", "treeple")
KEY = ["set", "rows", "features", "classes", "trees", "threads"]
OPTIONAL = ("oob_error", "splits_per_tree")


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """One row per set and contestant. Seconds are the best of the rounds, the rest are means.

    fit_ratio  best fit of the faster peer / best fit of this contestant: how many times as fast it is.
    """
    runs = runs.with_columns(pl.lit(None, pl.Float64).alias(name) for name in OPTIONAL if name not in runs.columns)
    best = runs.group_by([*KEY, "contestant"], maintain_order=True).agg(
        pl.col("fit_seconds").min(),
        pl.col("fit_seconds").median().alias("fit_median"),
        pl.col("predict_seconds").min(),
        pl.col("accuracy", "oob_error", "splits_per_tree").cast(pl.Float64).mean(),
        pl.len().alias("rounds"),
    )
    peers = best.filter(pl.col("contestant").is_in(PEERS))
    faster = peers.group_by("set").agg(pl.col("fit_seconds").min().alias("peer_fit"))
    best = best.join(faster, on="set", how="left", maintain_order="left")
    return best.with_columns(fit_ratio=pl.col("peer_fit") / pl.col("fit_seconds"))


def markdown(table: pl.DataFrame, columns: dict[str, tuple[str, str]]) -> str:
    """A Markdown table of the columns; `columns` gives the heading and the format of each, as in "{:.2f}"."""
    lines = [
        "| " + " | ".join(heading for heading, _ in columns.values()) + " |",
        "|---" * len(columns) + "|",
    ]
    for row in table.iter_rows(named=True):
        cells = ["" if row[name] is None else pattern.format(row[name]) for name, (_, pattern) in columns.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sized(table: pl.DataFrame) -> pl.DataFrame:
    """With `size`, such as "74,370 x 54, 7 classes", and `test_error`."""
    rows = [f"{r['rows']:,} x {r['features']}, {r['classes']} classes" for r in table.iter_rows(named=True)]
    return table.with_columns(pl.Series("size", rows), test_error=1.0 - pl.col("accuracy"))


def save(name: str, runs: pl.DataFrame, text: str, folder: Path) -> None:
    """Write NAME.parquet and NAME.md to the folder and print the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    runs.write_parquet(folder / f"{name}.parquet")
    (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    print(text)
