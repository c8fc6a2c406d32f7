"""Encoding target, weights and groups, and a notice of repeated rows.

Rows without a target or with weight 0 are left out.

A row that is out of bag does not test a tree if a copy of the row is in the bag, so a notice reports repeated rows. If
few different rows are possible, as with a few categories, rows are equal by chance and there is no notice. Oracle:
tests/encode/test_repeated_rows.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import GroupSpec, TargetSpec, WeightSpec
from bigforest.columns.types import cells, group_names, is_text_type, places_among
from bigforest.encode.memory import EncodeJob, EncodePlan
from bigforest.encode.targets import (
    DistinctValues,
    FoundClasses,
    FoundNumbers,
    class_codes,
    find_classes,
    find_numbers,
    present_numbers,
)
from bigforest.encode.weights import balanced_divisor, class_weights, encode_weights, weights_in_slice
from bigforest.errors import DataError, api, counted
from bigforest.events import Listener, Notice
from bigforest.options.train_config import TrainConfig
from bigforest.source import Source
from bigforest.storage.array_file import map_file
from bigforest.store.format import (
    GROUP_TYPE,
    GROUPS,
    NUMBERS,
    TARGET_TYPES,
    VALUE_TYPE,
    WEIGHT,
    WEIGHT_TYPES,
    block_count,
    block_span,
)
from bigforest.store.store import Store
from bigforest.store.writer import StoreWriter


def encode_target(
    source: Source,
    name: str,
    config: TrainConfig,
    plan: EncodePlan,
    writer: StoreWriter,
    listener: Listener,
    values: DistinctValues | None,
) -> tuple[FoundClasses | FoundNumbers, NDArray[np.int64]]:
    """Read the target to describe it, unless its values are known; then read it again to write it.

    Returns the description, and the number of rows of each class, int64 [classes], empty for regression. Sends a notice
    if digits of the numbers are lost. Raises DataError for a target that cannot be predicted.
    """

    def slices() -> Iterator[tuple[int, pl.Series, NDArray[np.uint64] | None]]:
        """Yield for each slice the number of rows before it, the targets of its rows with a positive weight, and the
        places of these rows in the slice; None if all rows have a positive weight."""
        first, any_weight = 0, config.weight is None
        weight = [] if config.weight is None else [config.weight]
        for frame in source.batches([name, *weight], plan.limits.slice_rows):
            series, places = cells(frame, name), None
            if weight:
                weighs = weights_in_slice(cells(frame, weight[0]), weight[0]) > 0.0
                any_weight = any_weight or bool(weighs.any())
                if not weighs.all():
                    series, places = series.filter(pl.Series(weighs)), np.flatnonzero(weighs).astype(np.uint64)
            yield first, series, places
            first += len(frame)
        if not any_weight:
            raise DataError(f"{api('weight')} {config.weight!r}: all weights are 0; give some rows a larger one")

    dtype, target_slices = source.schema[name], (series for _, series, _ in slices())
    target: FoundClasses | FoundNumbers
    if config.task == "regression":
        target = find_numbers(name, dtype, target_slices, source.rows, weighted=config.weight is not None)
    else:
        target = find_classes(name, dtype, target_slices, values if config.weight is None else None)
    counts = np.zeros(len(target.spec.classes), np.int64)
    exact = True
    codes: NDArray[Any]
    for first, series, places in slices():
        if isinstance(target, FoundNumbers):
            numbers, present = present_numbers(series)
            codes = np.rint((numbers - target.spec.offset) / target.spec.step).astype(np.int64)
            writer.add(NUMBERS, numbers, VALUE_TYPE)
            exact = exact and bool((target.spec.values(codes) == numbers).all())
        else:
            codes, present = class_codes(series, target)
            counts += np.bincount(codes, minlength=counts.size)
        rows = None
        if target.kept < source.rows:
            slice_rows = np.arange(len(series), dtype=np.uint64) if places is None else places
            rows = np.uint64(first) + (slice_rows if present is None else slice_rows[present])
        writer.add_rows(codes, rows)
    if isinstance(target, FoundNumbers):
        target = replace(target, spec=replace(target.spec, exact=exact))
        if target.coarse and not exact:
            listener(
                Notice(
                    f"the values of {name!r} are so far apart that they are kept in steps of {target.spec.step:.3g}, "
                    "and smaller differences are lost; drop or transform outliers"
                )
            )
    return target, counts


def encode_row_weights(
    job: EncodeJob,
    spec: TargetSpec,
    counts: NDArray[np.int64],
    config: TrainConfig,
    writer: StoreWriter,
    listener: Listener,
) -> WeightSpec | None:
    """Write the weights of the kept rows, if rows are weighted. Raises ConfigError for a weight of an unknown class.

    counts  rows of each class.

    Sends a notice about rows whose weights are rounded.
    """
    classes = class_weights(spec, config.class_weight, counts)
    if config.weight is None and not classes:
        return None
    target = map_file(writer.target(), TARGET_TYPES[spec.task])
    factors = np.array(classes)

    def weights() -> Iterator[NDArray[np.float64]]:
        at = 0
        for row_weights in _row_weights(job, config.weight):
            with np.errstate(over="ignore"):  # too large weights are refused later
                weighed = row_weights * factors[target[at : at + len(row_weights)]] if classes else row_weights
            yield weighed
            at += len(row_weights)

    balanced = config.class_weight == "balanced"
    encoded = encode_weights(
        config.weight,
        classes,
        balanced,
        weights,
        job.plan.rows,
        lambda weights: writer.add(WEIGHT, weights, WEIGHT_TYPES[weights.dtype == np.uint64]),
        regression=spec.is_regression,
        divisor=balanced_divisor(counts) if balanced and config.weight is None else 0.0,
    )
    if encoded.raised:
        least = encoded.spec.largest / encoded.spec.search
        listener(
            Notice(
                f"the weights of {counted(encoded.raised, 'row')} are below 1 / {least:.0f} of the largest; the search "
                "for splits uses that much for them, and node statistics and the out-of-bag report the exact weights"
            )
        )
    if encoded.rough:
        rows_with = counted(encoded.rough, "row")
        listener(Notice(f"the weights of {rows_with} are so small next to all others that they are rounded"))
    return encoded.spec


def _row_weights(job: EncodeJob, name: str | None) -> Iterator[NDArray[np.float64]]:
    """Yield the weights of the kept rows, without the class weights, slice by slice."""
    if name is not None:
        yield from (weights_in_slice(series, name) for series in job.column(name))
        return
    for start in range(0, job.plan.rows, job.plan.limits.slice_rows):
        yield np.ones(min(job.plan.limits.slice_rows, job.plan.rows - start))


def check_group(name: str, dtype: pl.DataType) -> None:
    """Raise DataError unless a column of this type can name groups."""
    if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_numeric() or dtype.is_temporal()):
        raise DataError(f"{api('group')} {name!r} has type {dtype}; groups must be text, numbers, dates or booleans")


def encode_groups(job: EncodeJob, name: str, dtype: pl.DataType, writer: StoreWriter) -> GroupSpec:
    """Write the code of the group of each row: the rank of its value.

    A slice and the distinct values are in memory. Raises DataError for nulls, and if all rows have the same group.
    """
    distinct: pl.Series | None = None
    for series in job.column(name):
        if missing := series.fill_nan(None).null_count() if series.dtype.is_float() else series.null_count():
            raise DataError(
                f"{api('group')} {name!r} has {counted(missing, 'missing value')}; give every row a group; it may be "
                "one of its own"
            )
        values = group_names(series).unique()
        distinct = (values if distinct is None else pl.concat([distinct, values]).unique()).sort()
    assert distinct is not None
    if len(distinct) < 2:
        raise DataError(f"{api('group')} {name!r}: all rows are of the one group {distinct[0]!r}; two are needed")
    rows = np.zeros(len(distinct), np.int64)
    for series in job.column(name):
        codes = places_among(group_names(series), distinct).to_numpy()
        rows += np.bincount(codes, minlength=len(distinct))
        writer.add(GROUPS, codes, GROUP_TYPE)
    return GroupSpec(name, str(dtype), len(distinct), int(rows.max()))


# Share of repeated rows above which there is a notice. A smaller share matters little, and round values repeat by
# chance.
_REPEATED = 0.05
# In large tables only this many blocks are compared, evenly apart.
_BLOCKS = 4


def notice_repeats(store: Store) -> str | None:
    """Task: return a message about repeated rows if their share is above _REPEATED; otherwise None."""
    possible = sum(math.log2(feature.codes) for feature in store.spec.features)
    # So few different rows are possible that this share is equal by chance, even if all are equally frequent.
    if possible < math.log2(store.rows / (2 * _REPEATED)):
        return None
    rows, repeated = _count_repeats(store)
    if repeated <= _REPEATED * rows:
        return None
    sampled = "" if rows == store.rows else " that were looked at"
    return (
        f"{repeated:,} of {counted(rows, 'row')}{sampled} equal another row in all columns; if they are the same "
        "observation, give copies the same group, or the out-of-bag error is too low"
    )


def _count_repeats(store: Store) -> tuple[int, int]:
    """Return the number of rows compared, and the number of rows equal to an earlier one, by hashes of 64 bits."""
    count = block_count(store.rows)
    blocks = range(0, count, -(-count // _BLOCKS))
    spans = [block_span(store.rows, block) for block in blocks]
    looked = np.concatenate([np.arange(span.start, span.stop) for span in spans])
    hashed = np.concatenate([store.labels(span.start, span.stop) for span in spans]).astype(np.uint64)
    features = store.spec.features
    order = sorted(range(len(features)), key=lambda place: -features[place].codes)
    rows, repeated = looked, 0
    for number, place in enumerate(order, 1):
        for block in blocks:
            store.fetch([place], range(block, block + 1))
        hashed = _mix_hashes(hashed, store.feature_codes(place, range(1))[rows])
        # Most rows differ in the first columns. Counting takes longer than hashing a column, so count rarely.
        if number & (number - 1) == 0 or number == len(order):
            _, group, sizes = np.unique(hashed, return_inverse=True, return_counts=True)
            alike = sizes[group] > 1
            rows, hashed = rows[alike], hashed[alike]
            repeated = rows.size - int(np.count_nonzero(sizes > 1))
            if not repeated:
                break
    return looked.size, repeated


def _mix_hashes(hashed: NDArray[np.uint64], codes: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Return the hashes of rows extended by a column."""
    with np.errstate(over="ignore"):
        mixed = (hashed ^ codes.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ mixed >> np.uint64(29)
