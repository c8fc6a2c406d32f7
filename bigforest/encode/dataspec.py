"""The dataspec: what each column of a table is. It travels with the store and with the forest."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from bigforest.errors import FormatError

MAX_CLASSES = 65_535
MAX_FEATURES = 2**31 - 1
MAX_CODES = 2**32

Label = bool | int | float | str


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature.

    codes is their number (ranks run from 0 to codes - 1, in the order of the values);
    width is the bytes of a code (1, 2 or 4); slot is the feature's row in the store's matrix of that width.
    kind is "numeric"; categories and missing values will be further kinds and codes.
    column is the column of the table it is in: `a` of the features `a.b` and `a[3]`; else, and if empty, `name`.
    """

    name: str
    kind: str
    dtype: str
    codes: int
    width: int
    slot: int
    column: str = ""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The target column: its Polars type by name and its classes in ascending order; class k has code k."""

    name: str
    dtype: str
    classes: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The column of groups: its Polars type by name, the number of groups, and the rows of the largest."""

    name: str
    dtype: str
    groups: int
    largest: int


@dataclass(frozen=True, slots=True)
class DataSpec:
    """All columns used in training. `rows` excludes the `dropped` rows whose target was null."""

    rows: int
    dropped: int
    features: tuple[FeatureSpec, ...]
    target: TargetSpec
    group: GroupSpec | None = None

    def to_json(self) -> str:
        """The dataspec as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> DataSpec:
        """Inverse of `to_json`. Raises FormatError on anything that `to_json` cannot have written."""
        try:
            raw: dict[str, Any] = json.loads(text)
            target = TargetSpec(**{**raw["target"], "classes": tuple(raw["target"]["classes"])})
            features = tuple(FeatureSpec(**entry) for entry in raw["features"])
            group = None if raw.get("group") is None else GroupSpec(**raw["group"])
            spec = cls(rows=raw["rows"], dropped=raw["dropped"], features=features, target=target, group=group)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"the dataspec cannot be read ({error}); the file is damaged or not ours") from error
        _check(spec)
        return spec


def code_width(codes: int) -> int:
    """Bytes of the narrowest unsigned integer that holds the codes 0 .. codes - 1."""
    return 1 if codes <= 1 << 8 else 2 if codes <= 1 << 16 else 4


def _check(spec: DataSpec) -> None:
    try:
        sound = (
            _is_count(spec.rows)
            and _is_count(spec.dropped)
            and _sound_features(spec)
            and _sound_target(spec.target)
            and (spec.group is None or _sound_group(spec.group, spec.rows))
        )
    except TypeError:  # something that cannot be compared or hashed
        sound = False
    if not sound:
        raise FormatError("the dataspec contradicts itself; the file is damaged or not ours")


def _sound_features(spec: DataSpec) -> bool:
    names = [feature.name for feature in spec.features]
    slots = {1: 0, 2: 0, 4: 0}
    for feature in spec.features:
        typed = isinstance(feature.name, str) and isinstance(feature.dtype, str) and feature.kind == "numeric"
        typed = typed and isinstance(feature.column, str)
        if not typed or not _is_count(feature.codes) or not 1 <= feature.codes <= MAX_CODES:
            return False
        # Feature order is the order within the matrix of a width, too.
        if feature.width != code_width(feature.codes) or feature.slot != slots[feature.width]:
            return False
        slots[feature.width] += 1
    return 0 < len(names) <= MAX_FEATURES and len({*names, spec.target.name}) == len(names) + 1


def _sound_target(target: TargetSpec) -> bool:
    classes = target.classes
    typed = all(type(label) is type(classes[0]) and isinstance(label, bool | int | float | str) for label in classes)
    finite = all(math.isfinite(label) for label in classes if isinstance(label, float))
    return (
        isinstance(target.name, str)
        and isinstance(target.dtype, str)
        and 2 <= len(classes) <= MAX_CLASSES
        and typed
        and finite
        and all(left < right for left, right in pairwise(classes))  # type: ignore[operator]
    )


def _sound_group(group: GroupSpec, rows: int) -> bool:
    counts = all(_is_count(count) and 1 <= count <= rows for count in (group.groups, group.largest))
    return isinstance(group.name, str) and isinstance(group.dtype, str) and counts


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
