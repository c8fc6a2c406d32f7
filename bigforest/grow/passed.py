"""What passes go over, by family."""

from __future__ import annotations

from pathlib import Path

from bigforest.config import TrainConfig
from bigforest.grow.feature_passes import FeaturePasses
from bigforest.grow.need_whole import BY_VALUES
from bigforest.grow.oblique_passes import prepare_directions
from bigforest.grow.passes import Table
from bigforest.grow.top import Ground
from bigforest.sample import Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.store import Store


def passed_table(store: Store, config: TrainConfig, ground: Ground, folder: Path, crew: Crew) -> Table:
    """The table as trees of the family see it; `folder` is scratch for as long as it is used."""
    if config.family in BY_VALUES:
        return prepare_directions(store, config, ground, folder, crew)
    return FeaturePasses(store, Sampler.of(store, config), ground)
