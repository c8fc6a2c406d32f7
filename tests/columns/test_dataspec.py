"""A dataspec survives its JSON, and one that contradicts itself is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bigforest.columns.dataspec import DataSpec
from bigforest.errors import FormatError


def spec_json() -> dict[str, Any]:
    """A sound dataspec."""
    features = [
        {"name": "a", "kind": "numeric", "dtype": "Int64", "codes": 3, "width": 1, "slot": 0, "column": "a"},
        {"name": "b", "kind": "numeric", "dtype": "Float64", "codes": 300, "width": 2, "slot": 0, "column": "b"},
        {"name": "c", "kind": "category", "dtype": "String", "codes": 256, "width": 1, "slot": 1, "column": "c"},
    ]
    for feature, missing in zip(features, (False, True, True), strict=True):
        feature["missing"] = missing
    target = {"name": "y", "dtype": "String", "classes": ["no", "yes"], "task": "classification"}
    target |= {"offset": 0.0, "step": 1.0, "exact": True, "categories": []}
    group = {"name": "g", "dtype": "String", "groups": 4, "largest": 5}
    weight = {"name": "w", "classes": [1.0, 0.5], "balanced": False, "step": 0.25, "largest": 3, "total": 20}
    weight |= {"wide": False, "search": 1.0, "searched": 20}
    return {"rows": 10, "dropped": 0, "features": features, "target": target, "group": group, "weight": weight}


def regression_json() -> dict[str, Any]:
    """A sound dataspec of regression targets."""
    spec = spec_json()
    spec["target"] |= {"dtype": "Float64", "classes": [], "task": "regression", "offset": -2.5, "step": 2.0**-40}
    spec["weight"]["classes"] = []
    return spec


@pytest.mark.parametrize("made", [spec_json, regression_json])
def test_dataspec__round_trip(made: Callable[[], dict[str, Any]]) -> None:
    spec = DataSpec.from_entries(made())
    assert json.loads(spec.to_json()) == made()
    assert DataSpec.from_entries(json.loads(spec.to_json())) == spec


def test_dataspec__levels_do_not_count_missing() -> None:
    assert [feature.levels for feature in DataSpec.from_entries(spec_json()).features] == [0, 0, 255]


CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rows": lambda s: s.update(rows=-1),
    "no rows": lambda s: s.update(rows=0, group=None, weight=None),
    "no rows to predict numbers of": lambda s: s.update(regression_json() | {"rows": 0, "group": None, "weight": None}),
    "more groups than rows": lambda s: s["group"].update(groups=11),
    "no groups": lambda s: s["group"].update(groups=0),
    "largest group": lambda s: s["group"].update(largest=True),
    "name of group": lambda s: s["group"].update(name=3),
    "column": lambda s: s["features"][0].update(column=3),
    "no features": lambda s: s.update(features=[]),
    "same name": lambda s: s["features"][1].update(name="a"),
    "target is a feature": lambda s: s["target"].update(name="a"),
    "width": lambda s: s["features"][0].update(width=2),
    "list as width": lambda s: s["features"][0].update(width=[1]),
    "slot": lambda s: s["features"][2].update(slot=0),
    "far slot": lambda s: s["features"][2].update(slot=2),
    "codes": lambda s: s["features"][0].update(codes=0),
    "many codes": lambda s: s["features"][0].update(codes=2**32 + 1, width=4),
    "kind": lambda s: s["features"][0].update(kind="text"),
    "missing": lambda s: s["features"][0].update(missing=1),
    "fill of a category": lambda s: s["features"][2].update(fill=1.0),
    "whole fill": lambda s: s["features"][0].update(fill=1),
    "infinite fill": lambda s: s["features"][0].update(fill=float("inf")),
    "task": lambda s: s["target"].update(task="clustering"),
    "step of classes": lambda s: s["target"].update(step=0.5),
    "regression with classes": lambda s: s.update(target=regression_json()["target"] | {"classes": [1, 2]}),
    "infinite offset": lambda s: s.update(target=regression_json()["target"] | {"offset": float("inf")}, weight=None),
    "step of regression": lambda s: s.update(target=regression_json()["target"] | {"step": 0.75}, weight=None),
    "no step": lambda s: s.update(target=regression_json()["target"] | {"step": 0.0}, weight=None),
    "whole offset": lambda s: s.update(target=regression_json()["target"] | {"offset": 1}, weight=None),
    "weights of classes": lambda s: s["weight"].update(classes=[1.0]),
    "weight below 0": lambda s: s["weight"].update(classes=[1.0, -1.0]),
    "name of weight": lambda s: s["weight"].update(name=3),
    "balanced": lambda s: s["weight"].update(balanced=None),
    "step of weight": lambda s: s["weight"].update(step=0.0),
    "wide": lambda s: s["weight"].update(wide=1),
    "wide total": lambda s: s["weight"].update(wide=True, total=2**58 + 1),
    "wide and largest": lambda s: s["weight"].update(wide=True, largest=21),
    "wide search": lambda s: s["weight"].update(wide=True, search=0.5),
    "wide searched": lambda s: s["weight"].update(wide=True, searched=9),
    "narrow search": lambda s: s["weight"].update(search=2.0),
    "narrow searched": lambda s: s["weight"].update(searched=19),
    "classes off": lambda s: s["target"].update(exact=False),
    "exact": lambda s: s["target"].update(exact=1),
    "largest weight": lambda s: s["weight"].update(largest=1024),
    "total weight": lambda s: s["weight"].update(total=31),
    "little weight": lambda s: s["weight"].update(total=9),
    "no class": lambda s: s["target"].update(classes=[]),
    "order of classes": lambda s: s["target"].update(classes=["yes", "no"]),
    "same class": lambda s: s["target"].update(classes=["no", "no"]),
    "mixed classes": lambda s: s["target"].update(classes=[False, 1]),
    "nested classes": lambda s: s["target"].update(classes=[[1], [2]]),
    "nan": lambda s: s["target"].update(classes=[0.5, float("nan")]),
    "infinity": lambda s: s["target"].update(classes=[0.5, float("inf")]),
    "categories of text": lambda s: s["target"].update(categories=["no", "yes"]),
    "a class is no category": lambda s: s["target"].update(dtype="Enum", categories=["no", "maybe"]),
    "same category": lambda s: s["target"].update(dtype="Enum", categories=["no", "yes", "no"]),
    "a category is no text": lambda s: s["target"].update(dtype="Enum", categories=["no", "yes", 3]),
    "no physical type": lambda s: s["target"].update(dtype="Categorical", categories=["name", "", "Int64"]),
    "half a name": lambda s: s["target"].update(dtype="Categorical", categories=["name"]),
    "unknown entry": lambda s: s["features"][0].update(more=1),
    "missing entry": lambda s: s["target"].pop("dtype"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_dataspec__contradiction_is_refused(case: str) -> None:
    spec = spec_json()
    CONTRADICTIONS[case](spec)
    with pytest.raises(FormatError):
        DataSpec.from_entries(json.loads(json.dumps(spec)))
