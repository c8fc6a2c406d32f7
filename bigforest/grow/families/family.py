"""What a family of trees is: how its trees grow, in memory and by passes, what that takes, and its oracle.

One object for each family, in a folder of its own; registry.py knows them by name. Whatever depends on the family, but
for its options (schema/), is a method or an attribute here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bigforest.common.memory_estimate import Shape
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.out_of_core.upper_tree import GrowContext
from bigforest.grow.shared.memory import PassMemory, TreeMemory
from bigforest.grow.shared.row_cache import RowCache, row_cache_of
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.oblique.search import Oblique
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.subspace.columns import Subspace
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


class TreeCall(NamedTuple):
    """Trees that grow in memory in one call of the kernel; see kernels/tree/grow.py grow.

    first  number of the first tree
    """

    sampler: Sampler
    first: int
    by_row: RowMajorCodes
    items: NDArray[Any]
    target: ClassTarget | RegressionTarget
    roots: Roots
    rules: Rules


class Family(ABC):
    """A family of trees.

    name       as TrainConfig.family has it.
    oracle     the naive functions that its trees are compared with.
    compiling  about how many functions are compiled for it, and in how many seconds of one processor.
    splits     what its nodes split on where kernels find splits on projections; None for features, or columns like
               them.
    by_values  whether passes go over values, which they write to scratch first, and not over codes.
    """

    name: str
    oracle: str
    compiling: tuple[int, float]
    splits: type[Oblique | Subspace] | None = None
    by_values = True

    @abstractmethod
    def check(self, shape: Shape, config: TrainConfig) -> None:
        """Raise ConfigError where trees cannot be grown on what the table has."""

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        """How many columns a node draws from: features, or what the family has in their place."""
        return features

    def max_terms(self, features: int, config: TrainConfig) -> float:
        """Terms of an oblique node that is larger than most, when the table has `features` features; 0 if none is."""
        return 0.0

    def looks(self, features: int, config: TrainConfig) -> float:
        """How often a node looks at each of its rows, about: for a column, or for a term of a projection."""
        columns = self.drawn_from(features, config)
        if config.feature_fraction is not None:
            return config.feature_fraction * columns
        return config.drawn_features(columns)

    def together(self, shape: Shape, config: TrainConfig) -> int:
        """Trees that grow in memory in one call of the kernel."""
        return 1

    @abstractmethod
    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        """What growing whole trees of this many rows and splits takes; of as many as grow together."""

    @abstractmethod
    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        """What growing by passes takes."""

    def row_cache(self, store: Store) -> RowCache:
        """What growing in memory reads besides codes by columns."""
        return row_cache_of(store, wide=False)

    @abstractmethod
    def shared(self, store: Store, config: TrainConfig, copies: RowCache) -> Any:
        """What all trees that grow in memory share, made once in a process; copies: `row_cache`."""

    @abstractmethod
    def grow(self, call: TreeCall, shared: Any) -> tuple[TreeArrays, CodeTree | None]:
        """Grow whole trees in memory, as many as go `together`; shared: what `shared` gave.

        Returns the trees, and their nodes in codes of the store; None where they split on projections.
        """

    @abstractmethod
    def passed_table(
        self, store: Store, config: TrainConfig, context: GrowContext, folder: Path, executor: Executor
    ) -> TableView:
        """The table as passes go over it; `folder` is scratch as long as it is used."""


def some_names(names: tuple[str, ...], most: int = 10) -> str:
    """The first of some columns, for a message."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest
