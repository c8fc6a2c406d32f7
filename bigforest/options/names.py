"""Names of families and impurities, including names from outside the package.

Their code is registered in grow/families/registry.py and grow/criteria.py.
"""

from __future__ import annotations

from bigforest.errors import ConfigError, listed
from bigforest.options.package_names import FAMILIES, IMPURITIES
from bigforest.options.values import KnownFamily, Task

_FAMILIES: dict[str, KnownFamily] = dict(FAMILIES)
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


def families() -> tuple[str, ...]:
    return tuple(_FAMILIES)


def impurities() -> tuple[str, ...]:
    return tuple(_IMPURITIES)


def check_task(family: str, task: Task) -> None:
    """Raise ConfigError for a family without this task."""
    if task not in _FAMILIES[family].tasks:
        fits = listed(_FAMILIES[family].tasks)
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

    A family of the package with options of its own is its own base family.
    """
    if not isinstance(family, str) or family not in _FAMILIES:
        return ""
    return _FAMILIES[family].options_of or family


def lacked_options(family: object) -> tuple[str, ...]:
    """Return the options of its base family that this family does not have."""
    return _FAMILIES[family].lacks if isinstance(family, str) and family in _FAMILIES else ()
