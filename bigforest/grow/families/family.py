"""The interface of a family of trees: how its trees grow, in memory and by passes, and the memory for that.

Each family is an object in FAMILIES of its module; registry.py lists them by name. Code outside a family asks its
methods and attributes; only its options are declared elsewhere (options/train_options.py). docs/options.py writes the
names into options/package_names.py. README.md of grow shows how to add a family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

from bigforest.errors import ConfigError, api, listed
from bigforest.execution.executor import Executor
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.feature_kinds import Features
from bigforest.grow.memory_model import PassMemory, TreeMemory
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.row_codes import checked_rows
from bigforest.grow.trees import TreeRows
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.tree.builder import Rules
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import Task
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Store


class TreeCall(NamedTuple):
    """Trees that grow in memory in one call of the kernel.

    first   number of the first tree
    by_row  codes of the table, row by row (`Family.codes`)
    """

    sampler: Sampler
    first: int
    features: Features
    by_row: RowMajorCodes
    rows: TreeRows


class Family(ABC):
    """A family of trees.

    name         value of TrainConfig.family
    splits_on    line of the documentation: what a node splits on, and the reference
    tasks        targets that its trees predict: classes, numbers, or either
    options_of   family of the package whose options and defaults apply to a family from outside the package
    lacks        options of the family `options_of` that this family does not have
    oracle       naive functions that its trees are compared with
    compiling    approximate number of compiled functions, and processor seconds of compiling them
    variants     values of its options for which further kernels are compiled
    uses_values  True if its trees split on projections of values; passes then read values, which are written to scratch
                 first. False if its trees split on features, by codes
    """

    name: str
    splits_on: tuple[str, str]
    tasks: tuple[Task, ...] = ("classification", "regression")
    options_of: str = ""
    lacks: tuple[str, ...] = ()
    oracle: str
    compiling: tuple[int, float]
    variants: tuple[dict[str, Any], ...] = ()
    uses_values = True

    @abstractmethod
    def check(self, shape: Shape, config: TrainConfig) -> None:
        """Raise ConfigError if trees cannot be grown on this table."""

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        """Return the number of columns that a node draws from: features, or columns of the family."""
        return features

    def max_terms(self, features: int, config: TrainConfig) -> float:
        """Return an estimate of the most terms of a node; 0 without oblique nodes. `features`: of the table."""
        return 0.0

    def expected_reads(self, features: int, config: TrainConfig) -> float:
        """Return an estimate of the values that a node reads of each row: columns, or terms of projections."""
        columns = self.drawn_from(features, config)
        if config.feature_fraction is not None:
            return config.feature_fraction * columns
        return config.drawn_features(columns)

    def trees_per_call(self, shape: Shape, config: TrainConfig) -> int:
        """Return the most trees that grow in memory in one call of the kernel."""
        return 1

    @abstractmethod
    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        """Return the memory for growing whole trees; rows, splits: of `trees_per_call` trees together."""

    @abstractmethod
    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        """Return the memory for growing by passes."""

    def codes(self, store: Store) -> tuple[Store, RowMajorCodes]:
        """Return the store with the codes that trees in memory split on, and these codes by rows."""
        return store, checked_rows(store)

    @abstractmethod
    def shared(self, store: Store, config: TrainConfig) -> Any:
        """Make the data that all trees growing in memory share, once in a process."""

    @abstractmethod
    def grow(self, call: TreeCall, shared: Any) -> TreeArrays:
        """Grow whole trees in memory, at most `trees_per_call`; shared: the result of `shared`."""

    @abstractmethod
    def passed_table(
        self, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, folder: Path, executor: Executor
    ) -> TableView:
        """Return the table for passes; `folder` is scratch as long as the table is used."""


def check_plain(shape: Shape) -> None:
    """Raise ConfigError for a category or a feature with missing values: their ranks cannot be split on."""
    if names := list(map(repr, shape.extras.non_plain_features)):
        raise ConfigError(
            f"ranks need numbers without missing values, unlike {listed(names)}: exclude these columns, fill or "
            f"convert them, or train without {api('ranks')}"
        )
