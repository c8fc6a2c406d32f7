"""Shows that forests, reports and predictions are the same on another processor, by digests of small trainings.

    python benchmarks/other_processors.py > here.txt
    python benchmarks/other_processors.py --against here.txt      # on the other processor; exits with 1 if one differs

A processor can be emulated: `qemu-aarch64-static -L ROOT python3.11 benchmarks/other_processors.py`, where ROOT has
the packages of Debian's python3.11 for arm64, unpacked, and PYTHONPATH names a folder with the wheels for aarch64,
unpacked. Nearly all of the time is compiling, some minutes for each kind of forest; `--case` chooses some.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import bigforest as bf

ROWS = 600
_TREES: dict[str, Any] = {"trees": 5, "threads": 1, "refine": "off"}


def table(rows: int = ROWS) -> pl.DataFrame:
    """Return rows with ties, missing values, categories, weights, groups and targets of every kind."""
    draw = np.random.default_rng(7)
    numbers = draw.normal(size=(rows, 5))
    numbers[:, 1] = np.round(numbers[:, 1], 1)
    kinds = draw.integers(0, 6, rows)
    signal = numbers[:, 0] - numbers[:, 1] * numbers[:, 2] + 0.5 * (kinds % 3)
    noise = draw.normal(size=rows)
    return pl.DataFrame(
        {
            **{f"x{index}": column for index, column in enumerate(numbers.T)},
            "gaps": np.where(draw.random(rows) < 0.2, np.nan, numbers[:, 3]),
            "kind": [f"kind {kind}" for kind in kinds],
            "weight": draw.integers(1, 5, rows).astype(float),
            "two": np.where(signal + noise > 0, "yes", "no"),
            "three": np.digitize(signal + noise, [-1.0, 1.0]).astype(str),
            "number": signal + 0.1 * noise,
            "count": draw.poisson(np.exp(0.3 * signal)),
        }
    )


_PLAIN = ("gaps", "kind")
_TARGETS = ("two", "three", "number", "count")


def _by_passes(folder: Path) -> bf.Forest:
    """Train on more rows than a block has, within the least memory."""
    frame = table(70_000).select("x0", "x1", "x2", "two")
    options = {**_TREES, "trees": 2, "task": "classification"}
    plan = bf.plan_training(frame, "two", **options)
    return bf.train(frame, "two", **options, memory=plan.smallest, out=folder / "forest")


def _case(target: str, *without: str, **options: Any) -> Callable[[Path], bf.Forest]:
    def train(folder: Path) -> bf.Forest:
        exclude = [name for name in (*_TARGETS, "weight") if name not in (target, options.get("weight"))]
        task = "classification" if target in ("two", "three") else "regression"
        return bf.train(
            table(), target, exclude=[*exclude, *without], out=folder / "forest", **{"task": task, **_TREES, **options}
        )

    return train


CASES = {
    "classification": _case("two", *_PLAIN),
    "regression": _case("number", *_PLAIN),
    "many classes": _case("three", *_PLAIN, keep_votes=True),
    "categories and missing values": _case("two"),
    "weights": _case("number", *_PLAIN, weight="weight"),
    "poisson": _case("count", *_PLAIN, impurity="poisson"),
    "sparse-oblique": _case("two", *_PLAIN, family="sparse-oblique"),
    "rotation": _case("two", *_PLAIN, family="rotation", rotation="pca"),
    "subspace-cap": _case("two", *_PLAIN, family="subspace-cap"),
    "subspace-perceptron": _case("two", *_PLAIN, family="subspace-perceptron"),
    "tree": _case("two", family="tree", trees=1, ccp_alpha=0.01),
    "random splits": _case("number", *_PLAIN, splitter="random"),
    "adaboost": _case("two", *_PLAIN, sampling="adaboost"),
    "entropy": _case("three", *_PLAIN, impurity="entropy"),
    "passes": _by_passes,
    "oblique regression": _case("number", family="sparse-oblique"),
    "boosted stage": _case("two", trees=20, refine="auto"),
    "boosted stage, many classes": _case("three", refine=3),
    "boosted stage, numbers": _case("number", trees=20, refine="auto", weight="weight"),
}


def digest(forest: bf.Forest) -> str:
    """Return a digest of the nodes, the out-of-bag report, and the predictions for the training rows."""
    frames = [forest.nodes.collect(), forest.features]
    if forest.rounds.amount:
        frames.append(forest.refinement)
    if forest.config.bootstrap:
        frames += [forest.oob.rows.lazy().collect(), forest.oob.curve, forest.oob.metrics]
    frames.append(forest.predict(table()))
    if not forest.spec.target.is_regression:
        frames.append(forest.predict_proba(table()))
    found = hashlib.sha256()
    for frame in frames:
        found.update(repr((frame.schema, frame.rows())).encode())
    return found.hexdigest()[:16]


def main() -> int:
    """Print a line for each case; return 1 if one differs from the lines of the other processor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--against", type=Path, help="the lines that the other processor printed")
    chosen = parser.parse_args()
    lines = [] if chosen.against is None else chosen.against.read_text().splitlines()
    known = dict(line.rsplit(": ", 1) for line in lines)
    differ = 0
    print(f"processor: {platform.machine()}", flush=True)
    for name in chosen.case or CASES:
        with tempfile.TemporaryDirectory() as folder:
            found = digest(CASES[name](Path(folder)))
        same = known.get(name, found) == found
        differ += not same
        print(f"{name}: {found}" + ("" if same else f" differs from {known[name]}"), flush=True)
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
