"""Dates and times in text: expressions that parse them, of columns of text files and of labels.

Each returns null for a text in another form. A T between day and time is a space, and a slash in a day a hyphen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import polars as pl

Parse = Callable[[pl.Expr], pl.Expr]

_ISO = "%Y-%m-%d"


def day_in(form: str) -> Parse:
    """Return the parser of a day in this form, such as %Y-%m-%d."""
    return lambda text: _iso_text(text).str.to_date(form, strict=False)


def moment_in(form: str, *times: str) -> Parse:
    """Return the parser of a day in this form and a time in one of these forms."""

    def parse(text: pl.Expr) -> pl.Expr:
        iso = _iso_text(text)
        parsed = [iso.str.to_datetime(f"{form} {time}", time_unit="us", strict=False) for time in times]
        # Of several columns, pl.coalesce would make one.
        return reduce(lambda first, second: pl.when(first.is_null()).then(second).otherwise(first), parsed)

    return parse


def _iso_text(text: pl.Expr) -> pl.Expr:
    """Return dates such as 2026/01/02T03:04 as 2026-01-02 03:04."""
    return text.str.strip_chars().str.replace_all("/", "-", literal=True).str.replace("T", " ", literal=True)


DAY = day_in(_ISO)
MOMENT = moment_in(_ISO, "%H:%M:%S%.f", "%H:%M")
# With an offset from UTC.
ZONED_MOMENT = moment_in(_ISO, "%H:%M:%S%.f%#z")


def clock_time(text: pl.Expr) -> pl.Expr:
    """Parse a time of day, with seconds."""
    return text.str.strip_chars().str.to_time("%H:%M:%S%.f", strict=False)
