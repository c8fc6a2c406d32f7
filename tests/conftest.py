"""What holds for every test: `--thorough` and tests marked slow, tests marked `needs`, the Hypothesis profile (no
deadline, the same examples every time, nothing kept), that an interrupt is heard, and that nobody waits for the disk.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.streams import Streams
from tests.thorough import be_thorough, examples


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addoption(
        "--thorough", action="store_true", help="also run tests marked slow, and draw all examples of Hypothesis"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest before it imports a test."""
    be_thorough(config.getoption("--thorough"))
    settings.register_profile(
        "bigforest",
        max_examples=examples(100),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("bigforest")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Called by pytest: leave slow tests out, but where one is named with `::`."""
    if config.getoption("--thorough") or any("::" in argument for argument in config.args):
        return
    if slow := [item for item in items if item.get_closest_marker("slow")]:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Called by pytest: skip a test whose modules are not installed. With `-m needs`, such tests run, and fail."""
    missing = [name for mark in item.iter_markers("needs") for name in mark.args if find_spec(name) is None]
    if missing and item.config.option.markexpr != "needs":
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Standard streams of a test."""

    def replace(**named: object) -> None:
        for name, stream in named.items():
            monkeypatch.setattr(sys, name, stream)

    return replace


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Collect no garbage during a test that recurses as deeply as Python allows: a finalizer called there would fail,
    and pytest with it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# Shells start what runs in the background with interrupts ignored, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def nothing_outlives_the_machine() -> Iterator[None]:
    """Thousands of small stores and forests would wait for the disk for minutes. storage/test_output.py looks at what
    is flushed, and training/test_faults.py kills processes of its own, which do flush."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # a handle must be open all the same
        yield
