"""README.md is short, its links lead somewhere and its code names what there is; ARCHITECTURE.md leaves no part out."""

from __future__ import annotations

import ast
import re

import bigforest
from tests.docs.pages import ROOT, blocks, check_command, local_links

README = ROOT / "README.md"
MOST_LINES = 150


def test_readme__is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_readme__has_the_marked_commands() -> None:
    text = README.read_text(encoding="utf-8")
    for name in ("train", "test"):
        assert re.search(rf"^<!-- command: {name} -->\n```sh\n[^`]+\n```$", text, re.MULTILINE), name


def test_readme__links_lead_somewhere() -> None:
    assert not [link for link in local_links(README) if not (ROOT / link).exists()]


def test_readme__code_names_what_there_is() -> None:
    (code,) = blocks(README, "python")
    names = {node.attr for node in ast.walk(ast.parse(code)) if _is_of(node, "bf")}
    methods = {node.attr for node in ast.walk(ast.parse(code)) if _is_of(node, "forest")}
    assert names and not {name for name in names if not hasattr(bigforest, name)}
    assert methods and not {name for name in methods if not hasattr(bigforest.Forest, name)}


def _is_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name


def test_readme__commands_have_options_that_there_are() -> None:
    lines = [line for block in blocks(README, "sh") for line in block.splitlines() if line.startswith("bigforest ")]
    assert lines
    for line in lines:
        check_command(line)


def test_architecture__names_every_package_and_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    entries = [
        path for path in (ROOT / "bigforest").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    names = {f"`{path.name}/`" if path.is_dir() else f"`{path.name}`" for path in entries}
    assert not {name for name in names if name not in text} - {"`__main__.py`"}
