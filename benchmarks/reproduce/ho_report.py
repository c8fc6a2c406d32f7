"""The report of `ho1995.py`: Table 1 and the curves beside the paper's numbers, and the figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import polars as pl
from ho_reference import TABLE_1, TRIAL
from ho_runs import FIGURE_TREES, Options
from matplotlib import pyplot as plt

sys.path.append(str(Path(__file__).resolve().parent.parent))

from runs import machine
from tables import markdown

# Numbers of trees whose accuracy is printed.
_STEPS = (1, 2, 3, 4, 5, 10, 20, 40, 100, 500)
_CLASSES = 10


def write_report(singles: pl.DataFrame, curves: pl.DataFrame, options: Options, out: Path) -> None:
    """Write the tables as Parquet, report.md and the figures to `out`, and print the report."""
    singles.write_parquet(out / "table-1.parquet")
    curves.write_parquet(out / "curves.parquet")
    for number, method in enumerate(FIGURE_TREES, 1):
        draw_figure(curves, method, out / f"figure-{number}.png")
    draw_long(curves, out / "many-trees.png")
    head = f"Perceptrons make at most {options.epochs} passes; seed {options.seed}. Machine: {machine()}."
    text = "\n\n".join([head, single_text(singles), class_text(singles), curve_text(curves), long_text(curves)]) + "\n"
    (out / "report.md").write_text(text, encoding="utf-8")
    print(text)


def single_text(singles: pl.DataFrame) -> str:
    """Sizes and accuracies of the four trees beside the paper's, and their orders."""
    rows = [
        {
            **row,
            "paper_leaves": TABLE_1[row["method"], row["features"]].leaves,
            "paper_nodes": TABLE_1[row["method"], row["features"]].nodes,
            "paper": TABLE_1[row["method"], row["features"]].accuracy,
            "accuracy": 100 * row["accuracy"],
            "trained": 100 * row["trained"],
        }
        for row in singles.to_dicts()
    ]
    table = markdown(pl.DataFrame(rows), SINGLE)
    orders = [
        f"{what}: here {_order(rows, here)}; paper {_order(rows, paper)}."
        for what, here, paper in (("By accuracy", "accuracy", "paper"), ("By size", "leaves", "paper_leaves"))
    ]
    return "\n\n".join(["## Table 1", table, *orders])


def _order(rows: list[dict[str, Any]], by: str) -> str:
    return " < ".join(f"{row['method']} {row['features']}" for row in sorted(rows, key=lambda row: row[by]))


def class_text(singles: pl.DataFrame) -> str:
    """Accuracy and leaves of each class, ours above the paper's."""
    rows = []
    for row in singles.to_dicts():
        paper = TABLE_1[row["method"], row["features"]]
        tree = f"{row['method']} {row['features']}"
        own = [100 * share for share in row["by_class"]]
        for what, values in (("here, %", own), ("paper, %", paper.by_class)):
            rows.append({"tree": tree, "what": what} | {str(k): f"{values[k]:.2f}" for k in range(_CLASSES)})
        for what, counts in (("here, leaves", row["leaves_by_class"]), ("paper, leaves", paper.leaves_by_class)):
            rows.append({"tree": tree, "what": what} | {str(k): str(counts[k]) for k in range(_CLASSES)})
    columns = {name: (name if name != "what" else "", "{}") for name in rows[0]}
    return f"## By class\n\n{markdown(pl.DataFrame(rows), columns)}"


def curve_text(curves: pl.DataFrame) -> str:
    """Accuracy on the test set after some numbers of trees, for each run and rule for ties."""
    parts = []
    for ties in ("reject", "lowest"):
        steps = [trees for trees in _STEPS if trees <= int(curves["trees"].max())]  # type: ignore[arg-type]
        found = curves.filter(pl.col("trees").is_in(steps), rows="test", ties=ties)
        wide = found.pivot("trees", index="run", values="accuracy", maintain_order=True)
        trial = {"run": "numpy trial, CAP-f1-100"} | {str(trees): share for trees, share in TRIAL[ties].items()}
        wide = pl.concat([wide, pl.DataFrame([trial])], how="diagonal")
        columns = {"run": ("run", "{}")} | {str(trees): (f"{trees}", "{:.4f}") for trees in steps}
        parts.append(f"## Accuracy by number of trees, ties: {ties}\n\n{markdown(wide, columns)}")
    trained = curves.filter(rows="train").group_by("run", maintain_order=True).agg(pl.col("accuracy").first())
    worst = trained.filter(pl.col("accuracy") < 1.0)
    rest = ", ".join(f"{run} {accuracy:.5f}" for run, accuracy in worst.iter_rows())
    parts.append(f"First tree on the rows it was grown on: 1 in all runs but {rest or 'none'}.")
    return "\n\n".join([*parts, dip_text(curves)])


