"""Items of Ho 1995 on MNIST: Table 1, Figures 1 and 2, what they leave open; and the picture of rotation forests."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from ho_reference import TABLE_1, TRIAL
from ho_report import draw_figure, draw_long
from ho_runs import FEATURES, FIGURE_TREES, Options, Run, make_features, measure_forest, measure_single
from outcome import Given, Outcome, figure, judged, mean_and_error, save
from shapes import METHODS, TEST_ROWS, draw
from shapes import Run as Drawn

import bigforest

_EPOCHS = 100
_TEST_ROWS = 10_000
# The paper does not say how many passes a perceptron makes.
_PASSES = (1, 3, 10, 30, 100, 300)
_MANY_TREES, _MANY_PASSES, _MANY_STEPS = 500, 10, (1, 10, 40, 100, 200, 300, 400, 500)
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
        if value == "accuracy":
            means = means.with_columns(standard_error=_with_test_rows())
        parts.append(means.with_columns(pl.lit(value).alias("value"), pl.Series("reference", known, pl.Float64)))
    about = (
        f"{draws} seeds from {given.seed}, at most {_EPOCHS} passes of a perceptron; MNIST, where the paper has NIST, "
        "so that numbers are expected to differ. A seed draws the order of the rows; trees of CAP do not depend on it. "
        f"Standard errors of accuracy are also those of {_TEST_ROWS} test rows."
    )
    compared = judged(pl.concat(parts))
    return Outcome(numbers, compared, about, lambda path: _bars(compared, path))


def _with_test_rows() -> pl.Expr:
    """The standard error of an accuracy in percent by seeds and by the rows it is counted on."""
    share = pl.col("ours") / 100.0
    return (pl.col("standard_error") ** 2 + 1e4 * share * (1.0 - share) / _TEST_ROWS).sqrt()


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
    draws, trees = given.draws or 5, given.trees or FIGURE_TREES[method]
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
        f"{draws} seeds from {given.seed}, {trees} trees, on MNIST where the paper has NIST; the paper prints curves "
        "alone. The reference is a plain numpy program of one seed."
    )
    mean_curves = numbers.group_by(
        "run", "method", "features", "subspace", "rows", "ties", "trees", maintain_order=True
    ).agg(pl.col("accuracy").mean())
    return Outcome(numbers, compared, about, partial(draw_figure, mean_curves, method))


def passes(given: Given) -> Outcome:
    """Size and accuracy of single perceptron trees against the most passes that a perceptron makes."""
    draws = given.draws or 5
    found = []
    with TemporaryDirectory() as folder:
        _features(given, Path(folder))
        for place in range(draws):
            for epochs in _PASSES:
                options = Options(epochs, given.seed_of("ho-passes", place), 2, "3GB")
                found += [
                    measure_single("PER", features, Path(folder), options).with_columns(
                        draw=pl.lit(place), passes=pl.lit(epochs)
                    )
                    for features in FEATURES
                ]
    numbers = pl.concat(found).with_columns(accuracy=100.0 * pl.col("accuracy"))
    compared = pl.concat(
        mean_and_error(numbers, ["features", "passes"], value).with_columns(
            value=pl.lit(value),
            reference=pl.col("features").replace_strict(
                {features: getattr(TABLE_1["PER", features], value) for features in FEATURES},
                return_dtype=pl.Float64,
            ),
        )
        for value in ("accuracy", "leaves")
    )
    about = f"{draws} seeds from {given.seed}, each an order of the rows; MNIST, where the paper has NIST."
    compared = judged(compared)
    return Outcome(numbers, compared, about, lambda path: _curves_of_passes(compared, path))


def _curves_of_passes(compared: pl.DataFrame, path: Path) -> None:
    drawn, [axes] = figure(1, 2)
    for axis, value in zip(axes, ("accuracy", "leaves"), strict=True):
        for place, (features, own) in enumerate(compared.filter(value=value).group_by("features", maintain_order=True)):
            axis.errorbar(own["passes"], own["ours"], own["standard_error"], marker="o", label=features[0])
            axis.axhline(own["reference"][0], color=f"C{place}", linestyle=":", label=f"{features[0]}, paper (NIST)")
        title = "test accuracy, %" if value == "accuracy" else "leaves"
        axis.set(title=title, xlabel="passes at most", xscale="log", yscale="linear" if value == "accuracy" else "log")
        axis.set_xticks(_PASSES, [str(epochs) for epochs in _PASSES])
        axis.minorticks_off()
    axes[0].legend(fontsize=7)
    save(drawn, path)


def many_trees(given: Given) -> Outcome:
    """Accuracy up to 500 trees: subspaces of central axes and of perceptrons beside axis and sparse-oblique forests."""
    trees = given.trees or _MANY_TREES
    wanted = [
        Run("CAP", "f1", 100, trees),
        Run("CAP", "f2", 100, trees),
        Run("axis", "f1", 0, trees),
        Run("axis", "f2", 0, trees),
        Run("sparse-oblique", "f1", 0, trees),
        Run("sparse-oblique", "f2", 0, trees),
        Run("PER", "f1", 100, trees),
    ]
    with TemporaryDirectory() as folder:
        _features(given, Path(folder))
        options = Options(_MANY_PASSES, given.seed_of("ho-many"), 2, "3GB")
        numbers = pl.concat(measure_forest(run, Path(folder), options) for run in wanted).with_columns(draw=pl.lit(0))
    steps = [count for count in _MANY_STEPS if count <= trees]
    own = numbers.filter(pl.col("trees").is_in(steps), rows="test", ties="lowest")
    compared = judged(
        mean_and_error(own, ["run", "trees"], "accuracy").with_columns(reference=pl.lit(None, pl.Float64))
    )
    about = (
        f"One seed from {given.seed}, {trees} trees; perceptrons of at most {_MANY_PASSES} passes; ties to the lowest "
        "class. The paper ends before."
    )
    return Outcome(numbers, compared, about, partial(draw_long, numbers))


def _features(given: Given, folder: Path) -> None:
    given.folder("mnist")
    make_features(given.data, folder)


def rotation_picture(given: Given) -> Outcome:
    """Decision surfaces on two circles, a sine wave and a diagonal line; accuracy with columns of junk beside them."""
    draws, trees = given.draws or 5, given.trees or 64
    rows, kept, shown = [], {}, pl.DataFrame()
    with TemporaryDirectory() as folder:
        for junk in _JUNK:
            for place in range(draws):
                seed = given.seed_of("rotation", junk, place)
                drawn = {"dims": 2 + junk, "seed": seed, "truth": True}
                frame = bigforest.simulate("shapes", rows=2000, **drawn).drop("truth")
                test = bigforest.simulate("shapes", rows=TEST_ROWS, sample=1, **drawn)
                shown = shown if shown.width else frame
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
        draw(shown, kept, told, 0, picture)
        content = picture.read_bytes()
    return Outcome(numbers, compared, about, lambda path: _put(content, path))


def _copied(forest: bigforest.Forest, home: Path) -> Path:
    forest.write(home / "kept.forest", overwrite=True)
    return home / "kept.forest"


def _put(content: bytes, path: Path) -> None:
    path.write_bytes(content)
