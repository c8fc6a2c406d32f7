"""No kernel writes outside of its arrays, whatever becomes of the codes of a store while it is read.

Uncompiled kernels raise IndexError there. Codes here are other ones each time they are read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigforest.columns.arrow_arrays import read_only
from bigforest.kernels.common.layout import CATEGORY, MISSING, NUMBER, Codes, RowMajorCodes
from bigforest.kernels.predict.tally import RoutedRows, add_spread
from bigforest.kernels.scan.categorical_missing import make_categorical_missing
from bigforest.kernels.tree.bags import draw_strata
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from tests.kernel import WIDTHS, encoded, kernel_arguments
from tests.strategies import Data, configs, mixed_tables, weights
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT


@pytest.mark.slow  # .ci/run runs this file uncompiled anyway
@pytest.mark.skipif(not COMPILED, reason="runs this file uncompiled, as it is already")
def test_kernels__uncompiled() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "......" in done.stdout  # none is skipped


class Restless(np.ndarray[Any, Any]):
    """An array whose cells, read one by one, are now and then any number."""

    random = np.random.default_rng(0)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, np.ndarray) or self.random.random() < 0.8:
            return found
        most = np.iinfo(self.dtype).max
        return self.dtype.type(self.random.choice([0, 1, self.random.integers(0, most, endpoint=True), most - 1, most]))


def restless(codes: Codes) -> tuple[Codes, RowMajorCodes]:
    """Codes, and the same by rows."""
    matrices = [matrix.view(Restless) for matrix in codes[:3]]
    by_row = [np.ascontiguousarray(matrix.T).view(Restless) for matrix in codes[:3]]
    return Codes(*matrices, codes.place), RowMajorCodes(*by_row)


@pytest.mark.skipif(COMPILED, reason="compiled kernels do not check bounds")
@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=mixed_tables(), config=configs(), width=st.sampled_from(sorted(WIDTHS)), draw=st.data())
def test_grow__mixed_codes_that_change(data: Data, config: TrainConfig, width: int, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    Restless.random = np.random.default_rng(draw.draw(st.integers(0, 1 << 20)))
    dictionaries, codes = encoded(data.values, width, (1,))
    kind = np.where(np.isnan(data.values).any(axis=0), MISSING, NUMBER).astype(np.uint8)
    kind[list(data.categories)] = CATEGORY
    most = max((max(dictionaries[feature]) + 1 for feature in data.categories), default=0)
    changing, by_row = restless(codes)
    _, _, *call = kernel_arguments(data, bag, config, codes)
    least = np.array(config.min_levels(kind.size))
    mixed = make_categorical_missing(kind, least, most, call[0].size, max(data.classes, 1))
    with np.errstate(all="ignore"):
        grow(changing, by_row, *call, mixed if draw.draw(st.booleans()) else None)


@pytest.mark.skipif(COMPILED, reason="compiled kernels do not check bounds")
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_draw_strata__draws_of_classes_that_no_row_has(classes: list[int], draws: list[int]) -> None:
    counts, order = np.zeros(len(classes), np.uint16), np.full(len(classes), 65_535, np.uint16)
    with np.errstate(over="ignore"):
        target, ends = np.array(classes, np.uint16), np.empty(4, np.uint32)
        draw_strata(counts, target, ends, order, np.array(draws), True, np.uint64(7))
    assert counts.sum() == sum(wanted for number, wanted in enumerate(draws) if number in classes)


@pytest.mark.parametrize(
    ("row", "leaf", "ballot", "sound"), [(1, 0, 1, True), (2, 0, 1, False), (0, 1, 1, False), (0, 0, 2, False)]
)
def test_add_spread__indices_out_of_range(row: int, leaf: int, ballot: int, sound: bool) -> None:
    found = RoutedRows(
        read_only(np.array([row], np.uint16)),
        read_only(np.array([leaf], np.uint32)),
        np.array([1], np.int64),
        read_only(np.array([0, 1], np.int64)),
        read_only(np.array([ballot], np.uint32)),
    )
    assert add_spread(found, np.array([3.0]), np.zeros((2, 3))) is sound
