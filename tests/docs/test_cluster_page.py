"""The page about clusters names what Dask's dashboard shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bigforest
from bigforest.execution.dask_cluster import label
from bigforest.execution.executor import merged_part
from bigforest.execution.worker import make_seat, merge_packed

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "cluster.md"
# Which arguments of a method of an executor are functions.
FUNCTIONS = {"run": [0], "gather": [0], "map": [0], "reduce": [0], "reduce_parts": [0, 3]}


def tasks() -> Iterator[str]:
    """The names of the functions that are given to executors."""
    for path in Path(bigforest.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if "executor" in text else ():
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if "explain" not in path.parts and re.search(r"executor(\(.*\))?$", ast.unparse(call.func.value)):
                yield from (
                    ast.unparse(call.args[place]).rpartition(".")[2] for place in FUNCTIONS.get(call.func.attr, [])
                )


def test_tasks__are_all_in_the_table() -> None:
    # Functions that a helper passes on to an executor.
    given = {"trial_errors", "gains_of", "spill", "lambda_losses", "tally_range"}
    found = {*tasks(), *given} - {"measure", "task"}
    assert {"encode_group", "score_responses", "write_votes"} <= found
    named: Any = (SimpleNamespace(__name__=name) for name in found)
    expected = {f"bigforest-{label(function)}" for function in (*named, merged_part, merge_packed, make_seat)}
    rows = re.findall(r"^\| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"`(bigforest-[^`]*)`", " ".join(rows))) == expected
