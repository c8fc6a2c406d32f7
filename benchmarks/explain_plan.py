"""What `plan_explanation` says of time, and what the parts of an explanation take.

    python benchmarks/explain_plan.py --data DIR [--parts permutation,shap]

DIR has the folder real. Forests are grown of its tables and explained part by part on one thread: processor time of the
process, the best of two. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import polars as pl
from tables import markdown

SETS = {"adult_train": 50, "covertype_93k": 20, "diamonds_reg": 20, "titanic_1309": 200, "california_housing_reg": 50}
# Rows that are explained, where all would take too long.
SAMPLES: dict[str, dict[str, Any]] = {"interactions": {"sample": 10}}
SHAPLEY_ROWS = 100
COLUMNS = {
    "set": ("set", "{}"),
    "part": ("part", "{}"),
    "planned": ("planned (s)", "{:.2f}"),
    "taken": ("taken (s)", "{:.2f}"),
    "ratio": ("planned / taken", "{:.2f}"),
}


def main() -> None:
    """Grow, plan, explain."""
    import bigforest as bf
    from bigforest.explain.explain import SECTIONS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(SECTIONS))
    given = parser.parse_args()
    rows = []
    for name, trees in SETS.items():
        frame = pl.read_parquet(given.data / "real" / f"{name}.parquet")
        forest = bf.train(frame, "target", trees=trees)
        for part in given.parts.split(","):
            data = frame.head(SHAPLEY_ROWS) if part == "shap" else frame
            asked = {"parts": part, "threads": 1, **SAMPLES.get(part, {})}
            planned = bf.plan_explanation(forest, data, **asked).seconds
            taken = min(_taken(forest, data, asked) for _ in range(2))
            rows.append({"set": name, "part": part, "planned": planned, "taken": taken, "ratio": planned / taken})
    print(markdown(pl.DataFrame(rows), COLUMNS))


def _taken(forest: Any, data: pl.DataFrame, asked: dict[str, Any]) -> float:
    begin = time.process_time()
    forest.explain(data, **asked)
    return time.process_time() - begin


if __name__ == "__main__":
    main()
