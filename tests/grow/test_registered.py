"""A criterion and a family from outside the package are registered, and grow as those of the package do."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest
from bigforest.errors import ConfigError
from bigforest.execution.resources import Resources
from bigforest.grow import criteria, families
from bigforest.grow.criteria import Criterion, ScoredCriterion, register_criterion
from bigforest.grow.families import registry
from bigforest.grow.families.family import Family
from bigforest.grow.families.registry import family_of, register_family
from bigforest.grow.families.rotation import RotationFamily
from bigforest.grow.families.sparse_oblique import feature_scale
from bigforest.grow.forest import grow_tree
from bigforest.grow.memory import GrowPlan, choose_grow_plan, grow_estimate
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.kernels.compiler.jit import helper
from bigforest.options import names as registered
from bigforest.options.names import known_family
from bigforest.options.package_names import FAMILIES
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import options_in_use
from bigforest.planning.memory import TableTraits
from bigforest.sampling.bags import Sampler
from docs.options import written
from tests.grow.test_passes import SHAPE, WHOLE, parts, ways, wide_table
from tests.grown import check_tree, frame_of, store_of, table_of
from tests.naive import split as naive_split
from tests.naive.quick_split import best_split as quick_split
from tests.naive.rotation import rotated
from tests.naive.tree import grow as grow_naively
from tests.strategies import Data, configs, tables
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT


def test_families__are_those_of_the_options() -> None:
    found = list(registry.package_families())
    assert [family.name for family in found] == list(FAMILIES)
    assert all(known_family(family.name).options_of == (family.options_of or family.name) for family in found)
    assert len({family.splits_on for family in found}) == len(found)


def test_variants__are_options_of_their_family() -> None:
    for family in registry.known_families():
        for options in family.variants:
            assert TrainConfig.of(family=family.name, **options) != TrainConfig.of(family=family.name)


# A criterion of classes: the kernel's two functions, and the same for the oracle.


@helper
def hellinger_score(counts, weight):  # type: ignore[no-untyped-def]
    """Less the sum of the geometric means of any two classes, in steps of 2**-20 (Cieslak and Chawla 2008)."""
    total = 0.0
    for k in range(np.uint64(counts.size)):
        for j in range(k):
            total += np.sqrt(np.float64(counts[j]) * np.float64(counts[k]))
    return -np.int64(np.rint(total * 2.0**20))


@helper
def hellinger_value(counts, weight):  # type: ignore[no-untyped-def]
    """The same by weight, not rounded, above 0."""
    total = 0.0
    for k in range(np.uint64(counts.size)):
        for j in range(k):
            total += np.sqrt(np.float64(counts[j]) * np.float64(counts[k]))
    return total / weight


def _pairs(counts: Sequence[float]) -> float:
    return sum(math.sqrt(counts[j] * counts[k]) for k in range(len(counts)) for j in range(k))


def naive_hellinger(left: list[int], right: list[int]) -> int:
    """The oracle's score of a split."""
    return -sum(int(np.rint(_pairs(side) * 2**20)) for side in (left, right))


