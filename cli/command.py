"""Code that all commands share: groups of options, --separator, running, --help by panel, and the display of errors."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .options import COLUMNS, FROM_FILE, PANELS, RUN, SCHEDULER, Choice
from .running import STANDARD_INPUT, STREAM, running
from .show import Facts, plain, show

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
# Parameters of commands that are paths of tables, which may be CSV files.
_TABLES = ("data", "validate")
# Separators that are hard to type, as users may write them.
_MARKS = {"tab": "\t", "\\t": "\t"}
# Advice on options that lower the memory of a command, by option.
_LESS_MEMORY = {"threads": "use fewer --threads", "max_bins": "cap the codes with --max-bins 256"}
# Hyphen at which help is not broken into lines. It is replaced before printing, so that text can be copied.
_WHOLE_HYPHEN = "\N{NON-BREAKING HYPHEN}"
# Words for types in messages of pydantic, with which newer versions of typer check values.
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "list": "a list",
}


def _mark(text: str | None) -> str | None:
    """Return a separator as one ASCII character. Raises BadParameter."""
    mark = None if text is None else _MARKS.get(text, text)
    if mark is not None and (len(mark.encode()) != 1 or mark in '"\r\n\0'):
        raise typer.BadParameter(
            f"it must be tab, or one character of ASCII other than quotes and line ends, not {text!r}"
        )
    return mark


_SEPARATOR = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="Separator of values in CSV files: one character, or tab. Default: detected from the header.",
        callback=_mark,
        rich_help_panel=COLUMNS,
    ),
]


def command(
    draw: Callable[[Facts], None], *, run: Mapping[str, Choice], progress: bool = True, **groups: Mapping[str, Choice]
) -> Callable[[Callable[..., Facts]], Callable[..., None]]:
    """Return a decorator that turns a function into a command. The function returns facts, which `draw` prints.

    run, groups  options by group. The function has a parameter with the name of each group. It receives a dictionary
                 of the values that the user gave, by option.
    progress     show progress: add a listener to `run`, and the client of a cluster if one is selected. Also add to the
                 facts the seconds, the statistics of the workers and, for --json, the notices.

    A command with a parameter in _TABLES also has --separator.
    """
    groups["run"] = run

    def decorate(function: Callable[..., Facts]) -> Callable[..., None]:
        @wraps(function)
        def work(context: typer.Context, *, separator: str | None = None, **values: Any) -> None:
            for group, options in groups.items():
                typed = {name: values.pop(name) for name in options}
                values[group] = {
                    name: choice.read(typed[name]) if choice.read else typed[name]
                    for name, choice in options.items()
                    if _given(context, name, typed[name])
                }
            with_groups = [values, *(values[group] for group in groups)]
            tables = [(each, name) for each in with_groups for name in _TABLES if each.get(name) is not None]
            if separator is not None:
                _separate(tables, separator)
            for each, name in tables:
                _check_place(each[name])
            json, quiet = values["run"].pop("json", False), values["run"].pop("quiet", False)
            facts = (
                _with_progress(context, function, values, quiet=quiet, json=json) if progress else function(**values)
            )
            show(facts, draw, json=json, quiet=quiet)
            if not facts.get("fits", True):  # only plans have this entry
                raise typer.Exit(1)

        parameters = _parameters(function, groups)
        work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        work.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return work

    return decorate


def _parameters(function: Callable[..., Facts], groups: Mapping[str, Mapping[str, Choice]]) -> list[inspect.Parameter]:
    """Return the parameters of a command: the function's own, with each group replaced by its options."""
    parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter)
        for name, choice in groups.get(parameter.name, {}).items():
            parameters.append(parameter.replace(name=name, annotation=choice.annotation, default=choice.default))
    if any(parameter.name in _TABLES for parameter in parameters):
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("separator", keyword, default=None, annotation=_SEPARATOR))
    return parameters


def _with_progress(
    context: typer.Context, function: Callable[..., Facts], values: dict[str, Any], *, quiet: bool, json: bool
) -> dict[str, Any]:
    """Run the function of a command with a listener and the client of a cluster; see `progress` of `command`."""
    begin, run = perf_counter(), values["run"]
    scheduler = {name: run.pop(name) for name in SCHEDULER if name in run}
    names = _command_line_names(context.command)
    with running(scheduler, quiet=quiet, json=json, name_of=names.get) as (client, ledger):
        run |= {"listener": ledger} if client is None else {"listener": ledger, "scheduler": client}
        facts = function(**values)
    seconds = perf_counter() - begin
    return {**facts, "seconds": facts.get("seconds", seconds), **ledger.facts}


