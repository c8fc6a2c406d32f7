"""Names of families and impurities, including names from outside the package.

Their code is registered in grow/families/registry.py and grow/criteria.py.
"""

from __future__ import annotations

from bigforest.errors import ConfigError, listed
from bigforest.options.declaration import KnownFamily
from bigforest.options.package_names import FAMILIES, IMPURITIES
from bigforest.options.values import Task

_FAMILIES: dict[str, KnownFamily] = dict(FAMILIES)
_UNKNOWN = KnownFamily("", ())
# Task of each impurity.
_IMPURITIES: dict[str, Task] = dict(IMPURITIES)


def name_family(name: str, family: KnownFamily) -> None:
    """Register the name of a family.

    Raises ConfigError if `name` is a family of the package, or if `family.options_of` is not.
    """
    if name in FAMILIES:
        raise ConfigError(f"a family needs a new name, not {name!r}")
    if family.options_of not in FAMILIES:
        raise ConfigError(f"a family needs the options of a family of the package, not of {family.options_of!r}")
    _FAMILIES[name] = family


def name_impurity(name: str) -> None:
    """Register the impurity `name`, for classification. Raises ConfigError for an impurity of the package."""
    if name in IMPURITIES:
        raise ConfigError(f"an impurity needs a new name, not {name!r}")
    _IMPURITIES[name] = "classification"


def known_family(name: object) -> KnownFamily:
    """Return the facts about a family; without options and tasks for an unknown name."""
    return _FAMILIES.get(name, _UNKNOWN) if isinstance(name, str) else _UNKNOWN


def families() -> tuple[str, ...]:
    return tuple(_FAMILIES)


def impurities() -> tuple[str, ...]:
    return tuple(_IMPURITIES)


def check_task(family: str, task: Task) -> None:
    """Raise ConfigError for a family without this task."""
    if task not in known_family(family).tasks:
        fits = listed(known_family(family).tasks)
        raise ConfigError(f"the family {family} is for {fits}; use the family axis for {task}")


def check_impurity(impurity: str, task: Task) -> None:
    """Raise ConfigError for an impurity of the other task."""
    if (fits := _IMPURITIES[impurity]) != task:
        others = ", ".join(name for name, of in _IMPURITIES.items() if of == task)
        raise ConfigError(
            f"the impurity {impurity} is for {fits}; use one of {others}, or the task {fits} where the target fits it"
        )
