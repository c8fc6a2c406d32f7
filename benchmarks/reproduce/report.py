"""The report of `randomer.py`: tables beside the reference numbers, and the figures."""

from __future__ import annotations

import sys
from math import comb
from pathlib import Path

import polars as pl
from figures import draw_curves, draw_scatter, draw_simulations, draw_transforms
from methods import FORESTS, PEER
from reference import REFERENCE, TRANSFORMED, Table

sys.path.append(str(Path(__file__).resolve().parent.parent))

from runs import machine
from tables import markdown

SETTING = ["kind", "dims", "transform", "method"]
# Results further than this number of standard errors from the reference are pointed out.
NEAR = 2.0


def write_report(
    simulations: pl.DataFrame | None, peers: pl.DataFrame | None, sets: pl.DataFrame | None, out: Path
) -> None:
    """Write the tables as Parquet, report.md and the figures of what there is to `out`, and print the report."""
    out.mkdir(parents=True, exist_ok=True)
    texts = [f"Machine: {machine()}. Seconds are CPU seconds of one thread."]
    if simulations is not None:
        simulations.write_parquet(out / "simulations.parquet")
        means = averages(simulations)
        texts.append(simulation_text(means))
        draw_simulations(means, out)
        draw_transforms(means, out / "figure-3.png")
        draw_curves(simulations, out / "figure-a1.png")
    if simulations is not None and peers is not None:
        texts.append(peers_text(simulations, peers))
    if sets is not None:
        sets.write_parquet(out / "sets.parquet")
        texts.append(sets_text(sets))
        draw_scatter(sets, out)
    text = "\n\n".join(texts) + "\n"
    (out / "report.md").write_text(text, encoding="utf-8")
    print(text)


def averages(simulations: pl.DataFrame) -> pl.DataFrame:
    """One row per setting and method: mean over the trials and its standard error."""
    return (
        simulations.group_by(SETTING, maintain_order=True)
        .agg(
            pl.col("error").mean(),
            (pl.col("error").std() / pl.len().sqrt()).fill_null(0.0).alias("standard_error"),
            pl.col("seconds").mean(),
            pl.col("trees").first(),
            pl.len().alias("trials"),
        )
        .sort("kind", "dims", "transform", maintain_order=True)
    )


def compared(means: pl.DataFrame, reference: Table) -> pl.DataFrame:
    """The rows that have a reference number, with it and the distance between both in standard errors.

    The reference is a mean over other draws of as many trials, so the variance of the difference is taken to be twice
    that of our mean.
    """
    rows = [
        {"kind": kind, "dims": dims, "transform": transform, "method": method, "reference": error}
        for (kind, dims, transform), errors in reference.items()
        for method, error in errors.items()
    ]
    joined = means.join(pl.DataFrame(rows), on=SETTING, how="inner", maintain_order="left")
    distance = (pl.col("error") - pl.col("reference")) / (2**0.5 * pl.col("standard_error"))
    return joined.with_columns(pl.when(pl.col("standard_error") > 0).then(distance).alias("distance"))


def simulation_text(means: pl.DataFrame) -> str:
    """Errors beside the reference, and how many are near."""
    parts = []
    for title, table in (("Simulations", REFERENCE), ("Transformations of Trunk, p = 501", TRANSFORMED)):
        found = compared(means, table)
        if found.is_empty():
            continue
        forests = found.filter(pl.col("method").is_in(list(FORESTS)) & pl.col("distance").is_not_null())
        near = forests.filter(pl.col("distance").abs() <= NEAR).height
        head = f"## {title}\n\n{near} of {forests.height} errors are within {NEAR:g} standard errors of the reference."
        parts.append(f"{head}\n\n{markdown(found, COMPARED)}")
    rest = means.filter(pl.col("method") != "Bayes")
    parts.append(f"## All errors and times\n\n{markdown(rest, MEANS)}")
    return "\n\n".join(parts)


def peers_text(simulations: pl.DataFrame, peers: pl.DataFrame) -> str:
    """Errors of RF beside scikit-learn's on the same draws, and the mean of the paired differences."""
    ours = simulations.filter(pl.col("method") == "RF")
    pairs = ours.join(peers.rename({"error": "peer"}), on=[*SETTING[:3], "trial"], how="inner", maintain_order="left")
    pairs = pairs.with_columns((pl.col("error") - pl.col("peer")).alias("difference"))
    spread = (pl.col("difference").std() / pl.len().sqrt()).alias("standard_error")
    found = pairs.group_by(SETTING[:3], maintain_order=True).agg(
        pl.col("error", "peer").mean(), pl.col("difference").mean(), spread
    )
    return f"## RF beside {PEER} on the same draws\n\n{markdown(found.sort(SETTING[:3]), PAIRED)}"


def sets_text(sets: pl.DataFrame) -> str:
    """Mean error and time of each method over the sets, and who wins how often against RF."""
    wide = sets.pivot("method", index="set", values="error")
    rows = []
    for method in FORESTS:
        own = sets.filter(pl.col("method") == method)
        better = int((wide[method] < wide["RF"]).sum())
        worse = int((wide[method] > wide["RF"]).sum())
        rows.append(
            {
                "method": method,
                "error": own["error"].mean(),
                "ahead": (wide["RF"] - wide[method]).mean(),
                "better": better,
                "worse": worse,
                "chance": sign_test(better, worse),
                "seconds": own["seconds"].sum(),
            }
        )
    trees = sets["trees"][0]
    head = f"## {wide.height} data sets\n\nOut-of-bag errors of {trees} trees, one seed."
    return f"{head}\n\n{markdown(pl.DataFrame(rows), METHODS)}"


def sign_test(better: int, worse: int) -> float:
    """Two-sided probability of as uneven a count if both were as likely."""
    total, least = better + worse, min(better, worse)
    return min(1.0, 2 * sum(comb(total, k) for k in range(least + 1)) / 2**total)


COMPARED = {
    "kind": ("simulation", "{}"),
    "dims": ("p", "{}"),
    "transform": ("transformation", "{}"),
    "method": ("method", "{}"),
    "error": ("error", "{:.4f}"),
    "standard_error": ("standard error", "{:.4f}"),
    "reference": ("reference", "{:.4f}"),
    "distance": ("standard errors between", "{:+.1f}"),
}
MEANS = {name: COMPARED[name] for name in [*SETTING, "error", "standard_error"]} | {"seconds": ("seconds", "{:.3f}")}
PAIRED = {name: COMPARED[name] for name in SETTING[:3]} | {
    "error": ("RF", "{:.4f}"),
    "peer": (PEER, "{:.4f}"),
    "difference": ("difference", "{:+.4f}"),
    "standard_error": ("standard error", "{:.4f}"),
}
METHODS = {
    "method": ("method", "{}"),
    "error": ("mean error", "{:.4f}"),
    "ahead": ("below RF by", "{:+.4f}"),
    "better": ("sets better than RF", "{}"),
    "worse": ("worse", "{}"),
    "chance": ("sign test", "{:.2g}"),
    "seconds": ("seconds, all sets", "{:.0f}"),
}