def dip_text(curves: pl.DataFrame) -> str:
    """How many steps of each curve go up, and whether two trees are below each single one."""
    rows = []
    found = curves.filter(rows="test", ties="reject")
    for run, own in found.group_by("run", maintain_order=True):
        accuracy = own.sort("trees")["accuracy"].head(40)
        later = accuracy[1:].diff().drop_nulls()
        rows.append(
            {
                "run": run[0],
                "dip": accuracy[1] - accuracy[0],
                "up": int((later > 0).sum()),
                "steps": len(later),
                "fall": min(float(later.min()), 0.0),  # type: ignore[arg-type]
            }
        )
    return f"## From two trees on, up to 40 trees\n\n{markdown(pl.DataFrame(rows), DIP)}"


def long_text(curves: pl.DataFrame) -> str:
    """All methods at the end of their curves."""
    last = curves.filter(rows="test", ties="lowest").sort("trees").group_by("run", maintain_order=True).last()
    return f"## All trees, ties to the lowest class\n\n{markdown(last.sort('accuracy'), LONG)}"


def draw_figure(curves: pl.DataFrame, method: str, path: Path) -> None:
    """Accuracy against the number of trees with ties rejected, a panel for each set of features."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for axis, features in zip(axes, ("f1", "f2"), strict=True):
        own = curves.filter(pl.col("trees") <= FIGURE_TREES[method], method=method, features=features, rows="test")
        for run, rows in own.filter(ties="reject").group_by("run", maintain_order=True):
            axis.plot(rows["trees"], 100 * rows["accuracy"], marker="o", markersize=3, label=run[0])
        axis.axhline(TABLE_1[method, features].accuracy, color="gray", linestyle=":", label="single tree, paper (NIST)")
        axis.set(title=f"{method}, {features}", xlabel="trees")
        axis.legend(fontsize=7)
    axes[0].set_ylabel("% right on the test set, ties rejected")
    _save(figure, path)


def draw_long(curves: pl.DataFrame, path: Path) -> None:
    """Error against the number of trees of all methods, ties to the lowest class."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True)
    for axis, features in zip(axes, ("f1", "f2"), strict=True):
        own = curves.filter(features=features, rows="test", ties="lowest")
        for run, rows in own.group_by("run", maintain_order=True):
            axis.plot(rows["trees"], 100 - 100 * rows["accuracy"], label=run[0], linewidth=1.2)
        axis.set(title=features, xlabel="trees", xscale="log", yscale="log")
        axis.set_yticks([2, 3, 5, 10, 20], ["2", "3", "5", "10", "20"])
        axis.minorticks_off()
        axis.legend(fontsize=7)
    axes[0].set_ylabel("% wrong on the test set")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


SINGLE = {
    "method": ("tree", "{}"),
    "features": ("features", "{}"),
    "leaves": ("leaves", "{:,}"),
    "paper_leaves": ("paper", "{:,}"),
    "nodes": ("nodes", "{:,}"),
    "paper_nodes": ("paper", "{:,}"),
    "accuracy": ("test, %", "{:.2f}"),
    "paper": ("paper", "{:.2f}"),
    "trained": ("training, %", "{:.2f}"),
    "seconds": ("CPU seconds", "{:.1f}"),
}
DIP = {
    "run": ("run", "{}"),
    "dip": ("two trees less one", "{:+.4f}"),
    "up": ("steps up", "{}"),
    "steps": ("of", "{}"),
    "fall": ("deepest step down", "{:+.4f}"),
}
LONG = {
    "run": ("run", "{}"),
    "trees": ("trees", "{}"),
    "accuracy": ("accuracy", "{:.4f}"),
    "seconds": ("CPU seconds of training", "{:.0f}"),
}
