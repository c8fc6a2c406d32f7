"""Values of options: words and limits of training options, and checks of arguments that several functions share."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from math import inf
from typing import Any, Literal, TypeGuard

import numpy as np

from bigforest.errors import ConfigError, api, shown

Task = Literal["classification", "regression"]
Scope = Literal["tree", "node"]
Ties = Literal["lowest", "reject", "random"]
FeatureRule = Literal["sqrt", "log2", "half", "all"]
Exact = Literal["exact"]

# Weights of classes: "balanced", or pairs of a class as text and its weight, sorted by the text.
ClassWeight = str | tuple[tuple[str, float], ...] | None

MAX_ROUNDS = 1_000
MAX_TREES = 1_000_000
MAX_BINS = 65_536
MAX_PROJECTIONS = 2**31 - 1
MAX_LEVEL = 2**31 - 1
MAX_POWER = 16
# Most sizes of subspaces in one forest.
MAX_SIZES = 100

# Default of min_level for features whose levels differ clearly.
MIN_LEVEL = 5

# Kinds of sampling: boosting, which prefers rows that earlier trees predict wrongly, and draws by class.
BOOSTED = ("arc-x4", "adaboost")
BY_CLASS = ("stratified", "balanced")

_NUMBER = re.compile("[1-9][0-9]{0,9}")

# Value of axes_from that selects features automatically.
AUTO = "auto"


def names_of(value: Any, option: str, kind: str = "names of columns") -> tuple[str, ...]:
    """Return the texts of an option as a tuple, from one text or several. Raises ConfigError.

    kind  the texts in words, for the error
    """
    names = several(value)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{api(option)} must be {kind}, not {value!r}")
    return tuple(map(str, names))


def plain(value: Any) -> Any:
    """Return a scalar of numpy, or an array without dimensions, as the number, text, boolean or date of Python.

    Other values are returned unchanged.
    """
    value = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(value, np.datetime64 | np.timedelta64) and isinstance(value.item(), int):  # in nanoseconds
        return value.astype(f"{value.dtype.kind}8[us]").item()
    return value.item() if isinstance(value, np.generic) else value


def sizes_of(value: int | str) -> tuple[int, ...]:
    """Return the sizes of subspaces, from one size or a text such as 50,100,200.

    Raises ConfigError for too many or equal sizes.
    """
    sizes = _numbers_of(value, "subspace", MAX_PROJECTIONS)
    if len(sizes) > MAX_SIZES:
        raise ConfigError(f"{api('subspace')} must be at most {MAX_SIZES} sizes, not {len(sizes)}")
    if len(set(sizes)) < len(sizes):
        raise ConfigError(
            f"{api('subspace')} must be different sizes, which the trees use in turn, not {value!r}: give each once"
        )
    return sizes


def levels_of(value: int | str) -> tuple[int, ...]:
    """Return min_level as numbers: one for all features, or one for each from a text such as 5,54,5.

    Raises ConfigError.
    """
    return _numbers_of(value, "min_level", MAX_LEVEL)


def _numbers_of(value: int | str, option: str, most: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,)
    words = [word.strip() for word in value.split(",")]
    if not all(_NUMBER.fullmatch(word) and int(word) <= most for word in words):
        raise ConfigError(
            f"{api(option)} must be a whole number from 1 to {most}, or several of them separated by commas, such as "
            f"50,100,200, not {value!r}"
        )
    return tuple(map(int, words))


def as_text(value: Any) -> Any:
    """Return several whole numbers as a text such as 5,54,5, and other values unchanged."""
    if value is None or isinstance(value, str):
        return value
    numbers = [plain(number) for number in several(value)]
    return ",".join(map(str, numbers)) if len(numbers) > 1 and all(map(is_integer, numbers)) else value


def as_kept(value: int | str | None, numbers_of: Callable[[int | str], tuple[int, ...]]) -> int | str | None:
    """Return an option of one or several numbers as forests store it: a number, or a text without blanks."""
    if value is None:
        return None
    numbers = numbers_of(value)
    return numbers[0] if len(numbers) == 1 else ",".join(map(str, numbers))


def weights_of(value: Any) -> ClassWeight:
    """Return weights of classes as a configuration stores them, from "balanced", a mapping, pairs or None.

    Raises ConfigError for a weight that is not above 0.
    """
    if value is None or (isinstance(value, str) and value == "balanced"):
        return value
    try:
        value = value.items() if hasattr(value, "items") else value
        pairs = sorted((requested_text(label), plain(weight)) for label, weight in value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'{api("class_weight")} must be "balanced" or a mapping of classes to weights, not {value!r}'
        ) from error
    for label, weight in pairs:
        if not (is_number(weight) or isinstance(weight, Decimal)) or not 0.0 < weight <= sys.float_info.max:
            raise ConfigError(
                f"{api('class_weight')} must be above 0 and finite, not {weight!r} of {label!r}; to leave a class out, "
                "drop its rows"
            )
    return tuple((label, float(weight)) for label, weight in pairs) or None


def label_text(label: object) -> str:
    """Return a class as text, as class_weight names it: `late`, `true`, `3`, `0.5`, `2026-11-22`.

    Decimals lose their trailing zeros, so that equal decimals have the same text.
    """
    if isinstance(label, Decimal) and label.is_finite():
        text = format(label, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(label, datetime.timedelta):
        return datetime.timedelta.__str__(label)  # str of a pandas Timedelta has another form
    if isinstance(label, datetime.date | datetime.time):
        return str(label)
    return label if isinstance(label, str) else json.dumps(label)


def requested_text(label: object) -> str:
    """Return the text of a class that an option names. 1.0 becomes "1", which also names the class 1 or "1"."""
    label = plain(label)
    whole = isinstance(label, float) and label.is_integer() and abs(label) < 2**53
    return label_text(int(label) if whole else label)  # type: ignore[call-overload]


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_lambda(value: object) -> bool:
    """Return True for a lambda of leaf shrinkage: a number from 0 to the largest float64."""
    return is_number(value) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def is_rounds(value: object) -> bool:
    """Return True for a whole number of rounds of the boosted stage, 0 to MAX_ROUNDS; 0 means no stage."""
    return is_number(value) and value in range(MAX_ROUNDS + 1)


def is_power(value: object) -> bool:
    """Return True for a power of class probabilities: a whole number of quarters from 0.25 to MAX_POWER."""
    return is_number(value) and 0.25 <= value <= MAX_POWER and 4 * value == int(4 * value)  # type: ignore[operator]


def check_power(value: object) -> None:
    """Raise ConfigError unless the argument `power` is a whole number of quarters within its limits."""
    if not is_power(plain(value)):
        raise ConfigError(
            f"{api('power')} must be a whole number of quarters from 0.25 to {MAX_POWER}, not {shown(value)}"
        )


def check_amount(value: object) -> None:
    """Raise ConfigError unless the argument `amount` can be a lambda of leaf shrinkage (`is_lambda`)."""
    if not is_lambda(plain(value)):
        raise ConfigError(f"{api('amount')} must be a finite number of rows, 0 or more, not {shown(value)}")


def check_word(value: object, words: Collection[str], name: str) -> None:
    """Raise ConfigError unless the argument of this name is one of the words."""
    if not isinstance(value, str) or value not in words:
        raise ConfigError(f"{api(name)} must be one of {', '.join(words)}, not {shown(value)}")


def some_of(value: Any, words: Collection[str], name: str) -> tuple[str, ...]:
    """Return the words of an argument, each once. Raises ConfigError for an unknown word, or for none."""
    chosen = several(value)
    wrong = [word for word in chosen if not isinstance(word, str) or word not in words]
    if wrong or not chosen:
        raise ConfigError(
            f"{api(name)} must be some of {', '.join(words)}{f', not {shown(wrong[0])}' if wrong else ''}"
        )
    return tuple(dict.fromkeys(chosen))


def check_flag(value: object, name: str) -> None:
    """Raise ConfigError unless the argument of this name is True or False."""
    if not isinstance(plain(value), bool):
        raise ConfigError(f"{api(name)} must be True or False, not {shown(value)}")


def is_integer(value: object, low: float = -inf, high: float = inf) -> TypeGuard[int]:
    """Return True for an integer of Python or numpy from `low` to `high`, both included; False for booleans."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(low <= value <= high)


def several(value: Any) -> tuple[Any, ...]:
    """Return the argument as a tuple. Text counts as one item; items of Arrow arrays become values of Python."""
    if isinstance(value, tuple):
        return value
    value = value.to_pylist() if hasattr(value, "to_pylist") else plain(value)
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)
