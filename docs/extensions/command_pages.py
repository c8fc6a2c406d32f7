"""The directive `commands`: a section for each command of the command line, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cli.app import app as bigforest_app


def commands() -> dict[str, Any]:
    """The commands by name, in the order of the help."""
    return dict(typer.main.get_command(bigforest_app).commands)  # type: ignore[attr-defined]


def prose(text: str) -> str:
    """Text as Markdown that says no more than it does; what stands between backticks is code."""
    pieces = " ".join(text.split()).split("`")
    pieces[::2] = [re.sub(r"([|<>*_\[\]])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def help_text(command: Any) -> Iterator[str]:
    """The help of a command; its examples as code."""
    for paragraph in (command.help or "").split("\n\n"):
        text, example, rest = paragraph.partition("Example:")
        yield from [prose(text), ""]
        if example:
            yield from ["```text", rest.strip(), "```", ""]


def default_of(option: Any) -> str:
    """The default in the words of the help, or nothing."""
    if not option.show_default or option.default is None or option.default == () or callable(option.default):
        return ""
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return f"`{option.default}`"


def option_entries(command: Any) -> Iterator[str]:
    """An entry of a definition list for each argument and option of a command."""
    for option in command.params:
        if option.param_type_name == "argument":
            heads = [f"`{option.metavar or option.name.upper()}`"]
        else:
            heads = [", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])]
            heads += [] if option.is_flag or not option.metavar else [f"`{option.metavar}`"]
        default = default_of(option)
        said = f"(default: {default})" if default else ""
        yield f"{' '.join([*heads, said]).strip()}\n: {prose(option.help or '')}\n"


def command_page() -> str:
    """All commands as Markdown."""
    lines: list[str] = []
    for name, command in commands().items():
        lines += [f"## bigforest {name}", "", *help_text(command)]
        lines += option_entries(command)
    return "\n".join(lines)


class CommandsDirective(SphinxDirective):
    """Sections of all commands, in the place of the directive."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(command_page(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("commands", CommandsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
