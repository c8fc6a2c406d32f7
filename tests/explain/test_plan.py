"""`plan_explanation`: what the parts of an explanation will take, before anything is done."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import bigforest as bf
from bigforest.errors import ConfigError, DataError
from bigforest.events import Event, StageAdvanced
from bigforest.explain.explain import SECTIONS
from tests.explain.made import grown_case

_ALONE = ("importance", "trees")
OPTIONS: dict[str, Any] = {"sample": 30, "grid": 4}


@pytest.mark.parametrize("part", SECTIONS)
def test_plan_explanation__names_the_smallest_budget_that_does(part: str) -> None:
    case = grown_case()
    data = None if part in _ALONE else case.frame
    options = {name: value for name, value in OPTIONS.items() if name in (SECTIONS[part].options or ())}
    plan = bf.plan_explanation(case.forest, data, parts=part, memory="10MB", **options)
    assert not plan.fits
    assert [stage.stage for stage in plan.stages] == ["read", part]
    assert plan.smallest == plan.stages[1].need.smallest
    exact = bf.plan_explanation(case.forest, data, parts=part, memory=plan.smallest, **options)
    assert exact.fits
    assert exact.stages[1].need.memory <= plan.smallest
    with pytest.raises(ConfigError, match=rf"the stage {part} needs at least \d+MB") as error:
        case.forest.explain(data, parts=part, memory=plan.smallest - 1, **options)
    named = int(str(error.value).split("at least ")[1].split("MB")[0])
    assert 0 <= named * 10**6 - plan.smallest < 10**6
    assert case.forest.explain(data, parts=part, memory=plan.smallest, **options).tables


def test_plan_explanation__reads_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = grown_case()
    case.frame.write_parquet(tmp_path / "rows.parquet")
    with (tmp_path / "rows.parquet").open("r+b") as file:  # nobody can read these rows
        file.seek(4)
        file.write(bytes(100))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    bf.plan_explanation(case.forest, tmp_path / "rows.parquet", parts=SECTIONS, scratch=tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())


def test_explain__is_refused_before_anything_is_done() -> None:
    case = grown_case()
    small = bf.plan_explanation(case.forest, case.frame, parts="importance").smallest
    events: list[Event] = []
    with pytest.raises(ConfigError, match="the stage permutation needs at least"):
        case.forest.explain(case.frame, parts=["importance", "permutation"], memory=small, listener=events.append)
    assert not [event for event in events if isinstance(event, StageAdvanced)]


def test_plan_explanation__says_what_cannot_be_asked() -> None:
    case = grown_case()
    with pytest.raises(ConfigError, match="this needs rows"):
        bf.plan_explanation(case.forest, parts="shap")
    with pytest.raises(ConfigError, match="parts must be some of"):
        bf.plan_explanation(case.forest, case.frame, parts="shape")
    with pytest.raises(ConfigError, match="is no class"):
        bf.plan_explanation(case.forest, case.frame, parts="shap", classes=["none of them"])
    with pytest.raises(DataError, match="lacks"):
        bf.plan_explanation(case.forest, case.frame.drop(case.forest.spec.features[0].name), parts="shap")
    with pytest.raises(TypeError, match="neighbours"):
        bf.plan_explanation(case.forest, case.frame, neighbours=3)


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        ("contributions", {"rows": [1]}, "rows is an option of local, interactions, proximities, filling; ask for"),
        (None, {"grid": 4}, "grid is an option of dependence, effects; ask for such a part, or drop it"),
        ("effects", {"individual": 2}, "individual is an option of dependence; "),
        (["permutation", "strength"], {"rules": 5}, "rules is an option of trees; "),
    ],
)
def test_explain__refuses_an_option_that_no_part_uses(parts: Any, options: dict[str, Any], message: str) -> None:
    case = grown_case()
    for explain in (case.forest.explain, partial(bf.plan_explanation, case.forest)):
        with pytest.raises(ConfigError, match=f"^{message}"):
            explain(case.frame, parts=parts, **options)


def test_explain__takes_an_option_that_one_of_the_parts_uses() -> None:
    case = grown_case()
    found = case.forest.explain(case.frame, parts=["local", "contributions"], rows=[3])
    assert found["local"]["row"].unique().to_list() == [3]
    assert found["contributions"].height == 200


def test_explain__takes_names_from_generators() -> None:
    """They can be read once."""
    case = grown_case()
    names = case.forest.spec.feature_names[:2]
    lists: dict[str, Any] = {"groups": {"both": names}, "features": [names], "parts": ["permutation", "dependence"]}
    once = {"groups": {"both": iter(names)}, "features": iter([iter(names)]), "parts": iter(lists["parts"])}
    expected, found = case.forest.explain(case.frame, **lists), case.forest.explain(case.frame, **once)
    assert expected.tables == found.tables
    assert all(expected[table].equals(found[table]) for table in expected.tables)
