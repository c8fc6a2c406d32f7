"""What is to be trained, and the state of a run, from which it continues: state.json of resumable_run.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bigforest.errors import api
from bigforest.options.train_config import TrainConfig
from bigforest.storage.paths import absolute
from bigforest.storage.state_file import StateFormat
from bigforest.store.store import Store
from bigforest.version import __version__

STATE_FORMAT = StateFormat("bigforest-run", 2, f"start again with {api('overwrite')}, or remove its folder")


def versions() -> dict[str, str]:
    """The software versions on which a forest depends, besides data, configuration and seed."""
    return {"bigforest": __version__, "numpy": ".".join(np.__version__.split(".")[:2])}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """All that a run needs to continue.

    data         absolute path of the table or kept store; None for a table in memory.
    target       the column to learn, None for the usual names.
    exclude      columns to leave out.
    config       the configuration; max_bins is the store's once there is one.
    work         absolute path of the folder for the store and for temporary files; a file in it has the `mark`.
    mark         random digits by which the run recognises the folder that it made.
    replaces     whether the forest may replace one that is there.
    extends      trees of an existing forest which this one begins with, 0 for none.
    fingerprint  `Store.fingerprint` of the table, None while it is not known.
    settled      trees after which the out-of-bag error stopped decreasing, if that decides; None while unknown.
    versions     see `versions`.
    other_work   absolute path of the folder that the work moves to or has just moved from; None except while it moves.
    """

    data: str | None
    target: str | None
    exclude: tuple[str, ...]
    config: TrainConfig
    work: str = ""
    mark: str = ""
    replaces: bool
    extends: int = 0
    fingerprint: str | None = None
    versions: dict[str, str] = field(default_factory=versions)
    settled: int | None = None
    other_work: str | None = None

    def write(self, path: Path) -> None:
        """Write state.json."""
        STATE_FORMAT.write(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> RunState:
        """Inverse of `write`. Raises FormatError when the file is missing, damaged or of another version."""
        return STATE_FORMAT.read(path, cls._of)

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> RunState:
        config = TrainConfig.from_json(json.dumps(raw["config"]))
        state = cls(**{**raw, "config": config, "exclude": tuple(raw["exclude"])})
        if not _typed(state):
            raise ValueError("an entry is of another type")
        return state


def _typed(state: RunState) -> bool:
    """Whether the entries of a state that was read are of their types."""
    texts = [state.work, state.mark, *state.exclude, *state.versions, *state.versions.values()]
    perhaps = [text for text in (state.data, state.target, state.fingerprint, state.other_work) if text is not None]
    numbers = [state.extends, *([] if state.settled is None else [state.settled])]
    return (
        all(isinstance(text, str) and "\0" not in text for text in [*texts, *perhaps])
        and all(type(number) is int and number >= 0 for number in numbers)
        and isinstance(state.replaces, bool)
    )
