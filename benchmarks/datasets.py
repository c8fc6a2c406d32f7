"""The benchmark sets, as a training and a test frame of numbers with the column `target`.

    from benchmarks.datasets import load
    covertype = load("covertype", Path("data"))

Sets read from files expect this under the data folder:

    mnist/train-images-idx3-ubyte.gz, ...   the four IDX files of MNIST
    real/covertype_93k.parquet              16% stratified sample of UCI Covertype, 54 numeric features
    real/flights_late15_clf.parquet         US domestic flights, is the arrival more than 15 minutes late
    real/digits.parquet                     UCI optical digits

What is done to the data is done once, here, and is the same for every contestant:

- a set without an official test part is split by one fixed-seed shuffle, a fifth of the rows for testing;
- a text category becomes the rank of its text among the column's texts (0 is the alphabetically first);
- a null in a feature becomes `NULL_VALUE`. None of the sets above has one today; the rule is here so that a
  changed file cannot favour a contestant silently;
- the target becomes an integer, the features stay in the type of the file.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

TARGET = "target"
NULL_VALUE = -1
SPLIT_SEED = 20_240_229
TEST_FRACTION = 0.2
SYNTHETIC_TRAIN, SYNTHETIC_TEST = 200_000, 50_000


@dataclass(frozen=True, slots=True)
class Dataset:
    """One set. Both frames have the same columns: the features in order, then `target`."""

    name: str
    train: pl.DataFrame
    test: pl.DataFrame

    @property
    def features(self) -> list[str]:
        """Names of the features in column order."""
        return [name for name in self.train.columns if name != TARGET]

    @property
    def classes(self) -> int:
        """Number of distinct targets in the training part."""
        return int(self.train[TARGET].n_unique())

    def arrays(self, part: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """X [rows, features] float32 in C order and y [rows] int64 of the part "train" or "test".

        float32 loses nothing: every value of these sets is a float32 or a small integer.
        """
        frame: pl.DataFrame = getattr(self, part)
        columns = frame.select(pl.col(self.features).cast(pl.Float32))
        return np.ascontiguousarray(columns.to_numpy()), frame[TARGET].cast(pl.Int64).to_numpy()

    def whole(self) -> Dataset:
        """The same set trained on all its rows, the test rows included: for timing only."""
        return Dataset(self.name, pl.concat([self.train, self.test]), self.test)


def load(name: str, data: Path) -> Dataset:
    """The set called `name`; `data` is the folder described above (not looked at by "synthetic")."""
    if name not in SETS:
        raise SystemExit(f"there is no set {name!r}; there are {', '.join(SETS)}")
    return SETS[name](Path(data))


def synthetic(data: Path) -> Dataset:
    """Two classes, 28 float32 features without repeated values: 21 measured and 7 derived, as in HIGGS.

    The classes overlap: the chance of class 1 is a smooth function of products and distances of a few
    features. A tree grown until pure has about 23,000 splits and 40 levels; 20 trees reach about 0.79.
    """
    rows = SYNTHETIC_TRAIN + SYNTHETIC_TEST
    random = np.random.default_rng(28)
    hidden = random.standard_normal((rows, 8))
    mixing = random.standard_normal((8, 21)) / np.sqrt(8)
    measured = hidden @ mixing + 0.35 * random.standard_normal((rows, 21))
    measured[:, 1::3] = np.exp(0.7 * measured[:, 1::3])
    signal = (
        1.6 * hidden[:, 0] * hidden[:, 1]
        + 1.2 * np.sin(2.0 * hidden[:, 2])
        - 1.0 * np.abs(hidden[:, 3] - hidden[:, 4])
        + 0.8 * hidden[:, 5]
    )
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7), (1, 2), (3, 4), (0, 5)]
    derived = np.stack(
        [np.hypot(hidden[:, a], hidden[:, b]) + 0.3 * random.standard_normal(rows) for a, b in pairs], axis=1
    )
    chance = 1.0 / (1.0 + np.exp(-2.5 * (signal - np.median(signal))))
    target = (random.random(rows) < chance).astype(np.uint8)
    values = np.concatenate([measured, derived], axis=1).astype(np.float32)
    frame = pl.DataFrame({f"x{k:02d}": values[:, k] for k in range(28)} | {TARGET: target})
    return Dataset("synthetic", frame[:SYNTHETIC_TRAIN], frame[SYNTHETIC_TRAIN:])


def mnist(data: Path) -> Dataset:
    """MNIST with its official 60,000 training and 10,000 test images; one uint8 feature per pixel."""
    folder = data / "mnist"
    return Dataset("mnist", _mnist_part(folder, "train"), _mnist_part(folder, "t10k"))


def covertype(data: Path) -> Dataset:
    """Covertype, 54 integer features, 7 classes."""
    return _split("covertype", pl.read_parquet(data / "real" / "covertype_93k.parquet"))


def flights(data: Path) -> Dataset:
    """Flights, 12 features, 2 classes; carrier, tail number, airports and region as ranks of their texts."""
    return _split("flights", pl.read_parquet(data / "real" / "flights_late15_clf.parquet"))


def digits(data: Path) -> Dataset:
    """Optical digits, 64 features, 10 classes: too small to time, good to try things on."""
    return _split("digits", pl.read_parquet(data / "real" / "digits.parquet"))


SETS: dict[str, Callable[[Path], Dataset]] = {
    "synthetic": synthetic,
    "mnist": mnist,
    "covertype": covertype,
    "flights": flights,
    "digits": digits,
}


def _split(name: str, frame: pl.DataFrame) -> Dataset:
    frame = _numbers(frame)
    order = np.random.default_rng(SPLIT_SEED).permutation(frame.height)
    cut = round(frame.height * TEST_FRACTION)
    return Dataset(name, frame[np.sort(order[cut:])], frame[np.sort(order[:cut])])


def _numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Categories to ranks, nulls in features to NULL_VALUE, the target last and an integer."""
    features = []
    for series in frame.drop(TARGET):
        if series.dtype in (pl.Categorical, pl.Enum, pl.String):
            texts = series.cast(pl.String)
            series = (texts.rank("dense") - 1).cast(pl.Int32).alias(series.name)
        features.append(series.fill_null(NULL_VALUE) if series.null_count() else series)
    return pl.DataFrame([*features, frame[TARGET].cast(pl.UInt8)])


def _mnist_part(folder: Path, part: str) -> pl.DataFrame:
    images = _idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = _idx(folder / f"{part}-labels-idx1-ubyte.gz")
    pixels = np.ascontiguousarray(images.reshape(len(images), -1).T)
    return pl.DataFrame({f"p{k:03d}": column for k, column in enumerate(pixels)} | {TARGET: labels})


def _idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of bytes: two zero bytes, type 8, the number of axes, the axes as big-endian uint32."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\x00\x00\x08":
        raise SystemExit(f"{path} is not an IDX file of unsigned bytes")
    axes = raw[3]
    shape = np.frombuffer(raw, ">u4", count=axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(tuple(int(n) for n in shape))


def main() -> None:
    """Print size and class shares of every set."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    for name in options.sets.split(","):
        found = load(name, options.data)
        counts = found.train[TARGET].value_counts().sort(TARGET)["count"]
        shares = (counts / found.train.height).round(3).to_list()
        distinct = max(found.train[feature].n_unique() for feature in found.features)
        print(f"{name}: {found.train.height:,} + {found.test.height:,} rows x {len(found.features)} features")
        print(f"  classes {shares}, at most {distinct:,} distinct values in a feature")


if __name__ == "__main__":
    main()
