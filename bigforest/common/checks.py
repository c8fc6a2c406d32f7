"""Arguments that are one or several of some words, yes or no, or several of something."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from typing import Any, TypeGuard

from bigforest.common.errors import ConfigError, shown


def check_word(value: object, words: Collection[str], name: str) -> None:
    """Raise ConfigError unless the argument of this name is one of the words."""
    if not isinstance(value, str) or value not in words:
        raise ConfigError(f"{name} must be one of {', '.join(words)}, not {shown(value)}")


def some_of(given: Any, words: Collection[str], name: str) -> tuple[str, ...]:
    """The words that the argument of this name has, each once. Raises ConfigError for another word, or none."""
    found = several(given)
    wrong = [word for word in found if not isinstance(word, str) or word not in words]
    if wrong or not found:
        raise ConfigError(f"{name} must be some of {', '.join(words)}{f', not {shown(wrong[0])}' if wrong else ''}")
    return tuple(dict.fromkeys(found))


def check_flag(value: object, name: str) -> None:
    """Raise ConfigError unless the argument of this name is True or False."""
    import numpy as np  # here, as importing bigforest does not load it

    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be True or False, not {shown(value)}")


def is_integer(value: object, low: float = -inf, high: float = inf) -> TypeGuard[int]:
    """Whether this is an int from `low` to `high`; not True or False."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def several(given: Any) -> tuple[Any, ...]:
    """What was given, as several things: one text, number or other thing is one, not its letters."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else (given,)
