"""What holds for every test: the Hypothesis profile (no deadline, the same examples every time, nothing kept), that an
interrupt is heard, and that nobody waits for the disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bigforest",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("bigforest")

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
