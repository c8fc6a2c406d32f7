"""What becomes of an error: one clear line and an exit code."""

from __future__ import annotations

import json
import traceback
from typing import Any

import typer
from typer.core import TyperCommand

from .flags import in_flags
from .options import PANELS, RUN
from .text import plain

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


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
