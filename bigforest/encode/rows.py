"""Encoding target, weights and groups, and a notice of repeated rows.

Rows without a target or with weight 0 are left out.

Row weights become integers, so that sums of weights, and of targets times weights, are exact in any order. The weight w
of a row is multiplied by the weight of its class, and becomes max(1, rint(w / step)).

1. Narrow weights: the step is the greatest common divisor of the weights, or the weight of all rows if they have the
   same. Used if no weight is above MAX_WEIGHT steps, and all weights together are at most 2**30 steps. Integers up to
   1,023, or weights such as 0.25 and 1.5, are exact.
2. Wide weights, 64 bits: all other weights. The step is the greatest common divisor if all weights together are at most
   MAX_WIDE_TOTAL steps. Otherwise it is a power of two for which this holds. In a table of a million rows, weights
   down to a hundred-millionth of the mean are then exact to a thousandth.

The search for splits has no room for wide weights. It divides them by `search` and rounds them to whole numbers of at
least 1, up or down at random for each tree (sampling/bags.py).

An out-of-bag row is no test of a tree if the bag has a copy of the row, so a notice reports repeated rows. If few
different rows are possible, as with a few categories, rows are equal by chance and there is no notice. Oracle:
tests/encode/test_repeated_rows.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import MAX_WEIGHT, MAX_WIDE_TOTAL, DataSpec, GroupSpec, TargetSpec, WeightSpec
from bigforest.columns.labels import UNKNOWN, known_codes, label_texts, requested_codes
from bigforest.columns.types import cells, group_names, is_text_type, numbers, places_among, without_words
from bigforest.encode.memory import EncodeJob, EncodePlan
from bigforest.encode.targets import (
    FoundClasses,
    FoundNumbers,
    class_codes,
    find_classes,
    find_numbers,
    present_numbers,
)
from bigforest.errors import ConfigError, DataError, api, counted, listed
from bigforest.events import Listener, Notice
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import ClassWeight
from bigforest.source.source import Source
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

# Largest total of narrow weights, and of wide weights in the search. In practice the weight of every bag is then below
# 2**31.
_MAX_SEARCH_TOTAL = 1 << 30
# Largest wide weight of a row in the search, for classification. The search clips the weight of a row that is in a bag
# more than 16 times. For regression the limit is MAX_WEIGHT (targets.py).
_MAX_SEARCH_WEIGHT = 4095
# A greatest common divisor is searched only if all weights are multiples of this number.
_FINEST = 2.0**-20
_LARGEST_WHOLE = 2.0**53
# Smallest step. Multiples of smaller steps are not exact to 53 bits.
_MIN_STEP = sys.float_info.min

Weights = Callable[[], Iterator[NDArray[np.float64]]]


def check_weight(name: str, dtype: pl.DataType) -> None:
    """Raise DataError unless a column of this type can hold weights."""
    if not dtype.is_numeric():
        raise DataError(f"{api('weight')} {name!r} has type {dtype}; weights are integers, floats or decimals")


def weights_in_slice(series: pl.Series, name: str) -> NDArray[np.float64]:
    """Return the weights in a slice of their column `name`, float64 [rows]. Raises DataError for an invalid weight."""
    values = numbers(series, str(series.dtype)).astype(np.float64)
    wrong = ~((values >= 0.0) & (values < math.inf))
    if wrong.any():
        raise DataError(
            f"{api('weight')} {name!r} has {counted(wrong.sum(), 'value')} such as {series[int(wrong.argmax())]}; "
            "weights are numbers from 0 on: fill or drop these rows"
        )
    return values


class TrueRows(NamedTuple):
    """True values and weights of rows that predictions are compared with.

    target  int32 [rows], classes, or float64 [rows], regression targets; arbitrary in rows that are not `known`.
    weight  float64 [rows].
    known   bool [rows], True for rows with a target and a positive weight.
    """

    target: NDArray[Any]
    weight: NDArray[np.float64]
    known: NDArray[np.bool_]


def true_rows(batch: pl.DataFrame, spec: DataSpec, weights: str | None, classes: tuple[float, ...]) -> TrueRows:
    """Return the targets and weights of the rows of a table. As in training, rows of weight 0 may have any target.

    weights  column of the weights; None if all rows weigh 1.
    classes  weight of each class, a factor of the weights of its rows; empty for none.

    Raises DataError for weights and targets that cannot be used.
    """
    series, weight = without_words(cells(batch, spec.target.name), spec.missing_words), np.ones(batch.height)
    if weights is not None:
        weight = weights_in_slice(cells(batch, weights), weights)
        series = series.to_frame().select(pl.when(pl.Series(weight > 0.0)).then(pl.col(series.name))).to_series()
    if spec.target.is_regression:
        if not (series.dtype.is_numeric() or series.dtype == pl.Null):
            raise DataError(
                f"the forest predicts the number {spec.target.name!r}, which is {series.dtype} in the table; convert it"
            )
        target = numbers(series, str(series.dtype)).astype(np.float64)
        return TrueRows(target, weight, (weight > 0.0) & ~np.isnan(target))
    codes = known_codes(series, spec, "the table")
    target = np.maximum(codes, 0)
    if classes:
        weight = weight * np.array(classes)[target]
    return TrueRows(target, weight, (weight > 0.0) & (codes >= 0))


def class_weights(target: TargetSpec, requested: ClassWeight, counts: NDArray[np.int64]) -> tuple[float, ...]:
    """Return the weight of each class; empty if classes have no weights. Raises ConfigError.

    counts  number of rows of each class, for balanced weights.
    """
    if requested is None:
        return ()
    if isinstance(requested, str):
        rows, classes = int(counts.sum()), len(counts)
        return tuple(rows / (classes * count) for count in counts.tolist())
    return tuple(_class_weights(target, requested).values())


def balanced_divisor(counts: NDArray[np.int64]) -> float:
    """Return the greatest common divisor of balanced class weights, whose mean over the rows is 1.

    counts  number of rows of each class.
    """
    return int(counts.sum()) / (len(counts) * math.lcm(*counts.tolist()))


def class_weight_of(spec: DataSpec) -> ClassWeight:
    """Return the class weights with which a table was encoded, as a value of the option."""
    if spec.weight is None or not spec.weight.classes:
        return None
    if spec.weight.balanced:
        return "balanced"
    return tuple(sorted(zip(label_texts(spec.target), spec.weight.classes, strict=True)))


def for_all_classes(target: TargetSpec, requested: ClassWeight) -> ClassWeight:
    """Return the class weights, with 1 for classes not given. Raises ConfigError for a name that is not a class."""
    if requested is None or isinstance(requested, str):
        return requested
    return tuple(sorted(_class_weights(target, requested).items()))


class EncodedWeights(NamedTuple):
    """Description of the encoded weights of a table.

    raised  number of rows whose weight is below the smallest weight of the search for splits, and is raised to it.
    rough   number of rows whose weight is rounded by more than a thousandth of itself.
    """

    spec: WeightSpec
    raised: int = 0
    rough: int = 0


def encode_weights(
    name: str | None,
    classes: tuple[float, ...],
    balanced: bool,
    weights: Weights,
    rows: int,
    write: Callable[[NDArray[Any]], None],
    *,
    regression: bool,
    divisor: float,
) -> EncodedWeights:
    """Write the weight of each row as a whole number of steps. Return a description.

    name      column of the weights, or None.
    classes   weight of each class, for the description; empty for none.
    balanced  True if `classes` are balanced.
    weights   function that yields the positive weights of all rows, slice by slice, with the class weights as factors.
              It is called two to four times.
    rows      number of weights.
    write     function that appends encoded weights to the store.
    divisor   a common divisor of weights whose mean is 1 (`balanced_divisor`); 0 to search for one.

    Raises DataError for too many rows, or weights that are too large or too small.
    """
    measured = _measure(weights())
    if not rows * measured.largest < math.inf:
        raise _too_far_from_1(measured)
    if divisor:
        measured = measured._replace(divisor=divisor, total=float(rows))
    step, wide = measured.divisor, False
    if not step or measured.largest > MAX_WEIGHT * step or measured.total > _MAX_SEARCH_TOTAL * step:
        step, wide = _wide_step(measured, weights, rows), True
    largest = total = rough = 0
    for slice_ in weights():
        whole = whole_weights(slice_, step)
        largest, total = max(largest, int(whole.max())), total + int(whole.sum())
        rough += int((np.abs(whole * step - slice_) > slice_ / 1000).sum())
        write(whole.astype(np.uint64) if wide else whole)
    if not wide:
        return EncodedWeights(WeightSpec(name, classes, balanced, step, largest, total, False, 1.0, total))
    most = MAX_WEIGHT if regression else _MAX_SEARCH_WEIGHT
    search = max(1.0, largest / most, total / (_MAX_SEARCH_TOTAL - rows))
    searched = raised = 0
    for slice_ in weights():
        whole = whole_weights(slice_, step)
        searched += int(np.maximum(np.rint(whole / search), 1.0).sum())
        raised += int((whole < search).sum())
    return EncodedWeights(
        WeightSpec(name, classes, balanced, step, largest, total, True, search, searched), raised, rough
    )


def whole_weights(weights: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """Return positive weights as whole numbers of steps, at least 1."""
    return np.maximum(np.rint(weights / step), 1.0).astype(np.int64)


def _wide_step(measured: _Measured, weights: Weights, rows: int) -> float:
    if rows >= _MAX_SEARCH_TOTAL:
        raise DataError(
            f"{rows} rows are too many for weights: at most {_MAX_SEARCH_TOTAL - 1} are possible; sample some"
        )
    if not measured.largest / MAX_WIDE_TOTAL / rows >= _MIN_STEP:
        raise _too_far_from_1(measured)
    if measured.divisor and measured.total <= (MAX_WIDE_TOTAL - rows) * measured.divisor:
        return measured.divisor
    # Rounded row by row, the sum does not depend on how the rows are cut into slices.
    parts = sum(int(np.rint(slice_ * (2.0**20 / measured.largest)).sum()) for slice_ in weights())
    step = measured.largest / 2.0**20 * ((parts + rows) / (MAX_WIDE_TOTAL - rows))
    return math.ldexp(1.0, math.frexp(step)[1])


def _too_far_from_1(measured: _Measured) -> DataError:
    problem = f"the largest weight of a row is {measured.largest}, too far from 1"
    return DataError(f"{problem}; multiply all weights by a constant")


class _Measured(NamedTuple):
    """Measures of all weights.

    largest  the largest weight.
    divisor  greatest common divisor; 0.0 if there is none.
    total    sum of the weights; unusable without a divisor.
    """

    largest: float
    divisor: float
    total: float


def _measure(slices: Iterable[NDArray[np.float64]]) -> _Measured:
    smallest, largest, rows, divisor, total = math.inf, 0.0, 0, 0, 0
    whole = True
    for slice_ in slices:
        smallest, largest = min(smallest, float(slice_.min())), max(largest, float(slice_.max()))
        rows += slice_.size
        with np.errstate(over="ignore"):  # infinite parts have no divisor
            parts = slice_ / _FINEST
        whole = whole and bool(((parts == np.rint(parts)) & (parts < _LARGEST_WHOLE)).all())
        if whole:
            distinct, counts = np.unique(parts.astype(np.int64), return_counts=True)
            divisor = math.gcd(divisor, int(np.gcd.reduce(distinct)))
            total += sum(map(int.__mul__, distinct.tolist(), counts.tolist()))
    if smallest == largest < math.inf:  # as without weights
        return _Measured(largest, largest, rows * largest)
    return _Measured(largest, divisor * _FINEST if whole else 0.0, total * _FINEST)


def _class_weights(target: TargetSpec, requested: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Return the weight of each class, in the order of the classes; 1 for classes that are not given."""
    weight = dict.fromkeys(label_texts(target), 1.0)
    codes = requested_codes([label for label, _ in requested], target)
    unknown = [label for (label, _), code in zip(requested, codes, strict=True) if code == UNKNOWN]
    if unknown:
        raise ConfigError(
            f"{api('class_weight')} names {unknown[0]!r}, which is not a class; the classes are {listed(list(weight))}"
        )
    texts = list(weight)
    if len(set(codes)) < len(codes):
        twice = next(texts[code] for code in codes if codes.count(code) > 1)
        raise ConfigError(f"{api('class_weight')} names the class {twice!r} more than once; give it one weight")
    return weight | {texts[code]: class_weight for (_, class_weight), code in zip(requested, codes, strict=True)}


