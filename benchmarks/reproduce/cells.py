"""What `randomer.py` measures: settings of simulations and data sets, each a Parquet file that is made once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from methods import FISHERFACES, FORESTS, PEER, TARGET, fisherfaces_errors, forest_errors, peer_error
from reference import REFERENCE, TRANSFORMED

import bigforest

ROWS, OUTLIERS = 100, 20

TRUNK_DIMS = (2, 4, 8, 16, 32, 63, 126, 251, 501, 1000)
DIMS = {
    "trunk": TRUNK_DIMS,
    "parity": tuple(range(2, 11)),
    "multimodal": TRUNK_DIMS,
    "modified-trunk": TRUNK_DIMS,
}
# Every transformation is fitted anew, so fewer sizes of them.
TRANSFORMED_DIMS = {"trunk": (2, 32, 501), "parity": (2, 3, 4), "multimodal": (2, 8, 16)}
TREES = {"trunk": 1500, "parity": 1000, "multimodal": 500, "modified-trunk": 1500}
TRANSFORMS: dict[str, dict[str, Any]] = {
    "raw": {},
    "rotated": {"rotate": True},
    "scaled": {"scale": True},
    "affine": {"affine": True},
    "outliers": {"outliers": OUTLIERS},
}


@dataclass(frozen=True, slots=True)
class Options:
    """What decides a result beside its setting; results of other options are made anew.

    trials      draws of each simulation.
    trees       of a forest in simulations; None for as many as the text has.
    set_trees   trees on the data sets.
    min_leaf    fewest bag rows of a leaf.
    seed        of the first trial.
    """

    trials: int
    trees: int | None
    set_trees: int
    min_leaf: int
    seed: int

    def of_simulations(self) -> dict[str, str]:
        """What marks a result on a simulation."""
        return _texts(trials=self.trials, trees=self.trees or 0, min_leaf=self.min_leaf, seed=self.seed)

    def of_sets(self) -> dict[str, str]:
        """What marks a result on a data set."""
        return _texts(set_trees=self.set_trees, min_leaf=self.min_leaf, seed=self.seed)


def _texts(**options: int) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


@dataclass(frozen=True, slots=True)
class Setting:
    """A simulation of some dimensions, transformed."""

    kind: str
    dims: int
    transform: str

    def trees(self, options: Options) -> int:
        """Trees of a forest."""
        return options.trees or TREES[self.kind]

    def is_known(self) -> bool:
        """Whether it has a reference number."""
        return astuple(self) in REFERENCE.keys() | TRANSFORMED.keys()

    def name(self) -> str:
        """As it is called on the command line, and the stem of the file of its results."""
        return f"{self.kind}-{self.dims}-{self.transform}"


def settings() -> list[Setting]:
    """All settings: what has a reference number first, then what is not transformed, the quick ones first of each."""
    raw = [Setting(kind, dims, "raw") for kind, sizes in DIMS.items() for dims in sizes]
    turned = [
        Setting(kind, dims, transform)
        for kind, sizes in TRANSFORMED_DIMS.items()
        for dims in sizes
        for transform in TRANSFORMS
        if transform != "raw"
    ]
    return sorted(raw + turned, key=lambda one: (not one.is_known(), one.transform != "raw", one.dims))


def draws(setting: Setting, options: Options) -> Iterator[tuple[dict[str, Any], int, pl.DataFrame]]:
    """What is said of every result of a trial, its seed, and its table."""
    for trial in range(options.trials):
        seed = options.seed + trial
        frame = bigforest.simulate(
            setting.kind, rows=ROWS, dims=setting.dims, seed=seed, **TRANSFORMS[setting.transform]
        )
        yield asdict(setting) | {"trial": trial, "trees": setting.trees(options)}, seed, frame


@cache
def measure_setting(setting: Setting, options: Options) -> pl.DataFrame:
    """One row per trial and method; Bayes is a method without seconds."""
    rows = []
    for about, seed, frame in draws(setting, options):
        drawn = {"trees": about["trees"], "seed": seed, "min_leaf": options.min_leaf}
        rows += [about | {"method": method} | forest_errors(method, frame, drawn) for method in FORESTS]
        rows.append(about | {"method": FISHERFACES} | fisherfaces_errors(frame))
        bayes = bigforest.bayes_error(setting.kind, dims=setting.dims, seed=seed)
        if bayes is not None:
            rows.append(about | {"method": "Bayes", "error": bayes.error})
    return pl.DataFrame(rows, schema=SIMULATION)


def measure_peer(setting: Setting, options: Options) -> pl.DataFrame:
    """One row per trial: scikit-learn's forest on the rows that `measure_setting` has."""
    rows = [
        about | {"method": PEER, "error": peer_error(frame, about["trees"], seed)}
        for about, seed, frame in draws(setting, options)
    ]
    return pl.DataFrame(rows, schema=SIMULATION)


