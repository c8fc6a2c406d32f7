"""Items of Randomer forests: errors, times and transformations of simulations, and errors against trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from cells import DIMS, Options, Setting, measure_setting, settings
from figures import CURVES, draw_curves, draw_panels, draw_transforms
from methods import FORESTS
from outcome import Given, Outcome, figure, judged, save
from reference import REFERENCE, TRANSFORMED
from report import averages

import bigforest

_SHOWN = ("trunk", "parity", "multimodal")
_DRAWS = 10
_SCATTERED_ROWS = 1000


def measured(given: Given, wanted: list[Setting]) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """A row per draw and method of these settings, their means, and what to say; each setting has seeds of its own."""
    draws = given.draws or _DRAWS
    found = [
        measure_setting(setting, Options(draws, given.trees, 0, 1, given.seed_of(setting.name()))) for setting in wanted
    ]
    numbers = pl.concat(found)
    trees = f"{given.trees} trees" if given.trees else "500 to 1,500 trees as in the text"
    about = f"{draws} draws of 100 rows, seed {given.seed}, {trees}, out-of-bag error by majority vote."
    return numbers, averages(numbers), about


def _compared(means: pl.DataFrame, value: str = "error") -> pl.DataFrame:
    """Means beside the reference errors, which are means of as many draws."""
    known = pl.DataFrame(
        [
            {"kind": kind, "dims": dims, "transform": transform, "method": method, "reference": error}
            for (kind, dims, transform), errors in (REFERENCE | TRANSFORMED).items()
            for method, error in errors.items()
        ]
    )
    own = means.filter(pl.col("method").is_in([*FORESTS, "Fisherfaces"]))
    own = own.select("kind", "dims", "transform", "method", pl.col(value).alias("ours"), "standard_error")
    if value != "error":
        return judged(own.with_columns(pl.lit(None, pl.Float64).alias("reference"), standard_error=pl.lit(0.0)))
    keys = ["kind", "dims", "transform", "method"]
    return judged(own.join(known, on=keys, how="left", maintain_order="left"), reference_error=True)


def _raw(kinds: tuple[str, ...] = _SHOWN) -> list[Setting]:
    return [one for one in settings() if one.transform == "raw" and one.kind in kinds]


def figure_1(given: Given) -> Outcome:
    """Error against p, above it the first two dimensions of each simulation."""
    numbers, means, about = measured(given, _raw())

    def draw(path: Path) -> None:
        draw_panels(means, list(_SHOWN), "error", "error", path)
        _draw_scattered(given, path.with_name(f"{path.stem}-scatter.svg"))

    return Outcome(numbers, _compared(means), f"{about} The scatter plots are in a picture of their own.", draw)


def _draw_scattered(given: Given, path: Path) -> None:
    drawn, [axes] = figure(1, len(_SHOWN))
    for axis, kind in zip(axes, _SHOWN, strict=True):
        frame: Any = bigforest.simulate(kind, rows=_SCATTERED_ROWS, dims=2, seed=given.seed)
        for label, own in frame.group_by("target", maintain_order=True):
            axis.scatter(own["x0"], own["x1"], s=3, label=f"{label[0]}")
        axis.set(title=f"{kind}, p = 2", xlabel="x0", ylabel="x1")
    save(drawn, path)


def figure_2(given: Given) -> Outcome:
    """CPU seconds of training against p."""
    numbers, means, about = measured(given, _raw())
    shown = means.filter(pl.col("method") != "Bayes")

    def draw(path: Path) -> None:
        draw_panels(shown, list(_SHOWN), "seconds", "CPU seconds of training", path)

    return Outcome(numbers, _compared(means, "seconds"), f"{about} Ours are seconds of one thread.", draw)


def figure_3(given: Given) -> Outcome:
    """Error of rotated, scaled and affinely transformed rows, and with outliers; Fisherfaces beside the forests."""
    turned = [one for one in settings() if one.transform != "raw"]
    sizes = {(one.kind, one.dims) for one in turned}
    wanted = turned + [one for one in settings() if one.transform == "raw" and (one.kind, one.dims) in sizes]
    numbers, means, about = measured(given, wanted)
    return Outcome(numbers, _compared(means), about, lambda path: draw_transforms(means, path))


def figure_a1(given: Given) -> Outcome:
    """Error against the number of trees."""
    wanted = [one for one in settings() if one.transform == "raw" and (one.kind, one.dims) in CURVES]
    numbers, means, about = measured(given, wanted)
    return Outcome(numbers, _compared(means), about, lambda path: draw_curves(numbers, path))


def figure_a2(given: Given) -> Outcome:
    """Error against p on modified Trunk."""
    kinds = tuple(kind for kind in DIMS if kind not in _SHOWN)
    numbers, means, about = measured(given, _raw(kinds))
    return Outcome(
        numbers, _compared(means), about, lambda path: draw_panels(means, list(kinds), "error", "error", path)
    )
