"""Every public name has a docstring, which describes what it is called with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, get_type_hints

import bigforest as bf
import bigforest.sklearn
from bigforest.forest.oob_report import OobReport
from bigforest.options.train_options import OPTIONS
from bigforest.predict.forest import Tree
from bigforest.predict.score import FilePrediction
from bigforest.training.namespaces import FrameNamespace
from docs.extensions.inner_members import INNER_MEMBERS

# Described in `train`; other functions say that theirs are the same.
SHARED = {*OPTIONS, "exclude", "threads", "scratch", "memory", "listener", "scheduler", "overwrite", "out"}
AS_ELSEWHERE = re.compile(r"[Aa]s (for|in) `\w+`|those of `\w+`")


def members(things: dict[str, Any], internal: bool = False) -> Iterator[tuple[str, Any]]:
    """Functions, and public methods and properties of classes, by their names; or also those for other modules."""
    for name, thing in things.items():
        if not inspect.isclass(thing):
            yield name, thing
            continue
        yield name, thing
        hidden = () if internal else INNER_MEMBERS.get(name, ())
        for member in dir(thing):
            own = inspect.getattr_static(thing, member)
            home = next((cls for cls in thing.__mro__ if member in vars(cls)), object)
            if member.startswith("_") or member in hidden or not home.__module__.startswith("bigforest"):
                continue
            own = own.__func__ if isinstance(own, classmethod | staticmethod) else own
            if isinstance(own, property | cached_property) or inspect.isfunction(own):
                yield f"{name}.{member}", own


PUBLIC = {name: getattr(bf, name) for name in bf.__all__ if name != "__version__"}
MEMBERS = list(members(PUBLIC))
# What public functions give, and what other packages see.
GIVEN = {one.__name__: one for one in (FrameNamespace, Tree, OobReport, FilePrediction)}
ESTIMATORS = {name: getattr(bigforest.sklearn, name) for name in bigforest.sklearn.__all__}
TYPED = list(members(PUBLIC | GIVEN | ESTIMATORS, internal=True))


def undescribed(thing: Any) -> set[str]:
    """Return the arguments that a docstring leaves out, or `the docstring` where there is none."""
    text = inspect.getdoc(thing)
    if not text:
        return {"the docstring"}
    if inspect.isclass(thing) or isinstance(thing, property | cached_property):
        return set()
    wanted = {
        argument for argument in inspect.signature(thing).parameters if argument not in ("self", "cls", "options")
    }
    if AS_ELSEWHERE.search(text):
        wanted -= SHARED
    # As numpydoc has it, several names in a line or one, or in two columns.
    lines = re.findall(r"^(?:\*\*)?([a-z_]\w*(?:, [a-zX_]\w*)*)(?: :| {2,}\S|$)", text, re.MULTILINE)
    return wanted - {argument for line in lines for argument in line.split(", ")}


def test_public_names__are_described() -> None:
    assert {name: missing for name, thing in MEMBERS if (missing := undescribed(thing))} == {}


def test_members__are_found() -> None:
    names = {name for name, _ in MEMBERS}
    assert {"train", "Forest.predict", "Store.open", "Pictures.swarm", "TrainConfig.of", "Explanation.scan"} <= names
    assert not {"Forest.reader", "Store.with_values", "TrainConfig.for_task", "Pictures.opened"} & names


def test_types__can_be_had() -> None:
    for _, thing in TYPED:  # a NameError names what is missing
        get_type_hints(thing.fget if isinstance(thing, property) else getattr(thing, "func", thing))


def test_types__of_plan_training_and_of_a_configuration() -> None:
    assert get_type_hints(bf.plan_training)["return"] is bf.Plan
    assert inspect.signature(bf.TrainConfig).parameters["trees"].annotation is int
