"""Options that several commands share in groups, each of which becomes one dictionary of what the user gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import typer


class Choice(NamedTuple):
    """An option: what typer makes of it, what --help shows as its default, and how its value is read."""

    annotation: Any
    default: Any
    read: Callable[[Any], Any] | None


def option(
    kind: Any,
    metavar: str | None,
    text: str,
    *names: str,
    default: Any = None,
    panel: str | None = None,
    read: Callable[[Any], Any] | None = None,
) -> Choice:
    """An option of type `kind` with the text of its help; `names` where --name-with-dashes will not do.

    default  what --help shows; None for what the API chooses.
    """
    info = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)
    return Choice(Annotated[kind if default is not None else kind | None, info], default, read)


def flag(text: str, *names: str, panel: str | None = None) -> Choice:
    """An option that is on where it is given, by one of these names."""
    return option(bool, None, text, *names, default=False, panel=panel)


def chosen(group: Mapping[str, Choice], names: Iterable[str]) -> dict[str, Choice]:
    """Some options of a group, in its order."""
    wanted = set(names)
    assert wanted <= set(group), wanted - set(group)
    return {name: choice for name, choice in group.items() if name in wanted}


def count_or_word(text: str) -> str | int:
    """The whole number that `text` writes, else the text itself."""
    return int(text) if text.isdecimal() else text


def number_or_word(text: str) -> str | int | float:
    """The number that `text` writes, whole or not, else the text itself; whether it will do, the API judges."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
