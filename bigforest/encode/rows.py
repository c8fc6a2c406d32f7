"""The target and the weights of rows, which together define which rows are kept; and their groups.

Whole groups are in a bag or out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError, counted
from bigforest.common.events import Listener, Notice
from bigforest.encode.class_target import DistinctValues, FoundClasses, class_codes, find_classes
from bigforest.encode.features import EncodeJob, kept_column
from bigforest.encode.memory import EncodePlan
from bigforest.encode.regression_target import FoundNumbers, find_numbers, number_codes, present_numbers
from bigforest.encode.weights import balanced_divisor, class_weights, encode_weights, weights_in_slice
from bigforest.schema.columns import cells, is_text_type, places_among, text_of_categories
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import GroupSpec, TargetSpec, WeightSpec
from bigforest.source import Source
from bigforest.store.format import TARGET_TYPES
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
    """Read the target twice: for what it is, unless its values are known, and to write it. Raises DataError where it
    cannot be learned.

    Returns what it is, and how many rows there are of each class, int64 [classes]; none of a regression. Gives Notice
    of numbers of which digits are lost that matter.
    """

    def slices() -> Iterator[tuple[int, pl.Series, NDArray[np.uint64] | None]]:
        """Rows before the slice, the targets of its rows that weigh something, and their places; None for all."""
        first, weighed = 0, config.weight is None
        weight = [] if config.weight is None else [config.weight]
        for frame in source.batches([name, *weight], plan.limits.slice_rows):
            series, places = cells(frame, name), None
            if weight:
                weighs = weights_in_slice(cells(frame, weight[0]), weight[0]) > 0.0
                weighed = weighed or bool(weighs.any())
                if not weighs.all():
                    series, places = series.filter(pl.Series(weighs)), np.flatnonzero(weighs).astype(np.uint64)
            yield first, series, places
            first += len(frame)
        if not weighed:
            raise DataError(f"weight {config.weight!r}: all weights are 0; give some rows a larger one")

    dtype, found = source.schema[name], (series for _, series, _ in slices())
    target: FoundClasses | FoundNumbers
    if config.task == "regression":
        target = find_numbers(name, dtype, found, source.rows, weighted=config.weight is not None)
    else:
        target = find_classes(name, dtype, found, values if config.weight is None else None)
    counts = np.zeros(len(target.spec.classes), np.int64)
    exact = True
    codes: NDArray[Any]
    for first, series, places in slices():
        if isinstance(target, FoundNumbers):
            numbers, present = present_numbers(series)
            codes = number_codes(numbers, target.spec)
            writer.add_numbers(numbers)
            exact = exact and bool((target.spec.values(codes) == numbers).all())
        else:
            codes, present = class_codes(series, target)
            counts += np.bincount(codes, minlength=counts.size)
        rows = None
        if target.kept < source.rows:
            own = np.arange(len(series), dtype=np.uint64) if places is None else places
            rows = np.uint64(first) + (own if present is None else own[present])
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
    """Write the weights of the kept rows, where there are any. Raises ConfigError where they are of no class.

    counts  rows of each class.

    Gives Notice of rows whose weight is not counted as it is.
    """
    classes = class_weights(spec, config.class_weight, counts)
    if config.weight is None and not classes:
        return None
    target = np.memmap(writer.target(), TARGET_TYPES[spec.task], "r")
    factors = np.array(classes)

    def weights() -> Iterator[NDArray[np.float64]]:
        at = 0
        for own in _own_weights(job, config.weight):
            with np.errstate(over="ignore"):  # what is too large is refused
                weighed = own * factors[target[at : at + len(own)]] if classes else own
            yield weighed
            at += len(own)

    balanced = config.class_weight == "balanced"
    found = encode_weights(
        config.weight,
        classes,
        balanced,
        weights,
        job.plan.rows,
        writer.add_weights,
        regression=spec.is_regression,
        divisor=balanced_divisor(counts) if balanced and config.weight is None else 0.0,
    )
    if found.raised:
        least = found.spec.largest / found.spec.search
        listener(
            Notice(
                f"the weights of {counted(found.raised, 'row')} are below 1 / {least:.0f} of the largest, which the "
                "search for splits uses for them; node statistics and the out-of-bag report use the exact weights"
            )
        )
    if found.rough:
        rows_with = counted(found.rough, "row")
        listener(Notice(f"the weights of {rows_with} are so small next to all others that they are rounded"))
    return found.spec


def _own_weights(job: EncodeJob, name: str | None) -> Iterator[NDArray[np.float64]]:
    """The weights of the kept rows by themselves, slice by slice."""
    if name is not None:
        yield from (weights_in_slice(series, name) for series in kept_column(job, name))
        return
    for start in range(0, job.plan.rows, job.plan.limits.slice_rows):
        yield np.ones(min(job.plan.limits.slice_rows, job.plan.rows - start))


def check_group(name: str, dtype: pl.DataType) -> None:
    """Raise DataError unless a column of this type can name groups."""
    if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_numeric() or dtype.is_temporal()):
        raise DataError(f"group {name!r} has type {dtype}; groups must be text, numbers, dates or booleans")


def encode_groups(
    name: str, dtype: pl.DataType, slices: Callable[[], Iterator[pl.Series]], writer: StoreWriter
) -> GroupSpec:
    """Write the code of each row's group, its rank among the values; `slices` gives the column from its beginning.

    Holds a slice and the distinct values. Raises DataError for nulls, and when all rows are of one group.
    """
    found: pl.Series | None = None
    for series in slices():
        if missing := series.fill_nan(None).null_count() if series.dtype.is_float() else series.null_count():
            raise DataError(
                f"group {name!r} has {counted(missing, 'missing value')}; give every row a group; it may be one of its "
                "own"
            )
        values = text_of_categories(series).unique()
        found = (values if found is None else pl.concat([found, values]).unique()).sort()
    assert found is not None
    if len(found) < 2:
        raise DataError(f"group {name!r}: all rows are of the one group {found[0]!r}; two are needed")
    rows = np.zeros(len(found), np.int64)
    for series in slices():
        codes = places_among(text_of_categories(series), found).to_numpy()
        rows += np.bincount(codes, minlength=len(found))
        writer.add_groups(codes)
    return GroupSpec(name, str(dtype), len(found), int(rows.max()))
