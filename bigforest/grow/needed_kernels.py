"""Kernels that a forest needs. They are compiled by growing a small tree (forest.py `compile_for`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bigforest.columns.dataspec import TargetSpec
from bigforest.encode.values import compile_presort
from bigforest.errors import naming_file
from bigforest.execution.compile_stage import KernelKind
from bigforest.execution.executor import Executor
from bigforest.grow.criteria import criterion_of
from bigforest.grow.families.registry import family_of
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.passes import grow_by_passes
from bigforest.grow.out_of_core.table import Passes
from bigforest.kernels.tree.builder import Rules
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import TableTraits
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.paths import is_remote
from bigforest.store.store import Store
from bigforest.store.writer import PartWriter, StoreWriter

# Options that decide which kernels are needed, in addition to the variants of the family. The last three cut trees.
_KERNEL_OPTIONS = (
    *("family", "splitter", "replace", "impurity"),
    *("max_leaf_nodes", "min_impurity_decrease", "ccp_alpha"),
)
_ROWS = 64
# Few buckets of many codes each, so that passes open buckets, and some nodes need several passes for that.
_LIMITS = MemoryLimits(rows=12, collects=_ROWS, cells=4, room=1)
# Functions, and seconds to compile them, in addition to Family.compiling: with categories or missing values, and by
# passes. The seconds are estimates: other processors differ by a factor of two and more.
_MIXED = (36, 8.0)
_PASSES = (100, 20.0)
# For random splits, in place of Family.compiling.
_RANDOM = (90, 10.0)


def kernels_of(extras: TableTraits, config: TrainConfig, passes: bool) -> KernelKind:
    """Return the kernels that grow this kind of forest, by passes or in memory."""
    family = family_of(config)
    words: list[str] = [config.family if family.uses_values else config.splitter]
    costs = [_RANDOM if config.splitter == "random" else family.compiling]
    if extras.non_plain_features:
        words.append("mixed")
        costs.append(_MIXED)
    if extras.regression:
        words.append("numbers")
    if extras.many:
        words.append("classes")
    if config.criterion != "gini" and not extras.regression:
        words.append("scores")
    if passes:
        words.append("passes")
        costs.append(_PASSES)
    functions, seconds = zip(*costs, strict=True)
    return KernelKind("-".join(words), "for this kind of table", sum(functions), sum(seconds))


def kernel_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options that decide which kernels are needed."""
    names = dict.fromkeys([*_KERNEL_OPTIONS, *chain.from_iterable(family_of(config).variants)])
    return {name: getattr(config, name) for name in names}


@contextmanager
def small_forest(extras: TableTraits, config: TrainConfig, scratch: Path | None) -> Iterator[tuple[Store, TrainConfig]]:
    """Yield a small store with these traits, in a temporary folder in `scratch`, and the options of one tree that needs
    the same kernels as `config`."""
    with TemporaryFolder(None if is_remote(scratch) else scratch) as folder:
        store = _small_store(folder / "store", extras)
        options = {**kernel_options(config), "trees": 1}
        yield store, TrainConfig.of(**options).for_task(store.spec.target.task)


def compile_passes(store: Store, config: TrainConfig) -> None:
    """Compile, or load from the cache, all kernels of growing by passes: grow a tree on a store of `small_forest`."""
    folder, family = store.path.parent, family_of(config)
    rules = Rules(
        len(store.spec.features), criterion_of(config).number, max_depth=-1, min_split=2, min_leaf=1, redraw=True
    )
    (folder / "rows").mkdir()
    executor = Executor(1)
    if family.uses_values:
        compile_presort()  # ways of ranking that a small table does not use
    limits = _LIMITS._replace(cells=2 * max(len(store.spec.target.classes), 2))
    table = family.passed_table(store, config, rules, limits, folder, executor)
    grow_by_passes(Passes.of(table, folder / "rows", executor), [range(1)], folder, lambda _: None)


def _small_store(path: Path, extras: TableTraits) -> Store:
    """Write a table with these traits whose feature `x` does not separate the targets."""
    codes = np.arange(_ROWS, dtype=np.uint8)
    levels = pl.Series("level", list("abcd"))
    classes = ("0", "1", "2") if extras.many else ("0", "1")
    target = TargetSpec("y", "Int64", (), "regression") if extras.regression else TargetSpec("y", "Int64", classes)
    with naming_file(path), StoreWriter(path, max_bins="exact") as writer:
        writer.add_rows(codes % len(classes) if target.classes else (codes % 2).astype(np.int64), None)
        with PartWriter(writer.parts, 0) as part:
            part.values(codes.astype(np.float64), None)
            part.end_feature("x", "Float64", [codes])
            if extras.non_plain_features:
                part.levels(levels, 0)
                part.values(np.arange(4.0), None)
                part.end_feature("c", "String", [codes // 16], kind="category")
        writer.append(part.part())
        writer.finish(target, 0)
    return Store.open(path, verify=False)
