"""Options and arguments that commands share, and options in a TOML file."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .running import table_of

# Panels of --help, in this order.
COLUMNS = "columns"
RUN = "run"
PANELS = ("arguments", "parts", "options", "trees", "rows and bags", COLUMNS, "single families", RUN)


# Values of the options of a group that the user gave, by their names in the API.
Given = dict[str, Any]


class Choice(NamedTuple):
    """An option: its annotation for typer, its default in --help, and a function that converts its value, or None."""

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
    """Declare an option of type `kind` with its help text.

    names    names for users, such as --group. By default the name in the API, with dashes.
    default  default in --help; None if the API chooses it.
    panel    panel of --help.
    read     function that converts the value.
    """
    # A shell completes the lower-case words in a metavar, such as `sqrt` and `all` in sqrt|all|INT.
    words = re.findall(r"(?<![^|])[a-z][a-z0-9_-]*(?![^|])", metavar or "")
    complete = (lambda incomplete: [word for word in words if word.startswith(incomplete)]) if words else None
    info = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, autocompletion=complete)
    return Choice(Annotated[kind if default is not None else kind | None, info], default, read)


def flag(text: str, *names: str, panel: str | None = None) -> Choice:
    """Declare an option without a value; see `option` for the parameters."""
    return option(bool, None, text, *names, default=False, panel=panel)


def chosen(group: Mapping[str, Choice], names: Iterable[str]) -> dict[str, Choice]:
    """Return some options of a group, in the order of the group."""
    requested = set(names)
    assert requested <= set(group), requested - set(group)
    return {name: choice for name, choice in group.items() if name in requested}


def values_of_lists(texts: Iterable[str]) -> list[str]:
    """Return all values of a repeated option, whose `texts` are lists with commas between the values."""
    return [value for text in texts for value in text.split(",")]


def number_or_word(text: str) -> str | int | float:
    """Return a text that is a number as that number, any other text unchanged. The API checks both."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def argument(metavar: str, text: str, callback: Callable[..., Any] | None = None) -> Any:
    """Declare an argument with its help text."""
    return typer.Argument(metavar=metavar, show_default=False, help=text, callback=callback)


TABLE_KINDS = "Parquet, Arrow/Feather, CSV or NDJSON: a file, a folder or a glob; - is standard input."
Data = Annotated[str, argument("DATA", TABLE_KINDS, table_of)]
ForestFolder = Annotated[str, argument("FOREST", "A forest written by `bigforest train`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.", rich_help_panel=RUN)]

# Options of the columns of a table.
TABLE = {
    "target": option(
        str, "NAME", "Target column. Default: the first of target, label, class, y that exists.", panel=COLUMNS
    ),
    "exclude": option(list[str], "COL", "Column to leave out. Repeat for more.", panel=COLUMNS),
}

# Options of running a command, by their names in the API.
_RUN_OPTIONS = {
    "overwrite": flag("Replace an existing output.", "--overwrite", panel=RUN),
    "json": flag("Print one JSON object and nothing else.", "--json", panel=RUN),
    "quiet": flag("Print errors only.", "--quiet", "-q", panel=RUN),
    "threads": option(int, "N", "Number of worker threads. Default: all processors.", panel=RUN),
    "scratch": option(str, "DIR", "Folder for temporary files. Default: the folder of the system.", panel=RUN),
    "memory": option(str, "SIZE", "Memory limit, such as 4GB. Default: none.", panel=RUN),
}
SCRATCH_BESIDE = option(str, "DIR", "Folder for temporary files. Default: next to the forest.", panel=RUN)
SCHEDULER = {
    "scheduler": option(str, "ADDRESS", "Dask scheduler to run on, tcp:// or tls://. Default: threads.", panel=RUN),
    "scheduler_file": option(str, "FILE", "Scheduler file of the Dask scheduler to run on.", panel=RUN),
    "tls_ca": option(str, "PEM", "For tls://: certificate of the authority.", panel=RUN),
    "tls_cert": option(str, "PEM", "For tls://: certificate to show the scheduler.", panel=RUN),
    "tls_key": option(str, "PEM", "For tls://: key of the certificate of --tls-cert.", panel=RUN),
}
VOTES = {
    "vote": option(
        str, "soft|hard|stochastic", "How the predictions of the trees are combined. Default: as in training."
    ),
    "ties": option(
        str,
        "lowest|reject|random",
        "Prediction if classes have equal votes: the lowest, none (null), or a random one. Default: as in training.",
    ),
}


