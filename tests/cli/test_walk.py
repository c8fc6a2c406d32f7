"""How much code somebody reads who follows `bigforest train` from the command to bytes on the disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bigforest.encode import features
from bigforest.forest.format import files
from bigforest.forest.votes import leaf_files
from bigforest.grow.shared import tree_splits
from bigforest.kernels.tree import grow
from bigforest.oob import tally
from bigforest.source.source import Source
from bigforest.store import writer
from cli import app
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]  # fixtures
HOME = Path(app.__file__).parent.parent
Function = tuple[Path, str]


def functions_on_stack() -> Iterator[Function]:
    """The functions of the package and of the command line that are running, and their files; the last called first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(HOME / "bigforest") or file.is_relative_to(HOME / "cli"):
            yield file, frame.f_code.co_qualname
        frame = frame.f_back


def test_train__passes_few_files(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the table is read, a column is presorted and written as codes, a tree grows and the leaves of its left-out
    rows are found and written, votes are added up, and Parquet files of the forest and its report are written.

    A hop is a call from a function of one file into one of another. The last call counts: the first compiles kernels.
    """
    stacks: dict[str, list[Function]] = {}

    def watch(home: Any, name: str, wanted: str = "") -> None:
        """wanted: what the text of one of the first two arguments has in it."""
        function = getattr(home, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            found = [str(argument) for argument in arguments[:2] if wanted in str(argument)]
            if found:
                key = Path(found[0]).name.split(".")[1] if wanted == ".parquet" else ""
                stacks[f"{name} {key}"] = list(functions_on_stack())
            return function(*arguments, **options)

        monkeypatch.setattr(home, name, watched)

    watch(Source, "_paged")
    watch(features, "count_offset_cells")
    watch(writer._Files, "append", "codes")
    watch(grow, "grow_while_room")
    watch(tree_splits, "find_leaves")
    watch(leaf_files, "write_arrays")
    watch(tally, "add_classes")
    watch(files.pq, "ParquetWriter", ".parquet")
    assert run("train", "things.parquet", "--threads", "1", "--trees", "2", "--out", "f").code == 0
    written = {"part-0000001", "rows", "curve", "confusion", "metrics", "features", "run"}
    assert written <= {name.removeprefix("ParquetWriter ") for name in stacks}
    assert len(stacks) >= len(written) + 8
    hops = {hop for stack in stacks.values() for hop in zip(stack[1:], stack, strict=False) if hop[0][0] != hop[1][0]}
    assert len({file for stack in stacks.values() for file, _ in stack}) <= 20
    assert len(hops) <= 32
