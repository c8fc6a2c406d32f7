"""Make the two samples in this folder: python examples/data/make.py DIGITS COVERTYPE.

DIGITS is a Parquet with the 1,797 x 64 optical digits, COVERTYPE one with the numeric Covertype columns;
both have the column `target`. No number is changed; the rows of Covertype are thinned class by class.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

ROWS = 5_000
SEED = 54


def stratified(frame: pl.DataFrame, rows: int, seed: int) -> pl.DataFrame:
    """About `rows` rows, every class with its own share, drawn without replacement, in the frame's order."""
    random = np.random.default_rng(seed)
    target = frame["target"].to_numpy()
    kept = []
    for label in np.unique(target):
        members = np.flatnonzero(target == label)
        kept.append(random.choice(members, round(len(members) * rows / frame.height), replace=False))
    return frame[np.sort(np.concatenate(kept))]


def write(frame: pl.DataFrame, path: Path) -> None:
    """Check what the examples rely on, then write."""
    assert "target" in frame.columns
    assert all(dtype.is_numeric() for dtype in frame.schema.values())
    assert not any(frame.null_count().row(0))
    frame.write_parquet(path, compression="zstd", compression_level=19)
    print(f"{path.name}: {frame.height:,} rows, {frame.width - 1} features, {path.stat().st_size:,} bytes")


def main() -> None:
    """Write digits.parquet and covertype_sample.parquet beside this script."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("digits", type=Path)
    parser.add_argument("covertype", type=Path)
    options = parser.parse_args()
    here = Path(__file__).parent
    write(pl.read_parquet(options.digits), here / "digits.parquet")
    write(stratified(pl.read_parquet(options.covertype), ROWS, SEED), here / "covertype_sample.parquet")


if __name__ == "__main__":
    main()
