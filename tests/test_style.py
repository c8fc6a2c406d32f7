"""Docstrings begin with a verb or a noun phrase: they say what a thing does or is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Docstrings that begin with words of a sentence about something else.
WRONG = re.compile(r'^ *r?"""(?:What|Whether|Those|Of|And|By|As|Else|Not)[,:]*(?=\s|""")', re.MULTILINE)


def test_docstrings__begin_with_a_verb_or_a_noun() -> None:
    files = [file for folder in ("bigforest", "cli") for file in (ROOT / folder).rglob("*.py")]
    assert not {
        f"{file.relative_to(ROOT)}: {found}"
        for file in files
        for found in WRONG.findall(file.read_text(encoding="utf-8"))
    }
