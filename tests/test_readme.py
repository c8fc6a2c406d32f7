"""README.md is short, its links lead somewhere and its code names what there is; ARCHITECTURE.md leaves no part out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.extensions.page_setup import fill
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


def test_readme__code_runs_with_the_tables_that_it_names(tmp_path: Path) -> None:
    (code,) = blocks(README, "python")
    fill(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
