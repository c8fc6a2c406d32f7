"""A family of trees: how its trees grow, in memory and by passes, the memory for that, and its oracle.

One object per family, in FAMILIES of its module; registry.py has them by name. All that depends on the family is a
method or an attribute here, except for options of its own (options/train_options.py). docs/options.py writes the names
into options/family_names.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.feature_kinds import Features
from bigforest.grow.memory_model import PassMemory, TreeMemory
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.row_cache import RowCache, row_cache_of
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.oblique.search import Oblique
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.subspace.columns import Subspace
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import Task
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Store


class TreeCall(NamedTuple):
    """Trees that grow in memory in one call of the kernel; see kernels/tree/grow.py grow.

    first  number of the first tree
    """

    sampler: Sampler
    first: int
    features: Features
    by_row: RowMajorCodes
    items: NDArray[Any]
    target: ClassTarget | RegressionTarget
    roots: Roots
    rules: Rules


class Family(ABC):
    """A family of trees.

    name       as TrainConfig.family has it.
    splits_on  what a node splits on, and the reference: for the documentation.
    tasks      what its trees predict: classes, numbers, or either.
    options_of  the family whose options and defaults it has; empty for its own.
    oracle     the naive functions that its trees are compared with.
    compiling  approximate number of functions compiled for it, and processor seconds for that.
    variants   values of its options for which further kernels are compiled.
    splits     splits of its nodes where kernels split on projections; None for features, or columns like them.
    by_values  whether passes read values, written to scratch first, not codes.
    """

    name: str
    splits_on: tuple[str, str]
    tasks: tuple[Task, ...] = ("classification", "regression")
    options_of: str = ""
    oracle: str
    compiling: tuple[int, float]
    variants: tuple[dict[str, Any], ...] = ()
    splits: type[Oblique | Subspace] | None = None
    by_values = True

    @abstractmethod
    def check(self, shape: Shape, config: TrainConfig) -> None:
        """Raise ConfigError if trees cannot be grown on this table."""

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        """Number of columns that a node draws from: features, or the columns of the family."""
        return features

    def max_terms(self, features: int, config: TrainConfig) -> float:
        """Terms of a large oblique node, when the table has `features` features; 0 without oblique nodes."""
        return 0.0

    def expected_reads(self, features: int, config: TrainConfig) -> float:
        """About how often a node reads each of its rows: for a column, or for a term of a projection."""
        columns = self.drawn_from(features, config)
        if config.feature_fraction is not None:
            return config.feature_fraction * columns
        return config.drawn_features(columns)

    def trees_per_call(self, shape: Shape, config: TrainConfig) -> int:
        """Trees that grow in memory in one call of the kernel."""
        return 1

    @abstractmethod
    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        """Memory for growing whole trees of this many rows and splits, as many as grow together."""

    @abstractmethod
    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        """Memory for growing by passes."""

    def row_cache(self, store: Store) -> RowCache:
        """What growing in memory reads besides codes by columns."""
        return row_cache_of(store, wide=False)

    @abstractmethod
    def shared(self, store: Store, config: TrainConfig, copies: RowCache) -> Any:
        """Data that all trees growing in memory share, made once in a process; copies: `row_cache`."""

    @abstractmethod
    def grow(self, call: TreeCall, shared: Any) -> TreeArrays:
        """Grow whole trees in memory, as many as grow `trees_per_call`; shared: the result of `shared`."""

    @abstractmethod
    def passed_table(
        self, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, folder: Path, executor: Executor
    ) -> TableView:
        """The table for passes; `folder` is scratch while it is used."""
