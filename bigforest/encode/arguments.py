"""Arguments of `train` and `encode_store`: arrays become columns of the table, options become plain values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from bigforest.encode.roles import USUAL_NAMES
from bigforest.errors import ConfigError, api, shown
from bigforest.options.values import names_of, plain
from bigforest.source.in_memory import with_columns_beside
from bigforest.source.open import declared_categories
from bigforest.source.source import Reading
from bigforest.storage.paths import as_path


class ColumnArguments(NamedTuple):
    """Arguments of `train` and `encode_store` about the table, with every column named.

    data     the table; arrays given as `target`, `weight` or `group` are columns of it.
    target   name of the target column; None to look for a column with one of USUAL_NAMES (roles.py).
    exclude  names of columns to ignore.
    options  explicit options of TrainConfig.
    """

    data: Any
    target: str | None
    exclude: tuple[str, ...]
    options: dict[str, Any]


def column_arguments(
    data: Any, target: Any, exclude: Any, options: dict[str, Any], *, resumes: bool = False
) -> ColumnArguments:
    """Name the columns that the arguments refer to, and add arrays among the arguments to the table.

    Numeric columns that the table declares as categories (`declared_categories`) are added to the option `categories`.
    With `resumes` nothing is added, because the forest has recorded its categories. Raises ConfigError and DataError.
    """
    beside = {"target": target, "weight": options.get("weight"), "group": options.get("group")}
    declared = {} if resumes else declared_categories(data[0] if isinstance(data, tuple) and data else data)
    left_out = names_of(exclude, "exclude")
    data = as_path(data) if isinstance(data, os.PathLike) else data
    data, names = with_columns_beside(data, beside, Reading(excluded=frozenset(left_out)))
    options = plain_options(options | {name: names[name] for name in ("weight", "group") if name in options})
    target = names["target"]
    if target is not None and not isinstance(target, str):
        raise ConfigError(f"{api('target')} must be the name of a column, not {target!r}")
    if coded := [name for name, is_coded in declared.items() if is_coded]:
        usual = next((name for name in USUAL_NAMES if name in declared), None)
        no_features = {target or usual, *names.values(), *left_out}
        categories = list(names_of(options.get("categories", ()), "categories"))
        options["categories"] = tuple(
            dict.fromkeys([*categories, *(name for name in coded if name not in no_features)])
        )
    return ColumnArguments(data, target, left_out, options)


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of TrainConfig as plain values. Class weights in a file, or as JSON, are read.

    Raises ConfigError.
    """
    entries = {name: plain(value) for name, value in options.items()}
    weights = entries.get("class_weight")
    if isinstance(weights, str | Path) and weights != "balanced":
        entries["class_weight"] = _class_weights(weights)
    return entries


def _class_weights(given: str | Path) -> dict[str, Any]:
    """Read weights of classes from JSON, or from a file of JSON: an object with the classes as keys."""
    try:
        is_json = isinstance(given, str) and given.lstrip().startswith("{")
        text = str(given) if is_json else as_path(given).read_text(encoding="utf-8-sig")
        weights = json.loads(text, object_pairs_hook=_without_repeats)
        if not isinstance(weights, dict):
            raise ValueError(f"it holds no object, but {type(weights).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        problem = "there is no such file" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error}"
        raise ConfigError(
            f'{api("class_weight")} must be "balanced", JSON such as {{"late": 2.5}} or a file of it, '
            f"not {shown(str(given))}: {problem}"
        ) from error
    return weights


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict. Raises ValueError when a key occurs twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("it names a class twice")
    return entries
