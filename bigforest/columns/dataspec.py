"""The dataspec: what each column of a table is. It is stored with the store and with the forest."""

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
# Weights of rows have this many bits, so that a row may be in a bag 64 times: the product fits the 16 bits of an item.
MOST_WEIGHT = 1023
# A bag of weighted rows weighs no more than this.
MOST_BAG_WEIGHT = 2**31 - 1
# Largest sum of all wide weights of a table; a bag may weigh 32 times that within 63 bits.
MOST_WIDE_TOTAL = 2**58
# Largest target of a regression: squares of larger ones would not leave room for sums of them.
LARGEST_NUMBER = 2.0**500
# Bits of a target of a regression as a whole number, and of it times the weight of a bag.
_NUMBER_BITS = 52
_SUM_BITS = 61

KINDS = ("numeric", "category")

# Entries that are left out of JSON where they have this value.
_USUAL = {"missing_words": (), "fill": None, "other": None}

Label = bool | int | float | str

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature.

    codes is their number. They are ranks, in the order of the values or levels, from 0, or, where `missing` says that
    some rows have no value, from 1: code 0 is then theirs.
    width is the bytes of a code (1, 2 or 4); slot is the feature's row in the store's matrix of that width.
    kind is "numeric", or "category": its levels are text, in levels.parquet (bigforest/store/levels.py).
    column is the column of the table it is in: `a` of the features `a.b` and `a[3]`; else, as where it is None, `name`.
    fill is the value of missing cells where trees split on projections (grow/filled_store.py); else None.
    other is, of a category that then has a value for each level (store/levels.py), that of levels that did not occur.
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
        """Whether it is a category by whose levels nodes split; not by values of these."""
        return self.kind == "category" and self.fill is None

    @property
    def has_level_values(self) -> bool:
        """Whether it is a category whose levels have values, by which nodes split."""
        return self.kind == "category" and self.fill is not None

    @property
    def has_gaps(self) -> bool:
        """Whether some rows have no value, and none is put in its place."""
        return self.missing and self.fill is None

    @property
    def is_filled(self) -> bool:
        """Whether some rows have no value, and one is put in its place."""
        return self.missing and self.fill is not None

    @property
    def home(self) -> str:
        """The column of the table it is in."""
        return self.name if self.column is None else self.column

    @property
    def levels(self) -> int:
        """Number of levels of a category, missing not counted."""
        return self.codes - self.missing if self.kind == "category" else 0


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The target column: its Polars type by name, its task and its classes.

    task          "classification" or "regression".
    classes       of a classification, ascending; class k has code k. Dates, times and decimals are the integers that
                  Polars keeps them as (columns/labels.py).
    offset, step  of a regression: its targets are kept as whole numbers q of 64 bits, and offset + q * step is the
                  value, off by step / 2 at most (encode/targets.py). The step is a power of two.
    exact         whether none is off. Where some are, the store has the targets themselves besides.
    categories    of an Enum all of its categories, in its order; of a Categorical, unless they are Polars' global ones,
                  the name, the namespace and the physical type of its pl.Categories; else none.
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
        """Whether the targets are numbers, which have no classes."""
        return self.task == "regression"

    @property
    def answer_width(self) -> int:
        """Numbers that a tree adds to the votes on a row: one for each class, or the number that it predicts."""
        return max(1, len(self.classes))

    @property
    def scale(self) -> tuple[float, float]:
        """Offset and step of its whole numbers."""
        return self.offset, self.step

    def values(self, numbers: Any) -> Any:
        """The targets of whole numbers."""
        return self.offset + numbers * self.step


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """Weights of rows: a row's is `step` times its whole number in the store.

    name      the column of weights; None where only classes have weights.
    classes   the weight of each class, by which those of its rows are multiplied; empty where they have none.
    balanced  whether these make up for the numbers of their rows.
    largest   largest whole number in the store, MOST_WEIGHT at most unless they are wide.
    total     sum of all of them.
    wide      whether they have 64 bits: splits are then found by narrower ones (sampling/bags.py), and what
              nodes hold is counted again by these (oob/weigh.py).
    search    of wide ones, how many steps are one of the narrower ones, else 1.
    searched  sum of the narrower ones of all rows, in one copy each; else the total.
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
        """Whether a class weighs more than twice another; a class without rows, of weight 0, does not count."""
        weights = [weight for weight in self.classes if weight > 0.0]
        return bool(weights) and max(weights) > 2.0 * min(weights)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The column of groups: its Polars type by name, the number of groups, and the rows of the largest."""

    name: str
    dtype: str
    groups: int
    largest: int


