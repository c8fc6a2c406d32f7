"""Growing until the out-of-bag error has settled: the rule, and the forest, which has exactly that number of trees."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigforest
from bigforest.errors import ConfigError
from bigforest.events import Event, StageAdvanced
from bigforest.grow import forest as growing
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.training.growers import converged_at
from tests.commands import Run, folder, run
from tests.thorough import cases
from tests.training.test_run import files

__all__ = ["folder", "run"]  # fixtures

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many trees for uncompiled kernels")
# Small bags, so that the error falls for a while: with these it settles after 60 trees.
OPTIONS: dict[str, Any] = {
    "trees": 90,
    "seed": 2,
    "sample_fraction": 0.2,
    "stop_oob": 0.02,
    "target": "kind",
    "exclude": ["number"],
}


def settled_naively(error: list[float | None], tolerance: Fraction) -> int | None:
    """docs/guide/out-of-bag.md, --stop-oob."""
    for trees in range(40, len(error) + 1, 10):
        before, last = error[trees - 40 : trees - 20], error[trees - 20 : trees]
        if None in before or None in last:
            continue
        one, two = (sum((Fraction(value or 0.0) for value in some), Fraction(0)) for some in (before, last))
        if one - two <= tolerance * one:
            return trees
    return None


def frame(rows: int = 240) -> pl.DataFrame:
    draw = np.random.default_rng(1)
    size, noise = draw.integers(0, 40, rows), draw.normal(size=rows)
    kind = np.where(size + 9 * noise < 20, "small", "large")
    return pl.DataFrame({"size": size, "noise": noise + draw.normal(size=rows), "kind": kind, "number": size + noise})


SHARES = st.integers(0, 1024).map(lambda share: share / 1024)  # exact, and so are their sums


@given(
    st.lists(st.none(), max_size=3),
    st.lists(SHARES, min_size=1, max_size=6),
    st.integers(0, 90),
    st.sampled_from([0.0, 0.25, 0.0625, 0.5]),
)
def test_converged_at__agrees_with_the_rule(
    unknown: list[None], steps: list[float], length: int, tolerance: float
) -> None:
    curve = [*unknown, *np.repeat(steps, 17).tolist()][:length]
    found = converged_at(np.array(curve, np.float64), tolerance)
    assert found == settled_naively(curve, Fraction(tolerance))


def test_converged_at__no_error_and_no_row() -> None:
    assert converged_at(np.zeros(40), 0.0) == 40
    assert converged_at(np.zeros(39), 0.0) is None
    assert converged_at(np.full(200, np.nan), 0.5) is None
    assert converged_at(0.9 ** np.arange(200), 0.5) is None  # falls by more than half in 20 trees, for ever


CASES: dict[str, dict[str, Any]] = {
    "classes": {},
    "hard votes": {"vote": "hard", "impurity": "entropy"},
    "numbers": {"target": "number", "exclude": ["kind"]},
    "oblique": {"family": "sparse-oblique"},
    "random splits, groups, ranks": {"splitter": "random", "group": "size", "ranks": True},
    "never": {"stop_oob": 0.0, "trees": 45, "sample_fraction": 0.01},
}


@compiled
@pytest.mark.parametrize("case", CASES)
def test_train__stops_where_the_curve_settles(case: str, tmp_path: Path) -> None:
    options = {"threads": 2} | OPTIONS | CASES[case]
    bigforest.train(frame(), out=tmp_path / "f", **options)
    forest = bigforest.read_forest(tmp_path / "f")
    asked = {name: value for name, value in options.items() if name != "stop_oob"}
    curve = bigforest.train(frame(), **asked).oob.curve.to_series(1).to_list()
    settled = settled_naively(curve, Fraction(options["stop_oob"]))
    if case in ("classes", "never"):
        assert settled == (60 if case == "classes" else None)
    assert forest.trees == (settled or options["trees"])
    bigforest.train(frame(), out=tmp_path / "exact", **asked | {"trees": forest.trees})
    assert files(tmp_path / "f") == files(tmp_path / "exact")
    assert forest.oob.curve.to_series(1).to_list() == curve[: forest.trees]
    assert forest.origin is not None
    assert forest.origin.stop is not None
    assert (forest.origin.stop.most, forest.origin.stop.tolerance) == (options["trees"], options["stop_oob"])
    assert not (tmp_path / "f/growing").exists()


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the forest of `frame()` with OPTIONS: 60 trees."""
    out = tmp_path_factory.mktemp("settled") / "f"
    bigforest.train(frame(), out=out, threads=1, **OPTIONS)
    return files(out)