def _of_the_page() -> Any:
    """The family in README.md of grow: axes are differences of two features, shifted by the number of the tree."""
    page = (Path(families.__path__[0]).parent / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": __name__, "RotationFamily": RotationFamily, "np": np}
    exec(page[page.index("class PairFamily") : page.index("register_family(PairFamily())")], names)
    names["PairFamily"].oracle = "tests/grow/test_registered.py naive_axes"
    return names["PairFamily"]


PairFamily = _of_the_page()


def naive_axes(tree: int, scale: list[float]) -> list[list[float]]:
    """The axes of PairFamily, term by term."""
    features = len(scale)
    axes = [[0.0] * features for _ in scale]
    for place, axis in enumerate(axes):
        axis[place] += scale[place]
        other = (place + 1 + tree % max(features - 1, 1)) % features
        axis[other] -= scale[other]
    return axes


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Both are there during a test, and gone after it."""
    known = (
        patch.dict(registered._FAMILIES),
        patch.dict(registered._IMPURITIES),
        patch.dict(registry._FAMILIES),
        patch.dict(criteria._CRITERIA),
        patch.dict(naive_split.SCORES, {"hellinger": naive_hellinger}),
        patch.dict(naive_split.IMPURITIES, {"hellinger": _pairs}),
    )
    with ExitStack() as stack:
        for one in known:
            stack.enter_context(one)
        register_criterion(
            ScoredCriterion("hellinger", "naive_hellinger of this file", hellinger_score, hellinger_value)
        )
        register_family(PairFamily())
        yield


HELLINGER: dict[str, Any] = {"impurity": "hellinger"}


@settings(max_examples=examples(150 if COMPILED else 20))
@given(data=tables(max_rows=40), tree=st.integers(0, 2), options=configs())
def test_criterion__grows_the_trees_of_the_oracle(data: Data, tree: int, options: TrainConfig) -> None:
    config = TrainConfig(**HELLINGER, seed=options.seed, mtry=options.mtry, min_leaf=options.min_leaf)
    check_tree(data, config, tree)


class FixedFamily(RotationFamily):
    """A family that ignores the option `axes`."""

    name = "fixed"

    def axes(self, config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """See RotationFamily."""
        return np.diag(scale)


@pytest.mark.parametrize("axes", [2, 9])
def test_family__with_another_number_of_axes_than_its_options_is_refused(axes: int, tmp_path: Path) -> None:
    register_family(FixedFamily())
    store = store_of(wide_table(300, 3), tmp_path)
    for way in (WHOLE, GrowPlan(1, MemoryLimits(50, 100, 64, 1000), 1, 0)):
        with pytest.raises(ConfigError, match=rf"the family fixed made axes of shape .*must return {axes} axes of"):
            parts(store, TrainConfig.of(family="fixed", trees=1, axes=axes), way)


@pytest.mark.parametrize("options", [{"rotation": "pca"}, {"orthogonal": False}], ids=str)
def test_family__lacks_options_of_another(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is an option of the family rotation, not of pairs"):
        TrainConfig.of(family="pairs", **options)
    assert not {*options} & {*options_in_use(asdict(TrainConfig.of(family="pairs")))}


@settings(deadline=None, max_examples=examples(30))
@given(data=tables(max_rows=40), way=ways())
def test_criterion__grows_the_same_by_passes(data: Data, way: GrowPlan) -> None:
    config = TrainConfig(**HELLINGER, trees=2)
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        assert parts(store, config, way) == parts(store, config, WHOLE)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
def test_criterion__over_several_blocks(tmp_path: Path) -> None:
    store = store_of(wide_table(140_000, 3), tmp_path)
    config = TrainConfig.of(trees=2, seed=7, max_depth=6, **HELLINGER)
    tight = MemoryLimits(rows=40_000, collects=6_000, cells=1 << 10, room=1 << 15)
    assert parts(store, config, GrowPlan(2, tight, 2, 0), threads=2) == parts(store, config, WHOLE)


def test_criterion__forests_train_predict_and_are_read_back(tmp_path: Path) -> None:
    table = wide_table(300, 3)
    forest = bigforest.train(table, "y", out=tmp_path / "f", trees=5, **HELLINGER)
    again = bigforest.read_forest(tmp_path / "f")
    assert again.config.impurity == "hellinger"
    assert again.predict(table).equals(forest.predict(table))
    assert not forest.nodes.collect().equals(bigforest.train(table, "y", trees=5).nodes.collect())


def check_pairs(data: Data, tree: int) -> None:
    """Assert that a tree of PairFamily is the oracle's."""
    config = TrainConfig(family="pairs", mtry="all")  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        found = grow_tree(store, config, tree)
        axes = naive_axes(tree, feature_scale(store, "zscore").tolist())
        table = table_of(store, data)
        weights = Sampler(store, config).bag(tree).tolist()
    used = np.flatnonzero(weights).tolist()
    expected = grow_naively(rotated(table, axes, used), weights, TrainConfig(mtry="all"), tree, quick_split)
    assert found.feature.tolist() == [-1 if node.feature == -1 else -2 for node in expected]
    assert found.counts.tolist() == [node.counts for node in expected]
    assert [t for t in found.threshold.tolist() if t == t] == [n.threshold for n in expected if n.feature >= 0]


@settings(max_examples=examples(60 if COMPILED else 15))
@given(data=tables(max_rows=40), tree=st.integers(0, 3))
def test_family__grows_the_trees_of_the_oracle(data: Data, tree: int) -> None:
    check_pairs(data, tree)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(25))
