"""Train on the digits, read the out-of-bag report, predict, and read the forest as a table.

python examples/quickstart.py
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import bigforest as bf

DIGITS = Path(__file__).parent / "data" / "digits.parquet"


def main() -> None:
    """Hold out a fifth of the digits, train on the rest."""
    digits = pl.read_parquet(DIGITS)
    held_out = pl.int_range(pl.len()) % 5 == 0
    train, test = digits.filter(~held_out), digits.filter(held_out)

    forest = bf.train(train, target="target", trees=100, seed=0)
    predicted = forest.predict(test)["prediction"]
    print(f"out-of-bag error {forest.oob.error:.3f}, test error {(predicted != test['target']).mean():.3f}")

    print("\nDigits that are confused most often, out of bag:")
    wrong = forest.oob.confusion.filter(pl.col("truth") != pl.col("prediction"))
    print(wrong.sort("rows", descending=True).head(5))

    print("\nThe pixels that the roots of the trees split on:")
    roots = forest.nodes.filter(pl.col("depth") == 0)
    print(roots.group_by("feature").len("trees").sort("trees", descending=True).head(5).collect())


if __name__ == "__main__":
    main()
