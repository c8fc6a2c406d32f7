"""The family of trees that split on sparse random projections."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bigforest.common.memory_estimate import Shape
from bigforest.grow.families.projection import MEASURED, ProjectionFamily, decoded_bytes, random_access_bytes
from bigforest.grow.families.sparse_oblique.passes import SparseObliqueTable
from bigforest.grow.families.sparse_oblique.trees import SparseObliqueTrees, sparse_trees
from bigforest.grow.out_of_core.context import GrowContext
from bigforest.grow.out_of_core.decoded_table import DecodedTable
from bigforest.grow.shared.memory import PassMemory, TreeMemory, code_bytes, target_bytes
from bigforest.grow.shared.row_cache import RowCache, row_cache_of
from bigforest.kernels.columns.decoded import WIDE_CODE, no_decoded_columns
from bigforest.kernels.oblique.search import Oblique
from bigforest.kernels.out_of_core.blocks import Steps
from bigforest.sampling.bags import Sampler, kept_trees
from bigforest.schema.config import TrainConfig
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store

# Further bytes of a row of a growing tree: projections on two directions 16, scratch to order them 26.
_PROJECTED = 42
# Share of the features that have a weight in a direction.
_SHARE: dict[str, Callable[[int], float]] = {
    "rerf": lambda features: 1 / features,
    "sporf": lambda features: 1 / features,
    "gaussian": lambda features: 1.0,
    "very-sparse": lambda features: features**-0.5,
}


class SparseObliqueFamily(ProjectionFamily):
    """Nodes draw a sparse random matrix and, with `mean_difference`, differences of class means."""

    name = "sparse-oblique"
    splits_on = (
        "one of about `projections` random sums of features, drawn in the node",
        "Tomita et al., Randomer forests",
    )
    options_of = name
    oracle = "tests/naive/oblique.py"
    compiling = (170, 30.0)
    variants = (
        {"mean_difference": "all", "mean_difference_scope": "tree"},
        {"mean_difference": "all", "mean_difference_scope": "node"},
        {"projection_kind": "gaussian"},
    )
    splits = Oblique

    def max_terms(self, features: int, config: TrainConfig) -> float:
        terms = features * (config.density or _SHARE[config.projection_kind](features))
        return features if config.mean_difference != "none" else min(features, 2.0 * terms + 1.0)

    def looks(self, features: int, config: TrainConfig) -> float:
        return config.drawn_projections(features) * self.max_terms(features, config)

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        tree = self.grown_terms(shape, config, splits)
        tree += rows * _PROJECTED + 8 * config.drawn_projections(shape.features)
        shared = shape.rows * (shape.row_bytes + MEASURED) + 8 * shape.rows * shape.widths.count(WIDE_CODE)
        if shape.extras.filled:
            shared += code_bytes(shape) + 8 * shape.codes
        if config.mean_difference != "none":
            pairs = _max_pairs(shape, config)
            shared += 8 * shape.codes
            tree += 8 * shape.features * shape.classes
            tree += pairs * (8 * shape.rows + 12 * shape.features) if config.mean_difference_scope == "tree" else 0
        return TreeMemory(shared, tree, random_access_bytes(shape))

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        pairs = _max_pairs(shape, config)
        of_tree = pairs > 0 and config.mean_difference_scope == "tree"
        drawn = config.drawn_projections(shape.features) + pairs
        terms = self.node_terms(shape, config)
        # For each cell the value, its code by columns and by rows, the distinct values, and their steps.
        row = (24 + (4 if pairs else 0)) * shape.features + _PROJECTED + (8 * pairs if of_tree else 0)
        value, target = decoded_bytes(shape), target_bytes(shape)
        return PassMemory(
            drawn=drawn,
            # Bytes collected for a row, for each direction, besides its values.
            block=BLOCK_ROWS * (8 * shape.features + 68 + (12 + target) * (drawn + 1)),
            picked=BLOCK_ROWS * (8 * shape.features + target),
            row=row + terms + target,
            spilled=value * shape.features,
            node=terms,
            kept=shape.features * (12 * pairs + 8 * shape.classes * of_tree) * kept_trees(shape, config),
            level=2 + (pairs > 0 and not of_tree),
            before=int(of_tree),
            decoded=value * shape.features,
            sweeps=3 if config.normalize == "zscore" else 1,  # a deviation needs the mean first
        )

    def row_cache(self, store: Store) -> RowCache:
        """See Family: with values."""
        return row_cache_of(store, wide=True)

    def shared(self, store: Store, config: TrainConfig, copies: RowCache) -> SparseObliqueTrees:
        return sparse_trees(store, config, copies.wide)

    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> SparseObliqueTable:
        """See ProjectionFamily; see sparse_trees for how many values are held."""
        spans = decoded.spans
        wide = no_decoded_columns(spans.low.size)
        draws = sparse_trees(store, sampler.config, wide, context.limits.values).draws
        decoded = decoded._replace(steps=Steps(spans.low, draws.span, np.zeros(spans.low.size)))
        return SparseObliqueTable(store, sampler, context, decoded, draws)


def _max_pairs(shape: Shape, config: TrainConfig) -> int:
    """Differences of class means at most."""
    pairs = shape.classes * (shape.classes - 1) // 2 if config.mean_difference == "all" else shape.classes - 1
    return 0 if config.mean_difference == "none" else pairs


FAMILIES = (SparseObliqueFamily(),)
