"""Errors of damaged files say what to do."""

from __future__ import annotations

import re
from pathlib import Path

import bigforest
from bigforest.errors import damaged_forest, damaged_store


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
