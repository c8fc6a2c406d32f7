"""The sets of suite.py: their tables, how they are split, and to which half each belongs.

uci/NAME     the UCI sets of Fernandez-Delgado et al. 2014, under DATA/uci, with index.csv
real/NAME    the tables under DATA/real, with categories, missing values and regression targets
number/NAME  UCI sets whose classes are in order, predicted as numbers
sim/NAME     simulated here: categories with and without signal, and columns of no use
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
from columns import split
from datasets import SPLIT_SEED, TARGET
from numpy.typing import NDArray

HALVES = ("choose", "report")
# File, and whether the target is a number to predict; those with a test file of their own name it.
_REAL = {
    "adult": ("adult_train", False, "adult_test"),
    "usps": ("usps_train", False, "usps_test"),
    "titanic": ("titanic_1309", False, None),
    "digits": ("digits", False, None),
    "covertype": ("covertype_93k", False, None),
    "covertype-categories": ("covertype_93k_categorical", False, None),
    "flights-late": ("flights_late15_clf", False, None),
    "credit": ("give_me_some_credit", False, None),
    "flights-delay": ("flights_arrdelay_reg", True, None),
    "diamonds": ("diamonds_reg", True, None),
    "california": ("california_housing_reg", True, None),
}
_ORDERED = ("wine-quality-red", "wine-quality-white", "chess-krvk", "abalone", "energy-y1", "energy-y2")


@dataclass(frozen=True, slots=True)
class Set:
    """One set: whether its target is a number, its rows, and how many in front are the official training part."""

    name: str
    regression: bool
    read: Callable[[], pl.DataFrame]
    official: int = 0

    @property
    def half(self) -> str:
        """ "choose" or "report", by a hash of the name without its kind, so that a table is in one of them only."""
        return HALVES[hashlib.sha256(self.name.partition("/")[2].encode()).digest()[0] % 2]

    def parts(self, round_: int, most: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Training and test rows of a round, `most` rows in all or, of an official part, in each; drawn."""
        frame = self.read()
        if self.official:
            return _at_most(frame[: self.official], most), _at_most(frame[self.official :], most)
        return split(_at_most(frame, most), [SPLIT_SEED, round_])


def _at_most(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    if frame.height <= most:
        return frame
    return frame[np.sort(np.random.default_rng(SPLIT_SEED).permutation(frame.height)[:most])]


def sets_of(data: Path) -> dict[str, Set]:
    """All sets by name; files are read when a set is."""
    index = pl.read_csv(data / "uci" / "index.csv", null_values="MISSING").drop_nulls("n").sort("name")
    found = {}
    for name, official in index.select("name", "n_train_official").iter_rows():
        read = partial(pl.read_parquet, data / "uci" / f"{name}.parquet")
        found[f"uci/{name}"] = Set(f"uci/{name}", False, read, int(official or 0))
        if name in _ORDERED:
            found[f"number/{name}"] = Set(f"number/{name}", True, read)
    for name, (file, regression, test) in _REAL.items():
        files = [data / "real" / f"{part}.parquet" for part in (file, test) if part]
        official = pl.scan_parquet(files[0]).select(pl.len()).collect().item() if test else 0
        found[f"real/{name}"] = Set(f"real/{name}", regression, partial(_read_real, files), official)
    for name, (regression, simulate) in _SIMULATED.items():
        found[f"sim/{name}"] = Set(f"sim/{name}", regression, simulate)
    return found


def _read_real(files: list[Path]) -> pl.DataFrame:
    frames = [pl.read_parquet(file).with_columns(cs.categorical().cast(pl.String)) for file in files]
    return pl.concat([frame.select(frames[0].columns) for frame in frames])


def _names(codes: NDArray[np.int64]) -> pl.Series:
    return pl.Series(codes).cast(pl.String)


def _levels(levels: int, rows: int, effect: float, classes: bool) -> pl.DataFrame:
    """A category with an effect of its own in every level, one of six levels, six numbers, three of which matter."""
    random = np.random.default_rng([levels, rows, classes])
    share = random.dirichlet(np.full(levels, 2.0))
    many, few = random.choice(levels, rows, p=share), random.integers(0, 6, rows)
    numbers = random.standard_normal((rows, 6))
    signal = effect * random.standard_normal(levels)[many] + 0.4 * random.standard_normal(6)[few]
    signal = signal + 0.7 * numbers[:, 0] + 0.5 * numbers[:, 1] * numbers[:, 2]
    noisy = signal + (1.0 if classes else 0.4) * random.standard_normal(rows)
    columns = {"many": _names(many), "few": _names(few)} | {f"x{k}": numbers[:, k] for k in range(6)}
    return pl.DataFrame(columns | {TARGET: (noisy > 0).astype(np.int64) if classes else noisy})


def _named(rows: int, repeats: float, classes: bool) -> pl.DataFrame:
    """Three numbers that matter, three that do not, and two categories of names that do not, of few rows a level."""
    random = np.random.default_rng([rows, classes])
    numbers = random.standard_normal((rows, 6))
    signal = numbers[:, 0] + 0.7 * numbers[:, 1] * numbers[:, 2]
    noisy = signal + (0.8 if classes else 0.5) * random.standard_normal(rows)
    names = {f"name{k}": _names(random.integers(0, int(rows / repeats), rows)) for k in range(2)}
    columns = names | {f"x{k}": numbers[:, k] for k in range(6)}
    return pl.DataFrame(columns | {TARGET: (noisy > 0).astype(np.int64) if classes else noisy})


def _friedman(number: int, useless: int) -> pl.DataFrame:
    from sklearn import datasets

    random = np.random.default_rng([number, useless])
    if number == 1:
        values, target = datasets.make_friedman1(4000, 5, noise=1.0, random_state=number)
    else:
        make = {2: datasets.make_friedman2, 3: datasets.make_friedman3}[number]
        values, target = make(4000, noise={2: 100.0, 3: 0.1}[number], random_state=number)
    values = np.concatenate([values, random.standard_normal((4000, useless))], axis=1)
    return pl.DataFrame({f"x{k}": column for k, column in enumerate(values.T)} | {TARGET: target})


_SIMULATED: dict[str, tuple[bool, Callable[[], pl.DataFrame]]] = {
    "levels45-number": (True, partial(_levels, 45, 20_000, 1.0, False)),
    "levels81-number": (True, partial(_levels, 81, 20_000, 1.0, False)),
    "levels81-classes": (False, partial(_levels, 81, 20_000, 1.0, True)),
    "levels400-number": (True, partial(_levels, 400, 8_000, 0.7, False)),
    "levels400-classes": (False, partial(_levels, 400, 8_000, 0.7, True)),
    "levels5000-number": (True, partial(_levels, 5000, 20_000, 0.3, False)),
    "levels5000-classes": (False, partial(_levels, 5000, 20_000, 0.3, True)),
    "names-number": (True, partial(_named, 4000, 1.0, False)),
    "names-classes": (False, partial(_named, 4000, 1.0, True)),
    "tickets-number": (True, partial(_named, 8000, 2.0, False)),
    "tickets-classes": (False, partial(_named, 8000, 2.0, True)),
    "friedman1-useless5": (True, partial(_friedman, 1, 5)),
    "friedman1-useless50": (True, partial(_friedman, 1, 50)),
    "friedman2": (True, partial(_friedman, 2, 0)),
    "friedman2-useless20": (True, partial(_friedman, 2, 20)),
    "friedman3": (True, partial(_friedman, 3, 0)),
    "friedman3-useless20": (True, partial(_friedman, 3, 20)),
}
