"""Names of families and impurities, including names from outside the package.

Their code is registered in grow/families/registry.py and grow/criteria.py.
"""

from __future__ import annotations

from bigforest.errors import ConfigError, listed
from bigforest.options.package_names import IMPURITIES, LACKS, OPTIONS_OF, TASKS_OF
from bigforest.options.values import Task

# For each family: its base family, which is the family of the package whose options it has; the options of the base
# family that it lacks; its tasks.
_FAMILIES: dict[str, str] = {name: OPTIONS_OF.get(name, name) for name in TASKS_OF}
_LACKS: dict[str, tuple[str, ...]] = dict(LACKS)
_TASKS: dict[str, tuple[str, ...]] = dict(TASKS_OF)
# Task of each impurity.
_IMPURITIES: dict[str, Task] = dict(IMPURITIES)


def name_family(name: str, options_of: str, tasks: tuple[Task, ...], lacks: tuple[str, ...]) -> None:
    """Register the family `name` for these tasks, with the options and defaults of the family `options_of`.

    lacks  options of `options_of` that the family does not have

    Raises ConfigError if `name` is a family of the package, or if `options_of` is not.
    """
    if name in TASKS_OF:
        raise ConfigError(f"a family needs a new name, not {name!r}")
    if options_of not in TASKS_OF:
        raise ConfigError(f"a family needs the options of a family of the package, not of {options_of!r}")
    _FAMILIES[name] = options_of
    _LACKS[name] = lacks
    _TASKS[name] = tasks


def name_impurity(name: str) -> None:
    """Register the impurity `name`, for classification. Raises ConfigError for an impurity of the package."""
    if name in IMPURITIES:
        raise ConfigError(f"an impurity needs a new name, not {name!r}")
    _IMPURITIES[name] = "classification"


def families() -> tuple[str, ...]:
    return tuple(_FAMILIES)


def impurities() -> tuple[str, ...]:
    return tuple(_IMPURITIES)


def check_task(family: str, task: Task) -> None:
    """Raise ConfigError for a family without this task."""
    if task not in _TASKS[family]:
        fits = listed(list(_TASKS[family]))
        raise ConfigError(f"the family {family} is for {fits}; use the family axis for {task}")


def check_impurity(impurity: str, task: Task) -> None:
    """Raise ConfigError for an impurity of the other task."""
    if (fits := _IMPURITIES[impurity]) != task:
        others = ", ".join(name for name, of in _IMPURITIES.items() if of == task)
        raise ConfigError(
            f"the impurity {impurity} is for {fits}; use one of {others}, or the task {fits} where the target fits it"
        )


def base_family(family: object) -> str:
    """Return the family of the package whose options this family has; "" for an unknown family.

    A family of the package is its own base family.
    """
    return _FAMILIES.get(family, "") if isinstance(family, str) else ""


def lacked_options(family: object) -> tuple[str, ...]:
    """Return the options of its base family that this family does not have."""
    return _LACKS.get(family, ()) if isinstance(family, str) else ()
