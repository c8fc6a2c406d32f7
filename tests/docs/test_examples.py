"""Every public function and class has examples that run and print what they say.

The examples of a class define the objects that the examples of its methods use.
"""

from __future__ import annotations

import doctest
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bigforest as bf
import bigforest.sklearn
from bigforest.forest.oob_report import OobReport
from bigforest.predict.forest import Tree
from bigforest.predict.score import FilePrediction
from bigforest.training.namespaces import FrameNamespace
from docs.extensions.inner_members import INNER_MEMBERS

# Errors that need a full disk, a lost worker or another run.
WITHOUT = {"BusyError", "ClusterError", "DiskFullError", "StorageError"}
EXTRAS = {"to_onnx": "onnx", "to_treelite": "treelite"}
THINGS = {
    **{name: getattr(bf, name) for name in bf.__all__ if name != "__version__"},
    **{name: getattr(bigforest.sklearn, name) for name in bigforest.sklearn.__all__},
    **{thing.__name__: thing for thing in (Tree, OobReport, FilePrediction, FrameNamespace)},
}


def methods(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that a class or its bases in the package define, by name."""
    if not inspect.isclass(thing):
        return
    for name in sorted({*dir(thing)} - INNER_MEMBERS.get(thing.__name__, set())):
        own = inspect.getattr_static(thing, name)
        own = own.__func__ if isinstance(own, classmethod | staticmethod) else own
        home = getattr(own, "__module__", None) or ""
        if not name.startswith("_") and inspect.isfunction(own) and home.startswith("bigforest"):
            yield name, own


def run(name: str, thing: Any, names: dict[str, Any]) -> None:
    """Run the examples of a docstring with these names, and add the names that they define."""
    text = inspect.getdoc(thing) or ""
    assert "\nExamples\n--------\n" in text, f"{name} has no examples"
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    test.globs = names  # the parser copies them
    output: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append, clear_globs=False)
    assert not output, "".join(output)


@pytest.mark.parametrize("name", sorted(set(THINGS) - WITHOUT))
def test_examples__run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    run(name, THINGS[name], names)
    for method, own in methods(THINGS[name]):
        if method not in EXTRAS or importlib.util.find_spec(EXTRAS[method]) is not None:
            run(f"{name}.{method}", own, dict(names))
