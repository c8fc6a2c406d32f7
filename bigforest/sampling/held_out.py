"""Rows held out of all bags, to calibrate intervals, sets and rejection.

Whether a row is held out follows from its number, with groups from that of its group, and from the share alone: so
forests of any seed, and the trial trees before them, hold out the same rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.rng import PURPOSE_HELD_OUT, draw_rows, stream_key
from bigforest.schema.config import TrainConfig


def are_held_out(numbers: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Whether the rows, or groups, of these numbers are held out; each with probability `share`."""
    random = np.empty(numbers.size, np.uint64)
    with np.errstate(over="ignore"):
        key = np.uint64(stream_key(np.uint64(0), PURPOSE_HELD_OUT, np.uint64(0), np.uint64(0)))
        draw_rows(key, numbers, random)
    held: NDArray[np.bool_] = (random >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    return held


def held_out_rows(
    config: TrainConfig, start: int, stop: int, groups: NDArray[np.integer] | None
) -> NDArray[np.bool_] | None:
    """Which of the rows from `start` to before `stop` are held out; None where no rows are.

    groups  the number of the group of each of these rows, where whole groups are drawn.
    """
    if config.calibration is None:
        return None
    numbers = np.arange(start, stop, dtype=np.uint64) if groups is None else groups.astype(np.uint64)
    return are_held_out(numbers, config.calibration)
