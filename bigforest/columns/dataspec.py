"""The dataspec: type, role and size of every column of a table. Stores and forests contain it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.options.values import Task, is_integer

MAX_CLASSES = 65_535
MAX_FEATURES = 2**31 - 1
MAX_CODES = 2**32
# Largest narrow weight of a row. A row may be in a bag 64 times, and 64 times this weight fits the 16 bits of an item.
MAX_WEIGHT = 1023
# Largest weight of a bag.
MAX_BAG_WEIGHT = 2**31 - 1
# Largest sum of all wide weights of a table. A bag of less than 32 times this weight fits 63 bits.
MAX_WIDE_TOTAL = 2**58
# Largest target of a regression: sums of squares of larger ones would overflow.
LARGEST_NUMBER = 2.0**500
# Most bits of a regression target as a whole number.
_NUMBER_BITS = 52
# Most bits of a sum of these numbers times weights: over a bag that weighs as much as the table (`max_number`), and
# over any bag (`max_bag_weight`).
_SUM_BITS, _MAX_SUM_BITS = 61, 62

KINDS = ("numeric", "category")

# Entries that are left out of JSON if they have this value.
_USUAL = {"missing_words": (), "separator": None, "fill": None, "other": None}

Label = bool | int | float | str

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A feature.

    kind     "numeric" or "category"; the levels of a category are text (store/levels.py).
    dtype    name of its Polars type.
    codes    number of codes, including code 0 of missing values. Codes are the ranks of values, bins or levels, from 0,
             or from 1 if values are missing.
    width    bytes of a code: 1, 2 or 4.
    slot     row of the feature in the store's matrix of this width.
    column   column of the table that holds the feature: `a` for `a.b` and `a[3]`; None if it has the feature's name.
    missing  True if some rows have no value; their code is 0.
    fill     number that replaces missing cells if trees split on projections (grow/filled_store.py). It is set even if
             no cell is missing. None if trees do not split on projections.
    other    number that replaces unknown levels if numbers replace the levels (store/levels.py); otherwise None.
    """

    name: str
    kind: str
    dtype: str
    codes: int
    width: int
    slot: int
    column: str | None = None
    missing: bool = False
    fill: float | None = None
    other: float | None = None

    @property
    def splits_on_levels(self) -> bool:
        """True for a category that is split by sets of levels."""
        return self.kind == "category" and self.fill is None

    @property
    def has_level_values(self) -> bool:
        """True for a category whose levels are replaced by numbers, which nodes split."""
        return self.kind == "category" and self.fill is not None

    @property
    def has_gaps(self) -> bool:
        """True if some rows have no value and nothing replaces it."""
        return self.missing and self.fill is None

    @property
    def is_filled(self) -> bool:
        """True if some rows have no value and `fill` replaces it."""
        return self.missing and self.fill is not None

    @property
    def table_column(self) -> str:
        """Column of the table that holds the feature."""
        return self.name if self.column is None else self.column

    @property
    def levels(self) -> int:
        """Number of levels of a category, missing not counted."""
        return self.codes - self.missing if self.kind == "category" else 0


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The target column: its Polars type by name, its task and its classes.

    task          "classification" or "regression".
    classes       classes of a classification, ascending; class k has code k. Dates, times and decimals are the physical
                  integers of Polars (columns/labels.py).
    offset, step  a regression target is stored as an integer q of 64 bits; offset + q * step differs from the target by
                  at most step / 2 (encode/targets.py). The step is a power of two.
    exact         True if offset + q * step equals every target. Otherwise the store also has the targets themselves.
    categories    for an Enum, all its categories in order; for a Categorical with its own pl.Categories, their name,
                  namespace and physical type; else empty.
    """

    name: str
    dtype: str
    classes: tuple[Label, ...]
    task: Task = "classification"
    offset: float = 0.0
    step: float = 1.0
    exact: bool = True
    categories: tuple[str, ...] = ()

    @property
    def is_regression(self) -> bool:
        """True if the targets are numbers, without classes."""
        return self.task == "regression"

    @property
    def answer_width(self) -> int:
        """Number of values that a tree predicts for a row: one for each class, or one number."""
        return max(1, len(self.classes))

    @property
    def scale(self) -> tuple[float, float]:
        """Offset and step of the whole numbers."""
        return self.offset, self.step

    def steps(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the whole numbers that store these targets."""
        return np.rint((values - self.offset) / self.step)

    def values(self, numbers: Any) -> Any:
        """Return the targets that are stored as these whole numbers."""
        return self.offset + numbers * self.step


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """Weights of rows: the weight of a row is `step` times its whole number in the store.

    name      column of weights; None if only classes have weights.
    classes   weight of each class, a factor of the weights of its rows; empty if classes have none.
    balanced  True if class weights balance the numbers of rows.
    largest   largest whole number in the store, at most MAX_WEIGHT unless weights are wide.
    total     sum of all whole numbers.
    wide      True for 64 bits. Splits are then found with narrower weights (sampling/bags.py), and the content of nodes
              is counted again with wide weights (oob/weigh.py).
    search    divisor of wide weights: a weight of `search` steps is 1 in the search for splits. 1 if weights are not
              wide.
    searched  sum over the rows of the weights that the search uses; the total if weights are not wide.
    """

    name: str | None
    classes: tuple[float, ...]
    balanced: bool
    step: float
    largest: int
    total: int
    wide: bool
    search: float
    searched: int

    @property
    def uneven(self) -> bool:
        """True if a class weighs more than twice as much as another; classes of weight 0 have no rows."""
        weights = [weight for weight in self.classes if weight > 0.0]
        return bool(weights) and max(weights) > 2.0 * min(weights)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The column of groups.

    dtype    name of its Polars type.
    groups   number of groups.
    largest  rows of the largest group; an upper bound in `Store.of_rows`.
    """

    name: str
    dtype: str
    groups: int
    largest: int


@dataclass(frozen=True)
class DataSpec:
    """All columns used in training.

    rows           rows of the store.
    dropped        rows left out, because their target was missing or their weight was 0.
    missing_words  texts that meant missing values in CSV files, in addition to the usual ones.
    separator      character between the values in CSV files, if the user named one.
    """

    rows: int
    dropped: int
    features: tuple[FeatureSpec, ...]
    target: TargetSpec
    group: GroupSpec | None = None
    weight: WeightSpec | None = None
    missing_words: tuple[str, ...] = ()
    separator: str | None = None

    def to_json(self) -> str:
        return self._json

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all rows, in steps; the number of rows if they have no weights."""
        return self.rows if self.weight is None else self.weight.total

    @property
    def weight_unit(self) -> float:
        """Factor of weights that makes their mean over all rows 1."""
        return self.rows / self.total_weight

    @property
    def searched_weight(self) -> float:
        """Mean weight of a row in the search for splits."""
        return 1.0 if self.weight is None else self.weight.searched / self.rows

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in their order."""
        return [feature.name for feature in self.features]

    @cached_property
    def fills(self) -> NDArray[np.float64] | None:
        """Value of missing cells of each feature, [features]; None unless all features have one."""
        fills = [feature.fill for feature in self.features]
        return None if None in fills else np.array(fills)

    @cached_property
    def has_narrow_fills(self) -> bool:
        """True if all `fills` are exact in float32, or there are none."""
        with np.errstate(over="ignore"):  # values too large for float32 become infinite and differ
            return self.fills is None or bool((self.fills.astype(np.float32) == self.fills).all())

    @property
    def wide_weights(self) -> bool:
        """True if weights of rows and nodes have 64 bits."""
        return self.weight is not None and self.weight.wide

    @cached_property
    def _json(self) -> str:
        """JSON text. Cached, as every file of a forest contains it; it takes a millisecond per thousand features."""
        return json.dumps(self, default=_entries, sort_keys=True)

    @classmethod
    def from_entries(cls, raw: Any) -> DataSpec:
        """Return the dataspec of parsed JSON. Raises FormatError for anything but the output of `to_json`."""
        try:
            spec = _record(
                cls,
                raw,
                missing_words=tuple(raw.get("missing_words", ())),
                features=tuple(_record(FeatureSpec, entry) for entry in raw["features"]),
                target=_record(
                    TargetSpec,
                    raw["target"],
                    **{name: tuple(raw["target"][name]) for name in ("classes", "categories")},
                ),
                group=None if raw["group"] is None else _record(GroupSpec, raw["group"]),
                weight=None
                if raw["weight"] is None
                else _record(WeightSpec, raw["weight"], classes=tuple(raw["weight"]["classes"])),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"the dataspec cannot be read ({error})") from error
        _check(spec)
        return spec


def json_object(entries: Mapping[str, str]) -> str:
    """Return a JSON object of entries that are JSON texts, one per line, sorted by name.

    A wide dataspec is thus converted to text once, and not for every file that contains it.
    """
    return "{\n" + ",\n".join(f' "{name}": {entries[name]}' for name in sorted(entries)) + "\n}"


def code_width(codes: int) -> int:
    """Return the bytes of the narrowest unsigned integer that holds the codes 0 .. codes - 1."""
    return 1 if codes <= 1 << 8 else 2 if codes <= 1 << 16 else 4


def max_number(rows: int, *, weighted: bool) -> int:
    """Return the bound of the whole numbers q that store regression targets, for this many rows: |q| is smaller."""
    weight = min(rows * MAX_WEIGHT, MAX_BAG_WEIGHT) if weighted else rows
    return min(1 << _NUMBER_BITS, (1 << _SUM_BITS) // weight)


def max_bag_weight(spec: DataSpec) -> int:
    """Return the largest weight of a bag with which the sums of weights and of targets in kernels are exact."""
    if not spec.target.is_regression:
        return MAX_BAG_WEIGHT
    return min(MAX_BAG_WEIGHT, (1 << _MAX_SUM_BITS) // max_number(spec.rows, weighted=spec.weight is not None))


def _entries(record: Any) -> dict[str, Any]:
    """Return the JSON entries of a spec. dataclasses.asdict takes several times as long, because it copies."""
    fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {name: value for name, value in fields.items() if name not in _USUAL or value != _USUAL[name]}


def _record(kind: type[_Record], raw: dict[str, Any], **made: Any) -> _Record:
    """Return an object of the class `kind` from JSON entries. Raises KeyError for unknown or missing entries.

    made  values that replace entries.
    """
    raw = {name: value for name, value in _USUAL.items() if name in kind.__dataclass_fields__} | raw  # type: ignore[attr-defined]
    if raw.keys() != kind.__dataclass_fields__.keys():  # type: ignore[attr-defined]
        raise KeyError(f"unknown or missing entries of {kind.__name__}")
    return kind(**{**raw, **made})


def _check(spec: DataSpec) -> None:
    try:
        sound = (
            is_integer(spec.rows, 1)
            and is_integer(spec.dropped, 0)
            and _sound_features(spec)
            and _sound_target(spec.target)
            and (spec.group is None or _sound_group(spec.group, spec.rows))
            and (spec.weight is None or _sound_weight(spec.weight, spec))
            and all(isinstance(word, str) for word in spec.missing_words)
            and (spec.separator is None or (isinstance(spec.separator, str) and len(spec.separator.encode()) == 1))
        )
    except TypeError:  # a value that cannot be compared or hashed
        sound = False
    if not sound:
        raise FormatError("the dataspec contradicts itself")


def _sound_features(spec: DataSpec) -> bool:
    names = spec.feature_names
    slots = {1: 0, 2: 0, 4: 0}
    for feature in spec.features:
        typed = all(isinstance(text, str) for text in (feature.name, feature.dtype, feature.table_column))
        typed = typed and feature.kind in KINDS and isinstance(feature.missing, bool)
        typed = typed and (feature.fill is None or _is_finite(feature.fill))
        typed = typed and (_is_finite(feature.other) if feature.has_level_values else feature.other is None)
        if not typed or not is_integer(feature.codes, 1, MAX_CODES):
            return False
        if type(feature.width) is not int or type(feature.slot) is not int:
            return False
        # The features of one width have the slots 0, 1, 2 ... in their order.
        if feature.width != code_width(feature.codes) or feature.slot != slots[feature.width]:
            return False
        slots[feature.width] += 1
    return 0 < len(names) <= MAX_FEATURES and len({*names, spec.target.name}) == len(names) + 1


def _is_finite(number: object) -> bool:
    return isinstance(number, float) and math.isfinite(number)


def _sound_target(target: TargetSpec) -> bool:
    classes = target.classes
    typed = all(type(label) is type(classes[0]) and isinstance(label, bool | int | float | str) for label in classes)
    finite = all(math.isfinite(label) for label in classes if isinstance(label, float))
    if not all(isinstance(text, str) for text in (target.name, target.dtype)) or target.task not in get_args(Task):
        return False
    if not _sound_categories(target):
        return False
    scale = target.scale
    finite_scale = all(isinstance(number, float) and math.isfinite(number) for number in scale)
    if not finite_scale or not isinstance(target.exact, bool):
        return False
    if target.is_regression:
        return not classes and target.step > 0.0 and math.frexp(target.step)[0] == 0.5
    return (
        scale == (0.0, 1.0)
        and target.exact
        and 1 <= len(classes) <= MAX_CLASSES
        and typed
        and finite
        and all(left < right for left, right in pairwise(classes))  # type: ignore[operator]
    )


def _sound_categories(target: TargetSpec) -> bool:
    categories = target.categories
    if not all(isinstance(category, str) for category in categories) or len(set(categories)) < len(categories):
        return False
    if target.dtype == "Enum":
        return set(target.classes) <= set(categories)
    if target.dtype == "Categorical":
        return not categories or (len(categories) == 3 and categories[2] in ("UInt8", "UInt16", "UInt32"))
    return not categories


def _sound_group(group: GroupSpec, rows: int) -> bool:
    counts = all(is_integer(count, 1, rows) for count in (group.groups, group.largest))
    return isinstance(group.name, str) and isinstance(group.dtype, str) and counts


def _sound_weight(weight: WeightSpec, spec: DataSpec) -> bool:
    named = weight.name is None or isinstance(weight.name, str)
    factors = [*weight.classes, weight.step, weight.search]
    in_range = all(isinstance(number, float) and 0.0 <= number < math.inf for number in factors) and weight.step > 0.0
    counts = all(is_integer(count, 0) for count in (weight.largest, weight.total, weight.searched))
    if not (named and in_range and counts and isinstance(weight.balanced, bool) and isinstance(weight.wide, bool)):
        return False
    if weight.wide:
        sound_search = weight.search >= 1.0 and spec.rows <= weight.searched <= MAX_BAG_WEIGHT
    else:
        sound_search = weight.search == 1.0 and weight.searched == weight.total
    return (
        sound_search
        and len(weight.classes) in (0, len(spec.target.classes))
        and 1 <= weight.largest <= (MAX_WIDE_TOTAL if weight.wide else MAX_WEIGHT)
        and spec.rows <= weight.total <= (MAX_WIDE_TOTAL if weight.wide else spec.rows * weight.largest)
        and weight.largest <= weight.total
    )