def encode_target(
    source: Source,
    name: str,
    config: TrainConfig,
    plan: EncodePlan,
    writer: StoreWriter,
    listener: Listener,
) -> tuple[FoundClasses | FoundNumbers, NDArray[np.int64]]:
    """Read the target to find its classes or its range. Read it again to write it.

    Returns the classes or numbers found, and the number of rows of each class, int64 [classes], empty for regression.
    Sends a notice if digits of the numbers are lost. Raises DataError for a target that cannot be predicted.
    """

    def slices() -> Iterator[tuple[int, pl.Series, NDArray[np.uint64] | None]]:
        """Yield (rows before the slice, targets, places in the slice) of the rows of positive weight in each slice.
        The places are None if all rows of the slice have a positive weight."""
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
    weighted = config.weight is not None
    if config.task == "regression":
        target = find_numbers(name, dtype, target_slices, source.rows, weighted=weighted)
    else:
        target = find_classes(name, dtype, target_slices, weighted=weighted)
    counts = np.zeros(len(target.spec.classes), np.int64)
    exact = True
    codes: NDArray[Any]
    for first, series, places in slices():
        if isinstance(target, FoundNumbers):
            floats, present = present_numbers(series)
            codes = target.spec.steps(floats).astype(np.int64)
            writer.add(NUMBERS, floats, VALUE_TYPE)
            exact = exact and bool((target.spec.values(codes) == floats).all())
        else:
            codes, present = class_codes(series, target)
            counts += np.bincount(codes, minlength=counts.size)
        row_numbers = None
        if target.kept < source.rows:
            slice_rows = np.arange(len(series), dtype=np.uint64) if places is None else places
            row_numbers = np.uint64(first) + (slice_rows if present is None else slice_rows[present])
        writer.add_rows(codes, row_numbers)
    if isinstance(target, FoundNumbers):
        target = replace(target, spec=replace(target.spec, exact=exact))
        if target.lost is not None:
            listener(Notice(target.lost))
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
                f"weights below 1 / {least:.0f} of the largest, in {counted(encoded.raised, 'row')}: the search for "
                "splits raises them to this, and node statistics and the out-of-bag report use the exact weights"
            )
        )
    if encoded.rough:
        rough_rows = counted(encoded.rough, "row")
        listener(Notice(f"weights in {rough_rows} are so small compared with the others that they are rounded"))
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

    A slice and the distinct values are in memory. Raises DataError for missing values, and if all rows have one group.
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
# Number of blocks of a large table whose rows are compared, at most. They are spread evenly.
_BLOCKS = 4


