"""Growing a few trees with 1, 2, ... threads: what a tree costs alone and how growing scales.

    python benchmarks/one_tree.py --data DIR [--sets synthetic] [--trees 1] [--threads 2] [--rounds 3]

`--threads` is the largest number tried. The encoded store is made anew in each run and not counted.
"""

from __future__ import annotations

import dataclasses

import polars as pl
from runs import arguments, plan_of, run
from tables import markdown, save, sized, summary

COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "threads": ("threads", "{}"),
    "trees": ("trees", "{}"),
    "fit_seconds": ("grow, best (s)", "{:.3f}"),
    "visits": ("visits", "{:,.0f}"),
    "visit_ns": ("thread-ns per visit", "{:.1f}"),
}


def main() -> None:
    """Growing a few trees with 1, 2, ... threads."""
    timed = "synthetic,mnist,covertype,flights"
    options = arguments(main.__doc__, sets=timed, contestants="bigforest-redraw", trees=1, rounds=3).parse_args()
    plan = plan_of(options)
    runs = [run(dataclasses.replace(plan, threads=threads)) for threads in range(1, plan.threads + 1)]
    table = sized(summary(pl.concat(runs))).sort("set", "contestant", "threads")
    save("one_tree", pl.concat(runs), markdown(table, COLUMNS), options.out)


if __name__ == "__main__":
    main()
