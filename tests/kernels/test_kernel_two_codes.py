"""Features of two codes are packed into words: the copy's words, what a node reads of them, and whole trees."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigforest.kernels.columns.code_cache import FEWEST_ROWS
from bigforest.kernels.columns.two_codes import (
    FEWEST_FEATURES,
    make_two_codes,
    pack_two_codes,
    read_two_codes,
    unpack_code,
)
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.compiler.jit import kernel
from bigforest.schema.config import TrainConfig
from tests.kernel import check_kernel, check_mixed_kernel
from tests.naive.quick_split import best_split as quick_split
from tests.strategies import Data
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT
ROOM = 1100  # more than are packed together twice


@kernel
def _pack(u8, place, n, constant, two):
    pack_two_codes(u8, place, n, constant, two)


@kernel
def _read(items, cached, constant, two):
    read_two_codes(items, cached, constant, two)


@kernel
def _unpack(n, word, bit, two, out):
    unpack_code(n, word, bit, two, out)


def _bits(known: np.ndarray) -> np.ndarray:
    """One word for each 64 features."""
    words = np.zeros(-(-known.size // 64) * 64, np.bool_)
    words[: known.size] = known
    return np.packbits(words, bitorder="little").view(np.uint64)


def _known(words: np.ndarray, features: int) -> np.ndarray:
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:features].astype(bool)


@settings(max_examples=examples(60 if COMPILED else 6))
@given(
    features=st.integers(FEWEST_FEATURES, 125),
    rows=st.sampled_from([2, 511, 512, 513, 1025, ROOM]),
    mtry=st.sampled_from([1, 4, 12]),
    seed=st.integers(0, 2**32 - 1),
)
@example(features=100, rows=513, mtry=4, seed=0)  # a word of fewer than its share
@example(features=100, rows=513, mtry=12, seed=1)
def test_two_codes__as_in_the_columns(features: int, rows: int, mtry: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    width = np.where(random.random(features) < 0.2, 2, 1)
    place = np.column_stack([width, np.where(width == 1, np.cumsum(width == 1), np.cumsum(width == 2)) - 1])
    u8 = (random.random((int((width == 1).sum()), ROOM)) < random.random() ** 2).astype(np.uint8)
    u8[random.random(len(u8)) < random.random(), rows - 1] = 2  # of three codes, and only the last row says so
    u8[:, rows:] = 7
    codes = Codes(u8, np.ones((int((width == 2).sum()), ROOM), np.uint16), np.empty((0, ROOM), np.uint32), place)
    codes = codes._replace(place=place.astype(np.uint32))
    two = make_two_codes(codes, ROOM, mtry)
    constant = random.random(features) < 0.2
    words = _bits(constant)
    _pack(np.zeros_like(u8), codes.place, np.uint64(rows), _bits(np.zeros(features, np.bool_)), two)
    _read(np.zeros(1, np.uint64), True, _bits(np.zeros(features, np.bool_)), two)  # leaves no trace
    _pack(codes.u8, codes.place, np.uint64(rows), words, two)
    assert not two.here.any()

    column = {feature: u8[slot, :rows] for feature, (kind, slot) in enumerate(place.tolist()) if kind == 1}
    usable = np.array([f in column and not constant[f] and column[f].max() <= 1 for f in range(features)])
    enough = max(FEWEST_FEATURES, features // mtry) if len(u8) >= max(FEWEST_FEATURES, features // mtry) else 65
    for start in range(0, features, 64):
        usable[start : start + 64] &= usable[start : start + 64].sum() >= enough
    assert two.any[0] == usable.any()
    assert np.array_equal(_known(two.packed, features), usable)
    assert np.array_equal(_known(words, features), constant)
    if not usable.any():
        return  # nothing is read

    chosen = np.sort(random.choice(rows, random.integers(1, rows + 1), replace=False))
    items = chosen.astype(np.uint64) << np.uint64(32) | random.integers(0, 2**32, chosen.size, dtype=np.uint64)
    _read(items, True, words, two)
    here = _known(two.here, features)
    assert np.array_equal(here, usable)
    out = np.empty(ROOM, np.uint32)
    for f in np.flatnonzero(here).tolist():
        codes_here = column[f][chosen]
        constant[f] |= codes_here.min() == codes_here.max()
        _unpack(np.uint64(chosen.size), np.uint64(f // 64), np.uint64(f % 64), two, out)
        assert np.array_equal(out[: chosen.size], codes_here)
    assert np.array_equal(_known(words, features), constant)
    _read(items, True, words, two)  # as the node below does
    assert np.array_equal(_known(two.here, features), here & ~constant)
    _read(items, False, words, two)
    assert not two.here.any()


def _flags(random: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Mostly flags, rare and frequent ones, and some columns of more codes, between them."""
    values = (random.random((rows, features)) < random.random(features) ** 3).astype(float)
    values[:, ::9] = random.integers(0, 30, values[:, ::9].shape)
    return values


@pytest.mark.parametrize("kind", ["two classes", "five classes", "numbers"])
@pytest.mark.parametrize("features", [30, 90])
def test_grow__tables_of_flags(features: int, kind: str) -> None:
    rows = 3 * int(FEWEST_ROWS) if COMPILED else int(FEWEST_ROWS) + 20
    random = np.random.default_rng(features)
    values = _flags(random, rows, features)
    score = values[:, 0] / 10 + values[:, 1:20].sum(axis=1) + random.normal(0, 1, rows)
    classes = {"two classes": 2, "five classes": 5, "numbers": 0}[kind]
    cuts = np.quantile(score, np.linspace(0, 1, max(classes, 2) + 1)[1:-1])
    target = np.digitize(score, cuts) if classes else (score * 100).astype(np.int64)
    data = Data(values, target, numbers=not classes)
    config = TrainConfig(mtry=12, max_depth=None if COMPILED else 2, impurity=None if classes else "variance")
    bag = random.integers(0, 3, rows).tolist()
    nodes = check_kernel(data, bag, config, 1, quick_split)
    assert not COMPILED or {node.feature % 9 == 0 for node in nodes if node.feature >= 0} == {False, True}


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
def test_grow__flags_that_miss_values() -> None:
    rows, features = int(FEWEST_ROWS) + 40, 24
    random = np.random.default_rng(3)
    values = _flags(random, rows, features)
    target = (values[:, 0] / 10 + values[:, 1:].sum(axis=1) + random.normal(0, 1, rows) > 6).astype(np.int64)
    values[random.random(values.shape) < 0.1] = np.nan
    values[:, 4:8] = np.where(np.isnan(values[:, 4:8]), np.nan, 1.0)  # codes 0, missing, and 1
    check_mixed_kernel(Data(values, target), [1] * rows, TrainConfig(mtry=12, max_depth=6), 1)
