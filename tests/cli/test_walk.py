"""How much code somebody reads who follows `bigforest train` from the command to bytes on the disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bigforest.forest.format import files
from bigforest.kernels.tree import grow
from bigforest.store import writer
from cli import app
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]  # fixtures
HOME = Path(app.__file__).parent.parent


def functions_on_stack() -> Iterator[tuple[Path, str]]:
    """The functions of the package and of the command line that are running, and their files."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(HOME / "bigforest") or file.is_relative_to(HOME / "cli"):
            yield file, frame.f_code.co_qualname
        frame = frame.f_back


def test_train__passes_few_files_and_functions(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on the stack when the codes of a column are written, when a tree grows, and when a part is written."""
    stacks: dict[str, set[tuple[Path, str]]] = {}  # of the last call: kernels are compiled by the first

    def watch(home: Any, name: str, wanted: str = "") -> None:
        """wanted: what the text of one of the first two arguments has in it."""
        function = getattr(home, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            if any(wanted in str(argument) for argument in arguments[:2]):
                stacks[name] = set(functions_on_stack())
            return function(*arguments, **options)

        monkeypatch.setattr(home, name, watched)

    watch(writer._Files, "append", "codes")
    watch(grow, "grow_while_room")
    watch(files.pq, "ParquetWriter", "part-")
    assert run("train", "things.parquet", "--threads", "1", "--trees", "2", "--out", "f").code == 0
    assert len(stacks) == 3
    walked = set[tuple[Path, str]]().union(*stacks.values())
    assert len({file for file, _ in walked}) <= 20
    assert len(walked) <= 35
