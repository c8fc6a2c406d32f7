"""The options in docstrings: entries of numpydoc's section Parameters, made of the declarations."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, TypeVar

from bigforest.options.declaration import Declared
from bigforest.options.train_options import OPTIONS

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Characters of a line, without the spaces before a docstring in a file.
_WIDTH = 116


def with_entries(function: _Function) -> _Function:
    """Add the entries of the options that a function has to its docstring."""
    if function.__doc__:  # there is none with python -OO
        text, names = inspect.cleandoc(function.__doc__), inspect.signature(function).parameters
        entries = section(text, "Parameters") | option_entries(name for name in OPTIONS if name in names)
        function.__doc__ = with_section(text, "Parameters", entries.values())
    return function


def option_entries(names: Iterable[str] = OPTIONS, words: Mapping[str, str] | None = None) -> dict[str, str]:
    """The entries of these options, by name.

    words  phrases of the declarations, and those that replace them here.
    """
    found = {}
    for name in names:
        one = OPTIONS[name]
        text = " ".join(filter(None, [one.option.help, one.option.more, *_notes(one)]))
        for word, here in (words or {}).items():
            text = text.replace(word, here)
        found[name] = named_entry(f"{name} : {_kinds(one)}, default={literal(one.default)}", text)
    return found


def named_entry(head: str, text: str) -> str:
    """An entry of a section, with its text in lines."""
    body = textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([head, *body])


def section(docstring: str, heading: str) -> dict[str, str]:
    """The entries of a section of a docstring without indentation, by name."""
    inside = docstring.partition(f"\n{heading}\n{'-' * len(heading)}\n")[2].partition("\n\n")[0]
    return {entry.partition(" : ")[0]: entry for entry in re.split(r"\n(?! )", inside)}


def with_section(docstring: str, heading: str, entries: Iterable[str]) -> str:
    """The docstring with these entries in a section that it has."""
    begin = f"\n{heading}\n{'-' * len(heading)}\n"
    before, _, rest = docstring.partition(begin)
    return f"{before}{begin}{chr(10).join(entries)}\n\n{rest.partition(chr(10) * 2)[2]}"


def families_note(one: Declared) -> list[str]:
    """Which families have an option, if not all."""
    of = one.option.families
    return [f"Only for the {'family' if len(of) == 1 else 'families'} {_listed(of)}."] if of else []


def literal(value: object) -> str:
    """A value as it is written in Python, text between double quotes."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _kinds(one: Declared) -> str:
    """The types in the words of numpydoc."""
    if one.option.accepts:
        return one.option.accepts.replace(" | ", " or ")
    words = [f"{{{', '.join(map(literal, one.choices))}}}"] if one.choices else []
    words += [kind.__name__ for kind in one.types if kind in (bool, int, float, str)]
    words += ["None"] if NoneType in one.types else []
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _notes(one: Declared) -> list[str]:
    """What defaults mean, and the families."""
    notes = [f"{'None' if one.default is None else 'Empty'} means {one.option.unset}."] if one.option.unset else []
    by_default: dict[str, list[str]] = {}
    for family, value in one.option.own.items():
        by_default.setdefault(literal(value), []).append(family)
    notes += [f"Default for {_listed(of)}: {value}." for value, of in by_default.items()]
    return notes + families_note(one)


def _listed(families: Iterable[str]) -> str:
    *first, last = families
    return f"{', '.join(first)} and {last}" if first else last
