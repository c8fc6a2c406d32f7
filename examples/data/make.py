"""Make the samples in this folder: python examples/data/make.py DIGITS COVERTYPE MNIST.

DIGITS is a Parquet with the 1,797 x 64 optical digits, COVERTYPE one with the numeric Covertype columns;
both have the column `target`. MNIST is the folder of its four IDX files. No number is changed; the rows of Covertype
are thinned class by class, and of MNIST the first training images are taken.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
import polars as pl

ROWS = 5_000
SEED = 54
IMAGES = 100


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


def write_first(source: Path, path: Path, dimensions: int) -> None:
    """Write the first IMAGES entries of a compressed IDX file of bytes."""
    with gzip.open(source) as content:
        header = bytearray(content.read(4 + 4 * dimensions))
        assert header[:4] == bytes([0, 0, 8, dimensions])
        entry = np.prod(np.frombuffer(header, ">u4")[2:], dtype=int)
        header[4:8] = IMAGES.to_bytes(4, "big")
        path.write_bytes(gzip.compress(bytes(header) + content.read(IMAGES * entry), mtime=0))
    print(f"{path.name}: {IMAGES} entries, {path.stat().st_size:,} bytes")


def main() -> None:
    """Write the samples beside this script."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("digits", type=Path)
    parser.add_argument("covertype", type=Path)
    parser.add_argument("mnist", type=Path)
    options = parser.parse_args()
    here = Path(__file__).parent
    write(pl.read_parquet(options.digits), here / "digits.parquet")
    write(stratified(pl.read_parquet(options.covertype), ROWS, SEED), here / "covertype_sample.parquet")
    for what, dimensions in (("images-idx3", 3), ("labels-idx1", 1)):
        name = f"{what}-ubyte.gz"
        write_first(options.mnist / f"train-{name}", here / f"mnist-{name}", dimensions)


if __name__ == "__main__":
    main()
