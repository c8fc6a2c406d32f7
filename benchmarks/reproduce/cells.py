"""What Randomer forests are measured on: settings of simulations, each of some draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from typing import Any

import polars as pl
from methods import FISHERFACES, FORESTS, fisherfaces_errors, forest_errors
from outcome import Given
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

# Readings of the draft: what a node draws floor(p^(2/3)) of, by method; else the defaults, ceil(p^(2/3)) directions and
# floor(sqrt p) features.
READINGS = {"ceil, sqrt": {}, "floor": {"RF": "mtry", "RerF": "projections"}}


@dataclass(frozen=True, slots=True)
class Options:
    """What decides a result beside its setting.

    draws  of each simulation.
    trees  of a forest; None for as many as the text has.
    seed   of the first draw.
    """

    draws: int
    trees: int | None
    seed: int


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
        """What its seeds follow from."""
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
    """What is said of every result of a draw, its seed, and its table."""
    for draw in range(options.draws):
        seed = options.seed + draw
        frame = bigforest.simulate(
            setting.kind, rows=ROWS, dims=setting.dims, seed=seed, **TRANSFORMS[setting.transform]
        )
        yield asdict(setting) | {"draw": draw, "trees": setting.trees(options)}, seed, frame


def measure_settings(given: Given, wanted: list[tuple[Setting, Options]]) -> list[pl.DataFrame]:
    """What `measure_setting` finds of each; what another item has measured is not measured again."""
    missing = [one for one in wanted if one not in _MEASURED]
    _MEASURED.update(zip(missing, given.each(measure_setting, missing), strict=True))
    return [_MEASURED[one] for one in wanted]


_MEASURED: dict[tuple[Setting, Options], pl.DataFrame] = {}


def measure_setting(wanted: tuple[Setting, Options]) -> pl.DataFrame:
    """One row per draw and method; Bayes is a method without seconds."""
    setting, options = wanted
    rows = []
    for about, seed, frame in draws(setting, options):
        drawn = {"trees": about["trees"], "seed": seed}
        rows += [about | {"method": method} | forest_errors(method, frame, drawn) for method in FORESTS]
        rows.append(about | {"method": FISHERFACES} | fisherfaces_errors(frame))
        bayes = bigforest.bayes_error(setting.kind, dims=setting.dims, seed=seed)
        if bayes is not None:
            rows.append(about | {"method": "Bayes", "error": bayes.error})
    return pl.DataFrame(rows, schema=SIMULATION)


def measure_reading(wanted: tuple[Setting, str, str, Options]) -> pl.DataFrame:
    """One row per draw of a method by a reading of the draft, with the reference."""
    setting, method, reading, options = wanted
    of_nodes = {READINGS[reading][method.partition("(")[0]]: floor_of(setting.dims)} if READINGS[reading] else {}
    known = {"method": method, "reading": reading, "reference": REFERENCE[astuple(setting)][method]}
    rows = []
    for about, seed, frame in draws(setting, options):
        found = forest_errors(method, frame, {"trees": about["trees"], "seed": seed, **of_nodes})
        rows.append(about | known | {"error": found["error"]})
    return pl.DataFrame(rows)


def floor_of(dims: int) -> int:
    """floor(p^(2/3)), exactly."""
    found = 1
    while (found + 1) ** 3 <= dims**2:
        found += 1
    return found


def averages(simulations: pl.DataFrame) -> pl.DataFrame:
    """One row per setting and method: the mean error over the draws and its standard error, and the median seconds, as
    the first draw of a process compiles."""
    return (
        simulations.group_by(["kind", "dims", "transform", "method"], maintain_order=True)
        .agg(
            pl.col("error").mean(),
            (pl.col("error").std() / pl.len().sqrt()).fill_null(0.0).alias("standard_error"),
            pl.col("seconds").median(),
            pl.len().alias("draws"),
        )
        .sort("kind", "dims", "transform", maintain_order=True)
    )


SIMULATION = {
    "kind": pl.String(),
    "dims": pl.Int64(),
    "transform": pl.String(),
    "draw": pl.Int64(),
    "trees": pl.Int64(),
    "method": pl.String(),
    "error": pl.Float64(),
    "seconds": pl.Float64(),
    "curve_trees": pl.List(pl.Int64()),
    "curve_error": pl.List(pl.Float64()),
}
