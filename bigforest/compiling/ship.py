"""Add compiled kernels to a wheel, so that an installation from it does not compile.

    pip wheel --no-deps --wheel-dir dist .
    python -m bigforest.compiling.ship dist/bigforest-0.1.0-py3-none-any.whl

By default, kernels are compiled for each level of x86-64 that this processor has (x86-64-v3 and -v4), by as many
processes as there are processors. The new wheel is written next to the given one, and can be installed for this version
of Python on this platform. The wheel also works with other versions of Numba and NumPy and on other processors. There,
kernels are compiled on first use instead of read from the wheel.

A kernel is compiled for the types of its arguments. They depend on the kind of forest (warm_up.py), on the type of
numbers with which rows are routed through trees (bytes, float32 or float64), on row weights, and on options. Therefore
all operations on a forest are done here with each kind, type and option that has kernels of its own. tests/shipped.py,
which CI runs on a wheel, fails if a kernel is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from sysconfig import get_platform
from typing import Any

import numpy as np
import polars as pl

from bigforest.compiling.warm_up import ALL, KINDS, search_path, small_table
from bigforest.encode.values import compile_pieces, compile_presort
from bigforest.errors import BigForestError, ConfigError
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.explain.explain import SECTIONS, explain_forest
from bigforest.grow.families.registry import family_of
from bigforest.grow.forest import compile_for
from bigforest.kernels.compiler.cache import SHIPPED, SOURCES, digest_of, levels_of_host
from bigforest.options.train_config import TrainConfig
from bigforest.predict.files import predict_file
from bigforest.predict.forest import Forest, read_forest
from bigforest.revise.revision import calibrate_forest, prune_forest
from bigforest.revise.validate import validate_forest
from bigforest.simulation.simulate import simulate
from bigforest.storage.atomic import TemporaryFolder
from bigforest.training.train import train

_INSIDE = Path(*SHIPPED.parts[-3:])  # folder of the compiled kernels within a wheel
_IN_A_PROCESS = """
import sys
from pathlib import Path
from bigforest.compiling.ship import warm_rest
from bigforest.compiling.warm_up import warm_here
from bigforest.kernels.compiler.cache import used

list_file, *kinds = sys.argv[1:]
for kind in kinds:
    warm_here(kind, passes=True)
    warm_rest(kind)
