"""Lists of varying length, one per node: the terms of oblique nodes, the levels of nodes on categories.

In memory they are NamedTuples of `start`, int64 [nodes + 1], and arrays of entries, of which node i has
start[i]:start[i + 1]. In the forest table they are columns of lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import arrow_array, as_numpy
from bigforest.forest.format.files import Header
from bigforest.kernels.common.layout import LevelLists, Terms
from bigforest.schema.dataspec import DataSpec

Lists = TypeVar("Lists", Terms, LevelLists)


def cut_lists(lists: Lists, begin: int, end: int) -> Lists:
    """The lists of nodes `begin` to before `end`."""
    first, last = lists.start[begin], lists.start[end]
    return _made(lists, lists.start[begin : end + 1] - first, [entries[first:last] for entries in lists[1:]])


def join_lists(parts: Sequence[Lists | None], sizes: Sequence[int]) -> Lists | None:
    """The lists of nodes that follow each other, of which each part has this many; None without any."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    start = np.zeros(sum(sizes) + 1, np.int64)
    end = 0
    for part, size in zip(parts, sizes, strict=True):
        begin, end = end, end + size
        np.add(0 if part is None else part.start[1:], start[begin], out=start[begin + 1 : end + 1])
    return _made(found[0], start, list(map(np.concatenate, zip(*(part[1:] for part in found), strict=True))))


def join_fields(pieces: Sequence[Any], sizes: Sequence[int], names: Iterable[str]) -> dict[str, Any]:
    """The named arrays and lists of nodes that follow each other, of which each piece has this many.

    Pieces may lack levels or terms that others have; what none has is None.
    """
    found: dict[str, Any] = {}
    for name in names:
        own = [getattr(piece, name) for piece in pieces]
        if name in ("levels", "terms"):
            found[name] = join_lists(own, sizes)
        else:
            found[name] = None if own[0] is None else np.concatenate(own)
    return found