def measure_set(path: Path, options: Options) -> pl.DataFrame:
    """One row per method on the data set of the file."""
    frame = pl.read_parquet(path)
    about = {
        "set": path.stem,
        "rows": frame.height,
        "features": frame.width - 1,
        "classes": frame[TARGET].n_unique(),
        "trees": options.set_trees,
        "majority_error": 1 - float(np.max(frame[TARGET].value_counts()["count"].to_numpy())) / frame.height,
    }
    drawn = {"trees": options.set_trees, "seed": options.seed, "min_leaf": options.min_leaf}
    rows = [about | {"method": method} | forest_errors(method, frame, drawn) for method in FORESTS]
    return pl.DataFrame(rows, schema=SET)


_MEASURED = {
    "trees": pl.Int64(),
    "method": pl.String(),
    "error": pl.Float64(),
    "seconds": pl.Float64(),
    "curve_trees": pl.List(pl.Int64()),
    "curve_error": pl.List(pl.Float64()),
}
SIMULATION = {"kind": pl.String(), "dims": pl.Int64(), "transform": pl.String(), "trial": pl.Int64(), **_MEASURED}
SET = {
    "set": pl.String(),
    "rows": pl.Int64(),
    "features": pl.Int64(),
    "classes": pl.Int64(),
    "majority_error": pl.Float64(),
    **_MEASURED,
}


def measure_settings(
    chosen: list[Setting], measure: Callable[[Setting, Options], pl.DataFrame], options: Options, folder: Path
) -> None:
    """Make the file of each of these settings that has none."""
    for setting in chosen:
        once(folder / f"{setting.name()}.parquet", options.of_simulations(), partial(measure, setting, options))


def measure_sets(options: Options, sets: Path, folder: Path, first: int | None) -> None:
    """Make the file of every data set that has none, small sets first; of the `first` sets only, if given."""
    paths = sorted(sets.glob("*.parquet"), key=lambda path: path.stat().st_size)
    for path in paths[:first]:
        once(folder / path.name, options.of_sets(), partial(measure_set, path, options))


def collect(folder: Path, mark: dict[str, str]) -> pl.DataFrame | None:
    """All results in the folder that have this mark; None without any."""
    found = [pl.read_parquet(path) for path in sorted(folder.glob("*.parquet")) if _is_of(path, mark)]
    return pl.concat(found) if found else None


def once(path: Path, mark: dict[str, str], measure: Callable[[], pl.DataFrame]) -> None:
    """Make the file of a result, unless it is there and has this mark."""
    if path.exists() and _is_of(path, mark):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    measure().write_parquet(half, metadata=mark)
    half.rename(path)
    print(path.stem, file=sys.stderr, flush=True)


def _is_of(path: Path, mark: dict[str, str]) -> bool:
    found = pl.read_parquet_metadata(path)
    return all(found.get(name) == value for name, value in mark.items())
