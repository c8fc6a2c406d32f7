"""Which defaults should be taken where numbers are predicted: half of the features at a node and leaves of 2 rows, all
and 1, or what training chooses of the two.

    python benchmarks/draws.py --data DIR [--trees 100] [--max-rows 20000] [--sets uci/abalone,sim/friedman2]
        [--families | --fewer]

Tables are those of suite.py of 1,000 rows and more, at most 60 columns: those that have a number to predict, and of the
others one feature or two, drawn by the name of the table, as regression targets from the rest. R2 is out of bag.
The summary has by half of the tables (suite_sets.py) the mean R2 by rule, and the tables on which one is behind
the better by more than 0.01. With --families the rules are families and their numbers of projections, and
scikit-learn's forest, on the numeric features without missing values. With --fewer the rules draw fewer features or
have larger leaves, on the choosing half alone, and the summary has the processor time of training by rule.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from datasets import SPLIT_SEED, TARGET
from runs import HERE
from suite_sets import Set, sets_of
from tables import markdown, save

import bigforest as bf

RULES: dict[str, dict[str, Any]] = {
    "half": {"mtry": "half", "min_leaf": 2},
    "all": {"mtry": "all", "min_leaf": 1},
    "chosen": {},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "axis": {},
    "p^2/3": {"family": "sparse-oblique", "projections": "p^2/3"},
    "p^1": {"family": "sparse-oblique", "projections": "p^1"},
    "p^1.5": {"family": "sparse-oblique", "projections": "p^1.5"},
    "rotation": {"family": "rotation"},
}
FEWER: dict[str, dict[str, Any]] = {
    "half": RULES["half"],
    "third": {"mtry": 1 / 3, "min_leaf": 2},
    "sixth": {"mtry": 1 / 6, "min_leaf": 2},
    "third, leaves of 5": {"mtry": 1 / 3, "min_leaf": 5},
    "half, leaves of 5": {"mtry": "half", "min_leaf": 5},
    "all": RULES["all"],
    "chosen": {},
}
PEER = "scikit-learn"
MOST_COLUMNS = 60
FEWEST_ROWS = 1_000
FEWEST_VALUES = 20  # of a feature that is predicted
BEHIND = 0.01


def regressions(found: Set) -> Iterator[tuple[str, pl.DataFrame, str]]:
    """Tables with regression targets that a set gives: a name, the table, and the column."""
    frame = found.read()
    if frame.height < FEWEST_ROWS or frame.width > MOST_COLUMNS + 1:
        return
    if found.regression:
        yield found.name, frame, TARGET
        return
    if not found.name.startswith(("uci/", "real/")):
        return
    numbers = frame.drop(TARGET).select(cs.numeric())
    columns = [column for column in numbers.columns if numbers[column].n_unique() > FEWEST_VALUES]
    seed = int.from_bytes(hashlib.sha256(found.name.encode()).digest()[:4])
    for column in np.random.default_rng(seed).permutation(columns)[: 1 if frame.width > 25 else 2].tolist():
        yield f"{found.name}:{column}", frame.drop_nulls(column), column


def measure(frame: pl.DataFrame, target: str, options: argparse.Namespace) -> dict[str, float | int | str]:
    """R2 out of bag by rule, and what was chosen."""
    if frame.height > options.max_rows:
        order = np.random.default_rng(SPLIT_SEED).permutation(frame.height)
        frame = frame[np.sort(order[: options.max_rows])]
    values: dict[str, float] = {}
    rules = FAMILIES if options.families else FEWER if options.fewer else RULES
    if options.families:
        values[PEER] = peer(frame, target, options.trees)
    with TemporaryDirectory() as folder:
        store = bf.encode_store(frame, Path(folder, "store"), target=target, task="regression")
        forests = {}
        for rule, own in rules.items():
            begin = time.process_time()
            forests[rule] = bf.train(store, trees=options.trees, refine="off", **own)
            values |= {f"seconds {rule}": time.process_time() - begin} if options.fewer else {}
        return {
            "rows": store.rows,
            "features": len(store.spec.features),
            **{rule: forest.oob.metrics["r2"].item() for rule, forest in forests.items()},
            **values,
            "rule": str(forests["axis" if options.families else "chosen"].config.mtry),
        }


def whole_numbers(frame: pl.DataFrame, target: str) -> pl.DataFrame:
    """The target and the numeric features without missing values."""
    numbers = frame.drop(target).select(cs.numeric(), cs.boolean().cast(pl.UInt8))
    kept = [column.name for column in numbers if not column.null_count() and column.is_finite().all()]
    return numbers.select(kept).with_columns(frame[target])


def peer(frame: pl.DataFrame, target: str, trees: int) -> float:
    """R2 out of bag of scikit-learn's forest with its defaults."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(trees, oob_score=True, random_state=0, n_jobs=2)
    return float(forest.fit(frame.drop(target).to_numpy(), frame[target].to_numpy()).oob_score_)


def summary(found: pl.DataFrame) -> pl.DataFrame:
    """A row for each half of the tables and rule."""
    rows = []
    rules = [rule for rule in dict.fromkeys((*RULES, PEER, *FAMILIES, *FEWER)) if rule in found.columns]
    for part in found["part"].unique().sort():
        own = found.filter(part=part)
        best = pl.max_horizontal(*(rule for rule in rules if rule != "chosen"))
        for rule in rules:
            behind = own.select(lost=best - pl.col(rule), set="set").sort("lost", descending=True)
            names = behind.filter(pl.col("lost") > BEHIND)
            rows.append(
                {
                    "part": part,
                    "tables": own.height,
                    "rule": rule,
                    "r2": own[rule].mean(),
                    "behind": names.height,
                    "worst": behind["lost"].max(),
                    "where": ", ".join(names["set"].to_list()),
                }
                | ({"seconds": own[f"seconds {rule}"].sum()} if f"seconds {rule}" in own.columns else {})
            )
    return pl.DataFrame(rows)


def main() -> None:
    """Measure all, and write a table and its summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="", help="names, with commas; all unless given")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--max-rows", type=int, default=20_000)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--families", action="store_true", help="compare families, not rules of axis forests")
    kinds.add_argument("--fewer", action="store_true", help="compare rules that take less time")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"{options.data} is no folder; give that of the data", file=sys.stderr)
        raise SystemExit(2)
    wanted, rows = set(filter(None, options.sets.split(","))), []
    for name, found in sets_of(options.data).items():
        if (wanted and name not in wanted) or name == "real/covertype-categories":
            continue
        if options.fewer and found.half != "choose":
            continue
        for table, frame, target in regressions(found):
            if options.families:
                frame = whole_numbers(frame, target)
                if frame.width < 3:
                    continue
            row = {"set": table, "part": found.half} | measure(frame, target, options)
            rows.append(row)
            print(row, flush=True)
    found = pl.DataFrame(rows)
    columns = {
        "part": ("half", "{}"),
        "tables": ("tables", "{}"),
        "rule": ("rule", "{}"),
        "r2": ("mean R2", "{:.4f}"),
        "behind": ("behind by more than 0.01", "{}"),
        "worst": ("most behind", "{:.3f}"),
        "where": ("where", "{}"),
        **({"seconds": ("processor time (s)", "{:.1f}")} if options.fewer else {}),
    }
    name = "family_numbers" if options.families else "fewer_draws" if options.fewer else "draws"
    save(name, found, markdown(summary(found), columns), options.out)


if __name__ == "__main__":
    main()
