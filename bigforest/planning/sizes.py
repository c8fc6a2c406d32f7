"""Sizes in bytes as users write them, numbers of trees for which curves are shown, and ranges of rows."""

from __future__ import annotations

import re

from bigforest.errors import ConfigError, api, shown

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_MOST = 2**63 - 1
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def parse_bytes(size: str | int, name: str = "memory") -> int:
    """Return the bytes of a size such as "4GB" (10**9 each), "512MiB" (2**20 each) or a plain number.

    Raises ConfigError, which says that `name` is wrong.
    """
    total: float = 0
    if isinstance(size, int) and not isinstance(size, bool):
        total = size
    elif isinstance(size, str) and (found := _SIZE.fullmatch(size)):
        total = float(found[1]) * _UNITS[(found[2] or "").lower()]
    if not 1 <= total <= _MOST:
        raise ConfigError(
            f"{api(name)} must be a size such as 4GB, 512MiB or a number of bytes, at most {_MOST}, not {shown(size)}"
        )
    return int(total)


def megabytes(size: int) -> str:
    """Return the size rounded up, as an option takes it: 1234MB."""
    return f"{-(-size // 10**6)}MB"


def milestones(trees: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50, ... up to and including all trees."""
    steps = [factor * 10**power for power in range(7) for factor in (1, 2, 5)]
    return [*(step for step in steps if step < trees), trees]


def row_ranges(rows: int, step: int) -> list[tuple[int, int]]:
    """Divide rows into ranges of `step` rows, and return (first row, row after the last) of each."""
    return [(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
