"""Calls that need kernels other than those of training and predicting; a wheel contains these too (ship.py).

A kernel is compiled for the types of what it is given. These depend on the kind of forest (warm_up.py), on what numbers
the table has, which travel down trees as bytes, float32 or float64, on whether rows have weights, and on options. So
all that is done with a forest is done with each kind, each type of numbers, with weights and without, and with every
option that has kernels of its own. tests/shipped.py, which CI runs on a wheel, fails if a kernel is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bigforest.compiling.warm_up import KINDS, extras_of, small_table, takes_weights
from bigforest.encode.presort import compile_pieces
from bigforest.errors import ConfigError
from bigforest.events import silent
from bigforest.explain.explain import explain_forest
from bigforest.explain.sections import SECTIONS
from bigforest.grow.families.registry import family_of
from bigforest.grow.warm_up import compile_for
from bigforest.options.train_config import TrainConfig
from bigforest.predict.files import predict_file
from bigforest.predict.forest import Forest, read_forest
from bigforest.revise.calibrate import calibrate_forest
from bigforest.revise.prune import prune_forest
from bigforest.revise.validate import validate_forest
from bigforest.simulation.simulate import simulate
from bigforest.storage.atomic import TemporaryFolder
from bigforest.training.train import train

_ROWS = 400
# Types of numbers as they travel down trees.
_TRAVEL = {"bytes": pl.UInt8, "single": pl.Float32, "double": pl.Float64}
# Where values are missing, if they are: in a number where there is no category, in both, or in the category.
_GAPS = ("number", "both", "category")
# Options with kernels of their own: of forests with bags, for classes, and for numbers; Family.variants has the others.
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


def warm_rest(kind: str) -> None:
    """Compile what is needed for this kind besides training and predicting, or load it from the cache."""
    mixed, numbers, own = KINDS[kind]
    table = small_table(mixed, 0 if numbers else 3, _ROWS)
    if "splitter" in own:  # once they are grown, these forests are like those of the best splits
        _vary(kind, table, _NUMBERS if numbers else [])
        return
    bagged = takes_weights(kind)
    options = [] if mixed else [*family_of(TrainConfig.of(**own)).variants]
    if bagged:
        options = [*_BAGGED, *(_NUMBERS if numbers else _CLASSES), *options]
    with TemporaryFolder(None) as folder:
        for weight in ({}, {"weight": "weight"}) if bagged else ({},):
            tables = list(product(_TRAVEL if bagged else ("bits", *_TRAVEL), _GAPS if mixed else _GAPS[2:]))
            for name, gaps in tables:
                typed = _typed(table, name, gaps)
                forest = _trained(kind, typed, folder / name, **weight)
                if not weight or (name, gaps) == tables[-1]:  # once they are grown, rows travel with weights as without
                    _route(forest, typed, folder)
                    _revise(forest, typed, folder)
            _explain(forest, typed)
    _vary(kind, table, options)
    compile_pieces()
    simulate("trunk", rows=_ROWS, dims=2, listener=silent)


def _vary(kind: str, table: pl.DataFrame, options: Sequence[dict[str, Any]]) -> None:
    """Grow a forest with each of these options, in memory and by passes."""
    with TemporaryFolder(None) as folder:
        for one in options:
            try:
                forest = _trained(kind, table, folder / "option", **one)
            except ConfigError:  # a variant or an impurity that is not for these trees
                continue
            forest.predict(table)
            if one.keys() & {"sampling", "group"} and not forest.config.boosts:
                _explain(forest, table)
            compile_for(extras_of(kind), forest.config, passes=True, scratch=None)


def _typed(table: pl.DataFrame, travel: str, gaps: str) -> pl.DataFrame:
    """The table with numbers of this type; but for bytes, of enough values that their codes take two bytes, and with
    regression targets of all digits."""
    numbers = pl.col("a", "b", "c", "d")
    if travel in ("bits", "bytes"):
        table = table.with_columns((numbers.floor() % (2 if travel == "bits" else 256)).cast(pl.UInt8))
    else:
        table = table.with_columns((numbers + np.arange(table.height) * np.pi).cast(_TRAVEL[travel]))
        table = table.with_columns(pl.col("y") * np.pi if table["y"].dtype == pl.Float64 else pl.col("y"))
    if gaps != "category":
        table = table.with_columns(a=pl.when(pl.int_range(pl.len()) % 7 > 0).then(pl.col("a")))
    return table.drop("level") if gaps == "number" else table


def _trained(kind: str, table: pl.DataFrame, out: Path, **options: Any) -> Forest:
    _, numbers, own = KINDS[kind]
    kept = {"keep_targets": True} if numbers else {}
    exclude = [name for name in ("weight", "group") if name not in options.values()]
    # Intervals of numbers go by the spread of the trees where there are enough.
    given = {"trees": 60 if numbers else 4, **kept, **own, **options}
    return train(table, "y", exclude=exclude, scheduler="threads", listener=silent, out=out, overwrite=True, **given)


def _route(forest: Forest, table: pl.DataFrame, folder: Path) -> None:
    """Send rows down the trees in every way: those kept from training, those read, and those read for a budget."""
    ways: list[dict[str, Any]] = [{}, {"coverage": 0.5}] if forest.config.bootstrap else [{}]
    if forest.spec.target.is_regression:
        ways += [{"quantiles": [0.5]}, {"coverage": 0.5, "jackknife": True}]
    for opened in (forest, read_forest(forest.directory)):
        opened.predict(table, memory="100GB")
        opened.apply(table)
        for way in ways:
            opened.predict(table, **way)
    opened.shrink(1.0).predict(table)
    if not forest.is_regression:
        opened.sharpen(2.0).predict_proba(table)
    predict_file(forest.directory, table, folder / "predictions.parquet", overwrite=True, listener=silent)


def _revise(forest: Forest, table: pl.DataFrame, folder: Path) -> None:
    """Make forests from the forest, and evaluate it."""
    if not forest.spec.target.is_regression:
        for revise in (calibrate_forest, prune_forest):
            revise(forest.directory, table, folder / "revised", overwrite=True, listener=silent).predict(table)
        validate_forest(forest.directory, table, listener=silent)
    train(table, resume=forest.directory, trees=forest.config.trees + 2, scheduler="threads", listener=silent).predict(
        table
    )


def _explain(forest: Forest, table: pl.DataFrame) -> None:
    """Make every part of an explanation, of the training rows and of new ones."""
    for part, new_rows in product(SECTIONS, (False, True)):
        with suppress(ConfigError):  # a part that is not for this kind of forest, or not for new rows
            explain_forest(forest.directory, table, parts=[part], new_rows=new_rows, listener=silent)
