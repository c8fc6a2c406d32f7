"""Routing, counting and collecting the rows of a block by codes and by projections, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.columns.arrow_arrays import read_only
from bigforest.grow.out_of_core.probes import Histogram, Spans, feature_direction
from bigforest.kernels.common.layout import Codes, Terms
from bigforest.kernels.out_of_core.blocks import (
    AFTER_ALL,
    BlockValues,
    Probes,
    Splits,
    collect_rows,
    count_rows,
    route_rows,
)
from tests.strategies import EXTREMES
from tests.thorough import examples

NUMBERS = st.one_of(st.floats(allow_nan=False), st.sampled_from(EXTREMES), st.integers(-5, 5).map(float))
TABLE: Any = {
    "classes": st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=60, max_size=60),
    "values": st.lists(NUMBERS, min_size=1, max_size=60) | st.lists(st.integers(0, 700), min_size=1, max_size=60),
}


def probes_of(histogram: Histogram, kind: Any) -> Probes:
    one = np.zeros(1, np.uint32)
    low, high, scale = (np.array([number], kind) for number in (histogram.low, histogram.high, histogram.scale))
    sizes = np.array([histogram.buckets, 0], np.uint64)
    return Probes(one, one, low, high, scale, sizes[:1], sizes[1:], histogram.edge, np.zeros(1, np.int64))


def block_of(values: np.ndarray) -> tuple[Any, Terms | None]:
    """A block of one feature: its cells, and the direction that is the feature, None for codes."""
    none = np.empty((0, values.size))
    if values.dtype == np.float64:
        matrices = map(read_only, (none.astype("f4"), values[np.newaxis], none.astype("u1")))
        cells = BlockValues(*matrices, np.array([[8, 0]], np.uint32))
        return cells, Terms(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1))
    codes = (none.astype("u1"), values.astype("u2")[np.newaxis], none.astype("u4"), np.array([[2, 0]], np.uint32))
    return Codes(*map(read_only, codes)), None


def items_of(tags: np.ndarray) -> np.ndarray:
    return (np.arange(tags.size, dtype=np.uint64) << np.uint64(32)) | tags


@given(**TABLE, most=st.integers(2, 40), inner=st.booleans(), weighted=st.booleans())
@settings(deadline=None, max_examples=examples(150))
def test_count_and_collect__every_value_is_in_its_bucket(
    classes: list[tuple[int, int]], values: list[float], most: int, inner: bool, weighted: bool
) -> None:
    column = np.array(values) + 0
    kind = np.float64 if column.dtype == np.float64 else np.uint32
    kinds, times = np.array(classes[: column.size]).T
    spans = Spans(column.min(keepdims=True), column.max(keepdims=True))
    if kind is np.float64:
        histogram = Histogram.on(0, feature_direction(0), spans, most)
    else:
        histogram = Histogram.ranges(0, None, int(spans.low[0]), int(spans.high[0]), most)
    if inner:
        histogram = histogram.within(int(histogram.bucket(column[:1])[0]), most, np.zeros(3, np.int64))
    cells, terms = block_of(column)
    tags = (kinds.astype(np.uint64) << np.uint64(16)) | times.astype(np.uint64)
    node = np.zeros(1, np.uint64), np.array([column.size], np.uint64)
    parts = 3 + weighted
    counts, scratch = np.zeros(histogram.buckets * parts, np.uint32), np.empty(column.size, kind)
    ends = (0, AFTER_ALL) if kind is np.uint32 else (-np.inf, np.inf)
    high, low = (np.array([end], kind) for end in ends)
    mark = np.zeros(1, np.int64)
    rows = (cells, terms, items_of(tags), *node, None, probes_of(histogram, kind))
    count_rows(*rows, np.uint64(parts), weighted, scratch, counts, low, high, mark)
    inside = (column >= histogram.low) & (column <= histogram.high)
    expected = np.zeros((histogram.buckets, parts), np.int64)
    np.add.at(expected, (histogram.bucket(column[inside]), kinds[inside]), times[inside])
    if weighted:
        np.add.at(expected[:, 3], histogram.bucket(column[inside]), 1)
    assert counts.reshape(-1, parts).tolist() == expected.tolist()
    assert (low[0], high[0]) == ((column if terms else column[column >= histogram.low]).min(), column.max())
    assert (mark[0] != 0) == np.isinf(column).any()

    wanted = np.arange(histogram.buckets) % 2 == 0
    found, kept = np.empty(column.size + 1, kind), np.empty(column.size + 1, np.uint32)
    stops = np.zeros(1, np.uint64)
    collect_rows(*rows, wanted, scratch, found, kept, None, stops)
    chosen = inside.copy()
    chosen[inside] = wanted[histogram.bucket(column[inside])]
    assert found[: int(stops[0])].tolist() == column[chosen].tolist()
    assert kept[: int(stops[0])].tolist() == tags[chosen].tolist()


@given(**TABLE, at=st.integers(0, 59))
@settings(deadline=None, max_examples=examples(100))
def test_route__keeps_the_order_of_the_rows_on_both_sides(
    classes: list[tuple[int, int]], values: list[float], at: int
) -> None:
    column = np.array(values) + 0
    kind = np.float64 if column.dtype == np.float64 else np.uint32
    cut = column[at % column.size]
    cells, terms = block_of(column)
    items = items_of(np.array([times for _, times in classes[: column.size]], np.uint64))
    zero, one, two = (np.array([node], np.uint32) for node in range(3))
    way, listed = np.zeros(1, np.uint8), np.zeros(0, np.uint8)
    splits = Splits(zero, zero, np.array([cut], kind), one, two, way, np.zeros(1, np.uint64), listed)
    begin, end = np.zeros(3, np.uint64), np.array([column.size, 0, 0], np.uint64)
    ends = (0, AFTER_ALL) if kind is np.uint32 else (-np.inf, np.inf)
    below, above = (np.array([end], kind) for end in ends)
    routed, spare, scratch = items.copy(), np.empty_like(items), np.empty(column.size, kind)
    route_rows(cells, terms, routed, spare, scratch, splits, begin, end, below, above)
    left = column <= cut
    assert routed.tolist() == [*items[left], *items[~left]]
    assert (begin.tolist(), end.tolist()) == ([0, 0, left.sum()], [column.size, left.sum(), column.size])
    assert below[0] == cut
    assert above[0] == (column[~left].min() if not left.all() else ends[1])
