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


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return re.sub(r"([|<>*_`\[\]])", r"\\\1", " ".join(text.split()))


def help_text(command: Any) -> Iterator[str]:
    """The help of a command; its examples as code."""
    for paragraph in (command.help or "").split("\n\n"):
        prose, example, rest = paragraph.partition("Example:")
        yield from [prose.strip().replace("`", "``").replace("``", "`"), ""]
        if example:
            yield from ["```text", rest.strip(), "```", ""]


def default_of(option: Any) -> str:
    """The default in the words of the help, or nothing."""
    if not option.show_default or option.default is None or option.default == () or callable(option.default):
        return ""
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return f"`{option.default}`"


def option_rows(command: Any) -> Iterator[str]:
    """A row of the table for each argument and option of a command."""
    for option in command.params:
        if option.param_type_name == "argument":
            names = f"`{option.metavar or option.name.upper()}`"
            yield f"| {names} | | {cell(getattr(option, 'help', None) or '')} |"
        else:
            names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
            metavar = "" if option.is_flag else f" `{(option.metavar or '').replace('|', chr(0x2223))}`"
            yield f"| {names}{metavar} | {default_of(option)} | {cell(option.help or '')} |"


def command_page() -> str:
    """All commands as Markdown."""
    lines: list[str] = []
    for name, command in commands().items():
        lines += [f"## bigforest {name}", "", *help_text(command)]
        lines += ["| argument or option | default | meaning |", "|---|---|---|", *option_rows(command), ""]
    return "\n".join(lines)


class CommandsDirective(SphinxDirective):
    """Sections of all commands, in the place of the directive."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(command_page(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("commands", CommandsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
