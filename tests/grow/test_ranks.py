"""Ranks are those of sorting, for every type and any bits; bins are few, in order and even."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.encode import values as values_
from bigforest.encode.values import KeyMaker, new_bins, presort
from bigforest.kernels.presort.ranking import rank_cells
from tests.thorough import examples


def ranked(
    values: NDArray[Any], bucket: int, pieces: int = 1, few: int = 0
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Ranks of the values and the distinct ones; their keys are made in `pieces` pieces, and up to `few` sorted by
    numpy."""
    series = pl.Series("x", values)
    maker = KeyMaker("x", series.dtype)
    keys = np.empty(len(series), maker.key_type)
    for part in np.array_split(np.arange(len(series)), pieces):
        if len(part):
            maker.make(series[int(part[0]) : int(part[-1]) + 1], keys[part[0] : part[-1] + 1])
    assert maker.wrong() is None
    scale = maker.scale()
    with mock.patch.object(values_, "BUCKET_ROWS", bucket), mock.patch.object(values_, "FEW_ROWS", few):
        offsets = presort(keys, scale, new_bins(len(keys), "exact"))
    return keys, scale.values(offsets)


WHOLE = 2**53


@settings(max_examples=examples(100))
@given(
    values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=60).map(np.array)
    | st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=60).map(lambda v: np.array(v, np.float32))
    | st.lists(st.integers(-WHOLE, WHOLE), min_size=1, max_size=60).map(np.array)
    | st.lists(st.integers(0, WHOLE), min_size=1, max_size=60).map(lambda v: np.array(v, np.uint64))
    | st.lists(st.sampled_from([1 + i * 2.0**-52 for i in range(9)] + [-1e300]), min_size=1, max_size=60).map(np.array),
    bucket=st.sampled_from([1, 2, 40, 1 << 15]),
    pieces=st.integers(1, 3),
    few=st.sampled_from([0, 60]),
)
def test_presort__equals_sorting(values: NDArray[Any], bucket: int, pieces: int, few: int) -> None:
    ranks, distinct = ranked(values, bucket, pieces, few)
    expected, codes = np.unique(values, return_inverse=True)
    assert ranks.tolist() == codes.tolist()
    assert distinct.tolist() == expected.tolist()
    assert not np.signbit(distinct[distinct == 0]).any()


SHAPES = {
    "bits": lambda r, n: None,
    "few": lambda r, n: r.integers(0, 100, n),
    "some": lambda r, n: r.integers(0, 100_000, n) / 4,
    "normal": lambda r, n: r.standard_normal(n),
    "mostly zero": lambda r, n: np.where(r.random(n) < 0.7, 0, r.standard_normal(n)),
    "close together": lambda r, n: 1 + r.integers(0, 50_000, n) * 2.0**-52,
    "wide": lambda r, n: np.exp(30 * r.standard_normal(n)),
    "as 32 bits": lambda r, n: r.standard_normal(n).astype(np.float32),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64, np.uint32, np.int32, np.int8])
@pytest.mark.parametrize("bucket", [50, 1 << 15])
def test_presort__many_rows_of_every_type(shape: str, dtype: Any, bucket: int) -> None:
    """With small buckets many of one value do not fit, and are sorted in place."""
    random = np.random.default_rng(5)
    kind = np.dtype(dtype).kind
    raw = SHAPES[shape](random, 100_000)
    if raw is None:
        raw = random.integers(0, 256, 100_000 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
        values = raw[~np.isnan(raw)] if kind == "f" else raw >> 11 if np.dtype(dtype).itemsize == 8 else raw
    elif kind == "f":
        values = raw.astype(dtype)
    else:
        low, high = (0, 2**32 - 1) if kind == "u" else (-(2**31), 2**31 - 1)
        values = np.clip(raw * 1000, low, high).astype(np.int64).astype(dtype)
    ranks, distinct = ranked(values, bucket)
    expected, codes = np.unique(values, return_inverse=True)
    assert (ranks == codes).all()
    assert (distinct == expected).all()


def bins_of(counts: list[int], max_bins: int) -> list[int]:
    """Bin of each of the distinct values with these numbers of rows."""
    bins = new_bins(sum(counts), max_bins)
    rank_cells(np.array(counts, np.uint64), bins, np.zeros(2, np.uint64), np.empty(len(counts), np.uint64))
    return bins.last[: int(bins.state[0])].searchsorted(np.arange(len(counts))).tolist()


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=30), max_bins=st.integers(2, 12))
def test_bins__few_ascending_and_even(counts: list[int], max_bins: int) -> None:
    bins = bins_of(counts, max_bins)
    assert set(np.diff(bins, prepend=0).tolist()) <= {0, 1}
    assert bins[0] == 0
    assert bins[-1] < max_bins
    assert np.bincount(bins, weights=counts).max() <= sum(counts) / max_bins + max(counts)


def test_bins__distinct_values_in_equal_parts() -> None:
    assert np.bincount(bins_of([1] * 1000, 10)).tolist() == [100] * 10


def test_bins__rows_beyond_32_bits() -> None:
    counts = [2**33, 1, 2, 3, 2**33, 2**40, 5, 2**40]
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    stretches = [(2 * end - count) * 65_536 // (2 * ends[-1]) for count, end in zip(counts, ends, strict=True)]
    assert bins_of(counts, 65_536) == [sorted(set(stretches)).index(stretch) for stretch in stretches]
    assert len(set(stretches)) < len(counts)
