"""The directions of oblique nodes as a column of the forest table, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import arrow_array, as_numpy
from bigforest.kernels.common.layout import Terms
from bigforest.schema.dataspec import DataSpec


def terms_column(terms: Terms | None, nodes: int, names: Sequence[str], kind: pa.DataType) -> Any:
    """The column `terms`, of the Arrow type `kind`, of this many nodes; features are called `names`."""
    if terms is None:
        return pa.nulls(nodes, kind)
    words = arrow_array(names, pa.string()).take(arrow_array(terms.feature))
    pairs = pa.StructArray.from_arrays([words, arrow_array(terms.weight)], fields=list(kind.value_type))
    empty = arrow_array(np.diff(terms.start) == 0)
    return pa.ListArray.from_arrays(arrow_array(terms.start.astype(np.int32)), pairs, type=kind, mask=empty)


def check_terms(column: Any, spec: DataSpec, require: Callable[[object, str], None]) -> Terms:
    """The checked terms of a column whose nulls are right; `require` raises where something is not as it must be."""
    length = as_numpy(pc.list_value_length(column), 0)
    start = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])
    require((length[as_numpy(column.is_valid())] > 0).all(), "an oblique node has no terms")
    terms = column.flatten()
    names, weights = terms.flatten()
    require(names.null_count == 0 and weights.null_count == 0, "a term of an oblique node lacks its feature or weight")
    place = pc.index_in(names, arrow_array([feature.name for feature in spec.features], pa.string()))
    require(place.null_count == 0, "an oblique node has a feature that the dataspec does not have")
    feature, weight = as_numpy(place).astype(np.int32), as_numpy(weights)
    inside = np.ones(max(feature.size - 1, 0), np.bool_)
    inside[start[(start > 0) & (start < feature.size)] - 1] = False  # neighbours of two nodes
    require(
        (np.diff(feature)[inside] > 0).all(),
        "the terms of an oblique node are not in the order of the features, each once",
    )
    require(np.isfinite(weight).all() and (weight != 0.0).all(), "a weight of an oblique node is not finite, or is 0")
    return Terms(start, feature, weight)


def features_of(names: Any, terms: Any, spec: DataSpec) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The features that inner nodes look at, node after node, and how many each looks at.

    names, terms  the columns `feature` and `terms` of inner nodes, trusted.
    """
    known = arrow_array([feature.name for feature in spec.features], pa.string())
    place = as_numpy(pc.index_in(names.dictionary.cast(pa.string()), known))
    axis = as_numpy(names.is_valid())
    count = np.where(axis, 1, as_numpy(pc.list_value_length(terms), 0))
    feature = np.empty(count.sum(), np.int64)
    of_axis = np.repeat(axis, count)
    feature[of_axis] = place[as_numpy(names.indices.drop_null())]
    feature[~of_axis] = as_numpy(pc.index_in(terms.flatten().field("feature"), known))
    return feature, count
