"""The families of trees in random subspaces."""

from __future__ import annotations

import numpy as np

from bigforest.common.errors import ConfigError
from bigforest.common.memory_estimate import Shape
from bigforest.grow.families.projection import ProjectionFamily, decoded_bytes
from bigforest.grow.families.subspace.passes import SubspaceTable
from bigforest.grow.families.subspace.perceptron import TRAINED_ROW
from bigforest.grow.families.subspace.trees import SubspaceTrees, columns_of, is_shared, make_space, seen_as_bits
from bigforest.grow.out_of_core.context import GrowContext
from bigforest.grow.out_of_core.decoded_table import DecodedTable
from bigforest.grow.shared.memory import PassMemory, TreeMemory
from bigforest.grow.shared.row_cache import RowCache
from bigforest.kernels.columns.decoded import no_decoded_columns
from bigforest.kernels.columns.row_major import NO_ROWS
from bigforest.kernels.llvm.bit_sums import WORD
from bigforest.kernels.out_of_core.blocks import Steps
from bigforest.kernels.subspace.columns import Subspace
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store

# Bytes of a row of a growing tree besides: the row by class 4, its projection 8.
_WEIGHED = 12


class SubspaceFamily(ProjectionFamily):
    """Each tree, or node, has a subspace: nodes split between two class means, or by a perceptron of `epochs`
    passes."""

    oracle = "tests/naive/subspace.py"
    compiling = (80, 10.0)
    variants = ({"subspace_per": "node"},)
    splits = Subspace
    tasks = ("classification",)

    def __init__(self, name: str, splits_on: str, *, learns: bool) -> None:
        self.name = name
        self.splits_on = (splits_on, "Ho 1995")
        self.learns = learns

    def check(self, shape: Shape, config: TrainConfig) -> None:
        super().check(shape, config)
        if shape.extras.weighted:
            raise ConfigError(f"the family {self.name} has no weights of rows; use the family axis for weighted rows")

    def epochs(self, config: TrainConfig) -> int:
        """Most passes of a perceptron over the rows of a node; 0 without perceptrons."""
        return config.max_epochs if self.learns else 0

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        """See Family: the most features of a subspace."""
        return max(config.subspace_sizes(features)) if config.subspace_per == "tree" else features

    def max_terms(self, features: int, config: TrainConfig) -> float:
        """See Family: those of the largest subspace."""
        return max(config.subspace_sizes(features))

    def looks(self, features: int, config: TrainConfig) -> float:
        """See Family: the mean over the sizes of trees."""
        sizes = config.subspace_sizes(features)
        return 2 * (self.epochs(config) or 1) * sum(sizes) / len(sizes)

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        """See Family; the store is read in order, column by column, once per tree."""
        seen = self.drawn_from(shape.features, config)
        columns = shape.rows * self._space_row(shape, config)
        tree = rows * _WEIGHED + 8 * (config.steps + 1) * shape.classes + self.grown_terms(shape, config, splits)
        tree += 8 * -(-seen // WORD) * WORD * (shape.classes + 4)
        shared = is_shared(config, shape.features)
        return TreeMemory(columns, tree, 0) if shared else TreeMemory(0, columns + tree, 0)

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        seen, value = self.drawn_from(shape.features, config), decoded_bytes(shape)
        terms, space = self.node_terms(shape, config), self._space_row(shape, config)
        picked = BLOCK_ROWS * value * seen
        return PassMemory(
            drawn=1,
            # Values of a row, copies of those in the subspace, and once more to be written.
            block=BLOCK_ROWS * (value * shape.features + 80) + picked,
            picked=picked,
            row=2 * value * seen + space + _WEIGHED + terms,
            spilled=value * seen,
            node=terms,
            # Sums for means, then the stops.
            asks=max(2 * seen * shape.classes, config.steps * (shape.classes + 1)),
            level=1 if self.learns else 2,
            trained=space + TRAINED_ROW,
            epochs=self.epochs(config),
            decoded=value * shape.features,
            sweeps=1,
        )

    def row_cache(self, store: Store) -> RowCache:
        """See Family: nothing, trees have copies of their own."""
        return RowCache(NO_ROWS, no_decoded_columns(0), store)

    def shared(self, store: Store, config: TrainConfig, copies: RowCache) -> SubspaceTrees:
        features, epochs = len(store.spec.features), self.epochs(config)
        columns = columns_of(store, config, epochs)
        space = make_space(store, columns, np.arange(features)) if is_shared(config, features) else None
        return SubspaceTrees(config, epochs, columns, space)

    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> SubspaceTable:
        """See ProjectionFamily; dictionaries are read in order."""
        config, epochs = sampler.config, self.epochs(sampler.config)
        seen = columns_of(store, config, epochs)
        decoded = decoded._replace(steps=Steps(seen.low, np.where(seen.unit > 0.0, 0.0, -1.0), seen.per_step))
        return SubspaceTable(store, sampler, context, decoded, SubspaceTrees(config, epochs, seen, None))

    def _space_row(self, shape: Shape, config: TrainConfig) -> int:
        """Bytes of a row of the columns of a subspace, see kernels/subspace/columns.py."""
        seen = self.drawn_from(shape.features, config)
        bits = seen_as_bits(shape, config, self.epochs(config))
        return -(-seen // WORD) * WORD // 8 if bits else 8 * seen


FAMILIES = (
    SubspaceFamily(
        "subspace-cap",
        "the best of several points between the two class means farthest apart, in a random subspace; no bootstrap",
        learns=False,
    ),
    SubspaceFamily(
        "subspace-perceptron",
        "a perceptron trained to separate the classes near one of these means from those near the other, likewise",
        learns=True,
    ),
)
