"""The import rules of ARCHITECTURE.md, read from the sources, and what a fresh interpreter loads."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

import bigforest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bigforest"
BENCHMARKS = ROOT / "benchmarks"
READMES = sorted([*PACKAGE.rglob("README.md"), ROOT / "cli" / "README.md", ROOT / "ARCHITECTURE.md"])
SCRIPTS = sorted([*BENCHMARKS.rglob("*.py"), *(ROOT / "examples").rglob("*.py")])

# The layers of ARCHITECTURE.md from the bottom up: a module imports from its own layer and from those before it.
LAYERS = (
    *("kernels", "errors", "events", "version", "html", "planning", "options", "columns", "storage", "execution"),
    *("progress", "metrics", "source", "store", "encode", "sampling", "forest", "images", "simulation", "export"),
    *("predict", "grow", "oob", "revise", "explain", "plot", "report", "training", "compiling", "sklearn"),
)
# The same within a layer.
SUBLAYERS = {
    "kernels": (
        *("compiler", "llvm", "common", "presort", "columns", "categories", "scan", "oblique", "subspace", "tree"),
        *("out_of_core", "predict", "refine", "explain"),
    ),
}
COSTLY = {"numba", "dask", "distributed", "pyarrow", "PIL"}


def _modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def _imports(path: Path) -> tuple[str, ...]:
    """Dotted names of everything the file imports anywhere, relative imports of the CLI left out."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(names)


