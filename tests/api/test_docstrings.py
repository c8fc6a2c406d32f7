"""Every public name has a docstring, which describes what it is called with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import bigforest as bf
from bigforest.schema.train_options import OPTIONS

# Described in `train`; other functions say that theirs are the same.
SHARED = {*OPTIONS, "exclude", "threads", "scratch", "memory", "listener", "scheduler", "overwrite", "out"}
AS_ELSEWHERE = re.compile(r"[Aa]s (for|in) `\w+`|those of `\w+`")


def members() -> Iterator[tuple[str, Any]]:
    """Public functions, and public methods and properties of public classes, by their names."""
    for name in bf.__all__:
        thing = getattr(bf, name)
        if not inspect.isclass(thing):
            yield name, thing
            continue
        yield name, thing
        hidden = getattr(thing, "_INTERNAL", ())
        for member in dir(thing):
            own = inspect.getattr_static(thing, member)
            home = next((cls for cls in thing.__mro__ if member in vars(cls)), object)
            if member.startswith("_") or member in hidden or not home.__module__.startswith("bigforest"):
                continue
            own = own.__func__ if isinstance(own, classmethod | staticmethod) else own
            if isinstance(own, property) or inspect.isfunction(own):
                yield f"{name}.{member}", own


MEMBERS = [(name, thing) for name, thing in members() if name != "__version__"]


@pytest.mark.parametrize(("name", "thing"), MEMBERS, ids=[name for name, _ in MEMBERS])
def test_public_names__are_described(name: str, thing: Any) -> None:
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    if inspect.isclass(thing) or isinstance(thing, property):
        return
    wanted = {
        argument for argument in inspect.signature(thing).parameters if argument not in ("self", "cls", "options")
    }
    if AS_ELSEWHERE.search(text):
        wanted -= SHARED
    # As numpydoc has it, several names in a line or one, or in two columns.
    lines = re.findall(r"^(?:\*\*)?([a-z_]\w*(?:, [a-zX_]\w*)*)(?: :| {2,}\S|$)", text, re.MULTILINE)
    told = {argument for line in lines for argument in line.split(", ")}
    assert not wanted - told, f"{name} does not describe {sorted(wanted - told)}"


def test_members__are_found() -> None:
    names = {name for name, _ in MEMBERS}
    assert {"train", "Forest.predict", "Store.open", "Pictures.swarm", "TrainConfig.of", "Explanation.scan"} <= names
    assert not {"Forest.reader", "Store.with_values", "TrainConfig.settled", "Pictures.opened"} & names