@compiled
@pytest.mark.parametrize("case", cases(["categories", "classes"], quick=1))
def test_train__stops_the_same_by_passes_and_in_larger_rounds(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = frame() if case == "classes" else frame().with_columns(size=pl.col("size").cast(pl.String))
    bigforest.train(table, out=tmp_path / "f", **OPTIONS)
    limits = (
        MemoryLimits(rows=30, collects=200, cells=1 << 10, room=1 << 14, routed=1 << 12) if case == "classes" else None
    )
    monkeypatch.setattr(growing, "choose_grow_plan", lambda *_: GrowPlan(2 if limits else 37, limits, 23, 10**9))
    bigforest.train(table, out=tmp_path / "g", **OPTIONS)
    assert files(tmp_path / "f") == files(tmp_path / "g")


def interrupt_at(trees: int) -> Any:
    def listen(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow" and event.done >= trees:
            raise KeyboardInterrupt

    return listen


@compiled
def test_resume__goes_on_to_where_the_error_settles(settled: dict[str, bytes], tmp_path: Path) -> None:
    """Interrupted in the first round and in a later one, and with a budget."""
    frame().write_parquet(tmp_path / "t.parquet")
    out = tmp_path / "g"
    with pytest.raises(KeyboardInterrupt):
        bigforest.train(tmp_path / "t.parquet", out=out, listener=interrupt_at(7), threads=2, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        bigforest.train(resume=out, listener=interrupt_at(41), threads=2)
    assert bigforest.train(resume=out, memory="2GB").trees == 60
    assert files(out) == settled
    with pytest.raises(ConfigError, match="has the default of stop_oob, which resuming cannot change"):
        bigforest.train(resume=out, trees=90, stop_oob=0.01)
    more = bigforest.train(resume=out, trees=70)  # the finished forest is one like any other
    assert more.trees == 70
    assert more.origin is not None
    assert more.origin.stop is None


@compiled
def test_resume__between_the_decision_and_the_end(
    settled: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigforest.training import growers, run

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    frame().write_parquet(tmp_path / "t.parquet")
    out, seen = tmp_path / "g", list[Event]()
    begin: dict[str, Any] = {"data": tmp_path / "t.parquet", "out": out, **OPTIONS}
    go_on: dict[str, Any] = {"resume": out, "listener": seen.append}
    for how, module, name in ((begin, growers, "recut"), (go_on, growers, "remove"), (go_on, run, "write_oob")):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, name, fail)
            bigforest.train(**how)
    bigforest.train(**go_on)
    assert not [event for event in seen if getattr(event, "stage", "") == "grow"]
    assert files(out) == settled


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stop_oob": 1.0}, "stop_oob must be at least 0 and below 1, not 1.0"),
        ({"stop_oob": -0.1}, "stop_oob must be"),
        ({"stop_oob": "x"}, "stop_oob must be"),
        ({"stop_oob": 0.1, "bootstrap": False}, "stop_oob needs bags"),
        ({"stop_oob": 0.1, "family": "subspace-cap"}, "stop_oob needs bags"),
        ({"stop_oob": 0.1, "replace": False}, "all rows are in every bag"),
    ],
)
def test_config__when_to_stop(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainConfig.of(**options)


@compiled
def test_cli__says_why_there_are_so_many_trees(folder: Path, run: Run) -> None:
    frame().write_parquet("t.parquet")
    train = ("train", "t.parquet", "--target", "kind", "--exclude", "number", "--overwrite")
    told = run.json(*train, "--stop-oob", "0.9", "--trees", "70")
    assert (told["trees"], told["stop"]) == (40, {"tolerance": 0.9, "most": 70})
    assert "the out-of-bag error has converged, tolerance 0.9" in run(*train, "--stop-oob", "0.9").out
    assert (
        "at the maximum of 7: the out-of-bag error has not converged, tolerance 0.9"
        in run(*train, "--stop-oob", "0.9", "--trees", "7").out
    )
    assert run.json(*train, "--trees", "2")["stop"] is None
