"""What suite.py writes: suite.parquet, suite.md and suite.png, from its measurements.

Sets are grouped: classes and regression targets of 1,000 rows and more, smaller ones, and those simulated for choosing
defaults. Within a group only sets that all contestants did are ranked. An "error" is the standard error of a mean of
differences between two contestants on the same splits, whose training rows overlap: the variance of the differences
times 1/rounds + test rows/training rows (Nadeau and Bengio 2003).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from suite_fits import FORESTS
from tables import markdown

LEAST_ROWS = 1000
GROUPS = {
    "classes": "Classes, sets of 1,000 rows and more",
    "numbers": "Regression, sets of 1,000 rows and more",
    "small": "Sets of fewer than 1,000 rows",
    "simulated": "Simulated sets",
}
# By how much a set may be behind the best of the forests: accuracy, and R2.
BARS = {"classes": 0.005, "numbers": 0.01}
_CONTESTANTS = {
    "contestant": ("contestant", "{}"),
    "score": ("mean score", "{:.4f}"),
    "rank": ("mean rank", "{:.2f}"),
    "rank_log_loss": ("rank by log loss", "{:.2f}"),
    "rank_auc": ("rank by AUC", "{:.2f}"),
    "ahead": ("ours ahead, mean", "{:+.4f}"),
    "ahead_error": ("error over sets", "{:.4f}"),
    "wins": ("ours wins", "{}"),
    "losses": ("loses", "{}"),
    "clear_wins": ("by two errors: wins", "{}"),
    "clear_losses": ("loses", "{}"),
    "fit_ratio": ("its fit time / ours", "{:.2f}"),
    "cpu_ratio": ("of processor", "{:.2f}"),
    "predict_ratio": ("predict", "{:.2f}"),
}


def means_of(runs: pl.DataFrame, first: str) -> pl.DataFrame:
    """One row per set and contestant: means over the rounds, `ahead` of `first` over it, and its error."""
    everyone = pl.col("contestant").n_unique()
    runs = runs.filter(everyone.over("set", "round") == everyone.over("set"))  # an unfinished round is left out
    own = runs.filter(pl.col("contestant") == first).select("set", "round", pl.col("score").alias("own"))
    rounds = pl.len().cast(pl.Float64)
    overlap = pl.col("test_rows").first() / pl.col("rows").first()
    ahead = pl.col("own") - pl.col("score")
    return (
        runs.join(own, on=["set", "round"], how="left")
        .group_by("set", "contestant", maintain_order=True)
        .agg(
            pl.col("half", "regression", "rows", "test_rows", "features", "classes").first(),
            pl.col("score", "log_loss", "auc", "fit_seconds", "cpu_seconds", "predict_seconds").mean(),
            ahead.mean().alias("ahead"),
            (ahead.var() * (1.0 / rounds + overlap)).sqrt().alias("error"),
            pl.len().alias("rounds"),
        )
        .with_columns(group=_group())
    )


def _group() -> pl.Expr:
    large = pl.col("rows") + pl.col("test_rows") >= LEAST_ROWS
    kind = pl.when(large & pl.col("regression")).then(pl.lit("numbers")).when(large).then(pl.lit("classes"))
    kind = kind.otherwise(pl.lit("small"))
    return pl.when(pl.col("set").str.starts_with("sim/")).then(pl.lit("simulated")).otherwise(kind)


def contestants_of(means: pl.DataFrame, first: str) -> pl.DataFrame:
    """One row per contestant, from the sets of one group that all did."""
    everyone = means["contestant"].n_unique()
    means = means.filter(pl.len().over("set") == everyone)
    own = means.filter(pl.col("contestant") == first)
    seconds = ("fit_seconds", "cpu_seconds", "predict_seconds")
    own = own.select("set", *(pl.col(name).alias(f"own_{name}") for name in seconds))
    clear = pl.col("ahead").abs() > 2.0 * pl.col("error")
    other = pl.col("contestant").first() != first
    return (
        means.join(own, on="set")
        .with_columns(
            rank=pl.col("score").rank(descending=True).over("set"),
            rank_log_loss=pl.col("log_loss").rank().over("set"),
            rank_auc=pl.col("auc").rank(descending=True).over("set"),
        )
        .group_by("contestant", maintain_order=True)
        .agg(
            pl.col("score", "rank", "rank_log_loss", "rank_auc").mean(),
            pl.when(other).then(pl.col("ahead").mean()).alias("ahead"),
            pl.when(other).then(pl.col("ahead").std() / pl.len().sqrt()).alias("ahead_error"),
            pl.when(other).then((pl.col("ahead") > 0).sum()).alias("wins"),
            pl.when(other).then((pl.col("ahead") < 0).sum()).alias("losses"),
            pl.when(other).then((clear & (pl.col("ahead") > 0)).sum()).alias("clear_wins"),
            pl.when(other).then((clear & (pl.col("ahead") < 0)).sum()).alias("clear_losses"),
            *((pl.col(name) / pl.col(f"own_{name}")).median().alias(f"{name[:-8]}_ratio") for name in seconds),
            pl.len().alias("sets"),
        )
        .sort("rank")
    )


def behind(means: pl.DataFrame, first: str) -> pl.DataFrame:
    """One row per set: the score of each contestant, and by how much ours is `ahead` of the best other forest."""
    forests = pl.col("contestant").is_in([name for name in FORESTS if name != first])
    best = pl.col("score").filter(forests).max()
    closest = pl.col("error").filter(forests & (pl.col("score") == best)).first()
    own = pl.col("score").filter(pl.col("contestant") == first).first()
    apart = means.group_by("set", maintain_order=True).agg(ahead=own - best, error=closest)
    scores = means.pivot("contestant", index=["set", "half", "rows", "features"], values="score")
    return scores.join(apart, on="set").sort("ahead")


def write_report(runs: pl.DataFrame, first: str, about: str, folder: Path) -> None:
    """Write all three files. first: the contestant that is compared with the others; about: the machine."""
    failed = runs.filter(pl.col("error").is_not_null()) if "error" in runs.columns else runs.clear()
    done = runs.join(failed, on=["set", "contestant"], how="anti").drop("error", strict=False)
    done = done.with_columns(regression=pl.col("classes") == 0)
    done.write_parquet(folder / "suite.parquet")
    means = means_of(done, first)
    text = [_head(done, about)]
    for group, title in GROUPS.items():
        inside = means.filter(pl.col("group") == group)
        for half in [None, *sorted(inside["half"].unique())]:
            chosen = inside if half is None else inside.filter(pl.col("half") == half)
            if chosen["contestant"].n_unique() > 1 and chosen.filter(pl.col("contestant") == first).height:
                table = contestants_of(chosen, first)
                name = "all" if half is None else f'the half "{half}"'
                shown = {key: _CONTESTANTS[key] for key in _CONTESTANTS if table[key].drop_nulls().drop_nans().len()}
                text.append(f"## {title}: {name}, {table['sets'].max() or 0} sets\n\n{markdown(table, shown)}")
    text += [_each(means.filter(pl.col("group") == group), first, group) for group in GROUPS]
    if failed.height:
        named = failed.unique(["set", "contestant"], maintain_order=True).select("set", "contestant", "error").rows()
        text.append("## Failed\n\n" + "\n".join(f"- {name}, {who}: {said}" for name, who, said in named))
    (folder / "suite.md").write_text("\n\n".join(filter(None, text)) + "\n", encoding="utf-8")
    draw(means, first, folder / "suite.png")


def _head(runs: pl.DataFrame, about: str) -> str:
    days = datetime.now(UTC).strftime("%Y-%m-%d")
    trees, most = (sorted(runs[name].unique()) for name in ("trees", "max_rows"))
    capped = [f"{one:,}" for one in most if one < 1 << 40]
    rows = f"; of larger sets at most {', '.join(capped)} rows were drawn" if capped else ""
    rounds = runs.group_by("set", "contestant").len()["len"]
    return (
        "# Every set at everybody's defaults\n\n"
        f"Written by `benchmarks/suite.py` on {days}: {runs['set'].n_unique()} sets, {_span(rounds)} "
        f"rounds, {', '.join(map(str, trees))} trees{rows}. {about}.\n\n"
        "All contestants have their default options. Scores are accuracies, or R2; times are wall times, medians of "
        "ratios over the sets. The heads of suite.py, suite_fits.py and suite_report.py explain the columns. "
        f"Combinations that are missing were not run. Load of the machine at the end: {os.getloadavg()[0]:.0f}.\n\n"
        "![Difference of the mean scores](suite.png)"
    )


def _span(numbers: pl.Series) -> str:
    """The least and the largest number, or the one that there is."""
    low, high = numbers.min(), numbers.max()
    return f"{low}" if low == high else f"{low} to {high}"


def _each(means: pl.DataFrame, first: str, group: str) -> str:
    """The scores on every set of a group, the worst for ours first."""
    if not means.filter(pl.col("contestant") == first).height or means["contestant"].n_unique() < 2:
        return ""
    table = behind(means, first).drop_nulls("ahead")
    names = list(means["contestant"].unique(maintain_order=True))
    columns = {"set": ("set", "{}"), "half": ("half", "{}"), "rows": ("rows", "{:,}"), "features": ("features", "{}")}
    columns |= {name: (name, "{:.4f}") for name in names}
    columns |= {"ahead": ("ours - best other forest", "{:+.4f}"), "error": ("error", "{:.4f}")}
    lines = [f"## {GROUPS[group]}: each set", "", markdown(table, columns)]
    if group in BARS:
        missed = table.filter(pl.col("ahead") < -BARS[group])
        named = [f"{name} ({by:+.4f})" for name, by in missed.select("set", "ahead").rows()]
        lines += ["", f"More than {BARS[group]} behind the best other forest: {missed.height} of {table.height}."]
        lines += [", ".join(named)] * bool(named)
    return "\n".join(lines)


def draw(means: pl.DataFrame, first: str, path: Path) -> None:
    """By how much ours is ahead of each other contestant, a point for each set of 1,000 rows and more."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, 2, figsize=(10, 4), width_ratios=[2, 1])
    for group, place in zip(BARS, places, strict=True):
        inside = means.filter((pl.col("group") == group) & (pl.col("contestant") != first))
        for name in inside["contestant"].unique(maintain_order=True):
            ahead = inside.filter(pl.col("contestant") == name)["ahead"].drop_nulls().sort()
            place.plot(
                range(len(ahead)), ahead.clip(-0.1, 0.1), ".-", markersize=4, linewidth=0.8, label=f"{first} - {name}"
            )
        place.axhline(0.0, color="black", linewidth=0.8)
        place.axhline(-BARS[group], color="gray", linewidth=0.8, linestyle=":")
        place.set_title(GROUPS[group].split(",")[0], fontsize=9)
        place.set_xlabel("sets, each line in its own order")
        place.set_ylabel("accuracy" if group == "classes" else "R2")
        place.legend(fontsize=7)
    figure.suptitle("Difference of the mean scores on sets of 1,000 rows and more, cut at 0.1", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
