"""Writes the output of the commands and of the Python of a page into the page, for those who read it as Markdown.

    python docs/outputs.py            # run the pages of PAGES and write their outputs
    python docs/outputs.py --check    # exit with 1 where a page says something else; times may differ

A block `sh` or `python` that is followed by a block `text` is run, in the order of the page, in a folder with the
tables of docs/extensions/page_setup.py. The block `text` is what it prints and, of Python, the value of its last
expression.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from docs.extensions.page_setup import fill  # noqa: E402

PAGES = ("docs/start/terminal.md", "docs/start/polars.md")
# The folder in which a page is read.
_HOME = "/home/me"
_SHOWN = re.compile(r"(^```(sh|python)\n(.*?)^```\n\n```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
# A notice where kernels have not been compiled yet.
_COMPILING = re.compile(r"^note: compiling .*\n", re.MULTILINE)
_TIME = re.compile(r"^time .*$|\d+(\.\d+)? m?s\b", re.MULTILINE)


def with_outputs(text: str, folder: Path, setup: str = "") -> str:
    """Return the text of a page with the outputs of its blocks, which are run in an empty folder.

    setup  Bash that is run before each block of commands
    """
    fill(folder)
    names: dict[str, Any] = {}

    def run(found: re.Match[str]) -> str:
        head, language, code, _, end = found.groups()
        output = _of_commands(f"{setup}\n{code}", folder) if language == "sh" else _of_python(code, folder, names)
        lines = [line.rstrip() for line in output.replace(str(folder), _HOME).splitlines()]
        return head + "".join(f"{line}\n" for line in lines) + end

    return _SHOWN.sub(run, text)


def without_times(text: str) -> str:
    """Return the text of a page without times, which differ from run to run."""
    return _TIME.sub("", text)


def _of_commands(code: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": "90", "NO_COLOR": "1", "TERM": "dumb"}
    command = ["bash", "-euc", f"exec 2>&1; {code}"]
    with tempfile.TemporaryFile("w+") as file:  # not a pipe, which is read until the last process has closed it
        failed = subprocess.run(command, cwd=folder, env=environment, stdout=file).returncode
        file.seek(0)
        output = file.read()
    if failed:
        raise RuntimeError(output)
    return _COMPILING.sub("", output)


def _of_python(code: str, folder: Path, names: dict[str, Any]) -> str:
    *before, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"the block does not end with an expression:\n{code}")
    printed = io.StringIO()
    with chdir(folder), redirect_stdout(printed), pl.Config(tbl_width_chars=100):
        exec(compile(ast.Module(before, []), "page", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "page", "eval"), names)
        if value is not None:
            print(repr(value))
    return printed.getvalue()


def main(*, check: bool) -> int:
    """Write the pages, or check them; return the exit code."""
    different = []
    for name in PAGES:
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            found = with_outputs(text, Path(folder))
        if without_times(found) != without_times(text):
            different.append(name)
            if not check:
                page.write_text(found, encoding="utf-8")
    print("\n".join(different) or "nothing to write")
    return int(check and bool(different))


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
