"""Row weights as integers, so that sums of weights, and of targets times weights, are exact in any order.

The weight w of a row is multiplied by the weight of its class, and becomes max(1, rint(w / step)).

1. Narrow weights: the step is the greatest common divisor of the weights. Used if no weight is above MAX_WEIGHT steps,
   and no bag weighs 2**31 steps. Integers up to 1,023, or weights such as 0.25 and 1.5, are exact.
2. Wide weights, 64 bits: all others. The step is the greatest common divisor if all weights together are at most
   MAX_WIDE_TOTAL steps. Otherwise it is a power of two with which they are. Of a million rows, weights down to a
   billionth of the mean are then exact to a thousandth.

The search for splits has no room for wide weights. It divides them by `search` and rounds to whole numbers, at least 1,
at random for each tree (sampling/bags.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import MAX_WEIGHT, MAX_WIDE_TOTAL, DataSpec, TargetSpec, WeightSpec
from bigforest.columns.labels import UNKNOWN, known_codes, label_texts, requested_codes
from bigforest.columns.types import cells, numbers
from bigforest.errors import ConfigError, DataError, api, counted, listed
from bigforest.options.values import ClassWeight

# Largest total weight of all rows in the search, with which no bag reaches 2**31 in practice.
_MAX_SEARCH_TOTAL = 1 << 30
# Largest wide weight of a row in the search, for classification. The search clips the weight of a row that is in a bag
# more than 16 times. For regression the limit is MAX_WEIGHT (targets.py).
_MAX_SEARCH_WEIGHT = 4095
# A greatest common divisor is searched only if all weights are multiples of this number.
_FINEST = 2.0**-20
_LARGEST_WHOLE = 2.0**53
# Multiples of a step below this number are not exact to 53 bits.
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
    classes  weight of each class, multiplied with that of the row; empty for none.

    Raises DataError for weights and targets that cannot be used.
    """
    series, weight = cells(batch, spec.target.name), np.ones(batch.height)
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
    codes = known_codes(series, spec.target, "the table")
    target = np.maximum(codes, 0)
    if classes:
        weight = weight * np.array(classes)[target]
    return TrueRows(target, weight, (weight > 0.0) & (codes >= 0))


def class_weights(target: TargetSpec, requested: ClassWeight, counts: NDArray[np.int64]) -> tuple[float, ...]:
    """Return the weight of each class, or nothing without class weights. Raises ConfigError.

    counts  number of rows of each class, for balanced weights.
    """
    if requested is None:
        return ()
    if isinstance(requested, str):
        rows, classes = int(counts.sum()), len(counts)
        return tuple(rows / (classes * count) for count in counts.tolist())
    return tuple(_class_weights(target, requested).values())


def balanced_divisor(counts: NDArray[np.int64]) -> float:
    """Return the greatest common divisor of balanced class weights with mean 1; counts: rows of each class."""
    return int(counts.sum()) / (len(counts) * math.lcm(*counts.tolist()))


def class_weight_of(spec: DataSpec) -> ClassWeight:
    """Return the class weights with which a table was encoded, as a value of the option."""
    if spec.weight is None or not spec.weight.classes:
        return None
    if spec.weight.balanced:
        return "balanced"
    return tuple(sorted(zip(label_texts(spec.target), spec.weight.classes, strict=True)))


def for_all_classes(target: TargetSpec, requested: ClassWeight) -> ClassWeight:
    """Return the weights completed for every class. Raises ConfigError for a name that is not a class."""
    if requested is None or isinstance(requested, str):
        return requested
    return tuple(sorted(_class_weights(target, requested).items()))


class Encoded(NamedTuple):
    """Description of the encoded weights of a table.

    raised  number of rows whose weight the search for splits rounds up to its smallest weight.
    rough   number of rows whose weight is rounded by more than a thousandth.
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
) -> Encoded:
    """Write the weight of each row as a whole number of steps. Return a description.

    weights  function that yields the positive weights of all rows, slice by slice. It is called two to four times.
    divisor  a common divisor of all weights; 0 if none is known.

    Raises DataError if there are too many rows for weights.
    """
    measured = _measure(weights())
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
        return Encoded(WeightSpec(name, classes, balanced, step, largest, total, False, 1.0, total))
    most = MAX_WEIGHT if regression else _MAX_SEARCH_WEIGHT
    search = max(1.0, largest / most, total / (_MAX_SEARCH_TOTAL - rows))
    searched = raised = 0
    for slice_ in weights():
        whole = whole_weights(slice_, step)
        searched += int(np.maximum(np.rint(whole / search), 1.0).sum())
        raised += int((whole < search).sum())
    return Encoded(WeightSpec(name, classes, balanced, step, largest, total, True, search, searched), raised, rough)


def whole_weights(weights: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """Return positive weights as whole numbers of steps, at least 1."""
    return np.maximum(np.rint(weights / step), 1.0).astype(np.int64)


def _wide_step(measured: _Measured, weights: Weights, rows: int) -> float:
    if rows >= _MAX_SEARCH_TOTAL:
        raise DataError(
            f"{rows} rows are too many for weights: at most {_MAX_SEARCH_TOTAL - 1} are possible; sample some"
        )
    if not measured.largest / MAX_WIDE_TOTAL / rows >= _MIN_STEP or not measured.largest < math.inf:
        raise DataError(
            f"the largest weight of a row is {measured.largest}, too far from 1; multiply all weights by a constant"
        )
    if measured.divisor and measured.total <= (MAX_WIDE_TOTAL - rows) * measured.divisor:
        return measured.divisor
    # Rounded row by row, the sum does not depend on how the rows are cut into slices.
    parts = sum(int(np.rint(slice_ * (2.0**20 / measured.largest)).sum()) for slice_ in weights())
    step = measured.largest / 2.0**20 * ((parts + rows) / (MAX_WIDE_TOTAL - rows))
    return math.ldexp(1.0, math.frexp(step)[1])


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
    largest, divisor, total = 0.0, 0, 0
    whole = True
    for slice_ in slices:
        largest = max(largest, float(slice_.max()))
        with np.errstate(over="ignore"):  # there is no divisor then
            parts = slice_ / _FINEST
        whole = whole and bool(((parts == np.rint(parts)) & (parts < _LARGEST_WHOLE)).all())
        if whole:
            distinct, counts = np.unique(parts.astype(np.int64), return_counts=True)
            divisor = math.gcd(divisor, int(np.gcd.reduce(distinct)))
            total += sum(map(int.__mul__, distinct.tolist(), counts.tolist()))
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
