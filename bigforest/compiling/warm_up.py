"""Compile kernels in advance, by training small forests of each kind and predicting with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bigforest.encode.values import compile_presort
from bigforest.errors import ConfigError
from bigforest.events import Listener, Stage, silent, stage
from bigforest.execution.compile_stage import ENCODING, announced
from bigforest.execution.connect import cluster_of
from bigforest.execution.dask_cluster import Cluster
from bigforest.execution.resources import Resources
from bigforest.grow.families.registry import known_families
from bigforest.grow.forest import compile_for
from bigforest.grow.needed_kernels import kernels_of
from bigforest.options.train_options import BY_IMPURITY
from bigforest.options.values import names_of
from bigforest.planning.memory import TableTraits
from bigforest.progress import watching
from bigforest.storage.atomic import TemporaryFolder


class ForestKind(NamedTuple):
    """Forests that share kernels.

    categories  True if the table has a category with missing values.
    regression  True if the target is a number.
    options     training options of the kind.
    """

    categories: bool
    regression: bool
    options: dict[str, Any]

    @property
    def classes(self) -> tuple[int, ...]:
        """Numbers of classes to train with: 2, and 5 in place of all larger numbers; 0 for regression."""
        return (0,) if self.regression else (2, 5)

    def traits(self, classes: int) -> TableTraits:
        """Return the traits of the tables of this kind with this number of classes."""
        non_plain = ("level",) if self.categories else ()
        return TableTraits(
            non_plain, category=4 if self.categories else 0, regression=self.regression, many=classes > 2
        )

    @property
    def takes_weights(self) -> bool:
        """True if the forests have bags and row weights."""
        return self.options.get("family", "axis") in BY_IMPURITY


_TABLES = {
    "classification": (False, False),
    "classification-categories": (True, False),
    "regression": (False, True),
    "regression-categories": (True, True),
}
KINDS: dict[str, ForestKind] = {
    **{name: ForestKind(*table, {}) for name, table in _TABLES.items()},
    **{f"random-{name}": ForestKind(*table, {"splitter": "random"}) for name, table in _TABLES.items()},
    **{
        family.name if task == "classification" else f"{family.name}-regression": ForestKind(
            False, task == "regression", {"family": family.name}
        )
        for family in known_families()
        if family.uses_values
        for task in family.tasks
    },
}
ALL = "all"
_ROWS = 64
IN_A_PROCESS = """
import sys
from bigforest.compiling.warm_up import warm_here

for kind in sys.argv[2:]:
    warm_here(kind, passes=sys.argv[1] == "passes")
"""


def warm_up(
    kinds: str | Sequence[str] = ("classification",),
    *,
    passes: bool = False,
    scheduler: Any = None,
    listener: Listener | None = None,
) -> list[str]:
    """Compile the kernels for some kinds of forests in advance.

    Kernels are cached for all processes of this machine, and cached kernels are not compiled again. Several kinds are
    compiled in parallel, by as many processes as there are processors.

    Parameters
    ----------
    kinds : str or sequence of str, default=("classification",)
        Any of "classification", "classification-categories" (with categories and missing values), "regression" and
        "regression-categories"; these with random splits ("random-classification" and so on); and the families other
        than "axis" and "tree", for regression such as "rotation-regression". "all" for all of these.
    passes : bool, default=False
        Also compile the kernels for tables larger than memory, which are grown by passes.
    scheduler : object, default=None
        As for `train`. On a cluster, kernels are compiled once on each machine.
    listener : Listener or None, default=None
        Function that is called with every event (events.py).

    Returns
    -------
    list of str
        The kinds.

    Raises
    ------
    ConfigError, ClusterError

    Examples
    --------
    >>> import bigforest as bf
    >>> bf.warm_up(["classification"])
    ['classification']
    """
    named = list(names_of(kinds, "kinds"))
    named = list(KINDS) if named == [ALL] else named
    for name in named:
        if name not in KINDS:
            raise ConfigError(f"there is no kind {name!r}; kinds are {', '.join(KINDS)}, or {ALL}")
    with watching(listener) as listener, cluster_of(scheduler, listener) as cluster:
        if cluster is not None:
            cluster.check()
        with stage("compile", len(named), "kinds", listener) as progress:
            _warm_all(named, passes, cluster, progress)
    return named


def _warm_all(kinds: Sequence[str], passes: bool, cluster: Cluster | None, progress: Stage) -> None:
    """Compile the kernels of some kinds: on each machine of a cluster, or in several processes of this machine."""
    at_once = min(len(kinds), Resources().workers)
    if cluster is not None or at_once == 1:
        for kind in kinds:
            if cluster is not None:
                cluster.on_each(warm_here, kind, passes)
            else:
                warm_here(kind, passes)
            progress.advance()
        return
    with ThreadPoolExecutor(at_once) as pool:
        for ended in as_completed([pool.submit(_warm_apart, kind, passes) for kind in kinds]):
            ended.result()
            progress.advance()


def warm_here(kind: str, passes: bool = False) -> None:
    """Compile the kernels of a kind in this process, or load them from the cache."""
    from bigforest.predict.files import predict_file
    from bigforest.training.train import train

    with announced(ENCODING, silent):
        compile_presort()  # training does not: these tables have few rows
    forests = KINDS[kind]
    options = {**forests.options, "keep_targets": True} if forests.regression else forests.options
    if forests.takes_weights:
        options = {**options, "refine": 1}
    with TemporaryFolder(None) as folder:
        for weighted in (False, True) if forests.takes_weights else (False,):  # weights have kernels of their own
            for classes in forests.classes:
                table = small_table(forests.categories, classes, _ROWS)
                out = folder / f"{weighted}-{classes}.forest"
                weight: dict[str, Any] = {"weight": "weight"} if weighted else {}
                features = table.drop("group") if weighted else table.drop("group", "weight")
                forest = train(
                    features, "y", trees=1, scheduler="threads", listener=silent, out=out, **options, **weight
                )
                forest.predict(table, quantiles=[0.5] if forests.regression else [])
                forest.predict(table.head(1))
                predict_file(out, table, folder / "predictions.parquet", overwrite=True, listener=silent)
        for classes in forests.classes if passes else ():
            traits = forests.traits(classes)
            with announced(kernels_of(traits, forest.config, passes=True), silent):
                compile_for(traits, forest.config, passes=True, scratch=None)


def small_table(categories: bool, classes: int, rows: int) -> pl.DataFrame:
    """Return a small table with four numeric features, the columns `weight` and `group`, and the target `y`.

    categories  add the column `level`, a category with a missing value.
    classes     number of classes; 0 for a numeric target.
    """
    draw = np.random.default_rng(0)
    number = np.arange(rows) % 16 / 2.0
    table = pl.DataFrame({name: draw.permutation(number) for name in "abcd"})
    table = table.with_columns(weight=draw.random(rows) + 0.1, group=draw.integers(0, rows // 2, rows))
    if categories:
        table = table.with_columns(level=pl.Series([None, *("abcd"[row % 4] for row in range(1, rows))]))
    target = draw.permutation(rows) % classes if classes else draw.permutation(number)
    return table.with_columns(y=target)


def _warm_apart(kind: str, passes: bool) -> None:
    """Compile the kernels of a kind in another process, because the compiler uses one thread of a process."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, "passes" if passes else "memory", kind],
        env={**os.environ, "PYTHONPATH": search_path()},
        capture_output=True,
    )
    if done.returncode:
        warm_here(kind, passes)  # raises the error here


def search_path() -> str:
    """Return the PYTHONPATH with which another process finds the modules of this one."""
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
