"""Docstrings begin with a verb or a noun phrase: they say what a thing does or is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Words that begin a sentence about something else.
NOT_FIRST = ("What", "Whether", "Those", "Of", "And", "By", "As", "Else", "Not")
MODULES = sorted([*(ROOT / "bigforest").rglob("*.py"), *(ROOT / "cli").rglob("*.py")])


def first_words(path: Path) -> list[str]:
    """Return `line: word` for each docstring of a module."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = (ast.get_docstring(node) or "").split()
            found += [f"{getattr(node, 'lineno', 1)}: {text[0]}"] if text else []
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings__begin_with_a_verb_or_a_noun(path: Path) -> None:
    wrong = [word for word in first_words(path) if word.rpartition(" ")[2].rstrip(",:") in NOT_FIRST]
    assert not wrong
