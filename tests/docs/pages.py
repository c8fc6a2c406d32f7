"""The pages of the documentation as the tests read them: blocks of code, links, commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer

from cli.app import app

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
# Pages that are kept, not those made from other files.
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if not {"_build", "results", "api"} & set(path.relative_to(DOCS).parts)
)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def script(page: Path, *, shown: bool) -> str:
    """The commands of a page, one after the other; before them those of its lines `% sh: ...`, which are not shown.

    shown  leave out the blocks that are followed by their output
    """
    text = page.read_text(encoding="utf-8")
    before = re.findall(r"^% sh: (.*)$", text, re.MULTILINE)
    output = r"(?!\n\n```text$)" if shown else ""
    return "\n".join([*before, *re.findall(rf"^```sh\n((?:(?!```).*\n)*)```${output}", text, re.MULTILINE)])


def local_links(page: Path) -> list[str]:
    """Links of a page to files beside it, without their anchors."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]


def check_command(line: str) -> None:
    """Fail unless a line is a command of bigforest with options that there are."""
    words = shlex.split(line, comments=True)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert words[0] == "bigforest" and words[1] in commands, line
    options = {name for option in commands[words[1]].params for name in [*option.opts, *option.secondary_opts]}
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert named <= options, f"{line}: no {named - options}"