def run_options(*names: str) -> dict[str, Choice]:
    """Return --json, --quiet and the named options of running. The name "scheduler" means all options of a cluster."""
    requested = {"json", "quiet", *names} - {"scheduler"}
    return chosen(_RUN_OPTIONS, requested) | (SCHEDULER if "scheduler" in names else {})


def named_after(forest: str, suffix: str) -> str:
    """Return the default name of an output in the current folder: flights<suffix> for DIR/flights.forest."""
    return f"{Path(forest.rstrip('/')).name.removesuffix('.forest')}{suffix}"


DEFAULT = Path("bigforest.toml")
# Key of the path of the configuration file in the `meta` of a command's context.
FROM_FILE = "bigforest.config_file"
# Parameters that a configuration file cannot have.
_NOT_IN_FILES = {"config_file", "help", "data"}


def _read(context: typer.Context, file: str | None) -> None:
    """Read the defaults of the options of the command from `file`, or from bigforest.toml if `file` is None.

    Options of other commands that read a configuration file are ignored. Raises BadParameter.
    """
    path = DEFAULT if file is None and DEFAULT.is_file() else file
    if path is None or context.resilient_parsing:
        return
    try:
        entries = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise typer.BadParameter(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}; give a TOML file") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} cannot be read as TOML: {error}") from error
    program: Any = context.find_root().command
    of_commands = [_parameters(command) for command in getattr(program, "commands", {"": program}).values()]
    shared = {name for of_command in of_commands if "config_file" in of_command for name in of_command}
    parameters, found = _parameters(context.command), {}
    for name, value in entries.items():
        option = name.replace("-", "_")
        if option not in parameters and option in shared:
            continue
        if option not in parameters or option in _NOT_IN_FILES:
            near = difflib.get_close_matches(option, sorted(parameters.keys() - _NOT_IN_FILES), n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise typer.BadParameter(f"{path}: {context.command.name} has no option {name!r}{hint}")
        found[option] = _value(parameters[option], value, f"{path}: {name}")
    context.default_map = found
    context.meta[FROM_FILE] = path


def _parameters(command: Any) -> dict[str, Any]:
    """Return the parameters of a command by name."""
    return {parameter.name: parameter for parameter in command.params}


def _value(parameter: Any, value: Any, where: str) -> Any:
    """Return a value of the file as click expects it. Raises BadParameter for a value that click would misread.

    where  beginning of the message of an error.
    """
    if isinstance(value, dict):
        return json.dumps(value, default=str)  # dates as text: the option refuses them and names what it accepts
    if parameter.multiple:
        return value if isinstance(value, list) else [value]
    if isinstance(value, list) or (isinstance(value, bool) and not parameter.is_flag):
        raise typer.BadParameter(f"{where} cannot be {'a list' if isinstance(value, list) else json.dumps(value)}")
    return value


_OPTION = typer.Option(
    "--config",
    metavar="FILE",
    help="TOML file of options, named without dashes. Default: bigforest.toml in the current folder.",
    callback=_read,
    is_eager=True,
    rich_help_panel=RUN,
)
CONFIG_FILE = {"config_file": Choice(Annotated[str | None, _OPTION], None, None)}


def toml_of(options: Mapping[str, Any]) -> str:
    """Return options as lines of TOML. Options that are None or empty are left out."""
    return "".join(f"{name} = {_written(value)}\n" for name, value in options.items() if value not in (None, (), []))


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_written(name)} = {_written(entry)}" for name, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    # JSON writes text, numbers and booleans as TOML does, except for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