@dataclass(frozen=True)
class DataSpec:
    """All columns used in training. `rows` excludes the `dropped` rows whose target was null or whose weight was 0.

    missing_words  texts that meant missing values in CSV files, besides the usual ones.
    """

    rows: int
    dropped: int
    features: tuple[FeatureSpec, ...]
    target: TargetSpec
    group: GroupSpec | None = None
    weight: WeightSpec | None = None
    missing_words: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The dataspec as one line of JSON."""
        return self._json

    @property
    def total_weight(self) -> int:
        """The weight of all rows; their number where each weighs 1."""
        return self.rows if self.weight is None else self.weight.total

    @property
    def weight_unit(self) -> float:
        """The factor of weights that makes their mean over all rows 1."""
        return self.rows / self.total_weight

    @property
    def searched_weight(self) -> float:
        """The mean weight of a row in the search for splits."""
        return 1.0 if self.weight is None else self.weight.searched / self.rows

    @property
    def feature_names(self) -> list[str]:
        """The names of the features, in their order."""
        return [feature.name for feature in self.features]

    @cached_property
    def fills(self) -> NDArray[np.float64] | None:
        """The value of missing cells of each feature, [features]; None unless all have one."""
        fills = [feature.fill for feature in self.features]
        return None if None in fills else np.array(fills)

    @cached_property
    def has_narrow_fills(self) -> bool:
        """Whether these, if there are any, are all float32."""
        with np.errstate(over="ignore"):  # what is too large for float32 differs then
            return self.fills is None or bool((self.fills.astype(np.float32) == self.fills).all())

    @property
    def wide_weights(self) -> bool:
        """Whether rows have weights of 64 bits, and so what nodes hold."""
        return self.weight is not None and self.weight.wide

    @cached_property
    def _json(self) -> str:
        """Cached: every file of a forest contains it, and it takes a millisecond for a thousand features."""
        return json.dumps(self, default=_entries, sort_keys=True)

    @classmethod
    def from_entries(cls, raw: Any) -> DataSpec:
        """The dataspec of what `json.loads` makes of `to_json`. Raises FormatError on anything else."""
        try:
            spec = _record(
                cls,
                {"missing_words": (), **raw},
                missing_words=tuple(raw.get("missing_words", ())),
                features=tuple(
                    _record(FeatureSpec, {"fill": None, "other": None, **entry}) for entry in raw["features"]
                ),
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
    """A JSON object of entries that are texts of JSON already, a line for each, by name: a wide dataspec is made into
    text once and not for every file that has it."""
    return "{\n" + ",\n".join(f' "{name}": {entries[name]}' for name in sorted(entries)) + "\n}"


def code_width(codes: int) -> int:
    """Bytes of the narrowest unsigned integer that holds the codes 0 .. codes - 1."""
    return 1 if codes <= 1 << 8 else 2 if codes <= 1 << 16 else 4


def max_number(rows: int, *, weighted: bool) -> int:
    """The bound on the absolute whole numbers of regression targets, for this many rows."""
    weight = min(rows * MOST_WEIGHT, MOST_BAG_WEIGHT) if weighted else rows
    return min(1 << _NUMBER_BITS, (1 << _SUM_BITS) // weight)


def _entries(record: Any) -> dict[str, Any]:
    """The fields of one of the records above. dataclasses.asdict takes several times as long: it copies."""
    fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
    for name in _USUAL.keys() & fields.keys():
        if fields[name] == _USUAL[name]:
            del fields[name]
    return fields


def _record(kind: type[_Record], raw: dict[str, Any], **made: Any) -> _Record:
    """A record of JSON entries, some of them made into others; KeyError unless they are the fields of its class."""
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
        )
    except TypeError:  # something that cannot be compared or hashed
        sound = False
    if not sound:
        raise FormatError("the dataspec contradicts itself")


def _sound_features(spec: DataSpec) -> bool:
    names = spec.feature_names
    slots = {1: 0, 2: 0, 4: 0}
    for feature in spec.features:
        typed = all(isinstance(text, str) for text in (feature.name, feature.dtype, feature.home))
        typed = typed and feature.kind in KINDS and isinstance(feature.missing, bool)
        typed = typed and (feature.fill is None or _is_finite(feature.fill))
        typed = typed and (_is_finite(feature.other) if feature.has_level_values else feature.other is None)
        if not typed or not is_integer(feature.codes, 1, MAX_CODES):
            return False
        if type(feature.width) is not int or type(feature.slot) is not int:
            return False
        # Feature order is the order within the matrix of a width, too.
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
    known = target.categories
    if not all(isinstance(category, str) for category in known) or len(set(known)) < len(known):
        return False
    if target.dtype == "Enum":
        return set(target.classes) <= set(known)
    if target.dtype == "Categorical":
        return not known or (len(known) == 3 and known[2] in ("UInt8", "UInt16", "UInt32"))
    return not known


def _sound_group(group: GroupSpec, rows: int) -> bool:
    counts = all(is_integer(count, 1, rows) for count in (group.groups, group.largest))
    return isinstance(group.name, str) and isinstance(group.dtype, str) and counts


def _sound_weight(weight: WeightSpec, spec: DataSpec) -> bool:
    named = weight.name is None or isinstance(weight.name, str)
    factors = [*weight.classes, weight.step, weight.search]
    positive = all(isinstance(number, float) and 0.0 <= number < math.inf for number in factors) and weight.step > 0.0
    counts = all(is_integer(count, 0) for count in (weight.largest, weight.total, weight.searched))
    if not (named and positive and counts and isinstance(weight.balanced, bool) and isinstance(weight.wide, bool)):
        return False
    if weight.wide:
        narrow = weight.search >= 1.0 and spec.rows <= weight.searched <= MOST_BAG_WEIGHT
    else:
        narrow = weight.search == 1.0 and weight.searched == weight.total
    return (
        narrow
        and len(weight.classes) in (0, len(spec.target.classes))
        and 1 <= weight.largest <= (MOST_WIDE_TOTAL if weight.wide else MOST_WEIGHT)
        and spec.rows <= weight.total <= (MOST_WIDE_TOTAL if weight.wide else spec.rows * weight.largest)
        and weight.largest <= weight.total
    )
