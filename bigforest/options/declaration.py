"""Declaration of training options: each is declared once, as a field of a frozen dataclass.

    trees: int = option(100, min=1, max=MAX_TREES, help="Number of trees.")

The check, the options of the command line, the signature of `bigforest.train` and its documentation are derived from
the declaration (docs/options.py writes all but the check). Any dataclass can declare options: `declared_options` reads
them, and `check` checks their values. Rules between several options are functions of train_config.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from bigforest.errors import ConfigError, api, shown
from bigforest.options.values import Task, is_integer

# The panels of --help and of the documentation, in their order.
TREES: Final = "trees"
BAGS: Final = "rows and bags"
COLUMNS: Final = "columns"
FAMILY: Final = "single families"
RUN: Final = "run"
PANELS = (TREES, BAGS, COLUMNS, FAMILY, RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option: a field of a dataclass, with its declaration.

    name       name of the field.
    types      types of its values.
    default    general default.
    help       effect of the option, with the names of other options in backticks, as in `more`.
    more       further text for the documentation only.
    panel      one of PANELS.
    min, max   limits of a whole number.
    within     limits of any other number, as an interval: "(0, 1]". A round bracket excludes the limit.
    metavar    placeholder of the value in --help; by default the choices, or N, F or COL.
    unset      meaning of None or of an empty tuple, in words.
    text       allowed texts, in words, if there are no fixed choices.
    accepts    type in signatures, if arguments may have more types than the stored value.
    further    function that returns further choices: names registered from outside the package.
    families   families of the package that have the option; empty if all have it.
    by_family  defaults by family, where they differ from the general one.
    encodes    True if the presorted table depends on the option, so `encode_store` has it, too.
    elsewhere  values, in addition to the default, that are also allowed in families without the option.
    """

    name: str
    types: tuple[Any, ...]
    default: Any
    help: str
    panel: str = FAMILY
    more: str = ""
    min: int = 0
    max: int = 2**63 - 1
    within: str = "[0, inf)"
    metavar: str = ""
    unset: str = ""
    text: str = "a text"
    accepts: str = ""
    further: Callable[[], tuple[str, ...]] = tuple
    families: tuple[str, ...] = ()
    by_family: Mapping[str, Any] = field(default_factory=dict)
    encodes: bool = False
    elsewhere: tuple[Any, ...] = ()

    @property
    def choices(self) -> tuple[str, ...]:
        words = [word for kind in self.types if get_origin(kind) is Literal for word in get_args(kind)]
        return tuple(dict.fromkeys([*words, *self.further()]))

    @property
    def is_list(self) -> bool:
        """True for an option whose value is a tuple of texts."""
        return any(get_args(kind) == (str, ...) for kind in self.types)

    @property
    def is_float(self) -> bool:
        """True for an option of floats but not of integers: a whole number such as 5 means 5.0."""
        return float in self.types and int not in self.types

    @property
    def default_text(self) -> str:
        """Default in words, followed by the defaults of single families; empty without a default."""
        by_value: dict[str, list[str]] = {}
        for family, value in self.by_family.items():
            by_value.setdefault(_word(value), []).append(family)
        general = self.unset or ("" if self.default is None else _word(self.default))
        return "; ".join([general, *(f"{', '.join(families)}: {word}" for word, families in by_value.items())])

    def check(self, value: object) -> None:
        """Raise ConfigError if the option cannot have this value."""
        if not any(self._may_be(kind, value) for kind in self.types):
            raise ConfigError(f"{api(self.name)} must be {self.wanted}, not {shown(value)}")

    @property
    def wanted(self) -> str:
        """Allowed values in words, without None."""
        if self.choices and all(kind is NoneType or get_origin(kind) is Literal for kind in self.types):
            return f"one of {', '.join(self.choices)}"
        words = [f'"{word}"' for word in self.choices]
        for kind, text in (
            (bool, "True or False"),
            (int, f"a whole number from {self.min} to {self.max}"),
            (float, ("a fraction " if int in self.types else "") + interval_words(self.within)),
            (str, self.text),
        ):
            if kind in self.types:
                words.append(text)
        return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

    def _may_be(self, kind: Any, value: object) -> bool:
        if kind is NoneType:
            return value is None
        if kind is bool:
            return isinstance(value, bool)
        if kind is int:
            return is_integer(value, self.min, self.max)
        if kind is float:
            number = isinstance(value, float) or (is_integer(value) and int not in self.types)
            return number and is_within(value, self.within)  # type: ignore[arg-type]
        if kind is str:
            return isinstance(value, str)
        if get_origin(kind) is Literal:
            return isinstance(value, str) and value in self.choices
        return True  # tuples and class weights: checked in train_config.py, which makes the stored value


def option(default: Any, **declared: Any) -> Any:
    """Return the dataclass field of an option with this default; `declared` are further fields of `Option`."""
    return field(default=default, metadata=declared)


def declared_options(cls: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name, in the order of the fields."""
    hints = get_type_hints(cls)
    declared = {}
    for entry in fields(cls):
        kind = hints[entry.name]
        types = get_args(kind) if get_origin(kind) in (Union, type(int | None)) else (kind,)
        declared[entry.name] = Option(name=entry.name, types=types, default=entry.default, **entry.metadata)
    return declared


class KnownFamily(NamedTuple):
    """Facts about a family that options need, without its code in grow/families/.

    options_of  family of the package whose options and defaults it has; its own name for a family of the package.
    tasks       targets that its trees predict.
    splits_on   what a node splits on, and the reference; empty for families from outside the package.
    lacks       options of the family `options_of` that it does not have.
    """

    options_of: str
    tasks: tuple[Task, ...]
    splits_on: str = ""
    lacks: tuple[str, ...] = ()

    def has(self, option: Option) -> bool:
        """Return True if the family has the option."""
        return (not option.families or self.options_of in option.families) and option.name not in self.lacks


def check(values: Any, options: Mapping[str, Option], family: KnownFamily) -> None:
    """Raise ConfigError for a value that an option cannot have, and for an option of other families that is set.

    values  object with an attribute for each option
    """
    for name, entry in options.items():
        value = getattr(values, name)
        if value is entry.default:  # the default is allowed in every family
            continue
        entry.check(value)
        if not family.has(entry) and value != entry.default and value not in entry.elsewhere:
            owners = " or ".join(entry.families or (family.options_of,))
            named = getattr(values, "family", family.options_of)
            raise ConfigError(f"{api(name)} is an option of the family {owners}, not of {named}")


def is_within(value: float, interval: str) -> bool:
    """Return True if a number is in an interval such as "(0, 1]"."""
    low, high = map(float, interval[1:-1].split(","))
    if math.isinf(high) and value > sys.float_info.max:  # an int too large for a float
        return False
    return (value >= low if interval[0] == "[" else value > low) and (
        value <= high if interval[-1] == "]" else value < high
    )


def interval_words(interval: str) -> str:
    """Return an interval in words: "above 0 and at most 1" for "(0, 1]"."""
    low, high = interval[1:-1].split(", ")
    least = f"{'at least' if interval[0] == '[' else 'above'} {low}"
    return least if high == "inf" else f"{least} and {'at most' if interval[-1] == ']' else 'below'} {high}"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
