"""Items of Ho 1995 on MNIST: Table 1 and Figures 1 and 2; and the picture of rotation forests."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from ho_reference import TABLE_1, TRIAL
from ho_report import draw_figure
from ho_runs import FIGURE_TREES, Options, Run, make_features, measure_forest, measure_single
from outcome import Given, Outcome, figure, judged, mean_and_error, save
from shapes import METHODS, TEST_ROWS, draw
from shapes import Run as Drawn

import bigforest

_EPOCHS = 100
_JUNK = (0, 2, 8, 32)


def table_1(given: Given) -> Outcome:
    """Accuracy and size of single trees on all features."""
    draws = given.draws or 5
    found = []
    with TemporaryDirectory() as folder:
        _features(given, Path(folder))
        for place in range(draws):
            options = Options(_EPOCHS, given.seed_of("ho-table-1", place), 2, "3GB")
            found += [
                measure_single(method, features, Path(folder), options).with_columns(draw=pl.lit(place))
                for method, features in TABLE_1
            ]
    numbers = pl.concat(found)
    parts = []
    for value, paper in (("accuracy", "accuracy"), ("leaves", "leaves")):
        scaled = numbers.with_columns(pl.col(value) * (100.0 if value == "accuracy" else 1.0))
        known = [getattr(TABLE_1[key], paper) for key in TABLE_1]
        means = mean_and_error(scaled, ["method", "features"], value)
        parts.append(means.with_columns(pl.lit(value).alias("value"), pl.Series("reference", known, pl.Float64)))
    about = (
        f"{draws} seeds from {given.seed}, at most {_EPOCHS} passes of a perceptron; MNIST, where the paper has NIST, "
        "so that numbers are expected to differ. Trees of CAP draw nothing, so that all seeds give the same."
    )
    compared = judged(pl.concat(parts))
    return Outcome(numbers, compared, about, lambda path: _bars(compared, path))


def _bars(compared: pl.DataFrame, path: Path) -> None:
    drawn, [axes] = figure(1, 2)
    for axis, value in zip(axes, ("accuracy", "leaves"), strict=True):
        own = compared.filter(value=value)
        names = [f"{method} {features}" for method, features in own.select("method", "features").rows()]
        axis.bar(names, own["ours"], yerr=own["standard_error"])
        axis.plot(names, own["reference"], "ko", mfc="none", label="paper (NIST)")
        axis.set(title="test accuracy, %" if value == "accuracy" else "leaves")
        axis.legend(fontsize=8)
    axes[0].set_ylim(bottom=80)
    save(drawn, path)


def figure_of(method: str, given: Given) -> Outcome:
    """Accuracy against the number of trees in subspaces of 100 and 200, ties rejected."""
    draws, trees = given.draws or 1, given.trees or FIGURE_TREES[method]
    found = []
    with TemporaryDirectory() as folder:
        _features(given, Path(folder))
        for place in range(draws):
            options = Options(_EPOCHS, given.seed_of("ho-figure", place), 2, "3GB")
            for features in ("f1", "f2"):
                for size in (100, 200):
                    run = Run(method, features, size, trees)
                    found.append(measure_forest(run, Path(folder), options).with_columns(draw=pl.lit(place)))
    numbers = pl.concat(found)
    own = numbers.filter(rows="test", ties="reject")
    means = mean_and_error(own, ["run", "trees"], "accuracy")
    trial = pl.DataFrame(
        [{"run": "CAP-f1-100", "trees": count, "reference": share} for count, share in TRIAL["reject"].items()],
        schema={"run": pl.String, "trees": pl.UInt32, "reference": pl.Float64},
    )
    steps = [count for count in (1, 2, 3, 4, 5, 10, 20, 40) if count <= trees]
    compared = judged(
        means.filter(pl.col("trees").is_in(steps)).join(trial, on=["run", "trees"], how="left", maintain_order="left")
    )
    about = (
        f"{draws} seed(s) from {given.seed}, {trees} trees, on MNIST where the paper has NIST; the paper prints curves "
        "alone. The reference is a plain numpy program of one seed."
    )
    mean_curves = numbers.group_by(
        "run", "method", "features", "subspace", "rows", "ties", "trees", maintain_order=True
    ).agg(pl.col("accuracy").mean())
    return Outcome(numbers, compared, about, partial(draw_figure, mean_curves, method))


def _features(given: Given, folder: Path) -> None:
    given.folder("mnist")
    make_features(given.data, folder)


def rotation_picture(given: Given) -> Outcome:
    """Decision surfaces on two circles, a sine wave and a diagonal line; accuracy with columns of junk beside them."""
    draws, trees = given.draws or 5, given.trees or 64
    rows, kept = [], {}
    with TemporaryDirectory() as folder:
        for junk in _JUNK:
            for place in range(draws):
                seed = given.seed_of("rotation", junk, place)
                drawn = {"dims": 2 + junk, "seed": seed, "truth": True}
                frame = bigforest.simulate("shapes", rows=2000, **drawn).drop("truth")
                test = bigforest.simulate("shapes", rows=TEST_ROWS, sample=1, **drawn)
                for method, train in METHODS.items():
                    home = Path(folder) / f"{junk}-{place}"
                    home.mkdir(exist_ok=True)
                    forest = train(Drawn(frame, seed, trees, home))
                    right = forest.predict(test)["prediction"] == test["truth"]
                    rows.append({"junk": junk, "draw": place, "method": method, "accuracy": right.mean()})
                    if not junk and not place:
                        kept[method] = (
                            forest.shrink(0.0) if forest.is_temporary else bigforest.read_forest(_copied(forest, home))
                        )
        numbers = pl.DataFrame(rows)
        means = mean_and_error(numbers, ["junk", "method"], "accuracy")
        compared = judged(means.with_columns(pl.lit(None, pl.Float64).alias("reference")))
        about = f"2,000 rows, 10% of the labels wrong, {trees} trees, {draws} draws, seed {given.seed}."
        told = [row for row in rows if row["junk"] == 0 and row["draw"] == 0]
        picture = Path(folder) / "picture.svg"
        draw(kept, told, 0, picture)
        content = picture.read_bytes()
    return Outcome(numbers, compared, about, lambda path: _put(content, path))


def _copied(forest: bigforest.Forest, home: Path) -> Path:
    forest.write(home / "kept.forest", overwrite=True)
    return home / "kept.forest"


def _put(content: bytes, path: Path) -> None:
    path.write_bytes(content)