def _separate(tables: list[tuple[dict[str, Any], str]], separator: str) -> None:
    """Set the separator of the tables of a command. Raises ConfigError if no table is a CSV file.

    tables  for each table, the dictionary that contains its path, and the key.
    """
    from bigforest.errors import ConfigError
    from bigforest.source.files import SeparatedPath, may_be_csv

    if not any(may_be_csv(values[name]) for values, name in tables):
        found = " and ".join(str(values[name]) for values, name in tables)
        none = f"{found} {'is not one' if len(tables) == 1 else 'are not'}" if tables else "no table is read"
        raise ConfigError(f"--separator is for CSV files, and {none}; drop it")
    for values, name in tables:
        values[name] = SeparatedPath(values[name], separator)


def _check_place(table: str) -> None:
    """Raise the error of the API for a table that does not exist, before slow imports."""
    if "://" not in table and not os.path.exists(table):  # noqa: PTH110 (False for an invalid path)
        from bigforest.source.find import find_files

        find_files(table)


def _given(context: typer.Context, name: str, value: Any) -> bool:
    """Return True if the user gave an option, on the command line or in a file."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP") and value is not None


class GuardedCommand(TyperCommand):
    """Command that prints an error as one red line on stderr, and with --debug also the traceback.

    With --json it also prints the error as an object on stdout.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage: [OPTIONS] and the names of arguments, optional arguments in brackets."""
        pieces = ["[OPTIONS]"]
        for argument in self._arguments(ctx):
            name = f"{_metavar(argument)}{'...' if argument.nargs == -1 else ''}"
            pieces.append(name if argument.required else f"[{name}]")
        return pieces

    def _arguments(self, ctx: Any) -> list[Any]:
        return [parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "argument"]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without line breaks at the hyphens of options and names."""
        formatter.width = min(formatter.width, shutil.get_terminal_size().columns - 2)  # click's minimum is 50
        text, self.help = self.help, _unbroken(self.help or "")
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help = text
        formatter.buffer = [line.replace(_WHOLE_HYPHEN, "-") for line in formatter.buffer]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options panel by panel."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in PANELS}
        panels["arguments"] = [(_metavar(argument), argument.help) for argument in self._arguments(ctx)]
        for parameter in self.get_params(ctx):
            if parameter.param_type_name != "argument" and (record := parameter.get_help_record(ctx)) is not None:
                panel_name = RUN if parameter.name == "help" else "options"
                panels[getattr(parameter, "rich_help_panel", None) or panel_name].append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel.capitalize()):
                    whole = [(name, _unbroken(text)) for name, text in records]
                    formatter.write_dl(whole, col_max=min(30, formatter.width // 3))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Add hints to errors of usage, and print all errors as objects too with --json."""
        arguments = list(args)  # typer empties `args`
        try:
            self._check_once(ctx, arguments)
            left = super().parse_args(ctx, args)
            if ctx.params.get("out") == STREAM and self.name != "predict":
                raise typer.BadParameter(
                    "only predictions go to standard output; name a file or a folder", param_hint="--out"
                )
            if ctx.params.get("out") == STREAM and ctx.params["json"]:
                raise typer.BadParameter(
                    "predictions and --json cannot both go to standard output; give a file as --out"
                )
            return left
        except (BrokenPipeError, typer.Exit):
            raise
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            ctx.close()  # removes the copy of standard input
            if isinstance(error, OSError) and {"-h", "--help"} & {*arguments}:
                raise  # the help could not be printed
            if not hasattr(error, "format_message"):  # of bigforest, or raised while standard input was copied
                raise self._refused(ctx, error, wants_json="--json" in arguments) from error
            _say_type(error, ctx, arguments)
            _say_extra(error)
            _suggest_option(error, ctx.command)
            if "--json" in arguments:
                _print_object(error.format_message(), "UsageError")
            raise

    def _check_once(self, ctx: Any, arguments: list[str]) -> None:
        """Raise ConfigError for an option that is given several times or with its opposite.

        click would silently take the last value. Flags may be repeated.
        """
        order: list[Any] = self.make_parser(ctx).parse_args(args=list(arguments))[2]
        if any(parameter.name == "help" for parameter in order):
            return
        for parameter in order:
            if order.count(parameter) == 1 or parameter.multiple or parameter.nargs != 1:
                continue
            from bigforest.errors import ConfigError

            name = max(parameter.opts, key=len)
            other = next(iter({*parameter.secondary_opts} & {*arguments}), None)
            if not parameter.is_flag:
                raise ConfigError(f"{name} is given several times; keep one")
            if other and {*parameter.opts} & {*arguments}:
                raise ConfigError(f"{name} and {other} exclude each other; keep one")

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Exit with 2 for an expected error, 1 for a fault of the program, 130 after Ctrl-C.

        Expected are errors of bigforest, of the system (OSError), and a lack of memory or threads. After another signal
        that ends the program, exit with 128 plus its number.
        """
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, typer.BadParameter, typer.Exit):
            raise  # `main` ends quietly if a pipe was closed; typer shows the usage, or exits with the command's code
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            raise self._refused(ctx, error, wants_json=ctx.params.get("json", False)) from error

    def _refused(self, ctx: Any, error: BaseException, *, wants_json: bool) -> typer.Exit:
        """Print an error. Return the exception that ends the program with the right exit code."""
        from bigforest.errors import write_names

        names = _command_line_names(ctx.command)
        message, code = _message_and_code(error, ctx.command, names)
        # A note says how to continue an interrupted run.
        notes = [write_names(getattr(note, "text", note), names.get) for note in getattr(error, "__notes__", [])]
        message = "; ".join([message, *notes])
        message = message.replace(ctx.meta.get(STANDARD_INPUT) or STANDARD_INPUT, STANDARD_INPUT)
        if ctx.find_root().params.get("debug"):
            traceback.print_exception(error)
        with suppress(OSError):  # a full standard error: the exit code still tells of the error
            _print_error(message)
        if wants_json:
            with suppress(OSError):  # standard output may be what failed
                _print_object(message, type(error).__name__)
        return typer.Exit(code)


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _unbroken(text: str) -> str:
    return re.sub(r"(?<=[\w-])-(?=\w)|(?<!\S)-(?=-)", _WHOLE_HYPHEN, text)


def _say_type(error: Any, ctx: Any, args: list[str]) -> None:
    """Name the expected type in the error of a wrong value, and the configuration file that contains the value."""
    found = getattr(error.__cause__, "errors", None)
    if found is None or not hasattr(error, "message"):
        return
    fault = found()[0]
    expected = re.search(r"Input should be a valid (\w+)", fault["msg"])
    if expected is not None and expected[1] in _TYPES:
        error.message = f"{fault['input']!r} is not {_TYPES[expected[1]]}"
    option = error.param
    typed = any(arg.partition("=")[0] in (*option.opts, *option.secondary_opts) for arg in args)
    if ctx.meta.get(FROM_FILE) and not typed and option.name in (ctx.default_map or {}):
        error.message += f", in {ctx.meta[FROM_FILE]}"


def _say_extra(error: Any) -> None:
    """Add a hint to an error about too many arguments if its cause is a list with spaces or an unquoted glob."""
    found = re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", getattr(error, "message", ""))
    if found is None:
        return
    extra = found[1].split()
    if all(re.fullmatch(r"[\d.]+", word) for word in extra):
        error.message += "; put commas between the values of an option"
    elif all(Path(word).exists() for word in extra):
        error.message += "; name a folder, or put a glob in quotes, to give several files"


def _suggest_option(error: Any, command: Any) -> None:
    """Suggest an option if the user typed the name that it has in scikit-learn or another tool."""
    if not hasattr(error, "possibilities"):
        return
    from bigforest.options.signatures import OTHER_NAMES, SKLEARN_NAMES

    option = (SKLEARN_NAMES | OTHER_NAMES).get(error.option_name.lstrip("-").replace("-", "_"), "")
    if option and option in {parameter.name for parameter in command.params}:
        error.message = f"{error.message}; did you mean --{option.replace('_', '-')}?"
        error.possibilities = None


def _command_line_names(command: Any) -> dict[str, str]:
    """Return the command-line names of the options and functions of the API that occur in messages."""
    from .config import CONFIG

    names = {name: f"--{name.replace('_', '-')}" for name in CONFIG}
    functions = {"validate_forest": "validate", "predict_file": "predict", "explain_forest": "explain"}
    functions |= {"train": "train", "compare": "compare"}
    names |= {name: f"`bigforest {word}`" for name, word in functions.items()}
    names |= {"new_rows": "--new-rows", "resume": "--resume"}
    for parameter in command.params:
        longest = max(parameter.opts, key=len, default="")
        if longest.startswith("--"):
            names[parameter.name] = longest
        elif parameter.name == "data":
            names[parameter.name] = "DATA"
    return names


def _message_and_code(error: BaseException, command: Any, names: Mapping[str, str]) -> tuple[str, int]:
    """Return the message for an error of a command, with the names of the command line, and the exit code."""
    from bigforest.errors import BigForestError, write_names

    if isinstance(error, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(error, SystemExit):  # by `app._stop`
        return "stopped by a signal", error.code if isinstance(error.code, int) else EXIT_UNEXPECTED
    if isinstance(error, BigForestError):
        return write_names(error.text, names.get), EXIT_BAD_INPUT
    if isinstance(error, OSError):
        # Errors of printing name no file.
        called = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        where = error.filename or ("standard output" if called & {"echo", "show", "output_at"} else "")
        return f"{error.strerror or error}{where and f': {where}'}", EXIT_BAD_INPUT
    own = {parameter.name for parameter in command.params}
    if isinstance(error, MemoryError):
        advice = " or ".join(text for name, text in _LESS_MEMORY.items() if name in own)
        return f"not enough memory{advice and f'; {advice}'}", EXIT_BAD_INPUT
    if str(error) == "can't start new thread":
        fewer = "use fewer --threads or " if "threads" in own else ""
        return f"the system starts no more threads; {fewer}raise its limit (ulimit -u)", EXIT_BAD_INPUT
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
