"""The family of rotation trees. Families with other axes override how these are drawn."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import Shape
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.family import TreeCall
from bigforest.grow.families.projection import MEASURED, ProjectionFamily, decoded_bytes, random_access_bytes
from bigforest.grow.families.rotation.components import moments_shape, principal_axes_of
from bigforest.grow.families.rotation.passes import RotationTable
from bigforest.grow.families.rotation.trees import in_terms, random_axes, rotate, rotated_features, with_others
from bigforest.grow.families.sparse_oblique.trees import feature_scale
from bigforest.grow.out_of_core.context import GrowContext
from bigforest.grow.out_of_core.decoded_table import DecodedTable
from bigforest.grow.shared.criteria import criterion_of
from bigforest.grow.shared.feature_kinds import Features
from bigforest.grow.shared.memory import PassMemory, TreeMemory, target_bytes
from bigforest.grow.shared.row_cache import RowCache
from bigforest.grow.shared.tree_arrays import tree_arrays
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.scan.categorical_missing import NUMBER
from bigforest.kernels.tree.grow import grow
from bigforest.sampling.bags import Sampler, kept_trees
from bigforest.schema.config import TrainConfig
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store


class RotationFamily(ProjectionFamily):
    """Each tree has its own axes, and is grown on the projections on them as on features."""

    name = "rotation"
    splits_on = ("one coordinate of the table, standardised and rotated for every tree", "Rodriguez et al. 2006")
    options_of = name
    oracle = "tests/naive/rotation.py"
    compiling = (142, 15.0)
    variants = ({"rotation": "pca"}, {"rotation": "pca-classes"})

    def axes(self, config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """The axes of a tree if they do not depend on the rows, float64 [axes, features], see tree_axes; only over
        features that axes are made of."""
        return random_axes(config, tree, scale)

    def tree_axes(self, sampler: Sampler, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """The axes of a tree in units of the table, float64 [axes, features]; 0 if a feature is not used.

        scale  float64 [features], 1 / deviation of each feature, 0 where it has none.
        """
        config = sampler.config
        rotated = rotated_features(sampler.store.spec, config)
        if config.has_components:
            axes = principal_axes_of(sampler, tree, rotated, scale[rotated])
        else:
            axes = self.axes(config, tree, scale[rotated])
        return with_others(axes, rotated, scale)

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        """See Family: the axes of a rotated table."""
        return config.axis_count(features)

    def max_terms(self, features: int, config: TrainConfig) -> float:
        rotated = config.rotated_count(features)
        return min(config.subset_features, rotated) if config.has_components else rotated

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        axes = self.drawn_from(shape.features, config)
        codes = 2 * 4 * axes * shape.rows  # by columns and by rows
        tree = self.grown_terms(shape, config, splits) + codes + 24 * axes * rows + shape.rows * MEASURED
        tree += sum(_component_bytes(shape, config))
        return TreeMemory(shape.rows * (shape.row_bytes + MEASURED), tree, random_access_bytes(shape))

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        axes = self.drawn_from(shape.features, config)
        drawn = axes if config.feature_fraction is not None else config.drawn_features(axes)
        sums, sampled = _component_bytes(shape, config)
        target = target_bytes(shape)
        return PassMemory(
            drawn=drawn,
            # Values of a row three times, its projections twice when they are written.
            block=BLOCK_ROWS * (24 * shape.features + 8 * axes + 68 + (12 + target) * (drawn + 1)) + sampled,
            picked=BLOCK_ROWS * (8 * axes + target),
            row=24 * axes + target,
            spilled=8 * axes,
            node=self.node_terms(shape, config),
            kept=(24 * axes * shape.features + sums) * kept_trees(shape, config),
            before=1 + config.has_components,  # the range of axes, and the axes themselves if they depend on rows
            decoded=decoded_bytes(shape) * shape.features,
            sweeps=3,  # a deviation needs the mean first
        )

    def shared(self, store: Store, config: TrainConfig, copies: RowCache) -> NDArray[np.float64]:
        """See Family: the scale of the features, see tree_axes."""
        return feature_scale(store, "zscore")

    def grow(self, call: TreeCall, shared: NDArray[np.float64]) -> TreeArrays:
        store, config = call.sampler.store, call.sampler.config
        axes = self.tree_axes(call.sampler, call.first, shared)
        codes, dictionaries = rotate(store, axes, (call.items >> np.uint64(32)).astype(np.intp))
        nodes, _ = grow(codes, by_rows(codes), call.items, call.target, call.roots, call.rules)
        scale = store.spec.target.scale
        return in_terms(tree_arrays(nodes, dictionaries, criterion_of(config), scale=scale), axes)

    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> RotationTable:
        scale = feature_scale(store, "zscore", context.limits.values)
        rotated, axes = rotated_features(store.spec, sampler.config), sampler.config.axis_count(scale.size)
        context = context._replace(
            features=Features((0,) * axes, np.full(axes, NUMBER, np.uint8), np.ones(axes, np.int64))
        )
        return RotationTable(store, sampler, context, decoded, scale, rotated, self.axes)


def _component_bytes(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Bytes of the sums that principal components follow from, twice while those of blocks are added; and of a block of
    rows while its sums are taken: the values of a subset twice, and what tells the sample."""
    if not config.has_components:
        return 0, 0
    sums = 2 * 8 * math.prod(moments_shape(config, config.rotated_count(shape.features)))
    return sums, min(shape.rows, BLOCK_ROWS) * (16 * min(config.subset_features, shape.features) + 48)


FAMILIES = (RotationFamily(),)
