"""Counting and collecting projections of a block, against numpy's search among the same edges."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.grow.out_of_core.projection_search import ProjectionHistogram, Spans, single
from bigforest.kernels.common.layout import Terms
from bigforest.kernels.out_of_core.projections import BlockValues, ProjectionProbes, collect_values, count_values
from tests.strategies import EXTREMES
from tests.thorough import examples

NUMBERS = st.one_of(st.floats(allow_nan=False), st.sampled_from(EXTREMES), st.integers(-5, 5).map(float))


def bands_of(band: ProjectionHistogram) -> ProjectionProbes:
    one = np.zeros(1, np.uint32)
    low, high, slope = (np.array([number]) for number in (band.low, band.high, band.slope))
    sizes = np.array([band.buckets, 0], np.uint64)
    return ProjectionProbes(one, one, low, high, slope, sizes[:1], sizes[1:], band.edge)


@given(
    column=st.lists(st.tuples(NUMBERS, st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=60),
    most=st.integers(2, 40),
    inner=st.booleans(),
    weighted=st.booleans(),
)
@settings(deadline=None, max_examples=examples(150))
def test_count_and_collect__every_value_is_in_its_bucket(
    column: list[tuple[float, int, int]], most: int, inner: bool, weighted: bool
) -> None:
    values, classes, times = (np.array(part) for part in zip(*column, strict=True))
    values = values + 0.0
    band = ProjectionHistogram.first(0, single(0), Spans(values.min(keepdims=True), values.max(keepdims=True)), most)
    if inner:
        band = band.within(int(band.bucket(values[:1])[0]), most, np.zeros(3, np.int64))
    none = np.empty((0, values.size))
    place = np.array([[8, 0]], np.uint32)
    cells = BlockValues(none.astype(np.float32), values[np.newaxis], none.astype(np.uint8), place)
    direction = Terms(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1))
    tags = (classes.astype(np.uint64) << np.uint64(16)) | times.astype(np.uint64)
    items = (np.arange(values.size, dtype=np.uint64) << np.uint64(32)) | tags
    node = np.zeros(1, np.uint64), np.array([values.size], np.uint64)
    parts = 3 + weighted
    counts, scratch = np.zeros(band.buckets * parts, np.uint32), np.empty(values.size)
    least, highest, unfit = np.array([np.inf]), np.array([-np.inf]), np.zeros(1, np.uint32)
    rows = (cells, direction, items, *node, bands_of(band))
    count_values(*rows, np.uint64(parts), weighted, scratch, counts, least, highest, unfit)
    inside = (values >= band.low) & (values <= band.high)
    expected = np.zeros((band.buckets, parts), np.int64)
    np.add.at(expected, (band.bucket(values[inside]), classes[inside]), times[inside])
    if weighted:
        np.add.at(expected[:, 3], band.bucket(values[inside]), 1)
    assert counts.reshape(-1, parts).tolist() == expected.tolist()
    assert (least[0], highest[0], unfit[0]) == (values.min(), values.max(), np.isinf(values).sum())

    wanted = np.arange(band.buckets) % 2 == 0
    found, kept, ends = np.empty(values.size), np.empty(values.size, np.uint32), np.zeros(1, np.uint64)
    collect_values(*rows, wanted, scratch, found, kept, ends)
    chosen = inside.copy()
    chosen[inside] = wanted[band.bucket(values[inside])]
    assert found[: int(ends[0])].tolist() == values[chosen].tolist()
    assert kept[: int(ends[0])].tolist() == tags[chosen].tolist()