Path(list_file).write_text("".join(f"{file}\\n" for file in used))
"""


def ship(wheel: Path, levels: Sequence[str], kinds: Sequence[str], cache: Path | None = None) -> Path:
    """Write a copy of `wheel` with the kernels of some kinds for some levels next to it. Return its path.

    cache  folder that keeps kernels between builds; None for a temporary folder. Kernels that another process has
           compiled there, with the variables NUMBA_* of `_compile`, are not compiled again.

    Raises ConfigError if the sources in the wheel differ from this installation, if this processor does not have a
    level, if the file is not a wheel, and if compiling or packing fails.
    """
    if missing := [level for level in levels if level not in levels_of_host()]:
        raise ConfigError(f"this processor cannot compile for {', '.join(missing)}; build on one that has the level")
    with tempfile.TemporaryDirectory(prefix="bigforest-") as name:
        folder = Path(name)
        if not wheel.is_file() or wheel.suffix != ".whl":
            raise ConfigError(f"{wheel} is not a wheel; make one with: pip wheel --no-deps --wheel-dir dist .")
        _wheel("unpack", "--dest", folder / "wheel", wheel)
        [unpacked] = (folder / "wheel").iterdir()
        if digest_of((unpacked / _INSIDE.parent).rglob("*.py")) != digest_of(SOURCES.rglob("*.py")):
            raise ConfigError(
                f"{wheel} has kernels of another bigforest than this one; install the version it was built from"
            )
        at_once = Resources().workers
        # A process compiles several kinds, because they share kernels.
        jobs = [(level, kinds[place::at_once]) for level in levels for place in range(min(at_once, len(kinds)))]
        with ThreadPoolExecutor(at_once) as pool:
            compiled = list(pool.map(lambda job: _compile(job[0], job[1], cache or folder / "cache", folder), jobs))
        shipped = unpacked / _INSIDE
        shutil.rmtree(shipped, ignore_errors=True)
        shipped.mkdir()
        for file in sorted(set().union(*compiled)):
            shutil.copyfile(file, shipped / file.name)
        return _pack(unpacked, wheel.parent)


def _compile(level: str, kinds: Sequence[str], cache: Path, folder: Path) -> set[Path]:
    """Compile for a level, in a process whose compiler assumes a processor of that level. Return the cached files."""
    settings = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_INTEL_SVML": "1"}
    list_file = folder / f"{level}-{kinds[0]}.files"
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_PROCESS, list_file, *kinds],
        env={**os.environ, **settings, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ConfigError(f"compiling {', '.join(kinds)} for {level} failed: {done.stderr.strip().splitlines()[-1:]}")
    return set(map(Path, list_file.read_text().splitlines()))


def _pack(unpacked: Path, folder: Path) -> Path:
    """Write the wheel for this Python and this platform. Return its path."""
    [about] = unpacked.glob("*.dist-info/WHEEL")
    tag = (
        f"cp{sys.version_info.major}{sys.version_info.minor}-none-{get_platform().replace('-', '_').replace('.', '_')}"
    )
    lines = [line for line in about.read_text().splitlines() if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    about.write_text("\n".join([*(line for line in lines if line), "Root-Is-Purelib: false", f"Tag: {tag}", ""]))
    name = "-".join(unpacked.name.split("-")[:2])
    _wheel("pack", "--dest-dir", folder, unpacked)
    return folder / f"{name}-{tag}.whl"


def _wheel(*arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", "wheel", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ConfigError(f"wheel {arguments[0]} failed: {said[-1] if said else done.returncode} (pip install wheel)")


_ROWS = 400
# Types of numbers with which rows are routed through trees.
_ROUTED = {"bytes": pl.UInt8, "single": pl.Float32, "double": pl.Float64}
# Columns with missing values. "number": the column `a`, in a table without a category. "both": `a` and the category.
# "category": the category only, if there is one. Bytes with missing values are routed as float32, so columns of float32
# are tried with "category" only.
_GAPS = ("number", "both", "category")
# Options with kernels of their own: for all kinds of forests with bags, for classes, and for regression. Options of a
# single family are in Family.variants.
_BAGGED: list[dict[str, Any]] = [
    {"max_bins": 4},
    {"replace": False, "sample_fraction": 0.5},
    {"bootstrap": False},
    {"keep_votes": True},
    {"max_leaf_nodes": 8},
    {"group": "group"},
]
_CLASSES: list[dict[str, Any]] = [
    {"impurity": "entropy"},
    {"sampling": "stratified"},
    {"sampling": "balanced"},
    {"sampling": "arc-x4"},
    {"sampling": "adaboost"},
    {"vote": "hard"},
]
_NUMBERS: list[dict[str, Any]] = [{"impurity": "poisson"}, {"impurity": "poisson", "weight": "weight"}]
# Parts of an explanation that use out-of-bag rows.
_OUT_OF_BAG = [name for name, section in SECTIONS.items() if section.needs == "out of bag"]
# Parts in _OUT_OF_BAG that are refused for new rows.
_OF_TRAINING = ("proximities", "filling")


def warm_rest(kind: str) -> None:
    """Compile the kernels of a kind that `warm_here` leaves out, or load them from the cache."""
    categories, numbers, kind_options = KINDS[kind]
    table = small_table(categories, 0 if numbers else 3, _ROWS)
    if "splitter" in kind_options:  # once grown, these forests use the same kernels as forests of best splits
        _vary(kind, table, _NUMBERS if numbers else [])
        return
    bagged = KINDS[kind].takes_weights
    options = [] if categories else [*family_of(TrainConfig.of(**kind_options)).variants]
    if bagged:
        options = [*_BAGGED, *(_NUMBERS if numbers else _CLASSES), *options]
    with TemporaryFolder(None) as folder:
        for weight in ({}, {"weight": "weight"}) if bagged else ({},):
            tables = list(product(_ROUTED if bagged else ("bits", *_ROUTED), _GAPS if categories else _GAPS[2:]))
            tables = [(name, gaps) for name, gaps in tables if name != "single" or gaps == "category"]
            for name, gaps in tables:
                typed = _with_type(table, name, gaps)
                forest = _train_kind(kind, typed, folder / name, **weight)
                if not weight or (name, gaps) == tables[-1]:  # weights do not change routing
                    _route(forest, typed, folder)
                    _revise(forest, typed, folder)
                if bagged and not weight:
                    _explain(_train_refined(kind, typed, folder / name), typed)
            _explain(forest, typed)
    _vary(kind, table, options)
    compile_presort()
    compile_pieces()
    simulate("trunk", rows=_ROWS, dims=2, listener=silent)


def _vary(kind: str, table: pl.DataFrame, options: Sequence[dict[str, Any]]) -> None:
    """Train a forest with each of these options, predict, and compile its kernels for growing by passes."""
    with TemporaryFolder(None) as folder:
        for option in options:
            try:
                forest = _train_kind(kind, table, folder / "option", **option)
            except ConfigError:  # a variant or an impurity that these trees do not have
                continue
            forest.predict(table)
            if option.keys() & {"sampling", "group"} and not forest.config.boosts:
                _explain(forest, table, _OUT_OF_BAG)
            for classes in KINDS[kind].classes:
                compile_for(KINDS[kind].traits(classes), forest.config, passes=True, scratch=None)


def _with_type(table: pl.DataFrame, routed: str, gaps: str) -> pl.DataFrame:
    """Return the table with numbers of a type of _ROUTED or "bits" (0 and 1), and with missing values (see _GAPS).

    Features of float32 or float64 have so many values that codes take two bytes. Regression targets next to them use
    all digits of float64.
    """
    numbers = pl.col("a", "b", "c", "d")
    if routed in ("bits", "bytes"):
        table = table.with_columns((numbers.floor() % (2 if routed == "bits" else 256)).cast(pl.UInt8))
    else:
        table = table.with_columns((numbers + np.arange(table.height) * np.pi).cast(_ROUTED[routed]))
        table = table.with_columns(pl.col("y") * np.pi if table["y"].dtype == pl.Float64 else pl.col("y"))
    if gaps != "category":
        table = table.with_columns(a=pl.when(pl.int_range(pl.len()) % 7 > 0).then(pl.col("a")))
    return table.drop("level") if gaps == "number" else table


def _train_kind(kind: str, table: pl.DataFrame, out: Path, **options: Any) -> Forest:
    _, numbers, kind_options = KINDS[kind]
    kept = {"keep_targets": True} if numbers else {}
    exclude = [name for name in ("weight", "group") if name not in options.values()]
    # With 60 trees, enough trees vote on each row to scale intervals by their spread.
    options = {"trees": 60 if numbers else 4, **kept, **kind_options, **options}
    return train(table, "y", exclude=exclude, scheduler="threads", listener=silent, out=out, overwrite=True, **options)


def _train_refined(kind: str, table: pl.DataFrame, out: Path) -> Forest:
    """Train a forest of a kind with a boosted stage, and predict with it."""
    forest = _train_kind(kind, table, out, refine=1, trees=4)
    for opened in (forest, read_forest(out)):
        opened.predict(table)
        opened.predict(table.head(1))  # another kernel routes single rows through the trees of the stage
        opened.predict(table, memory="100GB")
    return forest


def _route(forest: Forest, table: pl.DataFrame, folder: Path) -> None:
    """Predict with trees kept from training and with trees from files, with and without a budget, and into a file."""
    options: list[dict[str, Any]] = [{}, {"coverage": 0.5}] if forest.config.bootstrap else [{}]
    if forest.spec.target.is_regression:
        options += [{"quantiles": [0.5]}, {"coverage": 0.5, "jackknife": True}]
    for opened in (forest, read_forest(forest.directory)):
        opened.predict(table, memory="100GB")
        opened.apply(table)
        for option in options:
            opened.predict(table, **option)
    opened.shrink(1.0).predict(table)
    if not forest.is_regression:
        opened.sharpen(2.0).predict_proba(table)
    predict_file(forest.directory, table, folder / "predictions.parquet", overwrite=True, listener=silent)


def _revise(forest: Forest, table: pl.DataFrame, folder: Path) -> None:
    """Calibrate, prune, evaluate and extend a forest."""
    if not forest.spec.target.is_regression:
        for revise in (calibrate_forest, prune_forest):
            revise(forest.directory, table, folder / "revised", overwrite=True, listener=silent).predict(table)
        validate_forest(forest.directory, table, listener=silent)
    train(table, resume=forest.directory, trees=forest.config.trees + 2, scheduler="threads", listener=silent).predict(
        table
    )


def _explain(forest: Forest, table: pl.DataFrame, parts: Iterable[str] = tuple(SECTIONS)) -> None:
    """Compute parts of an explanation for training rows. Compute parts that use out-of-bag rows also for new rows.

    One call for all parts takes a quarter of the time of a call for each part. If a part is refused, each part gets its
    own call, and refused parts are skipped.
    """
    of_new_rows = [part for part in parts if part in _OUT_OF_BAG and part not in _OF_TRAINING]
    for asked, new_rows in ((list(parts), False), (of_new_rows, True)):
        explain = partial(explain_forest, forest.directory, table, new_rows=new_rows, listener=silent)
        try:
            explain(parts=asked)
        except ConfigError:  # a part that is not for this kind of forest
            for part in asked:
                with suppress(ConfigError):
                    explain(parts=[part])


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bigforest.compiling.ship", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--levels", default=",".join(levels_of_host()), help="default: %(default)s")
    parser.add_argument("--kinds", default=ALL, help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--cache", type=Path, help="folder that keeps kernels between builds")
    arguments = parser.parse_args()
    try:
        kinds = list(KINDS) if arguments.kinds == ALL else arguments.kinds.split(",")
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise ConfigError(f"there is no kind {unknown[0]!r}; kinds are {', '.join(KINDS)}")
        if not arguments.levels:
            raise ConfigError("this processor has no level that kernels are shipped for")
        print(ship(arguments.wheel, arguments.levels.split(","), kinds, arguments.cache))
    except BigForestError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
