"""What families of trees that split on projections share: the table for passes, and its memory."""

from __future__ import annotations

import math
from abc import abstractmethod
from pathlib import Path
from typing import Any

from bigforest.common.errors import ConfigError, listed
from bigforest.common.memory_estimate import Shape
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.forest.format.schema import GROUP_ENTRIES
from bigforest.grow.families.family import Family, TreeCall
from bigforest.grow.families.oblique.passes import ProjectionTable
from bigforest.grow.out_of_core.context import GrowContext
from bigforest.grow.out_of_core.decoded_table import DecodedTable, decode_table
from bigforest.grow.out_of_core.table import block_ranges
from bigforest.grow.shared.criteria import criterion_of
from bigforest.grow.shared.memory import code_bytes
from bigforest.grow.shared.tree_arrays import tree_arrays
from bigforest.kernels.tree.grow import grow
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

# Bytes of a term of a growing tree, twice while it is copied, and of one on its way into a Parquet file.
_TERM = 24
_WRITTEN_TERM = 64
# Bytes per row of the table while columns are measured one at a time.
MEASURED = 48


class ProjectionFamily(Family):
    """A family of trees that split on projections."""

    def check(self, shape: Shape, config: TrainConfig) -> None:
        """See Family."""
        extras = shape.extras
        if extras.odd:
            raise ConfigError(
                f"the family {self.name} projects numbers, and there are categories or missing values in "
                f"{listed(list(map(repr, extras.odd)))}: exclude these columns, fill or convert them, or choose the "
                "family axis"
            )
        if extras.regression:
            raise ConfigError(f"the family {self.name} is for classification; use the family axis for regression")

    def grow(self, call: TreeCall, shared: Any) -> TreeArrays:
        """See Family; shared has `scratch`, which gives what the kernels need for a tree."""
        store = call.sampler.store
        scratch = shared.scratch(store, call.by_row, call.items, call.first)
        nodes, pool = grow(store.codes, call.by_row, call.items, call.target, call.roots, call.rules, scratch)
        return tree_arrays(nodes, store.dictionaries, criterion_of(call.sampler.config), pool)

    @abstractmethod
    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> ProjectionTable:
        """The table as passes go over it, from its decoded values."""

    def passed_table(
        self, store: Store, config: TrainConfig, context: GrowContext, folder: Path, executor: Executor
    ) -> ProjectionTable:
        """See Family: the values, written to `folder`."""
        decoded = decode_table(store, block_ranges(store, executor.size), folder, executor, context.limits.values)
        return self.projection_table(store, Sampler.of(store, config), context, decoded)

    def grown_terms(self, shape: Shape, config: TrainConfig, splits: int) -> int:
        """Bytes of the terms of a tree with `splits` splits."""
        terms = math.ceil(splits * self.max_terms(shape.features, config))
        return terms * _TERM + min(terms, GROUP_ENTRIES) * _WRITTEN_TERM

    def node_terms(self, shape: Shape, config: TrainConfig) -> int:
        """Bytes of the terms of a node."""
        return math.ceil(_TERM * self.max_terms(shape.features, config))


def random_access_bytes(shape: Shape) -> int:
    """Bytes of all codes, targets and values of a table, which growing in memory reads at random."""
    return code_bytes(shape) + 8 * shape.codes


def decoded_bytes(shape: Shape) -> int:
    """Bytes of a value of the table in scratch (out_of_core/decoded_table.py), as far as known."""
    return 1 if shape.bits else 8
