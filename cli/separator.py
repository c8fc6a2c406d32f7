"""--separator: what separates the values of CSV files, in every command that reads a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from .options import COLUMNS

# Parameters of commands that are tables.
_TABLES = ("data", "validate")
# A tab is hard to type.
_NAMES = {"tab": "\t", "\\t": "\t"}


def _mark(text: str | None) -> str | None:
    """The one character that is meant."""
    mark = None if text is None else _NAMES.get(text, text)
    if mark is not None and (len(mark.encode()) != 1 or mark in '"\r\n\0'):
        raise typer.BadParameter(f"it must be one character of ASCII, or tab, not {text!r}")
    return mark


Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="Separator of values in CSV files: one character, or tab. Default: found from the header.",
        callback=_mark,
        rich_help_panel=COLUMNS,
    ),
]


def reads_tables(command: Callable[..., None]) -> bool:
    """Whether a command has a table to read."""
    return bool({*_TABLES} & {*inspect.signature(command).parameters})


def with_separator(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --separator, which holds for all tables that it reads."""
    own = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("separator", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Separator)

    @wraps(command)
    def run(*, separator: str | None, **values: Any) -> None:
        if separator is not None:
            from bigforest.source import SeparatedPath

            for name in _TABLES:
                if values.get(name) is not None:
                    values[name] = SeparatedPath(values[name], separator)
        command(**values)

    run.__signature__ = own.replace(parameters=[*own.parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own.parameters.values()}
    run.__annotations__["separator"] = Separator
    return run
