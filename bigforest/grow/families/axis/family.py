"""The family of trees that split on features, and single trees of it."""

from __future__ import annotations

from pathlib import Path

from bigforest.common.errors import ConfigError, listed
from bigforest.common.memory_estimate import Shape
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.axis.passes import FeatureTable
from bigforest.grow.families.axis.random_search import OWN_VALUE, dictionary_of
from bigforest.grow.families.family import Family, TreeCall
from bigforest.grow.out_of_core.context import CODES, GrowContext, MemoryLimits
from bigforest.grow.shared.criteria import criterion_of
from bigforest.grow.shared.memory import PassMemory, TreeMemory, code_bytes, target_bytes
from bigforest.grow.shared.row_cache import RowCache
from bigforest.grow.shared.tree_arrays import drawn_of_trees, tree_arrays
from bigforest.kernels.scan.random_split import CodeDictionary
from bigforest.kernels.tree.builder import Rules
from bigforest.kernels.tree.grow import grow
from bigforest.sampling.bags import Sampler, distinct_rows
from bigforest.schema.config import TrainConfig
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store

# Most rows of the bags of trees that grow in one call of the kernel, unless a single bag has more.
_ROWS_TOGETHER = 1 << 17


class AxisFamily(Family):
    """Splits on features, the best of all or one drawn at random."""

    by_values = False
    oracle = "tests/naive/tree.py"
    compiling = (142, 15.0)
    variants = ({"ranks": True},)

    def __init__(self, name: str, splits_on: tuple[str, str]) -> None:
        self.name = name
        self.splits_on = splits_on

    def check(self, shape: Shape, config: TrainConfig) -> None:
        if config.ranks and shape.extras.odd:
            raise ConfigError(
                f"ranks need numbers without missing values, unlike {listed(list(map(repr, shape.extras.odd)))}: "
                "exclude these columns, fill or convert them, or train without ranks"
            )

    def together(self, shape: Shape, config: TrainConfig) -> int:
        """See Family: some small ones."""
        return max(1, min(config.trees, _ROWS_TOGETHER // distinct_rows(shape.rows, config, shape.classes)))

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        """See Family: the codes by rows, and the values if thresholds are drawn."""
        values = 0 if config.splitter == "best" else 8 * shape.codes
        return TreeMemory(shape.rows * shape.row_bytes, 0, code_bytes(shape) + values)

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        drawn = shape.features if config.feature_fraction is not None else config.drawn_features(shape.features)
        target = target_bytes(shape)
        picked = BLOCK_ROWS * (shape.row_bytes + target)
        drawn_value = OWN_VALUE * shape.features if config.splitter == "random" else 0
        return PassMemory(
            drawn=drawn,
            block=picked + BLOCK_ROWS * (36 + (8 + target) * (drawn + 1)),
            picked=picked,
            row=2 * shape.row_bytes + target + drawn_value,  # codes by columns and by rows
            spilled=shape.row_bytes,
            scored=64 if shape.extras.regression else 48,
        )

    def shared(self, store: Store, config: TrainConfig, copies: RowCache) -> CodeDictionary | None:
        """See Family: for random splits; None for best splits."""
        return dictionary_of(store) if config.splitter == "random" else None

    def grow(self, call: TreeCall, shared: CodeDictionary | None) -> TreeArrays:
        store, config = call.sampler.store, call.sampler.config
        mixed = call.features.mixed(call.roots.max_rows, call.target.number)
        trees = (call.items, call.target, call.roots, call.rules)
        nodes, subsets = grow(store.codes, call.by_row, *trees, mixed, shared)
        known = None if shared is None else drawn_of_trees(nodes, store.dictionaries, config.seed, call.first)
        criterion, scale = criterion_of(config), store.spec.target.scale
        return tree_arrays(nodes, store.dictionaries, criterion, known=known, subsets=subsets, scale=scale)

    def passed_table(
        self, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, folder: Path, executor: Executor
    ) -> FeatureTable:
        context = GrowContext.of(store, config, rules, limits, CODES)
        return FeatureTable(store, Sampler(store, config), context)


FAMILIES = (
    AxisFamily("axis", ("one of `mtry` features drawn in the node", "Breiman 2001")),
    AxisFamily("tree", ("any feature; one tree, no bootstrap", "Breiman et al. 1984, CART")),
)
