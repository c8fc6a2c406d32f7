"""Names of families and criteria, also of those from outside the package. What they do is registered in
grow/families/registry.py and grow/criteria.py."""

from __future__ import annotations

from typing import get_args

from bigforest.errors import ConfigError, listed
from bigforest.options.family_names import OPTIONS_OF, TASKS_OF
from bigforest.options.values import Impurity, Task

# The family of the package whose options each family has, and the tasks that it does, by name.
_FAMILIES: dict[str, str] = dict(OPTIONS_OF)
_TASKS: dict[str, tuple[str, ...]] = dict(TASKS_OF)
_IMPURITIES: list[str] = list(get_args(Impurity))


def name_family(name: str, options_of: str, tasks: tuple[Task, ...]) -> None:
    """Let TrainConfig take the family `name`, with the options and defaults of the family `options_of`, for these
    tasks."""
    if name in OPTIONS_OF or options_of not in OPTIONS_OF:
        raise ConfigError(f"a family needs a new name, not {name!r}, and the options of a family of the package")
    _FAMILIES[name] = options_of
    _TASKS[name] = tasks


def name_impurity(name: str) -> None:
    """Let TrainConfig take the impurity `name`, of classes."""
    if name in get_args(Impurity):
        raise ConfigError(f"an impurity needs a new name, not {name!r}")
    if name not in _IMPURITIES:
        _IMPURITIES.append(name)


def families() -> tuple[str, ...]:
    """Names of all families."""
    return tuple(_FAMILIES)


def impurities() -> tuple[str, ...]:
    """Names of all impurities."""
    return tuple(_IMPURITIES)


def check_task(family: str, task: Task) -> None:
    """Raise ConfigError unless trees of the family do this task."""
    if task not in _TASKS[family]:
        done = listed(list(_TASKS[family]))
        raise ConfigError(f"the family {family} is for {done}; use the family axis for {task}")


def base_family(family: object) -> str:
    """The family of the package whose options this one has: itself, if it is one; empty for what is no family."""
    return _FAMILIES.get(family, "") if isinstance(family, str) else ""
