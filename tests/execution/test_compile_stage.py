"""Compiling is said before it happens, counted while it does, planned, and can be done ahead."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.events import Compiling, Event, Notice, StageAdvanced, StageFinished, StageStarted
from bigforest.execution.compile_stage import KernelKind, announced, compiling, is_compiled
from bigforest.execution.executor import Executor
from bigforest.grow.needed_kernels import kernels_of
from bigforest.kernels.compiler.cache import folders
from bigforest.kernels.compiler.jit import helper, kernel
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import PLAIN
from bigforest.progress import watching
from tests.commands import Run, folder, frame, run  # noqa: F401

needs_compiler = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")


@pytest.fixture
def kind() -> Iterator[KernelKind]:
    """Kernels that no machine has compiled: three functions, in four seconds."""
    name = f"test-{secrets.token_hex(8)}"
    yield KernelKind(name, "for a test", 3, 4.0)
    for path in folders()[0].glob(f"{name}*"):
        path.unlink()


def compile_two() -> None:
    """Compile a kernel and its part anew."""

    @helper
    def one(number: int) -> int:
        return number + 1

    @kernel
    def two(number: int) -> int:
        return one(one(number))

    assert two(1) == 3


SAID = "compiling kernels for a test, once per machine, about 4 s"


@needs_compiler
def test_compiling__is_said_and_counted_the_first_time_only(kind: KernelKind) -> None:
    heard: list[Event] = []
    with compiling(kind, Executor(1), heard.append):
        compile_two()
    assert heard[:2] == [Compiling(SAID, 4.0), StageStarted("compile", 3, "functions")]
    assert [event.done for event in heard if isinstance(event, StageAdvanced)] == [1, 2, 3]
    assert isinstance(heard[-1], StageFinished)
    heard.clear()
    with compiling(kind, Executor(1), heard.append):
        pass
    assert heard[:2] == [StageStarted("compile", 1, "step"), StageAdvanced("compile", 1)]


@needs_compiler
def test_compiling__is_said_again_after_it_has_failed_and_never_when_short(kind: KernelKind) -> None:
    heard: list[Event] = []
    for _ in range(2):
        with pytest.raises(RuntimeError), announced(kind, heard.append):
            raise RuntimeError
    assert heard == [Compiling(SAID, 4.0)] * 2
    with announced(kind._replace(seconds=1.9), heard.append):
        pass
    assert len(heard) == 2
    assert is_compiled(kind)


def test_python__hears_of_notices_through_logging(caplog: pytest.LogCaptureFixture) -> None:
    # At this level even after tests of clusters, which silence the handlers of the process.
    with caplog.at_level(logging.WARNING, "bigforest"), watching(None) as listener:
        for event in (Notice("rows are left out"), Compiling(SAID, 4.0)):
            listener(event)
    said = ["rows are left out", SAID]
    assert caplog.record_tuples == [("bigforest", logging.WARNING, one) for one in said]
    for function in (bigforest.train, bigforest.encode_store, bigforest.predict_file, bigforest.warm_up):
        assert inspect.signature(function).parameters["listener"].default is None


def test_growing__tells_kinds_apart() -> None:
    configs = [TrainConfig(), TrainConfig(splitter="random"), TrainConfig.of(family="sparse-oblique")]
    extras = [PLAIN, PLAIN._replace(non_plain_features=("c",)), PLAIN._replace(regression=True)]
    kinds = [kernels_of(extra, config, passes) for extra in extras for config in configs for passes in (False, True)]
    assert len({kind.name for kind in kinds}) == 18
    assert kernels_of(PLAIN, replace(configs[0], trees=7, seed=3), False) == kinds[0]


@needs_compiler
def test_warm_up__compiles_what_training_needs() -> None:
    assert bigforest.warm_up() == ["classification"]
    assert is_compiled(kernels_of(PLAIN, TrainConfig(), False))
    plan = bigforest.plan_training(frame(), "target")
    assert plan.compiling == 0
    assert plan.seconds == sum(stage.seconds for stage in plan.stages)


def test_warm_up__names_the_kinds(run: Run, folder: Path) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match="there is no kind 'forests'; kinds are classification, classification-c"):
        bigforest.warm_up("forests")
    assert run("warm-up", "--kinds", "classification,forests").code == 2
    assert run.err == (
        "error: there is no kind 'forests'; kinds are classification, classification-categories, "
        "regression, regression-categories, random-classification, random-classification-categories, "
        "random-regression, random-regression-categories, "
        "rotation, rotation-regression, sparse-oblique, sparse-oblique-regression, "
        "subspace-cap, subspace-perceptron, or all\n"
    )
    assert run.json("warm-up")["kinds"] == ["classification"]
