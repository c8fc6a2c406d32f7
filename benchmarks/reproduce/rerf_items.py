"""Items of Randomer forests: errors, times and transformations of simulations, and errors against trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from cells import DIMS, READINGS, Options, Setting, averages, measure_reading, measure_settings, settings
from figures import CURVES, draw_curves, draw_panels, draw_transforms
from methods import FORESTS
from outcome import Given, Outcome, figure, judged, mean_and_error, save
from reference import REFERENCE, TRANSFORMED

import bigforest

_SHOWN = ("trunk", "parity", "multimodal")
# Draws up to this p, and of larger p, which take most of the time.
_MANY = 126
_DRAWS, _FEW_DRAWS = 40, 10
_REFERENCE_DRAWS = 10
_SCATTERED_ROWS = 1000
# Trees of the many transformed settings, fewer than in the text.
_TURNED_TREES = 500


def measured(given: Given, wanted: list[Setting]) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """A row per draw and method of these settings, their means, and what to say; each setting has seeds of its own."""
    numbers = pl.concat(measure_settings(given, [(one, _options(given, one)) for one in wanted]))
    trees = f"{given.trees} trees" if given.trees else "500 to 1,500 trees as in the text"
    draws = f"{given.draws} draws" if given.draws else f"{_DRAWS} draws ({_FEW_DRAWS} of p above {_MANY})"
    about = (
        f"{draws} of 100 rows, seed {given.seed}, {trees}, out-of-bag error by majority vote. A reference number is a "
        f"mean of {_REFERENCE_DRAWS} draws."
    )
    return numbers, averages(numbers), about


def _options(given: Given, setting: Setting) -> Options:
    draws = given.draws or (_DRAWS if setting.dims <= _MANY else _FEW_DRAWS)
    return Options(draws, given.trees, given.seed_of(setting.name()))


def _compared(means: pl.DataFrame, value: str = "error") -> pl.DataFrame:
    """Means beside the reference errors."""
    known = pl.DataFrame(
        [
            {"kind": kind, "dims": dims, "transform": transform, "method": method, "reference": error}
            for (kind, dims, transform), errors in (REFERENCE | TRANSFORMED).items()
            for method, error in errors.items()
        ]
    )
    own = means.filter(pl.col("method").is_in([*FORESTS, "Fisherfaces"]))
    own = own.select("kind", "dims", "transform", "method", pl.col(value).alias("ours"), "standard_error", "draws")
    if value != "error":
        return judged(own.with_columns(pl.lit(None, pl.Float64).alias("reference"), standard_error=pl.lit(0.0)))
    keys = ["kind", "dims", "transform", "method"]
    compared = own.join(known, on=keys, how="left", maintain_order="left")
    return judged(compared, _REFERENCE_DRAWS / pl.col("draws"))


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

    return Outcome(numbers, _compared(means, "seconds"), f"{about} Ours are median seconds of one thread.", draw)


def figure_3(given: Given) -> Outcome:
    """Error of rotated, scaled and affinely transformed rows, and with outliers; Fisherfaces beside the forests."""
    turned = [one for one in settings() if one.transform != "raw"]
    sizes = {(one.kind, one.dims) for one in turned}
    wanted = turned + [one for one in settings() if one.transform == "raw" and (one.kind, one.dims) in sizes]
    numbers, means, about = measured(replace(given, trees=given.trees or _TURNED_TREES), wanted)
    return Outcome(numbers, _compared(means), about, lambda path: draw_transforms(means, path))


def figure_a1(given: Given) -> Outcome:
    """Error against the number of trees."""
    wanted = [one for one in settings() if one.transform == "raw" and (one.kind, one.dims) in CURVES]
    numbers, means, about = measured(given, wanted)
    return Outcome(numbers, _compared(means), about, lambda path: draw_curves(numbers, path))


def readings(given: Given) -> Outcome:
    """Two readings of the draft: ceil(p^(2/3)) directions and sqrt p features in a node, or floor(p^(2/3)) of both."""
    draws = given.draws or _DRAWS
    plain, other = READINGS
    known = [one for one in settings() if one.is_known() and one.transform == "raw" and one.dims <= _MANY]
    methods = {one: [name for name in REFERENCE[one.kind, one.dims, one.transform] if name in FORESTS] for one in known}
    first, _, about = measured(given, known)
    read = pl.concat(
        given.each(
            measure_reading, [(one, method, other, _options(given, one)) for one in known for method in methods[one]]
        )
    )
    reference = read.select("kind", "dims", "method", "reference").unique()
    first = first.join(reference, on=["kind", "dims", "method"], maintain_order="left").with_columns(
        reading=pl.lit(plain)
    )
    numbers = pl.concat([first.select(read.columns), read]).sort("kind", "dims", "method", maintain_order=True)
    means = mean_and_error(numbers, ["kind", "dims", "method", "reading", "reference"])
    compared = judged(means.select(pl.all().exclude("reference"), "reference"), _REFERENCE_DRAWS / draws)
    told = ", ".join(
        f"{own.filter(verdict='agrees').height} of {own.height} agree with the reading {name[0]!r}"
        for name, own in compared.group_by("reading", maintain_order=True)
    )
    about = f"{about} p up to {_MANY}. Of the numbers {told}."
    return Outcome(numbers, compared, about, lambda path: _draw_readings(compared, path))


def _draw_readings(compared: pl.DataFrame, path: Path) -> None:
    """Distances from the reference, in standard errors."""
    drawn, [axes] = figure(1, 2, width=4.6, height=4.0)
    for axis, (reading, own) in zip(axes, compared.group_by("reading", maintain_order=True), strict=True):
        for method, some in own.group_by("method", maintain_order=True):
            names = [f"{kind} {dims}" for kind, dims in some.select("kind", "dims").rows()]
            axis.plot(some["distance"].to_numpy(), names, "o", label=method[0], alpha=0.7)
        axis.axvspan(-2, 2, color="0.9")
        axis.set(title=reading[0], xlabel="standard errors from the reference")
        axis.tick_params(axis="y", labelsize=7)
    axes[0].legend(fontsize=7)
    save(drawn, path)


def figure_a2(given: Given) -> Outcome:
    """Error against p on modified Trunk."""
    kinds = tuple(kind for kind in DIMS if kind not in _SHOWN)
    numbers, means, about = measured(given, _raw(kinds))
    return Outcome(
        numbers, _compared(means), about, lambda path: draw_panels(means, list(kinds), "error", "error", path)
    )
