"""Send one row on from one node, with rows in row-major order and single values of a row possibly replaced.

Explanations route the same row many times with other values, one row at a time. Tiles (kernels/predict/flat_tree.py)
are for many rows that are routed together. Nodes have the same format in both. Missing numbers are NaN, as in tiles.
The columns are the used features and, last, a column of zeros, to which the padding of directions refers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.predict.flat_tree import MORE, TERMS, Directions, LevelSets, NodeLayout, is_listed

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_BLOCK = np.uint64(2 * TERMS)
_LAST = np.uint64(2 * TERMS - 2)
# Result of `term_column` for a term of weight 0 that fills a block.
PADDING = np.uint64(2**64 - 1)
# Group of the features that keep their values (Replaced).
NO_GROUP = np.int64(-1)


class WalkedTrees(NamedTuple):
    """Trees as kernels/predict/flat_tree.py describes them: the fields of RouteInputs that do not depend on rows."""

    layout: NodeLayout
    directions: Directions | None
    sets: LevelSets | None


class Replaced(NamedTuple):
    """Rows in which the features of a group have other values.

    values  [rows, columns]
    drawn   [drawn columns, drawn rows], the other values
    column  int32 [columns], the row of `drawn` with the other values of a feature; -1 if it keeps its values
    group   int32 [columns], the group of a feature; NO_GROUP if it keeps its values
    """

    values: NDArray[Any]
    drawn: NDArray[Any]
    column: NDArray[np.int32]
    group: NDArray[np.int32]


@inlined
def link_of(layout, node):
    """Return the link to the children of a node; 0 in a leaf."""
    return np.uint64(layout.links[node + node + _ONE])


@inlined
def right_of(layout, node):
    """Return the right child of an inner node; the left one is the next node."""
    return node + (link_of(layout, node) & (layout.default - _ONE))


@inlined
def table_value(values, row, other, group, column):
    """Return the value of a row in the table. `other` and `group` are not used; see `replaced_value`."""
    return values[row, column]


@inlined
def replaced_value(state, row, other, group, column):
    """Return the value of a row: from column `other` of state.drawn for features of the group, else as stored.

    state  Replaced
    """
    if np.int64(state.group[column]) == group:
        return state.drawn[np.uint64(state.column[column]), other]
    return state.values[row, column]


@inlined
def row_goes_left(look, state, row, other, group, trees, directions, sets, node):
    """Return True if a row goes left at an inner node.

    look              `table_value` with the table as `state`, or `replaced_value`
    other, group      arguments of `look`
    directions, sets  fields of `trees`, passed as arguments so that None is compiled separately
    """
    if sets is None:
        return _is_up_to(look, state, row, other, group, trees.layout, directions, node)
    else:  # noqa: RET505, only this form is dropped when sets is None
        layout = trees.layout
        link = link_of(layout, node)
        category = (link >> layout.shift) - sets.features  # column of a category; wraps round for other features
        if category >= sets.features:
            return _is_up_to(look, state, row, other, group, layout, directions, node)
        code = np.uint64(look(state, row, other, group, category))
        listed = is_listed(sets, np.uint64(layout.links[node + node]), code)
        return listed != ((link & layout.default) != _ZERO)


@inlined
def _is_up_to(look, state, row, other, group, layout, directions, node):
    """Return True if a row goes left at a node that compares a value, or a projection, with its threshold."""
    link = link_of(layout, node)
    column = link >> layout.shift
    if directions is None:
        value = look(state, row, other, group, column)
        return (value <= layout.thresholds[node + node]) | ((value != value) & ((link & layout.default) != _ZERO))
    else:  # noqa: RET505, only this form is dropped when directions is None
        projection = 0.0
        word = column * _BLOCK
        while True:
            for t in range(np.uint64(TERMS)):
                term = word + t + t
                value = look(state, row, other, group, directions.at[term] & ~MORE)
                projection += directions.weight[term + _ONE] * np.float64(value)
            if directions.at[word + _LAST] < MORE:
                break
            word += _BLOCK
        return projection <= layout.thresholds[node + node]


@inlined
def node_terms(layout, directions, sets, node):
    """Return the number of terms of an inner node, including padding (`term_column`)."""
    if directions is None:
        return _ONE
    else:  # noqa: RET505, only this form is dropped when directions is None
        column = link_of(layout, node) >> layout.shift
        if sets is not None and column - sets.features < sets.features:
            return _ONE
        word, terms = column * _BLOCK, np.uint64(TERMS)
        while directions.at[word + _LAST] >= MORE:
            word += _BLOCK
            terms += np.uint64(TERMS)
        return terms


@inlined
def term_column(layout, directions, sets, node, term):
    """Return the column of the feature of a term of an inner node; PADDING if the term has weight 0 and fills a block.

    term  uint64, number of the term, less than `node_terms`
    """
    column = link_of(layout, node) >> layout.shift
    if sets is not None and column - sets.features < sets.features:
        return column - sets.features
    if directions is not None:
        at = column * _BLOCK + term + term
        return PADDING if directions.weight[at + _ONE] == 0.0 else directions.at[at] & ~MORE
    return column


@inlined
def count_terms(layout, directions, sets, node):
    """Return the number of terms of an inner node without padding, float64."""
    count = 0.0
    for t in range(node_terms(layout, directions, sets, node)):
        count += 1.0 if term_column(layout, directions, sets, node, t) != PADDING else 0.0
    return count


@inlined
def leaf_from(look, state, row, other, group, trees, directions, sets, node):
    """Return the leaf that a row reaches from `node`; arguments as in `row_goes_left`."""
    while link_of(trees.layout, node) != _ZERO:
        if row_goes_left(look, state, row, other, group, trees, directions, sets, node):
            node = node + _ONE
        else:
            node = right_of(trees.layout, node)
    return node


@kernel
def walk_rows(trees, root, values, rows, leaves):
    """Write the position, among the nodes, of the leaf in which each row ends.

    root    uint64, position of the root
    values  [all rows, columns]
    rows    uint32 [rows]; leaves: uint32 [rows], set

    Cost: a visit per row and level. Oracle: tests/naive/predict.py find_leaf.
    """
    for i in range(np.uint64(rows.size)):
        row = np.uint64(rows[i])
        leaf = leaf_from(
            table_value, values, row, _ZERO, NO_GROUP, trees, trees.directions, trees.sets, np.uint64(root)
        )
        leaves[i] = np.uint32(leaf)


@kernel
def node_answers(layout, begin, end, mixed, weight, answer):
    """Write the value of every node of a tree: a leaf has its votes, an inner node the mean of its leaves over the bag.

    begin, end  uint64, range of the tree among the nodes
    mixed       float64 [ballots, classes], ballots with several classes (flat_tree.py)
    weight      float64 [nodes of the tree], weight of the bag rows in each node
    answer      float64 [nodes of the tree, classes], set; for regression [nodes, 1]
    """
    classes = np.uint64(answer.shape[1])
    for back in range(np.uint64(end - begin)):
        node = np.uint64(end - begin) - _ONE - back
        at = begin + node
        if link_of(layout, at) == _ZERO:
            ballot = np.uint64(layout.links[at + at]) & layout.ballot
            for k in range(classes):
                if ballot < classes:
                    answer[node, k] = 1.0 if k == ballot else 0.0
                else:
                    answer[node, k] = mixed[ballot - classes, k]
        else:
            left, right = node + _ONE, right_of(layout, at) - begin
            share = weight[left] / (weight[left] + weight[right])
            for k in range(classes):
                answer[node, k] = answer[right, k] + share * (answer[left, k] - answer[right, k])
