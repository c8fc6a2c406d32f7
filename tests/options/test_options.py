"""Options are declared once: signatures, documentation, checks and the command line follow."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.options.declaration import PANELS, KnownFamily, check, declared_options, option
from bigforest.options.signatures import section
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from bigforest.sklearn import BigForestClassifier, BigForestRegressor
from bigforest.training.train import plan_training, train
from docs.options import ROOT, written

FRAME = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 0, 1, 1]})


def test_files__follow_from_the_declarations() -> None:
    differing = [file for file, text in written().items() if (ROOT / file).read_text(encoding="utf-8") != text]
    assert not differing, "run python docs/options.py"


@pytest.mark.parametrize("function", [train, plan_training])
def test_signature__has_every_option_with_its_default(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    config = TrainConfig()
    assert {name: parameters[name].default for name in OPTIONS} == {name: getattr(config, name) for name in OPTIONS}
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OPTIONS)
    assert not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def test_docstring__has_a_line_for_every_parameter() -> None:
    text = inspect.getdoc(train) or ""
    entries = set(", ".join(section(text, "Parameters")).replace("\n", ", ").split(", "))
    assert set(inspect.signature(train).parameters) <= entries
    for one in OPTIONS.values():
        assert one.help.split()[0] in text


@pytest.mark.parametrize("estimator", [BigForestClassifier, BigForestRegressor])
def test_docstring__of_an_estimator(estimator: type) -> None:
    text = inspect.getdoc(estimator) or ""
    assert list(section(text, "Parameters")) == list(inspect.signature(estimator).parameters)
    assert {"forest_", "oob_score_"} < set(section(text, "Attributes"))
    assert "`max_features`" in text
    assert "`mtry`" not in text


def test_signature__types_can_be_had() -> None:
    hints = get_type_hints(train)
    assert hints["trees"] is int
    assert hints["vote"] == Literal["soft", "hard"]


def test_options__have_a_panel_and_a_text() -> None:
    for one in OPTIONS.values():
        assert one.panel in PANELS
        assert one.help.endswith(".")
        assert set(one.by_family) | set(one.families) <= set(OPTIONS["family"].choices)


def test_train__an_option_that_was_not_given_is_of_the_family() -> None:
    assert train(FRAME, family="tree").config.trees == 1
    with pytest.raises(ConfigError, match="a single tree"):
        train(FRAME, family="tree", trees=100)  # which is the default of others
    with pytest.raises(ConfigError, match="bootstrap must be off"):
        train(FRAME, family="subspace-cap", bootstrap=True)


def test_train__an_option_that_was_not_given_is_of_the_forest(tmp_path: Path) -> None:
    train(FRAME, out=tmp_path / "f", trees=3, seed=5)
    assert train(FRAME, resume=tmp_path / "f", trees=4).config.seed == 5
    with pytest.raises(ConfigError, match="has seed 5, which resuming cannot change to 0"):
        train(FRAME, resume=tmp_path / "f", trees=5, seed=0)


@pytest.mark.parametrize("function", [train, plan_training, FRAME.bigforest.train])  # type: ignore[attr-defined]
@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("n_estimators", "trees"),
        ("random_state", "seed"),
        ("max_feature", "max_depth"),
        ("tree", "trees"),
        ("drop", "exclude"),
        ("ignore", "exclude"),
        ("label", "target"),
    ],
)
def test_train__names_of_others_and_misspelt_ones(function: Any, given: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"no option '{given}'; did you mean .*{ours}"):
        function(FRAME, **{given: 1})


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("monotonic_cst", "LightGBM"),
        ("oob_score", "Forest.oob"),
        ("verbose", "listener="),
    ],
)
def test_train__what_scikit_learn_alone_has__says_what_to_do(given: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"no option '{given}'; .*{instead}"):
        train(FRAME, **{given: 1})


@pytest.mark.parametrize(("given", "drawn"), [(1, 1), (1.0, 9), (0.5, 4), (0.01, 1), ("all", 9)])
def test_mtry__a_float_is_a_fraction(given: Any, drawn: int) -> None:
    config = TrainConfig(mtry=given)
    assert config.drawn_features(9) == drawn
    assert TrainConfig.from_json(config.to_json()).drawn_features(9) == drawn
    assert bigforest.train(FRAME, mtry=given, trees=2).trees == 2


@pytest.mark.parametrize("name", ["shrink", "power", "sample_fraction", "feature_fraction"])
def test_numbers__that_are_whole_or_not_are_one_configuration(name: str) -> None:
    whole, other = TrainConfig(**{name: 1}), TrainConfig(**{name: 1.0})
    assert whole.to_json() == other.to_json() == TrainConfig.from_json(whole.to_json()).to_json()


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """Options that are declared outside of the package."""

    pieces: int = option(3, min=2, max=9, families=("mosaic",), help="Pieces.")
    glue: Literal["none", "wax"] | None = option(None, families=("mosaic",), help="Glue.")
    share: float = option(0.5, within="(0, 1)", by_family={"mosaic": 0.25}, help="Share.")
    rule: Literal["half"] | int | float = option("half", min=1, within="(0, 1]", help="Rule.")


AXIS, MOSAIC = (KnownFamily(name, ("classification",)) for name in ("axis", "mosaic"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pieces": 1}, "pieces must be a whole number from 2 to 9, not 1"),
        ({"pieces": True}, "pieces must be a whole number from 2 to 9, not True"),
        ({"glue": "tar"}, "glue must be one of none, wax, not 'tar'"),
        ({"share": 1.0}, "share must be above 0 and below 1, not 1.0"),
        ({"share": float("nan")}, "share must be above 0 and below 1, not nan"),
        ({"share": np.eye(2)}, r"share must be above 0 and below 1, not array\(\[\[1., 0.\], +\[0., 1.\]\]\)$"),
        ({"rule": 0}, 'rule must be "half", a whole number from 1 to .* or a fraction above 0 and at most 1, not 0'),
        ({"rule": 1.5}, "or a fraction above 0 and at most 1, not 1.5"),
    ],
)
def test_check__of_options_declared_elsewhere(options: dict[str, Any], message: str) -> None:
    of_family = declared_options(Elsewhere)
    check(Elsewhere(), of_family, AXIS)
    check(Elsewhere(pieces=9, glue="wax", share=0.1, rule=1.0), of_family, MOSAIC)
    with pytest.raises(ConfigError, match=message):
        check(Elsewhere(**options), of_family, MOSAIC)


def test_check__an_option_of_another_family() -> None:
    with pytest.raises(ConfigError, match="pieces is an option of the family mosaic, not of axis"):
        check(Elsewhere(pieces=4), declared_options(Elsewhere), AXIS)


def test_default_text__names_the_families_that_have_their_own() -> None:
    assert declared_options(Elsewhere)["share"].default_text == "0.5; mosaic: 0.25"
    assert OPTIONS["bootstrap"].default_text.startswith("on; tree, ")
    assert (OPTIONS["density"].types, OPTIONS["density"].default) == ((float, type(None)), None)
