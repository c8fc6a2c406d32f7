"""What all commands have in common: groups of options, --separator, --help by panel, and what becomes of an error."""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .flags import in_flags
from .groups import Choice
from .options import COLUMNS, PANELS, RUN
from .text import plain

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
# Parameters of commands that are tables.
_TABLES = ("data", "validate")
# A tab is hard to type.
_MARKS = {"tab": "\t", "\\t": "\t"}


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


class GuardedCommand(TyperCommand):
    """A command whose errors are printed as one red line on stderr, with the traceback only under --debug.

    With --json they are printed as an object on stdout, too.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options panel by panel."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in PANELS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if parameter.param_type_name == "argument":
                panel = "arguments"
            else:
                own = RUN if parameter.name == "help" else "options"
                panel = getattr(parameter, "rich_help_panel", None) or own
            panels[panel] += [record] if record is not None else []
        for panel, records in panels.items():
            if records:
                with formatter.section(panel.capitalize()):
                    formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; wrong ones show the usage."""
        wants_json = "--json" in args  # which are used up
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if wants_json and hasattr(error, "format_message"):
                _print_object(error.format_message(), "UsageError")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit 2 for what the user can mend, 1 for a fault of ours, 130 after Ctrl-C.

        Another signal that asks to end exits with 128 and its number.
        """
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, typer.BadParameter, typer.Exit):
            raise  # the reader of our output went away, and typer ends quietly; it shows the usage; a command has ended
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            message, code = _explain(error)
            # A note says how to continue with an interrupted run.
            message = "; ".join([message, *getattr(error, "__notes__", [])])
            message = in_flags(message, ctx.command)
            if ctx.find_root().params.get("debug"):
                traceback.print_exception(error)
            _print_error(message)
            if ctx.params.get("json"):
                _print_object(message, type(error).__name__)
            raise typer.Exit(code) from error


def _explain(error: BaseException) -> tuple[str, int]:
    """What to say about an error, and the exit code."""
    from bigforest.common.errors import BigForestError

    if isinstance(error, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(error, SystemExit):  # by `app._stop`
        return "stopped by a signal", error.code if isinstance(error.code, int) else EXIT_UNEXPECTED
    if isinstance(error, BigForestError):
        return str(error), EXIT_BAD_INPUT
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{where}", EXIT_BAD_INPUT
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer --threads or cap the codes with --max-bins 256", EXIT_BAD_INPUT
    detail = f"{type(error).__name__}: {error}".splitlines()[0]
    return (
        f"unexpected {detail}; run `bigforest --debug ...` again for the traceback and report it",
        EXIT_UNEXPECTED,
    )


def _print_error(message: str) -> None:
    typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.secho(plain(" ".join(message.split("\n"))), fg=typer.colors.RED, err=True)


def _print_object(message: str, kind: str) -> None:
    typer.echo(json.dumps({"error": " ".join(message.split("\n")), "kind": kind}, ensure_ascii=False))
