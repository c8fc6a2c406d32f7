"""The Hypothesis profile of every test: no deadline, the same examples every time, nothing kept."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "bigforest",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("bigforest")
