"""Dates and times, which trees compare as numbers, as people read them."""

from __future__ import annotations

import re
from math import floor

import numpy as np

from bigforest.forest.contents import Contents
from bigforest.plot.draw import number_text

_DAY = 86_400_000.0
_UNITS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6}
_DATETIME = re.compile(r"Datetime\(time_unit='(ms|us|ns)'")
# Milliseconds since 1970 that are shown as a moment, by size.
_LARGEST = 1e15


def milliseconds(forest: Contents) -> dict[str, float]:
    """Milliseconds of a step of the numbers of each feature that is a date or a datetime, by name."""
    if forest.config.ranks:
        return {}
    found = {}
    for feature in forest.spec.features:
        unit = _DATETIME.match(feature.dtype)
        if feature.kind == "numeric" and (feature.dtype == "Date" or unit):
            found[feature.name] = _UNITS[unit[1]] if unit else _DAY
    return found


def moment_text(value: float, step: float | None) -> str:
    """A number of a feature of such steps as a date, or a date and time; without steps as a number."""
    if step is None or not abs(value * step) < _LARGEST:
        return number_text(value, 5)
    moment = np.datetime64(floor(value * step), "ms")
    return str(moment.astype("datetime64[D]" if step == _DAY else "datetime64[s]")).replace("T", " ")
