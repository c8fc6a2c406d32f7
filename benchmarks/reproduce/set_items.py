"""Items on data sets: forests, arcing and boosting on Breiman's sets, Tomasi's F, the sets of Randomer forests."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from breiman_reference import TABLE_2
from methods import FORESTS, TARGET
from outcome import Given, Outcome, figure, judged, mean_and_error, save

import bigforest

# Of the text: a tenth of the rows is the test set; of sets that are drawn there are 300 rows and 3,000.
_HELD_OUT = 10
_DRAWN_ROWS, _DRAWN_TEST, _DRAWN_FEATURES = 300, 3000, 20
_SETS_OF_TOMASI = ("glass", "sonar", "vowel", "ionosphere", "vehicle", "ecoli", "twonorm", "ringnorm")
# Sets with more rows are not among those of Figure 4, so that a run takes minutes.
_MOST_ROWS = 1000


def drawn_set(name: str, rows: int, random: np.random.Generator) -> pl.DataFrame:
    """Rows of twonorm, threenorm or ringnorm (Breiman 1998): two classes, 20 features."""
    second = random.integers(0, 2, rows)
    values = random.normal(size=(rows, _DRAWN_FEATURES))
    a = 2.0 / math.sqrt(_DRAWN_FEATURES)
    if name == "twonorm":
        values += np.where(second, -a, a)[:, None]
    elif name == "threenorm":
        signs = np.where(np.arange(_DRAWN_FEATURES) % 2, -a, a)
        sides = np.where(random.integers(0, 2, rows), a, -a)[:, None]
        values += np.where(second[:, None], signs, sides)
    else:
        values = np.where(second[:, None], values + a / 2, values * 2.0)
    return pl.DataFrame(values, schema=[f"x{k}" for k in range(_DRAWN_FEATURES)]).with_columns(
        pl.Series(TARGET, second)
    )


def splits(
    given: Given, names: tuple[str, ...], draws: int
) -> Iterator[tuple[str, int, int, pl.DataFrame, pl.DataFrame]]:
    """Name of the set, number and seed of the draw, the rows to train on, and those of the test."""
    for name in names:
        file = TABLE_2[name].file
        whole = None if file is None else given.table(file)
        for draw in range(draws):
            seed = given.seed_of(name, draw)
            random = np.random.default_rng(seed)
            if whole is None:
                yield name, draw, seed, drawn_set(name, _DRAWN_ROWS, random), drawn_set(name, _DRAWN_TEST, random)
                continue
            order = random.permutation(whole.height)
            cut = whole.height // _HELD_OUT
            yield name, draw, seed, whole[order[cut:]], whole[order[:cut]]


def error_of(forest: Any, test: pl.DataFrame) -> float:
    """The share of the rows that are answered wrongly, in percent."""
    return 100.0 * (1.0 - float(forest.score(test)))


def breiman_2001(given: Given) -> Outcome:
    """Forest-RI with one feature per node, the better of two numbers of features, AdaBoost, and one tree."""
    draws, trees, boosted = given.draws or 100, given.trees or 100, given.trees or 50
    rows: list[dict[str, Any]] = []
    for name, draw, seed, train, test in splits(given, tuple(TABLE_2), draws):
        more = int(math.log2(train.width - 1) + 1)
        same: dict[str, Any] = {"task": "classification", "seed": seed, "shrink": "off"}
        forests = {
            count: bigforest.train(
                train, TARGET, task="classification", trees=trees, seed=seed, vote="hard", mtry=count
            )
            for count in {1, more}
        }
        best = min(forests, key=lambda count: (forests[count].oob.error, count))
        errors = {
            "AdaBoost": error_of(
                bigforest.train(train, TARGET, sampling="adaboost", trees=boosted, mtry="all", **same), test
            ),
            "selection": error_of(forests[best], test),
            "F = 1": error_of(forests[1], test),
            "one tree": error_of(bigforest.train(train, TARGET, family="tree", **same), test),
        }
        rows += [{"set": name, "draw": draw, "method": method, "error": error} for method, error in errors.items()]
    known = [
        {"set": name, "method": method, "reference": value}
        for name, own in TABLE_2.items()
        for method, value in zip(("AdaBoost", "selection", "F = 1", "one tree"), own[1:], strict=True)
    ]
    about = (
        f"{draws} draws, seed {given.seed}; {trees} trees, AdaBoost {boosted}; test errors in percent. The reference "
        "is recalled, its single tree is pruned, and letters, satellite and zip codes are not among the sets."
    )
    return _of_sets(rows, known, about)


def arcing(given: Given) -> Outcome:
    """Bagging, arc-x4 and AdaBoost of whole trees with all features (Breiman 1998), test errors in percent."""
    draws, trees = given.draws or 100, given.trees or 50
    ways = {"bagging": "uniform", "arc-x4": "arc-x4", "AdaBoost": "adaboost"}
    rows: list[dict[str, Any]] = []
    for name, draw, seed, train, test in splits(given, tuple(TABLE_2), draws):
        for method, sampling in ways.items():
            same = {"task": "classification", "seed": seed, "mtry": "all", "vote": "hard", "shrink": "off"}
            forest = bigforest.train(train, TARGET, sampling=sampling, trees=trees, **same)
            rows.append({"set": name, "draw": draw, "method": method, "error": error_of(forest, test)})
    known = [{"set": name, "method": "AdaBoost", "reference": own.adaboost} for name, own in TABLE_2.items()]
    about = (
        f"{draws} draws, seed {given.seed}; {trees} trees with all features; test errors in percent. The reference, of "
        "Breiman 2001 for AdaBoost, is recalled; the table of Breiman 1998 was not at hand."
    )
    return _of_sets(rows, known, about)


def _of_sets(rows: list[dict[str, Any]], known: list[dict[str, Any]], about: str) -> Outcome:
    numbers = pl.DataFrame(rows)
    means = mean_and_error(numbers, ["set", "method"])
    reference = pl.DataFrame(known, schema={"set": pl.String, "method": pl.String, "reference": pl.Float64})
    found = judged(means.join(reference, on=["set", "method"], how="left", maintain_order="left"))
    return Outcome(numbers, found, about, lambda path: _bars(found, path))


def _bars(found: pl.DataFrame, path: Path) -> None:
    """Errors of the methods by set; circles are the reference."""
    names, methods = found["set"].unique(maintain_order=True), found["method"].unique(maintain_order=True)
    drawn, [[axis]] = figure(1, 1, width=10.0, height=4.0)
    for place, method in enumerate(methods):
        own = found.filter(method=method)
        at = np.arange(len(names)) + (place - (len(methods) - 1) / 2) * 0.8 / len(methods)
        axis.bar(at, own["ours"], 0.7 / len(methods), yerr=own["standard_error"], label=method)
        axis.plot(at, own["reference"].cast(pl.Float64).to_numpy(), "o", mfc="none", color="black", markersize=4)
    axis.set_xticks(np.arange(len(names)), names.to_list(), rotation=45, ha="right")
    axis.set(ylabel="test error, %")
    axis.legend(fontsize=8)
    save(drawn, path)


def tomasi(given: Given) -> Outcome:
    """One feature per node against several: error out of bag against test error, strength and correlation."""
    draws, trees = given.draws or 10, given.trees or 100
    rows: list[dict[str, Any]] = []
    for name, draw, seed, train, test in splits(given, _SETS_OF_TOMASI, draws):
        for count in (1, int(math.log2(train.width - 1) + 1), train.width - 1):
            same = {
                "task": "classification",
                "vote": "hard",
                "trees": trees,
                "seed": seed,
                "mtry": count,
                "shrink": "off",
            }
            forest = bigforest.train(train, TARGET, **same)
            told = forest.explain(train, parts="strength")["strength"].row(0, named=True)
            error, outside = error_of(forest, test), 100.0 * forest.oob.error
            rows.append(
                {"set": name, "F": count, "draw": draw, "test": error, "out_of_bag": outside, "off": outside - error}
                | {"strength": told["strength"], "correlation": told["correlation"]}
            )
    numbers = pl.DataFrame(rows)
    off = mean_and_error(numbers, ["set", "F"], "off").with_columns(reference=pl.lit(0.0))
    more = numbers.group_by("set", "F", maintain_order=True).agg(
        pl.col("test", "out_of_bag").mean().round(2), pl.col("strength", "correlation").mean().round(3)
    )
    found = judged(off).join(more, on=["set", "F"], how="left", maintain_order="left")
    about = (
        f"{draws} draws, seed {given.seed}, {trees} trees. F is the number of features drawn in a node. Ours is the "
        "error out of bag less that of the test set, in percent of the rows; the reference is that they are equal."
    )
    return Outcome(numbers, found, about, lambda path: _tomasi_picture(more, path))


def _tomasi_picture(more: pl.DataFrame, path: Path) -> None:
    drawn, [[errors, trees]] = figure(1, 2, width=4.4, height=3.8)
    top = 1.05 * float(more.select("test", "out_of_bag").to_numpy().max())
    errors.plot([0, top], [0, top], color="gray", linewidth=0.8)
    for name, own in more.group_by("set", maintain_order=True):
        errors.plot(own["test"], own["out_of_bag"], "o-", markersize=4, linewidth=0.8, label=name[0])
        trees.plot(own["correlation"], own["strength"], "o-", markersize=4, linewidth=0.8)
    errors.set(xlabel="test error, %", ylabel="error out of bag, %")
    trees.set(xlabel="correlation", ylabel="strength; larger F to the right")
    errors.legend(fontsize=7)
    save(drawn, path)


@cache
def _measured_sets(given: Given) -> pl.DataFrame:
    """Out-of-bag errors and seconds of processor of each method on sets of at most 1,000 rows."""
    draws, trees = given.draws or 1, given.trees or 500
    paths = sorted(given.folder("uci").glob("*.parquet"), key=lambda path: path.stat().st_size)
    rows: list[dict[str, Any]] = []
    for path in paths:
        frame = pl.read_parquet(path)
        if frame.height > _MOST_ROWS:
            continue
        for draw in range(draws):
            seed = given.seed_of(path.stem, draw)
            for method, options in FORESTS.items():
                begin = time.process_time()
                drawn = {"vote": "hard", "shrink": "off", "threads": 1, "trees": trees, "seed": seed}
                forest = bigforest.train(frame, TARGET, **drawn, **options)
                about = {"set": path.stem, "rows": frame.height, "features": frame.width - 1, "draw": draw}
                seconds = time.process_time() - begin
                rows.append(about | {"method": method, "error": forest.oob.error, "seconds": seconds})
    return pl.DataFrame(rows)


def figure_4(given: Given, picture: str) -> Outcome:
    """Randomer forests on data sets of at most 1,000 rows."""
    draws, trees = given.draws or 1, given.trees or 500
    numbers = _measured_sets(given)
    forest_error = numbers.filter(method="RF").select("set", "draw", base=pl.col("error"))
    paired = numbers.join(forest_error, on=["set", "draw"]).with_columns(less=pl.col("error") - pl.col("base"))
    by_set = paired.group_by("set", "method", maintain_order=True).agg(pl.col("less", "error", "seconds").mean())
    found = mean_and_error(by_set, ["method"], "less").with_columns(
        reference=pl.when(pl.col("method") != "RF").then(0.0)
    )
    means = by_set.group_by("method", maintain_order=True).agg(pl.col("error", "seconds").mean())
    found = judged(found).join(means.with_columns(pl.all().exclude("method").round(4)), on="method")
    about = (
        f"{by_set['set'].n_unique()} sets of at most {_MOST_ROWS} rows, {draws} draw(s), seed {given.seed}, {trees} "
        "trees. Ours is the mean of the paired differences to RF, over sets; the reference is no difference."
    )
    draw_it = _ellipses if picture == "a" else _differences
    return Outcome(numbers, found, about, lambda path: draw_it(numbers, path))


def _ellipses(numbers: pl.DataFrame, path: Path) -> None:
    """Mean error against mean seconds; ellipses of 0.1 standard deviation over the sets."""
    from matplotlib.patches import Ellipse

    drawn, [[axis]] = figure(1, 1, width=5.5, height=4.2)
    for place, method in enumerate(FORESTS):
        own = numbers.filter(method=method).select("seconds", "error")
        (x, y), (wide, high) = own.mean().row(0), own.std().row(0)
        axis.add_patch(Ellipse((x, y), 0.2 * wide, 0.2 * high, color=f"C{place}", alpha=0.35))
        axis.plot([x], [y], "o", color=f"C{place}", markersize=4, label=method)
    axis.set(xlabel="mean CPU seconds", ylabel="mean out-of-bag error")
    axis.legend(fontsize=8)
    save(drawn, path)


def _differences(numbers: pl.DataFrame, path: Path) -> None:
    """Error of each method against that of RF, by set; colour: features, area: rows."""
    wide = numbers.group_by("set", "rows", "features", "method", maintain_order=True).agg(pl.col("error").mean())
    wide = wide.pivot("method", index=["set", "rows", "features"], values="error")
    others = [method for method in FORESTS if method != "RF"]
    drawn, [axes] = figure(1, len(others))
    for axis, method in zip(axes, others, strict=True):
        shown = axis.scatter(
            wide["RF"], wide[method], s=wide["rows"].to_numpy() / 10, c=np.log10(wide["features"].to_numpy()), alpha=0.7
        )
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8)
        axis.set(title=method, xlabel="error of RF", xlim=(0, 0.8), ylim=(0, 0.8))
    axes[0].set_ylabel("error")
    drawn.colorbar(shown, ax=axes[-1], label="log10 of features")
    save(drawn, path)
