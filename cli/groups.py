"""Options that several commands share: groups, each of which becomes one dictionary of what the user gave, and
--separator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Annotated, Any, NamedTuple

import typer

from .options import COLUMNS

# Parameters of commands that are tables.
_TABLES = ("data", "validate")
# A tab is hard to type.
_MARKS = {"tab": "\t", "\\t": "\t"}


class Choice(NamedTuple):
    """An option: what typer makes of it, what --help shows as its default, and how its value is read."""

    annotation: Any
    default: Any
    read: Callable[[Any], Any] | None


def option(
    kind: Any,
    default: Any,
    metavar: str | None,
    text: str,
    *names: str,
    panel: str | None = None,
    read: Callable[[Any], Any] | None = None,
) -> Choice:
    """An option of type `kind` with the text of its help; `names` where --name-with-dashes will not do."""
    info = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)
    return Choice(Annotated[kind, info], default, read)


def chosen(group: Mapping[str, Choice], names: Iterable[str]) -> dict[str, Choice]:
    """Some options of a group, in its order."""
    wanted = set(names)
    assert wanted <= set(group), wanted - set(group)
    return {name: choice for name, choice in group.items() if name in wanted}


def _mark(text: str | None) -> str | None:
    """The one character that is meant."""
    mark = None if text is None else _MARKS.get(text, text)
    if mark is not None and (len(mark.encode()) != 1 or mark in '"\r\n\0'):
        raise typer.BadParameter(f"it must be one character of ASCII, or tab, not {text!r}")
    return mark


_SEPARATOR = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="Separator of values in CSV files: one character, or tab. Default: found from the header.",
        callback=_mark,
        rich_help_panel=COLUMNS,
    ),
]


def grouped(**groups: Mapping[str, Choice]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of each group in the place of its parameter of that name, and --separator if it reads
    tables.

    The parameter receives a dictionary of the options that were given, and nothing of the others: what is left open is
    for the API to choose. The separator holds for all tables of the command.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        for parameter in own.values():
            options = groups.get(parameter.name)
            if options is None:
                parameters.append(parameter)
                continue
            parameters += [
                parameter.replace(name=name, annotation=choice.annotation, default=choice.default)
                for name, choice in options.items()
            ]
        if any(name in own for name in _TABLES):
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter("separator", keyword, default=None, annotation=_SEPARATOR))

        @wraps(command)
        def run(context: typer.Context, *, separator: str | None = None, **values: Any) -> None:
            for group, options in groups.items():
                values[group] = {
                    name: choice.read(value) if choice.read else value
                    for name, choice in options.items()
                    if _given(context, name, value := values.pop(name))
                }
            if separator is not None:
                from bigforest.source import SeparatedPath

                tables = [name for name in _TABLES if values.get(name) is not None]
                values |= {name: SeparatedPath(values[name], separator) for name in tables}
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _given(context: typer.Context, name: str, value: Any) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP") and value is not None


def number_or_word(text: str) -> str | int | float:
    """The number that `text` writes, whole or not, else the text itself; whether it will do, the API judges."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
