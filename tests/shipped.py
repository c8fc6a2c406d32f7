"""What an installed wheel with kernels must do: all that is done with each kind of forest, without compiling anything.

    NUMBA_CACHE_DIR=EMPTY python tests/shipped.py [KIND ...]

Three processes take the kinds in turn: they often wait for files. Each prints the kernels that were compiled while it
did something, by itself or by another one. The exit status is 1 if there are any, or if a kernel was not called at all.
Not a test by itself: run it with a wheel that `python -m bigforest.compiling.ship` made, in a fresh environment, as CI
does.
Its tables and options are others than those by which kernels are chosen for a wheel (bigforest/compiling/ship.py).
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

import bigforest
import bigforest.kernels
from bigforest.compiling.warm_up import KINDS
from bigforest.encode.values import compile_pieces, compile_presort
from bigforest.events import silent
from bigforest.explain.explain import SECTIONS
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.kernels.compiler import jit
from bigforest.kernels.compiler.cache import folders

_ROWS = 1000
_PASSES = GrowPlan(
    workers=2, limits=MemoryLimits(rows=300, collects=1000, cells=1 << 14, room=1 << 20), group=2, memory=0
)
_BESIDE = ["weight", "group"]
# Options that are tried together hide nothing of each other, and are for the same trees.
_BAGGED: list[dict[str, Any]] = [
    {"min_leaf": 3, "max_bins": 64, "max_depth": 4, "shrink": "off"},
    {"bootstrap": False, "ccp_alpha": 0.01},
    {"replace": False, "sample_fraction": 0.6, "keep_votes": True},
    {"calibration": 0.3, "group": "group"},
    {"weight": "weight", "keep_votes": True},
]
_CLASSES: list[dict[str, Any]] = [
    *({"impurity": "entropy", "sampling": "stratified"}, {"impurity": "error", "sampling": "balanced", "vote": "hard"}),
    *({"sampling": "arc-x4"}, {"sampling": "adaboost"}),
]
_NUMBERS: list[dict[str, Any]] = [{"impurity": "poisson"}, {"impurity": "poisson", "weight": "weight"}]
_FAMILIES: dict[str, list[dict[str, Any]]] = {
    "axis": [{"ranks": True, "constants": "count"}, {"mtry": "all"}],
    "sparse-oblique": [
        *({"projection_kind": name} for name in ("gaussian", "very-sparse")),
        *({"mean_difference": "all", "mean_difference_scope": scope} for scope in ("tree", "node")),
        *({"mean_difference": "vs-largest"}, {"projection_kind": "sporf", "normalize": "zscore"}),
    ],
    "rotation": [{"rotation": "pca", "axes": 3}, {"rotation": "pca-classes"}, {"orthogonal": False}],
    "subspace-cap": [{"subspace": 2}, {"subspace_per": "node"}],
    "subspace-perceptron": [{"subspace": 2}, {"subspace_per": "node"}],
}


def table(mixed: bool, numbers: bool, classes: int) -> pl.DataFrame:
    """Columns of many types and a target, with missing values and categories where `mixed`."""
    draw = np.random.default_rng(3)
    frame = pl.DataFrame(
        {
            "wide": draw.normal(size=_ROWS),
            "single": draw.normal(size=_ROWS).astype(np.float32),
            "small": draw.integers(0, 20, _ROWS),
            "short": draw.integers(0, 900, _ROWS).astype(np.int16),
            "flag": draw.integers(0, 2, _ROWS).astype(bool),
            "day": pl.Series(draw.integers(0, 3000, _ROWS)).cast(pl.Int32).cast(pl.Date),
            "weight": draw.random(_ROWS) + 0.01,
            "group": draw.integers(0, 200, _ROWS),
        }
    )
    if mixed:
        gaps = pl.Series(draw.random(_ROWS) < 0.1)
        names = pl.Series("text", [f"level {number}" for number in draw.integers(0, 40, _ROWS)])
        gapped = {name: pl.when(gaps).then(None).otherwise(pl.col(name)) for name in ("wide", "flag", "day")}
        frame = frame.with_columns(names, **gapped)
    score = frame["small"] + 10 * frame["wide"].fill_null(0.0) + pl.Series(draw.normal(size=_ROWS))
    return frame.with_columns(
        y=score - score.min() if numbers else (score.rank() * classes / (_ROWS + 1)).floor().cast(pl.Int64)
    )


def check(kind: str, folder: Path, done: Callable[[str], None]) -> None:
    """Do everything with forests of this kind, and say what is done."""
    mixed, numbers, own = KINDS[kind]
    bagged = "subspace" not in kind  # with bags and weights
    options = [] if mixed else _FAMILIES[own.get("family", "axis")]
    if bagged:
        options = [*_BAGGED, *(_NUMBERS if numbers else _CLASSES), *options]
    frame = table(mixed, numbers, 0 if numbers else 2)
    for name, columns in {"all": frame, "single": _only(frame, pl.Float32), "bytes": _only(frame, pl.UInt8)}.items():
        for more in ({}, {"weight": "weight"}) if bagged else ({},):
            about = f"{name} {more} "
            grown = train(kind, columns, folder, **more)
            done(about + "train")
            if more and name != "all":  # weights do not change how rows are routed
                continue
            if "splitter" not in own:  # else the forest is used as one of the best splits
                use(grown, columns, folder, name == "all", lambda part, about=about: done(about + part))
            if bagged:
                explained = name == "all" and not more
                refined(kind, columns, folder, explained, lambda part, about=about: done(about + part), **more)
            if name == "all":
                by_passes(kind, columns, folder, **more)
                done(about + "passes")
    if not own:
        beside(frame, numbers, done)
    elif not bagged:
        bits = pl.DataFrame({name: np.arange(64) >> place & 1 for place, name in enumerate("abcdy")})
        bigforest.train(bits, "y", **own, trees=2, listener=silent).predict(bits)
        done("bits")
    if not numbers:
        more_classes = table(mixed, numbers, 5)
        train(kind, more_classes, folder).predict(more_classes)
        by_passes(kind, more_classes, folder)
        done("5 classes")
    for more in options:
        try:
            train(kind, frame, folder, **more).predict(frame)
        except bigforest.ConfigError:  # an option that is not for these trees
            continue
        done(f"{more}")
        by_passes(kind, frame, folder, **more)
        done(f"{more} passes")


def use(
    grown: bigforest.Forest, frame: pl.DataFrame, folder: Path, explained: bool, done: Callable[[str], None]
) -> None:
    """Predict, explain, revise and go on with a forest."""
    numbers = grown.spec.target.task == "regression"
    answer(grown, frame, folder, numbers)
    done("predict")
    if explained:
        explain(grown, frame, numbers, done)
    if not numbers:
        revise(grown, frame, folder)
        done("revise")
    bigforest.train(frame, "y", resume=folder / "forest", trees=6, listener=silent)
    done("add trees")


def refined(
    kind: str, frame: pl.DataFrame, folder: Path, explained: bool, done: Callable[[str], None], **options: Any
) -> None:
    """Train with a boosted stage, predict and explain."""
    grown = train(kind, frame, folder, refine=3, **options)
    for forest in (grown, bigforest.read_forest(folder / "forest")):
        for rows in (frame, frame.head(1)):
            forest.predict(rows)
        forest.predict(frame, memory="5GB")
    done("train and predict with a stage")
    if explained:
        explain(grown, frame, grown.spec.target.task == "regression", done)


def _only(frame: pl.DataFrame, dtype: Any) -> pl.DataFrame:
    """The table with the numbers of one type."""
    numbers = [name for name in ("wide", "small", "short") if name in frame.columns]
    kept = frame.drop("single", "day").with_columns(pl.col(numbers).fill_null(0).cast(pl.Float32))
    if dtype == pl.UInt8:
        kept = kept.with_columns((pl.col(numbers).abs() % 100).floor().cast(dtype))
    return kept


def train(kind: str, frame: pl.DataFrame, folder: Path, **options: Any) -> bigforest.Forest:
    """A forest of this kind by the file of the table."""
    data = folder / "table.parquet"
    frame.write_parquet(data)
    _, numbers, own = KINDS[kind]
    given = {"trees": 4, "refine": "off", **({"keep_targets": True} if numbers else {}), **own, **options}
    beside = [name for name in _BESIDE if name not in options.values()]
    out = folder / "forest"
    return bigforest.train(data, "y", exclude=beside, out=out, overwrite=True, listener=silent, **given)


def by_passes(kind: str, frame: pl.DataFrame, folder: Path, **options: Any) -> None:
    """Train as if the table were larger than memory."""
    with patch("bigforest.grow.forest.choose_grow_plan", lambda *_: _PASSES):
        train(kind, frame, folder, **options)


def answer(grown: bigforest.Forest, frame: pl.DataFrame, folder: Path, numbers: bool) -> None:
    """Answers of a forest at hand and of one from its files, in memory, lazily and into a file."""
    data, out = folder / "table.parquet", folder / "forest"
    asked: list[dict[str, Any]] = [{}, {"trees": [0]}, {"memory": "5GB"}]
    asked += [{"coverage": 0.9}] if grown.config.bootstrap else []
    asked += [{"quantiles": [0.1, 0.9]}, {"coverage": 0.9, "jackknife": True}] if numbers else [{"vote": "hard"}]
    for forest in (grown, bigforest.read_forest(out)):
        for one in asked:
            forest.predict(frame, **one)
        forest.predict(frame.head(1))
        forest.predict(pl.scan_parquet(data)).collect()
        frame.with_columns(answer=forest.expr())
        forest.apply(frame)
        forest.shrink(3.0).predict(frame)
        forest[0].predict(frame)
        if not numbers:
            forest.predict_proba(frame)
    bigforest.predict_file(out, data, folder / "predictions.parquet", overwrite=True, memory="5GB")


def explain(grown: bigforest.Forest, frame: pl.DataFrame, numbers: bool, done: Callable[[str], None]) -> None:
    """Every part of an explanation of training rows, and of some new ones all that are for them."""
    of_bags = [part for part, section in SECTIONS.items() if section.needs == "out of bag"]
    of_new_rows = [part for part in SECTIONS if part not in ("proximities", "filling")]
    for parts, rows, options in (
        ([*SECTIONS], frame, {}),
        (of_new_rows, frame.head(300), {"new_rows": True}),
        *(() if numbers else ((of_bags, frame, {"loss": "log_loss"}),)),
    ):
        try:
            grown.explain(rows, parts=parts, listener=silent, **options)
        except bigforest.ConfigError:  # a part that is not for this kind of forest
            for part in parts:
                with suppress(bigforest.ConfigError):
                    grown.explain(rows, parts=[part], listener=silent, **options)
    done("explain")


def revise(grown: bigforest.Forest, frame: pl.DataFrame, folder: Path) -> None:
    """Forests that are made from a forest, and its error."""
    revised = folder / "revised"
    for make in (bigforest.calibrate_forest, bigforest.prune_forest):
        make(folder / "forest", frame, revised, overwrite=True).predict(frame)
    bigforest.validate_forest(folder / "forest", frame)


def beside(frame: pl.DataFrame, numbers: bool, done: Callable[[str], None]) -> None:
    """What is done with forests of the default options alone, and without a forest."""
    bigforest.train(frame, "y", tune=2, trees=50, exclude=_BESIDE, listener=silent)
    done("tune")
    bigforest.train(frame, "y", family="tree", exclude=_BESIDE, listener=silent).predict(frame)
    done("tree")
    if numbers:
        many = bigforest.train(frame, "y", trees=60, exclude=_BESIDE, listener=silent)
        many.predict(frame, coverage=0.9)  # by the spread of the trees, of which there are enough
        done("spread")
    if "text" not in frame.columns:  # else these are forests of another kind
        values = frame.select("small", "short").to_numpy()
        bigforest.train(values, frame["y"].to_numpy(), trees=3, listener=silent).predict(values)
        done("numpy")
    compile_presort()
    compile_pieces()  # which columns need that do not fit into the budget, of hundreds of millions of rows
    done("columns in pieces")
    bigforest.simulate("trunk", rows=1000, dims=4)
    done("simulate")


def compiled() -> set[str]:
    """Names of kernels in the caches that this process writes to."""
    return {path.name for folder in folders() for path in folder.glob("*.nbc")}


def kernels() -> set[jit._Kernel]:
    """All kernels."""
    places = pkgutil.walk_packages(bigforest.kernels.__path__, "bigforest.kernels.")
    modules = [importlib.import_module(place.name) for place in places]
    return {value for module in modules for value in vars(module).values() if isinstance(value, jit._Kernel)}


def check_one(kind: str) -> tuple[bool, set[str]]:
    """Whether nothing was compiled for a kind, and the kernels that this process has not called yet."""
    before, well = compiled(), True

    def done(about: str) -> None:
        nonlocal before, well
        if new := compiled() - before:
            well, before = False, before | new
            print(f"{kind}: {about}: compiled", *sorted(file.split("-")[0] for file in new), flush=True)

    with tempfile.TemporaryDirectory() as name:
        check(kind, Path(name), done)
    print(kind, "done", flush=True)
    return well, {kernel.py_func.__qualname__ for kernel in kernels() if not kernel.overloads}


def main() -> int:
    """Run the command, three kinds at a time."""
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        results = list(pool.map(check_one, sys.argv[1:] or KINDS))
    never_called = [] if sys.argv[1:] else sorted(set.intersection(*(names for _, names in results)))
    if never_called:
        print("never called:", *never_called)
    return int(bool(never_called) or not all(well for well, _ in results))


if __name__ == "__main__":
    sys.exit(main())
