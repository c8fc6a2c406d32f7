"""Explanations against scikit-learn and shap, in turn within one run.

    python benchmarks/explain.py [--rows 200000] [--features 28] [--trees 100] [--rounds 1] [--what permutation]
    python benchmarks/explain.py --what shap,interactions --rows 20000 --trees 20 --depth 8 --explained 4000 --threads 1

Compare ratios within one run, never seconds of two runs: wall time, and processor time of all threads, which other work
on the machine changes less. Writes results/explain.parquet and prints a table.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tables import markdown

COLUMNS = {
    "what": ("what", "{}"),
    "contestant": ("contestant", "{}"),
    "rows": ("rows", "{:,}"),
    "wall": ("wall (s)", "{:.2f}"),
    "processor": ("processor (s)", "{:.2f}"),
    "wall_ratio": ("wall, times ours", "{:.1f}"),
    "ratio": ("processor, times ours", "{:.1f}"),
}


def timed(what: Callable[[], Any]) -> tuple[float, float]:
    """Wall time, and processor time of this process with all threads."""
    begin, used = time.perf_counter(), time.process_time()
    what()
    return time.perf_counter() - begin, time.process_time() - used


def table(rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the features matter."""
    from sklearn.datasets import make_classification

    informative = max(2, features // 2)
    matrix, target = make_classification(
        rows, features, n_informative=informative, n_redundant=features // 7, random_state=0
    )
    return matrix.astype(np.float32), target


def contestants(what: str, options: argparse.Namespace, folder: Path) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Rows that each explains, and how."""
    import bigforest as bf

    matrix, target = table(options.rows, options.features)
    frame = pl.DataFrame(matrix, schema=[f"x{i}" for i in range(options.features)]).with_columns(
        target=pl.Series(target)
    )
    file = folder / "table.parquet"
    frame.write_parquet(file)
    forest = bf.train(
        file, "target", trees=options.trees, out=folder / "ours.forest", max_depth=options.depth, refine="off"
    )
    threads = options.threads

    def ours(parts: str, **more: Any) -> Callable[[], Any]:
        return lambda: forest.explain(file, parts=parts, threads=threads, **more)

    if what in ("shap", "interactions"):
        return trees_of_ours(what, options, matrix, forest)
    from sklearn.ensemble import RandomForestClassifier

    peer = RandomForestClassifier(options.trees, n_jobs=threads, random_state=0, max_depth=options.depth)
    peer.fit(matrix, target)
    if what == "permutation":
        from sklearn.inspection import permutation_importance

        ours("permutation")()  # kernels are compiled outside what is timed
        return {
            "bigforest": (options.rows, ours("permutation")),
            f"scikit-learn, {options.repeats} repeats": (
                options.rows,
                lambda: permutation_importance(peer, matrix, target, n_repeats=options.repeats, random_state=0),
            ),
        }
    raise SystemExit(f"--what {what} is not known")


def trees_of_ours(
    what: str, options: argparse.Namespace, matrix: np.ndarray, forest: Any
) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Shapley values of the same trees by both; ours reads and checks the forest and writes the table."""
    import shap

    rows = matrix[: options.explained]
    frame = pl.DataFrame(rows, schema=[f"x{i}" for i in range(options.features)])
    peer = shap.TreeExplainer(forest.to_sklearn(), feature_perturbation="tree_path_dependent")
    chosen = {} if what == "shap" else {"rows": range(options.explained)}
    forest.explain(frame.head(1), parts=what, threads=1)  # kernels are compiled outside what is timed
    call = peer.shap_values if what == "shap" else peer.shap_interaction_values
    return {
        "bigforest": (options.explained, lambda: forest.explain(frame, parts=what, threads=options.threads, **chosen)),
        f"shap {shap.__version__}": (options.explained, lambda: call(rows)),
    }


def main() -> None:
    """Explanations against scikit-learn and shap, in turn within one run."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name, default in (
        ("rows", 200_000),
        ("features", 28),
        ("trees", 100),
        ("rounds", 1),
        ("repeats", 5),
        ("explained", 600),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--depth", type=int, default=None)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--what", default="permutation")
    options = parser.parse_args()
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for what in options.what.split(","):
            (home := Path(folder, what)).mkdir()
            racers = contestants(what, options, home)
            for _ in range(options.rounds):
                for name, (rows, call) in racers.items():
                    wall, processor = timed(call)
                    measured.append(
                        {"what": what, "contestant": name, "rows": rows, "wall": wall, "processor": processor}
                    )
                    print(measured[-1], flush=True)
    runs = pl.DataFrame(measured)
    best = runs.group_by("what", "contestant", "rows", maintain_order=True).agg(pl.col("wall", "processor").min())
    per_row = best.with_columns(pl.col("wall", "processor") / pl.col("rows"))
    first = per_row.group_by("what", maintain_order=True).first().select("what", own="wall", ours="processor")
    ratios = per_row.join(first, on="what").select(
        "what", "contestant", wall_ratio=pl.col("wall") / pl.col("own"), ratio=pl.col("processor") / pl.col("ours")
    )
    found = best.join(ratios, on=["what", "contestant"])
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    runs.write_parquet(results / "explain.parquet")
    print(markdown(found, COLUMNS))


if __name__ == "__main__":
    main()
