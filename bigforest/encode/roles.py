"""The roles of the columns of a table: target, groups, weights, and features with their kinds.

Columns are named before anything is read, so that an error about one costs no time; only a target of whole numbers,
dates or times is read, to tell classes from measurements.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from itertools import takewhile
from typing import NamedTuple

import polars as pl

from bigforest.columns.types import Leaf, is_feature_type, is_text_type, leaves
from bigforest.encode.rows import check_group
from bigforest.encode.targets import DistinctValues, find_task
from bigforest.encode.weights import check_weight
from bigforest.errors import DataError, api, listed
from bigforest.options.train_config import TrainConfig, check_features
from bigforest.options.values import Task
from bigforest.source import Source

USUAL_NAMES = ("target", "label", "class", "y")

# Names that pandas writes for an index without a name to Parquet and Arrow. The index of a frame is no feature either.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Names of an index without a name in files of text: empty, or Unnamed once pandas has read and written them again.
_INDEX_IN_TEXT = re.compile(r"|Unnamed: 0(\.\d+)*")


class ColumnRoles(NamedTuple):
    """Roles of the columns of a table.

    columns  all columns, nested ones as their leaves.
    others   columns of groups and of weights.
    kinds    "numeric" or "category", of each feature.
    values   distinct values of the target, if they were read and are classes.
    why      reason for the task, see `TargetTask`.
    indexes  columns left out because they are an index without a name.
    """

    columns: dict[str, Leaf]
    target: str
    task: Task
    others: list[str]
    kinds: dict[str, str]
    values: DistinctValues | None
    why: str | None
    indexes: list[str]


def column_roles(source: Source, target: str | None, exclude: Collection[str], config: TrainConfig) -> ColumnRoles:
    """Return the roles of the columns; arguments as in `encode`. Raises DataError and ConfigError for unfit ones."""
    columns = leaves(source.schema)
    name = find_target(columns, target)
    task, values, why = find_task(source, columns[name], config.task, config.only_task)
    config.for_task(task)
    others = _groups_and_weights(config, columns, name)
    left_out = [*exclude, *others]
    indexes = [own for own in _indexes(source, columns) if own not in (name, *left_out, *config.categories)]
    kinds = feature_kinds(columns, name, [*left_out, *indexes], config.categories)
    check_features(config, kinds)
    for used in (name, *others, *kinds):
        if "\0" in used:
            raise DataError(
                f"the name of column {used!r} has a zero byte, which no Arrow file has; rename or exclude it"
            )
    return ColumnRoles(columns, name, task, others, kinds, values, why, indexes)


def _indexes(source: Source, columns: Collection[str]) -> list[str]:
    """Return the first columns of files if they are an index without a name, as pandas and R write it."""
    named = takewhile(_INDEX_IN_TEXT.fullmatch, columns)
    return list(named) if source.files else []


def _groups_and_weights(config: TrainConfig, columns: Mapping[str, Leaf], target: str) -> list[str]:
    """Return the columns of groups and of weights. Raises DataError when one cannot have its role."""
    roles = {}
    for role, name, check in (("group", config.group, check_group), ("weight", config.weight, check_weight)):
        if name is not None:
            check_column(name, columns, role)
            if name == target or name in roles:
                other = "target" if name == target else "column of groups"
                raise DataError(f"{name!r} is the {other} and cannot also be the {role}; choose another column")
            check(name, columns[name].dtype)
            roles[name] = role
    return list(roles)


def feature_kinds(
    leaves: Mapping[str, Leaf], target: str, exclude: Collection[str], categories: Collection[str]
) -> dict[str, str]:
    """Return the kind of each feature: of all leaves but the target and the excluded columns.

    categories  features of whole numbers or booleans that are categories; features of text always are.

    Raises DataError when one cannot be a feature.
    """
    names = _choose_features(leaves, target, exclude)
    for name in categories:
        if name in leaves and name not in names:
            raise DataError(
                f"{name!r} is not a feature, so its values cannot be categories; drop it from {api('categories')}"
            )
        check_column(name, names, "categories")
        dtype = leaves[name].dtype
        if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_integer()):
            raise DataError(
                f"{name!r} has type {dtype}; only text, whole numbers and booleans can be categories: cast it to one"
            )
    return {name: "category" if name in categories or is_text_type(leaves[name].dtype) else "numeric" for name in names}


def _choose_features(leaves: Mapping[str, Leaf], target: str, exclude: Collection[str]) -> list[str]:
    columns = {leaf.column for leaf in leaves.values()}
    for name in exclude:
        check_column(name, {**leaves, **dict.fromkeys(columns)}, "exclude")
        if name == target:
            raise DataError(f"{name!r} is the target and cannot be excluded; name another target, or keep it")
    left_out = {target, *exclude}
    names = [
        name
        for name, leaf in leaves.items()
        if name not in left_out and leaf.column not in exclude and not _PANDAS_INDEX.fullmatch(leaf.column)
    ]
    if not names:
        raise DataError(f"no feature is left besides target {target!r}; exclude fewer columns")
    unusable = [name for name in names if not is_feature_type(leaves[name].dtype)]
    if unusable:
        named = listed([f"{name} ({leaves[name].dtype})" for name in unusable])
        lists = any(isinstance(leaves[name].dtype, pl.List) for name in unusable)
        hint = "; lists that are all of one length can be cast to Array" if lists else ""
        raise DataError(
            f"columns of these types cannot be features: {named}; exclude them or convert them to numbers or text{hint}"
        )
    return names


def find_target(columns: Collection[str], wanted: str | None) -> str:
    """Return the name of the target: `wanted`, or the first usual name that is a column. Raises DataError."""
    if wanted is not None:
        check_column(wanted, columns, "target")
        return wanted
    for name in USUAL_NAMES:
        if name in columns:
            return name
    names = list(columns)
    lower = {name.lower(): name for name in reversed(names)}
    near = [match for one in USUAL_NAMES for match in get_close_matches(one, lower, n=2, cutoff=0.75)]
    likely = list(dict.fromkeys([*(lower[match] for match in near), *names[-1:]]))
    raise DataError(
        f"no column is named {', '.join(USUAL_NAMES[:-1])} or {USUAL_NAMES[-1]}; set {api('target')} to the column to "
        f"predict, such as {' or '.join(map(repr, likely))}: the columns are {listed(names)}{_undivided(names)}"
    )


def check_column(name: str, columns: Collection[str], role: str) -> None:
    """Raise DataError when `name` is not among `columns`; name similar ones."""
    if name not in columns:
        near = get_close_matches(name, list(columns), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the columns are {listed(list(columns))}"
        if all(part.strip() in columns for part in name.split(",")):
            hint = "give each of these columns by itself"
        raise DataError(f"there is no column {name!r} for {api(role)}; {hint}{_undivided(columns)}")


def _undivided(columns: Collection[str]) -> str:
    """Return advice for a table whose only column seems to be an undivided header, else an empty text."""
    if len(columns) > 1 or all(map(str.isidentifier, columns)):
        return ""
    return "; where that is a whole header, write values with a comma, a semicolon, a tab or | between them"
