"""Whether a table has the features of a forest, and their positions in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bigforest.common.errors import DataError, listed
from bigforest.forest.load.row_batch import MAX_NARROW_INTEGER
from bigforest.schema.columns import Leaf, is_feature_type, is_text_type, kind_of, locate_columns
from bigforest.schema.dataspec import DataSpec
from bigforest.source import Source, open_source

# Types whose values are all float32.
NARROW = frozenset({pl.Boolean, pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.Float16, pl.Float32, pl.Null})


class FeatureMap(NamedTuple):
    """Where the features of a forest are in the tables of one schema: looked for once, and passed on.

    leaves  of the features that matter, by position in the dataspec.
    """

    spec: DataSpec
    leaves: dict[int, Leaf]

    def columns(self, used: Iterable[int]) -> list[str]:
        """The columns that have the features `used`."""
        return list(dict.fromkeys(self.leaves[int(position)].column for position in used))

    def narrow(self) -> bool:
        """Whether all values are float32 by their types, as `Reader` reads them, and those for missing cells too."""
        features = self.spec.features
        return self.spec.has_narrow_fills and all(
            features[position].has_level_values or features[position].codes <= MAX_NARROW_INTEGER
            if features[position].kind == "category"
            else type(leaf.dtype) in NARROW
            for position, leaf in self.leaves.items()
        )


def open_rows(data: Any, spec: DataSpec, *, scratch: Path, memory: int | None = None) -> Source:
    """`open_source` of a table for a forest, which knows its columns of numbers and of text and what means a missing
    value."""
    numbers = {feature.home for feature in spec.features if feature.kind == "numeric"}
    numbers |= {spec.target.name} if spec.target.is_regression else set()
    types = {feature.name: feature.dtype for feature in spec.features} | {spec.target.name: spec.target.dtype}
    texts = {name for name, dtype in types.items() if kind_of(dtype).family == "text"}
    return open_source(data, scratch=scratch, memory=memory, numbers=numbers, missing=spec.missing_words, texts=texts)


def check_schema(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int] | None = None) -> FeatureMap:
    """Raise DataError unless the features are columns, or in nested columns, of the kind they were in training.

    used  positions in the dataspec of the features that matter; all when None.
    """
    places = range(len(spec.features)) if used is None else [int(place) for place in used]
    features = [spec.features[place] for place in places]
    found = locate_columns(schema, [(feature.name, feature.home) for feature in features])
    missing = [feature.name for feature, leaf in zip(features, found, strict=True) if leaf is None]
    if missing:
        near = _alike(missing[0], set(schema) - {*spec.feature_names, spec.target.name})
        they = "it" if len(missing) == 1 else "them"
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; give a table that has {they}"
        if missing[0] in schema:  # nested, as it was not in training
            hint = f"; its {missing[0]!r} is {schema[missing[0]]}"
        noun = "feature" if len(missing) == 1 else "features"
        names = listed(list(map(repr, missing)), 5)
        raise DataError(f"the data lacks {noun} {names}, which the forest was trained on{hint}")
    leaves = {place: leaf for place, leaf in zip(places, found, strict=True) if leaf is not None}
    # Wide tables have few pairs of types, so that each is looked at once.
    pairs = {(leaf.dtype, spec.features[place].kind, spec.features[place].dtype) for place, leaf in leaves.items()}
    odd = {pair for pair in pairs if not _is_comparable(*pair)}
    if odd:
        wrong = [
            f"{feature.name!r} is {leaf.dtype}, in training it was {feature.dtype}"
            for feature, leaf in zip(features, leaves.values(), strict=True)
            if (leaf.dtype, feature.kind, feature.dtype) in odd
        ]
        raise DataError(f"feature {'; '.join(wrong[:5])}: convert to what it was in training")
    return FeatureMap(spec, leaves)


def _alike(name: str, columns: Collection[str]) -> list[str]:
    """The columns whose names differ in upper and lower case alone, otherwise those that look like it."""
    same = sorted(column for column in columns if column.lower() == name.lower())
    return same or get_close_matches(name, sorted(columns), n=3, cutoff=0.75)


def _is_comparable(dtype: pl.DataType, kind: str, trained: str) -> bool:
    """Whether values of this type can be compared with those of training; a column without any value always can, and so
    can any column with one that had no values in training, by which no node splits."""
    if dtype == pl.Null or trained == "Null":
        return True
    if not (is_feature_type(dtype) or is_text_type(dtype)) or kind_of(dtype).family != kind_of(trained).family:
        return False
    # Booleans are no levels of whole numbers, nor these of booleans.
    return kind == "numeric" or (dtype == pl.Boolean) == (trained == "Boolean")