@given(data=tables(max_rows=40), way=ways(), axes=st.sampled_from([None, 2, 5]))
def test_family__grows_the_same_by_passes(data: Data, way: GrowPlan, axes: int | None) -> None:
    config = TrainConfig.of(family="pairs", trees=3, axes=axes)
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        assert parts(store, config, way) == parts(store, config, WHOLE)


def test_family__forests_train_plan_and_are_read_back(tmp_path: Path) -> None:
    table = wide_table(300, 2)
    forest = bigforest.train(table, "y", out=tmp_path / "f", trees=4, family="pairs", axes=3)
    again = bigforest.read_forest(tmp_path / "f")
    assert again.config.family == "pairs"
    assert again.predict(table).equals(forest.predict(table))
    plan = bigforest.plan_training(table, "y", family="pairs", axes=3)
    assert [stage.stage for stage in plan.stages] == ["encode", "grow", "oob"]


def test_family__has_the_options_and_limits_of_another() -> None:
    config = TrainConfig.of(family="pairs", axes=2)
    assert config.mtry == "all"
    assert options_in_use(asdict(config))["axes"] == 2
    assert isinstance(family_of(TrainConfig.of(family="pairs")), PairFamily)
    with pytest.raises(ConfigError, match="splitter is an option of the family axis or tree, not of pairs"):
        TrainConfig.of(family="pairs", splitter="random")
    with pytest.raises(ConfigError, match="ranks need numbers"):
        config = TrainConfig.of(family="pairs", ranks=True)
        choose_grow_plan(replace(SHAPE, extras=TableTraits(non_plain_features=("a",))), config, Resources())
    own, like = (TrainConfig.of(family=family, trees=5) for family in ("pairs", "rotation"))
    assert grow_estimate(SHAPE, own, Resources(threads=1)) == grow_estimate(SHAPE, like, Resources(threads=1))


def test_families__are_found_in_files_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file_of_pairs.py").write_text(
        f"from {PairFamily.__module__} import PairFamily\nFAMILIES = (PairFamily(),)\n"
    )
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    assert [family.name for family in registry.package_families()][-1] == "pairs"
    text = written()
    assert '"pairs": KnownFamily("rotation", ("classification", ' in text["bigforest/options/package_names.py"]
    assert '("rotation", "orthogonal", "axis_features")),' in text["bigforest/options/package_names.py"]
    assert "| `pairs` | one coordinate of the table" in text["docs/guide/families.md"]
    assert all(len(line) <= 120 for line in text["bigforest/training/train.py"].splitlines())


def test_register__refuses_names_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="a new name, not 'gini'"):
        register_criterion(ScoredCriterion("gini", "", hellinger_score, hellinger_value))
    with pytest.raises(ConfigError, match="a new name, not 'rotation'"):
        register_family(RotationFamily())
    monkeypatch.setattr(PairFamily, "options_of", "nothing")
    with pytest.raises(ConfigError, match="the options of a family of the package, not of 'nothing'"):
        register_family(PairFamily())


def test_names__of_nothing_registered_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"impurity must be one of gini, .*, hellinger, not"):
        TrainConfig(impurity="twoing")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"family must be one of .*, pairs, not"):
        TrainConfig(family="canonical")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "owner", [*registry._FAMILIES.values(), *criteria._CRITERIA.values()], ids=lambda one: one.name
)
def test_oracles__are_there(owner: Family | Criterion) -> None:
    file, *names = owner.oracle.split()
    text = (Path(__file__).resolve().parents[2] / file).read_text()
    assert all(f"def {name}(" in text for name in names)
