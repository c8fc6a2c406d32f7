"""Errors of damaged files say what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import bigforest
from bigforest import errors
from bigforest.errors import BigForestError, damaged_forest, damaged_store


def test_damage__has_one_sentence_each_that_says_what_to_do() -> None:
    assert str(damaged_forest("a/run.parquet has no rows")) == (
        "a/run.parquet has no rows; the forest is damaged: restore its folder from a copy, or train it again"
    )
    assert str(damaged_store("a.store/levels.parquet: no text")) == (
        "a.store/levels.parquet: no text; the store is damaged: encode the table again"
    )
    home = Path(bigforest.__file__).parent
    words = re.compile(r"(the forest|the store|the file) is damaged[^ .,]*\"")
    told = [
        str(file.relative_to(home))
        for file in home.rglob("*.py")
        if words.search(file.read_text(encoding="utf-8")) and file.name != "errors.py"
    ]
    assert not told, "these messages end without what to do: use damaged_forest or damaged_store"


def test_errors__keep_the_marks_of_the_errors_that_they_quote() -> None:
    """`{error}` writes names of options as in Python; `{error.text}` leaves that to the interface."""
    ours = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BigForestError)}
    home, told = Path(bigforest.__file__).parent, []
    for file in home.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        caught = set(re.findall(r"\bas (\w+):$", text, re.MULTILINE))
        if not any(f"{{{name}" in text for name in caught):  # quick to see, unlike the tree of a module
            continue
        for handler in ast.walk(ast.parse(text)):
            if not isinstance(handler, ast.ExceptHandler) or handler.type is None:
                continue
            names = {name.id for name in ast.walk(handler.type) if isinstance(name, ast.Name)}
            quoted = [
                node
                for node in ast.walk(handler)
                if isinstance(node, ast.FormattedValue)
                and isinstance(node.value, ast.Name)
                and node.value.id == handler.name
            ]
            if names & ours and quoted:
                told.append(f"{file.relative_to(home)}:{quoted[0].lineno}")
    assert not told
