"""Candidates: named sets of training options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigforest.common.errors import ConfigError, shown
from bigforest.schema.config import TrainConfig
from bigforest.schema.train_options import OPTIONS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
MOST_CANDIDATES = 50
# Options that all candidates have in common, as they share the table, its bags, and the number of trees.
_ENCODING = {name for name, one in OPTIONS.items() if one.option.encodes}
SHARED = frozenset({"trees", "seed", "bootstrap", "stop_oob", *_ENCODING})
# The simpler ones first: among candidates without a clear difference the first wins.
_DEFAULT: dict[str, dict[str, Any]] = {
    "default": {},
    "larger-leaves": {"min_leaf": 5},
    "entropy": {"impurity": "entropy"},
    "without-replacement": {"replace": False, "sample_fraction": 0.632},
    "all-features": {"mtry": "all"},
    "sparse-oblique": {"family": "sparse-oblique"},
    "rotation": {"family": "rotation"},
}


def default_candidates(task: str, most: int | None) -> dict[str, dict[str, Any]]:
    """The options of the default candidates, by name; only of the first `most`, if it is not None.

    The defaults; leaves of 5 rows, against noise; entropy, of classes; bags without replacement, which leave out the
    same share of the rows; all features at every node; and splits on projections, sparse and rotated.
    """
    names = [name for name, options in _DEFAULT.items() if task == "classification" or "impurity" not in options]
    if most is not None:
        check_candidate_count(most, len(names))
    return {name: dict(_DEFAULT[name]) for name in names[:most]}


def check_candidate_count(count: int, most: int = len(_DEFAULT), name: str = "candidates") -> None:
    """Raise ConfigError, which names the option, unless there are `count` default candidates."""
    if isinstance(count, bool) or not 2 <= count <= most:
        raise ConfigError(f"{name} must be a number of default candidates from 2 to {most}, not {shown(count)}")


def given_candidates(
    given: Mapping[str, Mapping[str, Any]] | str | Path, base: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The options of the candidates of a mapping, or of a TOML file with a table for each, by name.

    base  options that all of them have. Raises ConfigError.
    """
    tables = _read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(tables, Mapping) or not 2 <= len(tables) <= MOST_CANDIDATES:
        raise ConfigError(f"candidates must be from 2 to {MOST_CANDIDATES} names, each with its options")
    candidates = {}
    for name, options in tables.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{shown(name)} cannot be the name of a candidate: it takes letters, digits, - and _, 40 at most"
            )
        if not isinstance(options, Mapping):
            raise ConfigError(f"the candidate {name} must have a table of options, not {shown(options)}")
        for option in options:
            if option in SHARED:
                raise ConfigError(
                    f"the candidate {name} cannot have {option}: all candidates share it; set it in options"
                )
            if option not in OPTIONS:
                raise ConfigError(f"the candidate {name} has an unknown option {shown(option)}; see bigforest.train")
        try:
            TrainConfig.of(**{**base, **options})
        except ConfigError as error:
            raise ConfigError(f"the candidate {name}: {error}") from error
        candidates[name] = dict(options)
    if len({name.casefold() for name in candidates}) < len(candidates):
        raise ConfigError("two candidates have the same name but for upper and lower case; rename one")
    return candidates


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file of candidates; check the path") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the candidates {path} cannot be read: {error}") from error
