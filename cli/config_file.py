"""Options in a TOML file: --config FILE, or bigforest.toml in the current folder."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import RUN, Choice

DEFAULT = Path("bigforest.toml")
# The file that a command took options from, in the `meta` of its context.
FROM_FILE = "bigforest.config_file"


def _read(context: typer.Context, file: str | None) -> None:
    """Make the options in the file the defaults of the command, which is not given the option itself."""
    path = DEFAULT if file is None and DEFAULT.is_file() else file
    if path is None or context.resilient_parsing:
        return
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise typer.BadParameter(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}; give a TOML file") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} cannot be read as TOML: {error}") from error
    known = {parameter.name: parameter for parameter in context.command.params}
    for name in ("config_file", "help", "data"):
        known.pop(name, None)
    found = {}
    for name, value in given.items():
        option = name.replace("-", "_")
        if option not in known:
            near = difflib.get_close_matches(option, sorted(known), n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise typer.BadParameter(f"{path}: {context.command.name} has no option {name!r}{hint}")
        found[option] = _value(known[option], value, f"{path}: {name}")
    context.default_map = found
    context.meta[FROM_FILE] = path


def _value(parameter: Any, value: Any, where: str) -> Any:
    """The value of an option as the command takes it; what would be read as another is refused."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)  # of dates: the option says what it takes
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
    """Options as lines of TOML; those without a value are left out."""
    return "".join(f"{name} = {_written(value)}\n" for name, value in options.items() if value not in (None, (), []))


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_written(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    # Texts, numbers and booleans are written alike in JSON, except for the characters JSON may leave as they are.
    return json.dumps(value).replace("\x7f", "\\u007f")