def cut_entries(start: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Consecutive lists, from the first to before the second number, that have at most `most` entries together, or one
    list; start: where the entries of each begin, and those of the last end."""
    begin, size = 0, start.size - 1
    while begin < size:
        end = max(begin + 1, int(start.searchsorted(start[begin] + most, side="right")) - 1)
        yield begin, end
        begin = end


def list_of_nodes(lists: Lists) -> Lists:
    """The lists of the nodes that have one, and of these alone."""
    own = np.append(0, np.flatnonzero(np.diff(lists.start)) + 1)
    return lists._replace(start=lists.start[own])


def lists_of_some(lists: Lists, nodes: NDArray[np.int64], keeping: NDArray[np.bool_]) -> Lists | None:
    """The lists of these nodes, empty but for those that are `keeping` theirs, bool [all nodes]; None if all are."""
    length = np.diff(lists.start)
    start = np.append(0, np.cumsum((length * keeping)[nodes]))
    entries = np.repeat(keeping, length)
    return _made(lists, start, [array[entries] for array in lists[1:]]) if start[-1] else None


def _made(like: Lists, start: NDArray[np.int64], entries: list[NDArray[Any]]) -> Lists:
    kind: Any = type(like)
    return kind(start, *entries)


def levels_column(
    lists: LevelLists | None, valid: pa.Buffer, feature: NDArray[np.int32], header: Header, kind: pa.DataType
) -> Any:
    """The column `levels`, of the Arrow type `kind`, of nodes on these features; a missing level is null.

    valid  bitmap of the nodes that have levels.
    """
    if lists is None:
        return pa.nulls(feature.size, kind)
    spec, levels = header.spec, header.levels
    assert levels is not None
    of = np.repeat(feature, np.diff(lists.start))
    missing = np.array([known.missing for known in spec.features])[of]
    place = levels.offsets[of] + lists.code - missing
    words = levels.words.take(arrow_array(place, mask=missing & (lists.code == 0)))
    start = pa.py_buffer(lists.start.astype(np.int32))
    return pa.Array.from_buffers(kind, feature.size, [valid, start], children=[words])


def check_levels(
    column: Any, feature: NDArray[np.int32], header: Header, require: Callable[[object, str], None]
) -> LevelLists:
    """The checked lists of a column whose nulls are right, of nodes on these features; else `require` raises.

    column  lists of text, read as a dictionary: each word is looked up once for all nodes of a feature.
    """
    spec, levels = header.spec, header.levels
    assert levels is not None
    start = _starts(column, require, "a node on a category has no levels")
    words = column.flatten()
    missing = len(words.dictionary)  # stands for null
    # Each word is looked up once per feature, whose pairs are consecutive.
    pair = np.repeat(feature.astype(np.int64), np.diff(start)) * (missing + 1) + as_numpy(words.indices, missing)
    pairs, place = np.unique(pair, return_inverse=True)
    of, word = np.divmod(pairs, missing + 1)
    code = np.zeros(pairs.size, np.uint32)
    for number in dict.fromkeys(of.tolist()):
        begin, end = np.searchsorted(of, [number, number + 1])
        if word[end - 1] == missing:
            end -= 1
            require(
                spec.features[number].missing,
                "a node lists a missing level of a category that is never missing",
            )
        own = levels.words[levels.offsets[number] : levels.offsets[number + 1]]
        found = pc.index_in(words.dictionary.take(arrow_array(word[begin:end])), value_set=own)
        require(found.null_count == 0, "a node has a level that its category does not")
        code[begin:end] = as_numpy(found) + int(spec.features[number].missing)
    code = code[place]
    require(_ascend(start, code), "the levels of a node are not ascending, each once")
    return LevelLists(start, code)


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
    start = _starts(column, require, "an oblique node has no terms")
    terms = column.flatten()
    names, weights = terms.flatten()
    require(names.null_count == 0 and weights.null_count == 0, "a term of an oblique node lacks its feature or weight")
    place = pc.index_in(names, arrow_array(spec.feature_names, pa.string()))
    require(place.null_count == 0, "an oblique node has a feature that the dataspec does not have")
    feature, weight = as_numpy(place).astype(np.int32), as_numpy(weights)
    require(_ascend(start, feature), "the terms of an oblique node are not in the order of the features, each once")
    require(np.isfinite(weight).all() and (weight != 0.0).all(), "a weight of an oblique node is not finite, or is 0")
    return Terms(start, feature, weight)


def _starts(column: Any, require: Callable[[object, str], None], problem: str) -> NDArray[np.int64]:
    """Where the entries of each list begin, and those of the last end; `require` raises where one is empty."""
    length = as_numpy(pc.list_value_length(column), 0)
    require((length[as_numpy(column.is_valid())] > 0).all(), problem)
    return np.concatenate([[0], np.cumsum(length, dtype=np.int64)])


def features_of(names: Any, terms: Any, spec: DataSpec) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The features that inner nodes look at, node after node, and how many each looks at.

    names, terms  the columns `feature` and `terms` of inner nodes, trusted.
    """
    known = arrow_array(spec.feature_names, pa.string())
    place = as_numpy(pc.index_in(names.dictionary.cast(pa.string()), known))
    axis = as_numpy(names.is_valid())
    count = np.where(axis, 1, as_numpy(pc.list_value_length(terms), 0))
    feature = np.empty(count.sum(), np.int64)
    of_axis = np.repeat(axis, count)
    feature[of_axis] = place[as_numpy(names.indices.drop_null())]
    feature[~of_axis] = as_numpy(pc.index_in(terms.flatten().field("feature"), known))
    return feature, count


def _ascend(start: NDArray[np.int64], entries: NDArray[Any]) -> bool:
    """Whether the entries of each list ascend, each once."""
    inside = np.ones(max(entries.size - 1, 0), np.bool_)
    inside[start[(start > 0) & (start < entries.size)] - 1] = False  # neighbours of two nodes
    return bool((np.diff(entries.astype(np.int64))[inside] > 0).all())
