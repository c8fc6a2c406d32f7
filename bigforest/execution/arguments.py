"""Conversion of the arguments of public functions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bigforest.errors import ConfigError, api, shown
from bigforest.execution.resources import Resources
from bigforest.options.values import plain, several
from bigforest.planning.sizes import parse_bytes
from bigforest.storage.paths import as_path

_ALL_PROCESSORS = Resources()


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of TrainConfig as plain values, with weights of classes from their file. Raises ConfigError."""
    found = {name: plain(value) for name, value in options.items()}
    weights = found.get("class_weight")
    if isinstance(weights, str | Path) and weights != "balanced":
        found["class_weight"] = _class_weights(weights)
    return found


def _class_weights(path: str | Path) -> dict[str, Any]:
    """Read weights of classes from a file or text of JSON: an object with the classes as keys."""
    try:
        written = isinstance(path, str) and path.lstrip().startswith("{")
        weights = json.loads(str(path) if written else as_path(path).read_text(encoding="utf-8"))
        if not isinstance(weights, dict):
            raise ValueError(f"it holds no object, but {type(weights).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        found = "there is no such file" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error}"
        raise ConfigError(
            f'{api("class_weight")} must be "balanced", JSON such as {{"late": 2.5}} or a file of it, '
            f"not {shown(str(path))}: {found}"
        ) from error
    return weights


def resources_of(threads: int | None, scratch: str | Path | None, memory: str | int | None) -> Resources:
    """Return the resources of a run on threads; `open_resources` adds the cluster. Raises ConfigError."""
    if threads is None and scratch is None and memory is None:
        return _ALL_PROCESSORS  # checking takes as long as a tree of one row
    return Resources(
        threads=plain(threads),
        scratch=None if scratch is None else as_path(scratch),
        memory=None if memory is None else parse_bytes(plain(memory)),
    )


def column_names(columns: Iterable[str] | str, option: str) -> list[str]:
    """Return names of columns as a list; a single name is one column. Raises ConfigError."""
    names = list(several(columns))
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{api(option)} must be names of columns, not {columns!r}")
    return names


def target_of(name: str | None) -> str | None:
    """Return the name of the target, or None. Raises ConfigError."""
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{api('target')} must be the name of a column, not {name!r}")
    return name
