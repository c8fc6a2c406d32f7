"""What README.md says of files and options is what there is, and ARCHITECTURE.md leaves no part out."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
import typer

import bigforest
from bigforest.forest.format.files import VERSION
from bigforest.forest.format.schema import (
    CURVE,
    FEATURES,
    LEAF_TARGETS,
    NODES,
    RANKS,
    RUN,
    TARGET_VALUES,
    VALIDATION,
    confusion,
    metrics,
    oob_rows,
)
from bigforest.schema.config import TrainConfig
from bigforest.store.levels import LEVELS
from cli.app import app

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = "".join(page.read_text() for page in sorted((ROOT / "docs" / "guide").glob("*.md")))
LABEL = pa.string()
FILES = {
    "trees/part-NNNNNNN.parquet": NODES,
    "features.parquet": FEATURES,
    "ranks.parquet": RANKS,
    "levels.parquet": LEVELS,
    "run.parquet": RUN,
    "oob/rows.parquet": oob_rows(LABEL, ["p_<class>"]),
    "oob/curve.parquet": CURVE,
    "oob/confusion.parquet": confusion(LABEL),
    "oob/metrics.parquet": metrics(LABEL),
    "validation/curve.parquet": VALIDATION,
    "targets/values.parquet": TARGET_VALUES,
    "targets/part-NNNNNNN.parquet": LEAF_TARGETS,
}


def documented(file: str) -> list[tuple[str, str]]:
    """Column and type of every row of the table under the line that starts with the file's name."""
    _, _, below = README.partition(f"\n`{file}`")
    rows = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert rows, f"README.md has no table for {file}"
    cells = [line.split(" | ") for line in rows[0].splitlines()[2:]]
    return [(name, kind) for names, kind, *_ in cells for name in re.findall(r"`([^`]+)`", names)]


def type_name(kind: pa.DataType) -> str:
    """The type in the words of the README."""
    if pa.types.is_dictionary(kind):
        return f"dictionary of {kind.value_type}"
    if pa.types.is_struct(kind):
        return f"struct ({', '.join(field.name for field in kind)})"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    return {"double": "float64"}.get(str(kind), str(kind))


@pytest.mark.parametrize("file", FILES)
def test_readme__lists_the_columns_of(file: str) -> None:
    described = [(name, "string" if kind == "as the target" else kind) for name, kind in documented(file)]
    assert described == [(field.name, type_name(field.type)) for field in FILES[file]]


def test_readme__names_the_format_version() -> None:
    assert f"(of the format, now {VERSION})" in README


def test_readme__lists_every_option_of_the_configuration() -> None:
    options = {f"`--{name.replace('_', '-')}`" for name in TrainConfig.__dataclass_fields__}
    assert not {option for option in options if option not in README}


def test_readme__lists_every_option_of_the_commands() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {name for command in commands.values() for option in command.params for name in option.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z-]+", README + GUIDE))
    assert not {name for name in options if name.startswith("--")} - named


def test_readme__names_the_function_of_every_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert not {name for name in commands if f"| `{name}` | " not in README + GUIDE}
    assert not {name for name in re.findall(r"`bf\.(\w+)`", README) if not hasattr(bigforest, name)}


def test_architecture__names_every_package_and_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    entries = [
        path for path in (ROOT / "bigforest").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    names = {f"`{path.name}/`" if path.is_dir() else f"`{path.name}`" for path in entries}
    assert not {name for name in names if name not in text} - {"`version.py`"}
