"""What is to be trained, and the store it is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigforest.common.errors import ConfigError
from bigforest.common.events import Listener
from bigforest.encode.pipeline import encode
from bigforest.encode.weights import class_weight_of, for_all_classes
from bigforest.execution.resources import Resources
from bigforest.schema.columns import kind_of
from bigforest.schema.config import TrainConfig, check_features
from bigforest.source import Source, open_source
from bigforest.storage.paths import absolute, as_path
from bigforest.store.format import is_store
from bigforest.store.store import Store
from bigforest.training.memory import check_boosting, check_budget, check_machine


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What is to be trained: arguments of `bigforest.train`; `options` are the fields of TrainConfig given.

    validate  the table to evaluate the forest on; None for none. It is not kept in an unfinished run.
    """

    data: Any
    target: str | None
    exclude: tuple[str, ...]
    options: Mapping[str, Any]
    validate: Any = None

    @property
    def config(self) -> TrainConfig:
        """The configuration, with the defaults of what was not given."""
        return TrainConfig.of(**self.options)

    @property
    def location(self) -> str | None:
        """Absolute path, or glob, of the table or kept store; None for a table in memory."""
        data = self.data.path if isinstance(self.data, Store) else self.data
        return absolute(data) if isinstance(data, str | Path) else None


def open_table(data: Any, temporary: Path, *, memory: int | None = None, verify: bool = True) -> Source | Store:
    """The store that `data` is or names, else the table, read through the folder `temporary` (open_source).

    verify  read and check all of a store on the disk.
    """
    if isinstance(data, str | Path) and is_store(as_path(data)):
        return Store.open(data, verify=verify)
    return data if isinstance(data, Store) else open_source(data, scratch=temporary, memory=memory)


def make_store(
    task: TrainingJob, place: Path, temporary: Path, resources: Resources, listener: Listener
) -> tuple[Store, TrainConfig]:
    """The store to train on, made at `place` unless `data` is one, and the configuration, part of which it may
    decide."""
    table = open_table(task.data, temporary, memory=resources.memory)
    target, exclude, config = task.target, task.exclude, task.config
    if isinstance(table, Store):
        config = agreed(table, task)
    check_budget(table, task.data, target, exclude, config, resources)
    if not isinstance(table, Store):
        table = encode(table, target, place, config=config, exclude=exclude, resources=resources, listener=listener)
        config = config.settled(table.spec.target.task)
    check_boosting(table.rows, config, resources)
    check_machine(table, config, resources)
    return table, config


def agreed(store: Store, task: TrainingJob) -> TrainConfig:
    """The configuration with the options that the store was made with.

    Raises ConfigError where the options differ from that, or ask for more features than there are.
    """
    config, spec = task.config, store.spec
    check_features(config, {feature.name for feature in spec.features})
    if task.exclude:
        raise ConfigError(f"columns are excluded when a table is encoded, and {store.path} is a store; encode it again")
    group = None if spec.group is None or not config.bootstrap else spec.group.name
    class_weight = class_weight_of(spec)
    weight = None if spec.weight is None else spec.weight.name
    categories = tuple(f.name for f in spec.features if f.kind == "category" and kind_of(f.dtype).family != "text")
    for name, given, own in (
        ("target", task.target, spec.target.name),
        ("max_bins", None if config.max_bins == "exact" else config.max_bins, store.max_bins),
        ("group", config.group, group),
        ("task", config.task, spec.target.task),
        ("categories", sorted(config.categories) or None, sorted(categories)),
        ("weight", config.weight, weight),
        ("class_weight", for_all_classes(spec.target, config.class_weight), class_weight),
    ):
        if given not in (None, own):
            raise ConfigError(
                f"the store {store.path} was made with {name} {own!r}, not {given!r}; encode the table again"
            )
    config = replace(config, max_bins=store.max_bins, group=group, categories=categories)
    return replace(config, weight=weight, class_weight=class_weight).settled(spec.target.task)
