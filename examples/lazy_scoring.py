"""Score a file of any size: the forest is an expression in a lazy Polars query, which streams from file to file.

python examples/lazy_scoring.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

import bigforest as bf

COVERTYPE = Path(__file__).parent / "data" / "covertype_sample.parquet"


def main() -> None:
    """Train on the Covertype sample, then score the same file lazily and keep two of its columns."""
    forest = bf.train(COVERTYPE, target="target", trees=50)
    with tempfile.TemporaryDirectory() as folder:
        scored = Path(folder) / "scored.parquet"
        (
            pl.scan_parquet(COVERTYPE)
            .with_columns(cover=forest.expr())
            .select("elevation", "target", "cover")
            .sink_parquet(scored)
        )
        print(pl.read_parquet(scored).head())
    print(f"out-of-bag error {forest.oob.error:.3f}")


if __name__ == "__main__":
    main()