def _within(name: str, allowed: set[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in allowed)


def _stage(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_kernels__import_numpy_numba_and_kernels_only() -> None:
    foreign = {
        f"{path.name}: {name}"
        for path in _modules(PACKAGE / "kernels")
        for name in _imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not _within(name, {"numpy", "numba", "llvmlite", "bigforest.kernels"})  # llvmlite is part of numba
    }
    assert not foreign


def test_llvm__emitted_in_one_folder() -> None:
    users = {path.parent.name for path in _modules(PACKAGE) if any(_within(n, {"llvmlite"}) for n in _imports(path))}
    assert users == {"compiler", "llvm"}


def test_dask__imported_by_execution_only() -> None:
    users = {
        _stage(path) for path in _modules(PACKAGE) if any(_within(n, {"dask", "distributed"}) for n in _imports(path))
    }
    assert users <= {"execution"}


def test_pillow__imported_where_images_are_decoded_only() -> None:
    users = {
        path.relative_to(PACKAGE) for path in _modules(PACKAGE) if any(_within(n, {"PIL"}) for n in _imports(path))
    }
    assert users == {Path("images/imageset.py")}


def test_cli__imported_by_nothing() -> None:
    users = {
        path for path in _modules(PACKAGE) for n in _imports(path) if _within(n, {"cli", "bigforest_cli", "typer"})
    }
    assert users == {PACKAGE / "__main__.py"}  # python -m bigforest


# All modules but the package itself, which has the public names.
MODULES = {
    _dotted(path): path for path in _modules(PACKAGE) if _dotted(path) not in ("bigforest", "bigforest.__main__")
}


def _known(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere and for whatever purpose."""
    found = {name if name in MODULES else name.rpartition(".")[0] for name in _imports(path)}
    return {name for name in found if name in MODULES}


def test_layers__are_all_folders_and_modules_of_the_package() -> None:
    assert {name.split(".")[1] for name in MODULES} == set(LAYERS)


def test_layers__import_from_those_below_only() -> None:
    strangers = {
        f"{module}: {name}"
        for module, path in MODULES.items()
        for name in _known(path)
        if _place(LAYERS, name, 1) > _place(LAYERS, module, 1)
    }
    assert not strangers


@pytest.mark.parametrize("layer", SUBLAYERS)
def test_sublayers__import_from_those_below_only(layer: str) -> None:
    within = f"bigforest.{layer}"
    strangers = {
        f"{module}: {name}"
        for module, path in MODULES.items()
        for name in _known(path)
        if _within(module, {within}) and _within(name, {within})
        if _place(SUBLAYERS[layer], name, 2) > _place(SUBLAYERS[layer], module, 2)
    }
    assert not strangers


def _place(layers: tuple[str, ...], module: str, depth: int) -> int:
    """Where the folder at this depth of a module's name stands; what is in no folder comes last."""
    parts = module.split(".")
    return layers.index(parts[depth]) if len(parts) > depth and parts[depth] in layers else len(layers)


def test_modules__import_in_no_circle() -> None:
    waiting = {module: _known(path) - {module} for module, path in MODULES.items()}
    while free := {module for module, known in waiting.items() if not known & waiting.keys()}:
        waiting = {module: known for module, known in waiting.items() if module not in free}
    assert not waiting


def test_readmes__name_files_that_there_are() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in READMES
        for name in set(re.findall(r"`([\w/.]+\.py)`", path.read_text()))
        if not (PACKAGE / name).is_file() and not (ROOT / name).is_file() and not list(path.parent.rglob(name))
    }
    assert not missing


def _loaded(code: str) -> set[str]:
    """Top-level modules in sys.modules after running `code` in a fresh interpreter at the sources' root."""
    script = f"import sys\n{code}\nprint('loaded', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())


def test_import_bigforest__loads_nothing_costly() -> None:
    assert not _loaded("import bigforest") & COSTLY


def test_training_and_predicting__load_no_pandas(tmp_path: Path) -> None:
    """pyarrow's ways to and from numpy would import it, as it is installed here."""
    assert find_spec("pandas") is not None
    rows = 200
    columns = {
        "x": [0.5 * row if row % 7 else None for row in range(rows)],
        "c": ["abc"[row % 3] for row in range(rows)],
    }
    pl.DataFrame(columns | {"y": [row % 2 for row in range(rows)]}).write_parquet(tmp_path / "table.parquet")
    code = f"""
import bigforest
from cli.facts import inspection_facts
for task in ("classification", "regression"):
    out = {str(tmp_path)!r} + "/" + task
    bigforest.train({str(tmp_path / "table.parquet")!r}, "y", task=task, trees=3, out=out + ".forest")
    bigforest.predict_file(out + ".forest", {str(tmp_path / "table.parquet")!r}, out + ".parquet")
    inspection_facts(bigforest.read_forest(out + ".forest"), trees=True, features=True)
"""
    assert "pandas" not in _loaded(code)
    assert {"classification.parquet", "regression.parquet"} <= {path.name for path in tmp_path.iterdir()}


def test_help__loads_neither_bigforest_nor_polars() -> None:
    code = """
sys.argv = ["bigforest", "train", "--help"]
from cli.app import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""
    assert not _loaded(code) & (COSTLY | {"bigforest", "polars", "numpy"})


@pytest.mark.parametrize(
    ("arguments", "allowed"), [(["--version"], set()), (["train", "none.csv"], {"polars", "numpy"})]
)
def test_command__that_needs_nothing_loads_nothing(arguments: list[str], allowed: set[str]) -> None:
    code = f"""
sys.argv = ["bigforest", *{arguments!r}]
from cli.app import main
try:
    main()
except SystemExit:
    pass
"""
    assert not _loaded(code) & ((COSTLY | {"polars", "numpy"}) - allowed)


def test_version__is_that_of_the_package() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert bigforest.__version__ == metadata["project"]["version"]


def test_public_names__all_exist() -> None:
    assert set(bigforest.__all__) <= set(dir(bigforest))
    assert all(getattr(bigforest, name) is not None for name in bigforest.__all__)
    assert not hasattr(bigforest, "nonsense")


def test_public_names__are_not_hidden_by_modules() -> None:
    modules = {path.stem for path in PACKAGE.iterdir() if not path.stem.startswith("_")}
    assert not modules & set(bigforest.__all__)


@cache
def _defined(path: Path) -> set[str]:
    """Names that a module has, read from its source: its own dependencies may not be installed."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _taken(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules of a script and the names it takes from them, imported or looked up."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
            modules |= {alias.name: alias.name for alias in node.names if not alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from ((node.module, alias.name) for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def _has(module: str, name: str) -> bool:
    """Whether a module of bigforest has the name; what else may have a name, such as a class, is not looked into."""
    try:
        found = pkgutil.resolve_name(module)
    except AttributeError:
        return True  # its own import is missing, and told
    if not isinstance(found, ModuleType) or hasattr(found, name):
        return True
    return hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None


def test_scripts__take_names_that_there_are() -> None:
    missing = set()
    for path in SCRIPTS:
        for module, name in set(_taken(ast.parse(path.read_text()))):
            siblings = [folder / f"{module}.py" for folder in (path.parent, BENCHMARKS)]
            if (_within(module, {"bigforest"}) and not _has(module, name)) or any(
                sibling.is_file() and name not in _defined(sibling) for sibling in siblings
            ):
                missing.add(f"{path.relative_to(ROOT)}: {module}.{name}")
    assert not missing


def test_packages__are_all_installed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert listed == folders | {"bigforest_cli"}
