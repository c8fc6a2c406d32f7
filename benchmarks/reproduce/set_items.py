"""Items on data sets: forests, arcing and boosting on Breiman's sets, Tomasi's F, the sets of Randomer forests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from breiman_reference import TABLE_2
from methods import FORESTS, TARGET, forest_errors
from outcome import Given, NotPossibleError, Outcome, figure, judged, mean_and_error, save

import bigforest

# Of the text: a tenth of the rows is the test set; of sets that are drawn there are 300 rows and 3,000.
_HELD_OUT = 10
_DRAWN_ROWS, _DRAWN_TEST, _DRAWN_FEATURES = 300, 3000, 20
SETS_OF_TOMASI = ("glass", "sonar", "vowel", "ionosphere", "vehicle", "ecoli", "twonorm", "ringnorm")
# Sets with more rows are not among those of Figure 4, so that a run takes minutes.
_MOST_ROWS = 1000
_SET_DRAWS, _SET_TREES = 5, 200


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


class Draw(NamedTuple):
    """A set, or a distribution, and the number of a draw of its rows."""

    given: Given
    name: str
    draw: int

    @property
    def seed(self) -> int:
        """Of the draw and of the forests."""
        return self.given.seed_of(self.name, self.draw)

    @property
    def told(self) -> dict[str, Any]:
        """What is said of each of its results."""
        return {"set": self.name, "draw": self.draw}

    def parts(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows to train on, and those of the test."""
        random = np.random.default_rng(self.seed)
        file = TABLE_2[self.name].file
        if file is None:
            return drawn_set(self.name, _DRAWN_ROWS, random), drawn_set(self.name, _DRAWN_TEST, random)
        whole = self.given.table(file)
        order = random.permutation(whole.height)
        cut = whole.height // _HELD_OUT
        return whole[order[cut:]], whole[order[:cut]]

    def train(self, frame: pl.DataFrame, **options: Any) -> Any:
        """A forest on one thread with these options, its leaves not shrunk."""
        return bigforest.train(frame, TARGET, task="classification", seed=self.seed, shrink="off", threads=1, **options)


def _draws(given: Given, names: Iterable[str], draws: int) -> list[Draw]:
    """All draws of these sets. Raises NotPossibleError before any is measured."""
    names = list(names)
    for name in names:
        file = TABLE_2[name].file
        if file is not None:
            given.table(file)
    return [Draw(given, name, draw) for name in names for draw in range(draws)]


def error_of(forest: Any, test: pl.DataFrame) -> float:
    """The share of the rows that are answered wrongly, in percent."""
    return 100.0 * (1.0 - float(forest.score(test)))


def breiman_2001(given: Given) -> Outcome:
    """Forest-RI with one feature per node, the better of two numbers of features, AdaBoost, and one tree."""
    draws, trees, boosted = given.draws or 100, given.trees or 100, given.trees or 50
    rows = _flat(given.each(partial(_forest_ri, trees, boosted), _draws(given, TABLE_2, draws)))
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


def _forest_ri(trees: int, boosted: int, own: Draw) -> list[dict[str, Any]]:
    train, test = own.parts()
    more = int(math.log2(train.width - 1) + 1)
    forests = {count: own.train(train, trees=trees, vote="hard", mtry=count) for count in {1, more}}
    best = min(forests, key=lambda count: (forests[count].oob.error, count))
    errors = {
        "AdaBoost": error_of(own.train(train, sampling="adaboost", trees=boosted, mtry="all"), test),
        "selection": error_of(forests[best], test),
        "F = 1": error_of(forests[1], test),
        "one tree": error_of(own.train(train, family="tree"), test),
    }
    return [own.told | {"method": method, "error": error} for method, error in errors.items()]


def arcing(given: Given) -> Outcome:
    """Bagging, arc-x4 and AdaBoost of whole trees with all features (Breiman 1998), test errors in percent."""
    draws, trees = given.draws or 100, given.trees or 50
    rows = _flat(given.each(partial(_arced, trees), _draws(given, TABLE_2, draws)))
    known = [{"set": name, "method": "AdaBoost", "reference": own.adaboost} for name, own in TABLE_2.items()]
    about = (
        f"{draws} draws, seed {given.seed}; {trees} trees with all features; test errors in percent. The reference, of "
        "Breiman 2001 for AdaBoost, is recalled; the table of Breiman 1998 was not at hand."
    )
    return _of_sets(rows, known, about)


def _arced(trees: int, own: Draw) -> list[dict[str, Any]]:
    train, test = own.parts()
    ways = {"bagging": "uniform", "arc-x4": "arc-x4", "AdaBoost": "adaboost"}
    return [
        own.told
        | {
            "method": method,
            "error": error_of(own.train(train, sampling=sampling, trees=trees, mtry="all", vote="hard"), test),
        }
        for method, sampling in ways.items()
    ]


