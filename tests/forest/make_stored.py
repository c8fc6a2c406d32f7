"""Makes the forests that `test_stored.py` reads: run once when a format is released, and committed.

    python -m tests.forest.make_stored

Writes stored/format-N/KIND, a forest, and KIND.parquet, rows with what that forest answers.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import bigforest as bf
from bigforest.forest.files import VERSION

STORED = Path(__file__).parent / "stored"
ROWS = 80
KINDS: dict[str, dict[str, Any]] = {
    "classes": {"target": "kind", "weight": "weight", "group": "house", "keep_votes": True},
    "numbers": {"target": "price", "keep_targets": True},
    "oblique": {"target": "kind", "family": "sparse-oblique"},
    "ranks": {"target": "kind", "family": "rotation", "ranks": True},
    "boosted": {"target": "kind", "sampling": "adaboost"},
}
# Kinds that need a number in every cell.
_NUMBERS_ALONE = ("oblique", "ranks")


def rows() -> pl.DataFrame:
    """Columns of every kind, some values missing."""
    random = np.random.default_rng(5)
    size = random.normal(size=ROWS)
    town = random.choice(["Aarhus", "Bern", "Cádiz", "Dijon"], ROWS)
    frame = pl.DataFrame(
        {
            "size": size.astype(np.float32),
            "rooms": random.integers(1, 9, ROWS),
            "built": [date(1900, 1, 1) + timedelta(days=int(day)) for day in random.integers(0, 40_000, ROWS)],
            "garden": random.random(ROWS) < 0.5,
            "town": town,
            "weight": random.integers(1, 5, ROWS),
            "house": random.integers(0, 30, ROWS),
            "price": np.round(100 * size + 50 * (town == "Bern") + random.normal(size=ROWS), 3),
        }
    )
    kind = pl.when(pl.col("size") + pl.col("garden") > 0.5).then(pl.lit("large")).otherwise(pl.lit("small"))
    missing = pl.Series(random.random(ROWS) < 0.1)
    return frame.with_columns(
        kind=kind, size=pl.when(~missing).then("size"), town=pl.when(~missing.reverse()).then("town")
    )


def rows_of(kind: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The columns that a forest of this kind is grown on."""
    return (
        frame.select("size", "rooms")
        if kind in _NUMBERS_ALONE
        else frame.select("size", "rooms", "built", "garden", "town")
    )


def answers(forest: bf.Forest, frame: pl.DataFrame) -> pl.DataFrame:
    """What the forest answers, its probabilities too."""
    found = forest.predict(frame)
    return found if forest.is_regression else found.hstack(forest.predict_proba(frame))


def main() -> None:
    """Make the forests of the format that is written now."""
    folder = STORED / f"format-{VERSION}"
    folder.mkdir(parents=True)
    for kind, options in KINDS.items():
        frame = rows()
        if kind in _NUMBERS_ALONE:
            frame = frame.drop_nulls()
        own = [options[name] for name in ("target", "weight", "group") if name in options]
        table = rows_of(kind, frame).hstack(frame.select(own))
        forest = bf.train(table, trees=5, seed=1, out=folder / kind, **options)
        rows_of(kind, frame).hstack(answers(forest, frame)).write_parquet(folder / f"{kind}.parquet")


if __name__ == "__main__":
    main()
