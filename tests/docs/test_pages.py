"""What the documentation says can be done, tried: commands are run, Python is read, files are as described."""

from __future__ import annotations

import ast
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.forest.files import VERSION
from bigforest.forest.format import FILES
from docs.extensions.page_setup import fill
from docs.extensions.result_pages import results
from docs.extensions.schemas import column_table
from docs.outputs import PAGES as SHOWN
from docs.outputs import with_outputs, without_times
from tests.docs.command_server import CommandServer
from tests.docs.pages import DOCS, PAGES, blocks, check_command, local_links, script


def _name(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.fixture(scope="module")
def server() -> Iterator[CommandServer]:
    # The address of a socket must be short.
    with tempfile.TemporaryDirectory() as folder, CommandServer(Path(folder)) as running:
        yield running


def _shell(server: CommandServer, commands: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, output and messages of a script."""
    words = ["bash", "-euo", "pipefail", "-c", f"{server.shell_function()}\n{commands}"]
    # Not pipes: what renders pictures keeps files 1 and 2 open in the server, and we would wait for their end.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        code = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err).returncode
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def test_commands__that_fail_say_so(server: CommandServer, tmp_path: Path) -> None:
    code, out, err = _shell(server, "bigforest train 'no such.parquet' --target y\necho not reached", tmp_path)
    assert (code, out) == (2, "")
    assert "no such.parquet" in err
    code, out, _ = _shell(server, "bigforest --version && echo then", tmp_path)
    assert (code, out) == (0, f"bigforest {bigforest.__version__}\nthen\n")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=_name)
def test_commands__that_need_more_have_options_that_there_are(page: Path) -> None:
    for block in blocks(page, "console"):
        for line in block.splitlines():
            if line.startswith("bigforest "):
                check_command(line)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=_name)
def test_python__that_is_not_run_names_what_there_is(page: Path) -> None:
    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bf":
                assert hasattr(bigforest, node.attr), node.attr


# What the Python of a page takes for granted, what its modules need, and why that of some is not run.
GIVEN = {
    "guide/export.md": """
import bigforest as bf, polars as pl, treelite
forest = bf.train(bf.simulate("trunk", rows=200, dims=4), "target", trees=3, shrink="off")
new = bf.simulate("trunk", rows=50, dims=4, sample=1).drop("target")
""",
    "start/coming-from.md": """
import bigforest as bf
X, y = (part.to_numpy() for part in (lambda d: (d.drop("target"), d["target"]))(bf.simulate("trunk", rows=90, dims=3)))
X_new = X[:9]
labels = y[:, None].repeat(2, axis=1)
""",
}
NEEDS = {"guide/export.md": [pytest.mark.needs("onnx", "onnxruntime", "treelite")]}
NOT_HERE = {"guide/cluster.md": "workers, Kubernetes and SLURM"}
RUN = [page for page in PAGES if blocks(page, "sh") or blocks(page, "python")]


@pytest.mark.parametrize("page", [pytest.param(page, marks=NEEDS.get(_name(page), []), id=_name(page)) for page in RUN])
def test_page__commands_run_one_after_the_other_and_its_python_after_them(
    page: Path, server: CommandServer, tmp_path: Path
) -> None:
    name = _name(page)
    fill(tmp_path, rows=400)  # a third of what the pages show: that commands run is what is tested
    shown = f"docs/{name}" in SHOWN  # then its blocks with outputs are run below
    code, _, err = _shell(server, script(page, shown=shown), tmp_path)
    assert code == 0, err
    if name in NOT_HERE or shown or not blocks(page, "python"):
        return
    program = "\n".join([GIVEN.get(name, ""), *blocks(page, "python")])
    with chdir(tmp_path):
        exec(compile(program, name, "exec"), {"__name__": "page"})


def test_shrinkage__values_follow_from_the_tables(tmp_path: Path) -> None:
    fill(tmp_path)
    with chdir(tmp_path):
        forest = bigforest.train("table.parquet", "y", trees=7, shrink="auto", out="table.forest")
        found: dict[str, pl.DataFrame] = {}
        exec(blocks(DOCS / "guide" / "shrinkage.md", "python")[0], found)
    assert forest.shrinkage.amount > 0
    values = {(tree, node): f for tree, node, f in found["values"].rows()}
    table = pl.read_parquet(tmp_path / "table.parquet")
    expected = [np.mean([values[tree, leaf] for tree, leaf in enumerate(row)], axis=0) for row in forest.apply(table)]
    np.testing.assert_allclose(forest.predict_proba(table).to_numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SHOWN)
def test_page__shows_what_its_blocks_print(name: str, server: CommandServer, tmp_path: Path) -> None:
    text = (DOCS.parent / name).read_text(encoding="utf-8")
    found = with_outputs(text, tmp_path, server.shell_function())
    assert without_times(found) == without_times(text), "python docs/outputs.py writes the outputs"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links__lead_to_pages(page: Path) -> None:
    # The pages of results are made when the documentation is built; their names are those of the builder.
    names = {f"{name}.md" for name in results().values()}
    missing = [
        link
        for link in local_links(page)
        if not (page.parent / link).exists() and not ("results/" in link and Path(link).name in names)
    ]
    assert not missing


def test_files__are_described_by_their_schemas() -> None:
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    described = {line.removeprefix("```{columns} ") for line in text.splitlines() if line.startswith("```{columns}")}
    assert described == set(FILES)
    assert f"(of the format, now {VERSION})" in text


def test_column_table__has_the_meanings_and_types_of_the_schema() -> None:
    assert "| `threshold` | float64 | a row goes left if" in column_table("trees/part-NNNNNNN.parquet")
    assert "| `truth` | as the target | class of the rows |" in column_table("oob/confusion.parquet")
    with pytest.raises(ValueError, match=r"trees.parquet is not a file of a forest"):
        column_table("trees.parquet")


def test_reference__has_every_public_name() -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    listed = {line.strip().removeprefix("bigforest.") for line in page.splitlines() if line.startswith("   bigforest.")}
    public = {name for name in bigforest.__all__ if name != "__version__"}
    assert not public - listed


def test_reference__names_the_function_of_every_command() -> None:
    import typer

    from cli.app import app

    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert not {name for name in commands if f"| `{name}` | " not in page}