def notice_repeats(store: Store) -> str | None:
    """Return a message if the share of repeated rows is above _REPEATED; otherwise None."""
    possible_bits = sum(math.log2(feature.codes) for feature in store.spec.features)
    # With so few possible rows, a share of _REPEATED is equal by chance, even if all are equally frequent.
    if possible_bits < math.log2(store.rows / (2 * _REPEATED)):
        return None
    rows, repeated = _count_repeats(store)
    if repeated <= _REPEATED * rows:
        return None
    sampled = "" if rows == store.rows else " that were looked at"
    return (
        f"{repeated:,} of {counted(rows, 'row')}{sampled} equal an earlier row in the target and all features; if they "
        "are the same observation, give copies the same group, or the out-of-bag error is too low"
    )


def _count_repeats(store: Store) -> tuple[int, int]:
    """Return the number of rows compared, and the number of rows equal to an earlier one, by hashes of 64 bits."""
    count = block_count(store.rows)
    blocks = range(0, count, -(-count // _BLOCKS))
    spans = [block_span(store.rows, block) for block in blocks]
    compared = np.concatenate([np.arange(span.start, span.stop) for span in spans])
    labels = np.concatenate([store.labels(span.start, span.stop) for span in spans])
    hashed = _mix_hashes(np.zeros(labels.size, np.uint64), labels)
    features = store.spec.features
    order = sorted(range(len(features)), key=lambda place: -features[place].codes)
    rows, repeated = compared, 0
    for number, place in enumerate(order, 1):
        for block in blocks:
            store.fetch([place], range(block, block + 1))
        hashed = _mix_hashes(hashed, store.feature_codes(place, range(1))[rows])
        # Most rows differ in the first columns. Counting takes longer than hashing: count after 1, 2, 4 ... columns.
        if number & (number - 1) == 0 or number == len(order):
            _, group, sizes = np.unique(hashed, return_inverse=True, return_counts=True)
            alike = sizes[group] > 1
            rows, hashed = rows[alike], hashed[alike]
            repeated = rows.size - int(np.count_nonzero(sizes > 1))
            if not repeated:
                break
    return compared.size, repeated


def _mix_hashes(hashed: NDArray[np.uint64], codes: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Return the hashes of rows extended by a column."""
    with np.errstate(over="ignore"):
        mixed = (hashed ^ codes.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ mixed >> np.uint64(29)
