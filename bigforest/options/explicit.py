"""Which training options were given. The others are set by the family, the store or the resumed forest."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from bigforest.errors import ConfigError, shown
from bigforest.options.train_options import OPTIONS

# What scikit-learn calls options of bigforest.
SKLEARN_NAMES = {
    "n_estimators": "trees",
    "max_features": "mtry",
    "criterion": "impurity",
    "min_samples_split": "min_split",
    "min_samples_leaf": "min_leaf",
    "max_samples": "sample_fraction",
    "random_state": "seed",
    "n_jobs": "threads",
}
# What scikit-learn has and bigforest has not, and what to do instead; docs/start/coming-from.md says why.
ABSENT = {
    "monotonic_cst": "splits are chosen by their gain alone; LightGBM and XGBoost have constraints",
    "oob_score": "the out-of-bag report is always written; see Forest.oob",
    "verbose": "pass listener=, which is told how the run goes",
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Ungiven(Enum):
    """The value of an option that was not given."""

    UNGIVEN = "not given"


def explicit_options(function: _Function) -> _Function:
    """Let a function whose keywords are options know which of them were given, by `given(locals())`.

    The defaults in its signature are for readers: an option that was not given arrives as a value of its own. A keyword
    that there is not raises ConfigError with the nearest ones, or, where options of training belong into an argument
    `options`, with that.
    """
    names = list(inspect.signature(function).parameters)
    ungiven = {name: _Ungiven.UNGIVEN for name in names if name in OPTIONS}

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        for name in (name for name in keywords if name not in names):
            own = SKLEARN_NAMES.get(name, name)
            if "options" in names and own in OPTIONS:
                value = shown(keywords[name])
                raise ConfigError(f"{name} is an option of training; give options={{{own!r}: {value}}}")
            raise ConfigError(f"there is no option {name!r}; {_hint(name, names)}")
        return function(*arguments, **{**ungiven, **keywords})

    return call  # type: ignore[return-value]


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options among the arguments of a function `explicit_options` that were given."""
    return {name: value for name, value in arguments.items() if name in OPTIONS and value is not _Ungiven.UNGIVEN}


def _hint(name: str, names: list[str]) -> str:
    if name in ABSENT:
        return ABSENT[name]
    near = [SKLEARN_NAMES[name]] if name in SKLEARN_NAMES else difflib.get_close_matches(name, names, n=2)
    return (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"the options are {', '.join(one for one in names if one in OPTIONS) or ', '.join(names)}"
    )
