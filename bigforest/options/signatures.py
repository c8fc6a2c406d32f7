"""Options in the signatures and docstrings of functions: which options a caller has given, and numpydoc entries."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import NoneType
from typing import Any, TypeVar

from bigforest.errors import ConfigError, shown
from bigforest.options.declaration import Option
from bigforest.options.train_options import OPTIONS

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Characters of a line of a docstring, without its indentation of 4.
_WIDTH = 116
# Options of bigforest by their names in scikit-learn.
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
# Arguments of bigforest by their names in other libraries and tools.
OTHER_NAMES = {
    **dict.fromkeys(("drop", "drop_columns", "ignore", "ignore_columns", "ignored_columns", "skip"), "exclude"),
    **dict.fromkeys(("label", "response", "outcome", "y"), "target"),
    **dict.fromkeys(("n_trees", "num_trees", "ntree", "ntrees"), "trees"),
    **dict.fromkeys(("num_threads", "nthread", "nthreads", "cores"), "threads"),
    **dict.fromkeys(("output", "output_dir"), "out"),
    **dict.fromkeys(("min_node_size", "min_examples", "min_data_in_leaf"), "min_leaf"),
    **dict.fromkeys(("cat_features", "categorical_features", "categorical_feature"), "categories"),
    "depth": "max_depth",
    "weights": "weight",
    "sample_weight": "weight",
    "groups": "group",
}
# Parameters of scikit-learn without a counterpart, and the reason or the alternative; see docs/start/coming-from.md.
ABSENT = {
    "monotonic_cst": "splits are chosen by their gain alone; LightGBM and XGBoost have constraints",
    "oob_score": "the out-of-bag report is always written; see Forest.oob",
    "verbose": "pass listener=, which is told how the run goes",
}


class _Ungiven(Enum):
    """Value of an option that was not given."""

    UNGIVEN = "not given"


def explicit_options(function: _Function) -> _Function:
    """Wrap a function with options as keywords, so that `given(locals())` in it returns the options that were given.

    The defaults in the signature are for readers only: an option that the caller did not give has a special value in
    the function. An unknown keyword raises ConfigError with the nearest names. If the keyword is a training option and
    the function takes a mapping `options`, the error says to use this mapping.
    """
    names = list(inspect.signature(function).parameters)
    ungiven = {name: _Ungiven.UNGIVEN for name in names if name in OPTIONS}

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        _check_names(keywords, names)
        return function(*arguments, **{**ungiven, **keywords})

    return call  # type: ignore[return-value]


def with_options_of(other: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Wrap a function that takes `**options`, so that its signature has the options of `other`.

    An unknown keyword raises ConfigError as in `explicit_options`.
    """
    options = [parameter for name, parameter in inspect.signature(other).parameters.items() if name in OPTIONS]

    def wrapped(function: _Function) -> _Function:
        signature = inspect.signature(function)
        *parameters, _ = signature.parameters.values()
        names = [parameter.name for parameter in [*parameters, *options]]

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            _check_names(keywords, names)
            return function(*arguments, **keywords)

        call.__signature__ = signature.replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return wrapped


def _check_names(keywords: Mapping[str, Any], names: list[str]) -> None:
    """Raise ConfigError for a keyword that is not among `names`, the parameters of a function."""
    for name in (name for name in keywords if name not in names):
        option = SKLEARN_NAMES.get(name, name)
        if "options" in names and option in OPTIONS:
            value = shown(keywords[name])
            raise ConfigError(f"{name} is an option of training; give options={{{option!r}: {value}}}")
        raise ConfigError(f"there is no option {name!r}; {_hint(name, names)}")


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options among the arguments of a function wrapped by `explicit_options`."""
    return {name: value for name, value in arguments.items() if name in OPTIONS and value is not _Ungiven.UNGIVEN}


def _hint(name: str, names: list[str]) -> str:
    if name in ABSENT:
        return ABSENT[name]
    option = (SKLEARN_NAMES | OTHER_NAMES).get(name)
    near = [option] if option in names else difflib.get_close_matches(name, names, n=2)
    return (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"the options are {', '.join(each for each in names if each in OPTIONS) or ', '.join(names)}"
    )


def documented_options(function: _Function) -> _Function:
    """Add entries of the options to the docstring of a function whose keywords are options."""
    if function.__doc__:  # None with python -OO
        text, names = inspect.cleandoc(function.__doc__), inspect.signature(function).parameters
        entries = section(text, "Parameters") | option_entries(name for name in OPTIONS if name in names)
        function.__doc__ = with_section(text, "Parameters", entries.values())
    return function


def option_entries(names: Iterable[str] = OPTIONS, words: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the numpydoc entries of options, by name.

    words  replacements of phrases in the texts of the declarations.
    """
    entries = {}
    for name in names:
        entry = OPTIONS[name]
        text = " ".join(filter(None, [entry.help, entry.more, *_notes(entry)]))
        for word, replacement in (words or {}).items():
            text = text.replace(word, replacement)
        head = f"{name} : {_kinds(entry)}, default={literal(entry.default)}"
        if len(head) > _WIDTH:  # the text explains each choice
            head = f"{name} : str, default={literal(entry.default)}"
        entries[name] = named_entry(head, text)
    return entries


def named_entry(head: str, text: str) -> str:
    """Return an entry of a section, with its text wrapped."""
    body = textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([head, *body])


def section(docstring: str, heading: str) -> dict[str, str]:
    """Return the entries of a section of an unindented docstring, by name."""
    inside = docstring.partition(f"\n{heading}\n{'-' * len(heading)}\n")[2].partition("\n\n")[0]
    return {entry.partition(" : ")[0]: entry for entry in re.split(r"\n(?! )", inside)}


def with_section(docstring: str, heading: str, entries: Iterable[str]) -> str:
    """Return the docstring with these entries in an existing section."""
    begin = f"\n{heading}\n{'-' * len(heading)}\n"
    before, _, rest = docstring.partition(begin)
    return f"{before}{begin}{chr(10).join(entries)}\n\n{rest.partition(chr(10) * 2)[2]}"


def families_note(entry: Option) -> list[str]:
    """Return a sentence about the families that have an option; none if all have it."""
    families = entry.families
    return [f"Only for the {'family' if len(families) == 1 else 'families'} {_join(families)}."] if families else []


def literal(value: object) -> str:
    """Return a value as Python code, with text in double quotes."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _kinds(entry: Option) -> str:
    """Return the types of an option in the notation of numpydoc."""
    if entry.accepts:
        return entry.accepts.replace(" | ", " or ")
    words = [f"{{{', '.join(map(literal, entry.choices))}}}"] if entry.choices else []
    words += [kind.__name__ for kind in entry.types if kind in (bool, int, float, str)]
    words += ["None"] if NoneType in entry.types else []
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _notes(entry: Option) -> list[str]:
    """Return sentences about the meaning of None or (), the defaults of families, and the families with the option."""
    notes = [f"{'None' if entry.default is None else 'Empty'} means {entry.unset}."] if entry.unset else []
    by_default: dict[str, list[str]] = {}
    for family, value in entry.by_family.items():
        by_default.setdefault(literal(value), []).append(family)
    notes += [f"Default for {_join(families)}: {value}." for value, families in by_default.items()]
    return notes + families_note(entry)


def _join(families: Iterable[str]) -> str:
    *first, last = families
    return f"{', '.join(first)} and {last}" if first else last
