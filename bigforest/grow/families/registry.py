"""Families by name: from the modules of this folder, and registered at run time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from bigforest.errors import ConfigError
from bigforest.grow import families
from bigforest.grow.families.family import Family
from bigforest.options.declaration import KnownFamily
from bigforest.options.names import families as family_names
from bigforest.options.names import name_family
from bigforest.options.train_config import TrainConfig


def package_families() -> Iterator[Family]:
    """Yield the FAMILIES of each module of this folder."""
    for module in iter_modules(families.__path__):
        yield from getattr(import_module(f"{families.__name__}.{module.name}"), "FAMILIES", ())


_FAMILIES: dict[str, Family] = {family.name: family for family in package_families()}


def register_family(family: Family) -> None:
    """Let TrainConfig.family name this family in this process.

    Raises ConfigError if the name is in use, or `options_of` is not a family of the package. Forests store only the
    name. A process must register the family before it opens or extends such a forest.
    """
    name_family(family.name, KnownFamily(family.options_of, family.tasks, lacks=family.lacks))
    _FAMILIES[family.name] = family


def known_families() -> list[Family]:
    """Return the families of this process, in the order of the option."""
    return [_FAMILIES[name] for name in family_names()]


def family_of(config: TrainConfig) -> Family:
    """Return the family of a forest. Raise ConfigError if it is not known in this process."""
    if config.family not in _FAMILIES:
        raise ConfigError(f"the family {config.family} is not known; run the code that registers it in this process")
    return _FAMILIES[config.family]
