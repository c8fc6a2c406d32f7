"""Whether a table has the features of a forest, and where they are in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import polars as pl

from bigforest.columns import Leaf, find_leaves, is_feature_type, is_text_type, kind_of
from bigforest.encode.dataspec import DataSpec, FeatureSpec
from bigforest.errors import DataError


def check_schema(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int] | None = None) -> None:
    """Raise DataError unless the features are columns, or in nested columns, of the kind they were in training.

    used  positions in the dataspec of the features that matter; all when None.
    """
    features = spec.features if used is None else [spec.features[position] for position in used]
    found = feature_leaves(schema, spec, range(len(spec.features)) if used is None else used)
    missing = [feature.name for feature in features if feature.name not in found]
    if missing:
        near = get_close_matches(missing[0], list(schema), n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise DataError(f"the data lacks {_listed(missing)}, which the forest was trained on{hint}")
    wrong = [
        f"{feature.name!r} is {found[feature.name].dtype}, in training it was {feature.dtype}"
        for feature in features
        if not _is_comparable(found[feature.name].dtype, feature)
    ]
    if wrong:
        raise DataError(f"feature {'; '.join(wrong[:5])}: convert to what it was in training")


def feature_leaves(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int]) -> dict[str, Leaf]:
    """Where the features `used` (positions in the dataspec) are in a table, by name; without those that are not."""
    features = [spec.features[position] for position in used]
    return find_leaves(schema, [(feature.name, feature.column) for feature in features])


def _is_comparable(dtype: pl.DataType, feature: FeatureSpec) -> bool:
    """Whether values of this type can be compared with those of training; a column without any value always can."""
    if dtype == pl.Null:
        return True
    if not (is_feature_type(dtype) or is_text_type(dtype)) or kind_of(dtype).family != kind_of(feature.dtype).family:
        return False
    # Booleans are no levels of whole numbers, nor these of booleans.
    return feature.kind == "numeric" or (dtype == pl.Boolean) == (feature.dtype == "Boolean")


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    noun = "feature" if len(names) == 1 else "features"
    return f"{noun} {', '.join(map(repr, names[:most]))}{rest}"