def _flat(parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for part in parts for row in part]


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
    draws, trees = given.draws or 40, given.trees or 100
    rows = _flat(given.each(partial(_by_features, trees), _draws(given, SETS_OF_TOMASI, draws)))
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


def _by_features(trees: int, own: Draw) -> list[dict[str, Any]]:
    train, test = own.parts()
    rows = []
    for count in (1, int(math.log2(train.width - 1) + 1), train.width - 1):
        forest = own.train(train, vote="hard", trees=trees, mtry=count)
        told = forest.explain(train, parts="strength")["strength"].row(-1, named=True)  # of all trees
        error, outside = error_of(forest, test), 100.0 * forest.oob.error
        rows.append(
            own.told
            | {"F": count, "test": error, "out_of_bag": outside, "off": outside - error}
            | {"strength": told["strength"], "correlation": told["correlation"]}
        )
    return rows


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
    folder = given.folder("uci")
    paths = sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_size, reverse=True)
    official = _official_rows(folder)
    sizes = {path: pl.scan_parquet(path).select(pl.len()).collect().item() for path in paths}
    wanted = [
        _Set(given, path, draw, part, rows)
        for path in paths
        for part, rows in _parts_of(sizes[path], official.get(path.stem)).items()
        if rows <= _MOST_ROWS
        for draw in range(given.draws or _SET_DRAWS)
    ]
    return pl.DataFrame(_flat(given.each(_set_errors, wanted)))


class _Set(NamedTuple):
    """The first rows of a set, which part these are, and the number of a seed."""

    given: Given
    path: Path
    draw: int
    part: str
    rows: int


def _official_rows(folder: Path) -> dict[str, int]:
    """Rows of the official training part, which come first, of the sets that have one."""
    index = folder / "index.csv"
    if not index.is_file():
        raise NotPossibleError(f"{index} is not there; it says which rows are the official training part")
    known = pl.read_csv(index).with_columns(pl.col("n_train_official").cast(pl.Int64, strict=False))
    return dict(known.select("name", "n_train_official").drop_nulls().rows())


def _parts_of(rows: int, official: int | None) -> dict[str, int]:
    """The parts of a set that forests are grown on: the draft has the official training part, where there is one."""
    return {"draft": official or rows} | ({"all": rows} if official else {})


def _set_errors(own: _Set) -> list[dict[str, Any]]:
    given, frame = own.given, pl.read_parquet(own.path)[: own.rows]
    drawn = {"trees": given.trees or _SET_TREES, "seed": given.seed_of(own.path.stem, own.draw)}
    about = {"set": own.path.stem, "part": own.part, "rows": own.rows, "features": frame.width - 1, "draw": own.draw}
    found = {method: forest_errors(method, frame, drawn) for method in FORESTS}
    return [
        about | {"method": method, "error": errors["error"], "seconds": errors["seconds"]}
        for method, errors in found.items()
    ]


def figure_4(given: Given, picture: str) -> Outcome:
    """Randomer forests on data sets of at most 1,000 rows."""
    draws, trees = given.draws or _SET_DRAWS, given.trees or _SET_TREES
    measured = _measured_sets(given)
    numbers = measured.filter(part="draft")
    forest_error = numbers.filter(method="RF").select("set", "draw", base=pl.col("error"))
    paired = numbers.join(forest_error, on=["set", "draw"]).with_columns(less=pl.col("error") - pl.col("base"))
    by_set = paired.group_by("set", "method", maintain_order=True).agg(pl.col("less", "error", "seconds").mean())
    found = mean_and_error(by_set, ["method"], "less").with_columns(
        reference=pl.when(pl.col("method") != "RF").then(0.0)
    )
    means = by_set.group_by("method", maintain_order=True).agg(pl.col("error", "seconds").mean())
    found = judged(found).join(means.with_columns(pl.all().exclude("method").round(4)), on="method")
    whole = measured.filter(pl.col("part") == "all")
    whole = pl.concat([whole, numbers.join(whole, on="set", how="anti")])
    all_rows = whole.group_by("method").agg(pl.col("error").mean().round(4).alias("error_all_rows"))
    found = found.join(all_rows, on="method", how="left", maintain_order="left")
    about = (
        f"{by_set['set'].n_unique()} sets of at most {_MOST_ROWS} rows, {draws} seed(s) from {given.seed}, {trees} "
        "trees. Ours is the mean of the paired differences to RF, over sets; the reference is no difference. Of sets "
        "with an official training part it is that part, as in the draft; the last column is of all rows."
    )
    draw_it = _ellipses if picture == "a" else _differences
    return Outcome(measured, found, about, lambda path: draw_it(numbers, path))


def _ellipses(numbers: pl.DataFrame, path: Path) -> None:
    """Mean error against mean seconds; ellipses of 0.1 standard deviation over the sets and seeds."""
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
