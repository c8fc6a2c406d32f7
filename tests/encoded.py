"""Stores of opened tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigforest.encode import encode as encoding
from bigforest.encode.roles import column_roles
from bigforest.events import Listener
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.source.source import Source
from bigforest.store.store import Store

DEFAULTS = TrainConfig()


def encode(
    source: Source,
    target: str | None,
    path: Path,
    *,
    config: TrainConfig = DEFAULTS,
    exclude: Sequence[str] = (),
    resources: Resources,
    listener: Listener,
) -> Store:
    """Encode a table with the roles that its columns have by these options."""
    roles = column_roles(source, target, exclude, config)
    return encoding.encode(source, roles, path, config=config, resources=resources, listener=listener)
