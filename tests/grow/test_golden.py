"""Forests of known data, options and seed are those of the last version, to the last bit.

A change that gives another forest for the same three needs a line in the CHANGELOG, and new digests:

    python -m tests.grow.test_golden

Rotations are left out: their last bits depend on the platform's linear algebra.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf

GOLDEN = Path(__file__).with_name("golden.json")
CASES: dict[str, dict[str, Any]] = {
    "axis": {},
    "axis, entropy": {"impurity": "entropy"},
    "axis, count": {"constants": "count", "mtry": 2},
    "axis, random splits": {"splitter": "random"},
    "axis, categories and missing values": {"columns": ("a", "b", "level", "gaps")},
    "axis, weights": {"weight": "weight"},
    "axis, three classes": {"target": "three"},
    "axis, three classes, balanced": {"target": "three", "class_weight": "balanced"},
    "axis, numbers": {"target": "number"},
    "axis, numbers, categories and missing values": {"target": "number", "columns": ("a", "b", "level", "gaps")},
    "axis, numbers, weights": {"target": "number", "weight": "weight", "mtry": "half"},
    "axis, numbers, weights, chosen by trial trees": {"target": "number", "weight": "weight"},
    "tree": {"family": "tree", "trees": 1},
    "axis, shrunk": {"shrink": "auto"},
    "axis, numbers, shrunk": {"target": "number", "shrink": 3},
    "sparse-oblique": {"family": "sparse-oblique"},
    "sparse-oblique, means": {"family": "sparse-oblique", "mean_difference": "all", "target": "three"},
    "subspace-cap": {"family": "subspace-cap", "subspace": 2},
    "subspace-perceptron": {"family": "subspace-perceptron", "subspace": 2, "target": "three"},
}


def table() -> pl.DataFrame:
    """400 rows with features of many and few values, a category, missing values, and targets of each kind."""
    draw = np.random.Generator(np.random.PCG64(1))
    a, b, c, d = draw.random((4, 400))
    few = draw.integers(0, 5, 400)
    level = draw.integers(0, 9, 400)
    signal = a + 0.5 * b + 0.1 * few + 0.2 * (level % 3)
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "c": c.astype(np.float32),
            "d": (1000 * d).astype(np.int64),
            "few": few,
            "level": [f"level {number}" for number in level],
            "gaps": [None if number < 0.1 else number for number in draw.random(400)],
            "two": (signal > 1.0).astype(int),
            "three": np.digitize(signal, (0.8, 1.2)),
            "number": np.round(signal, 6),
            "weight": draw.integers(1, 8, 400),
        }
    )


def digests(options: dict[str, Any]) -> dict[str, str]:
    """Digests of what a forest with these options is, reports and answers, as text that does not depend on files."""
    options = {"target": "two", "trees": 3, "seed": 5, **options}
    target = options["target"]
    columns = options.pop("columns", ("a", "b", "c", "d", "few"))
    kept = list(dict.fromkeys([*columns, target, *filter(None, [options.get("weight")])]))
    frame = table().select(kept)
    task = "regression" if target == "number" else "classification"
    forest = bf.train(frame, **{"shrink": "off", "task": task, **options})
    found = {"nodes": forest.nodes.collect(), "answers": forest.predict(frame)}
    if forest.config.bootstrap:
        found["out of bag"] = forest.oob.rows.collect()
    return {name: hashlib.sha256(rows.write_ndjson().encode()).hexdigest()[:16] for name, rows in found.items()}


@pytest.mark.parametrize("case", CASES)
def test_forests__are_those_of_the_last_version(case: str) -> None:
    assert digests(CASES[case]) == json.loads(GOLDEN.read_text())[case]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({case: digests(options) for case, options in CASES.items()}, indent=1) + "\n")
