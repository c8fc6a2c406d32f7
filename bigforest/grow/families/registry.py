"""What passes go over, by family."""

from __future__ import annotations

from pathlib import Path

from bigforest.execution.executor import Executor
from bigforest.grow.families.axis_passes import FeatureTable
from bigforest.grow.families.oblique_passes import prepare_directions
from bigforest.grow.out_of_core.passes import PassTable
from bigforest.grow.out_of_core.upper_tree import GrowContext
from bigforest.grow.shared.memory_in_memory import BY_VALUES
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


def passed_table(
    store: Store, config: TrainConfig, context: GrowContext, folder: Path, executor: Executor
) -> PassTable:
    """The table as trees of the family see it; `folder` is scratch as long as it is used."""
    if config.family in BY_VALUES:
        return prepare_directions(store, config, context, folder, executor)
    return FeatureTable(store, Sampler.of(store, config), context)
