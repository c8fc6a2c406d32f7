"""Route rows to their leaves; add up the ballots of the leaves (their contributions to the votes) or the weights of the
rows, or record the leaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.limbs import add_product
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.predict.flat_tree import NodeLayout, RouteInputs
from bigforest.kernels.predict.route import RouteScratch, route, route_levels

_ONE = np.uint64(1)


class Votes(NamedTuple):
    """Ballots for several classes, and the votes to which ballots are added.

    mixed  float64 [mixed ballots, classes], see flat_tree.py; for regression [leaves, 1], values of the leaves
    votes  float64 [rows, classes], sums over trees; for regression [rows, 1], sums of the trees' predictions
    """

    mixed: NDArray[np.float64]
    votes: NDArray[np.float64]


class SpreadVotes(NamedTuple):
    """Votes of regression trees, and their spread.

    cast    Votes
    value   float64 [leaves], values of the leaves before shrinkage
    spread  float64 [rows, 3], see `new_spread`
    """

    cast: Votes
    value: NDArray[np.float64]
    spread: NDArray[np.float64]


def new_spread(rows: int) -> NDArray[np.float64]:
    """Allocate the sums from which the spread of the trees' predictions is computed, float64 [rows, 3].

    Columns: the prediction of the first tree (NaN before it), the sum of the differences from it, and the sum of their
    squares. In squares of the predictions themselves, a small spread of large numbers would be lost by rounding.
    """
    spread = np.zeros((rows, 3))
    spread[:, 0] = np.nan
    return spread


class LeafNumbers(NamedTuple):
    """The leaves of regression trees in which rows end, and their votes.

    cast    Votes
    first   uint32, number of the first leaf of these trees; leaves are numbered in the order of the nodes
    tree    uint64, number of the first of these trees
    leaves  uint32 [rows, trees of the forest], out: the columns of these trees
    """

    cast: Votes
    first: np.uint32
    tree: np.uint64
    leaves: NDArray[np.uint32]


class Weighed(NamedTuple):
    """Statistics of the leaves of a tree over its bag, with wide weights (WeightSpec.wide).

    weight  int64 [rows], weight of each row in the bag; 0 for other rows
    target  [rows], classes, uint16, or numbers, int64
    sums    int64 [nodes, classes], sums of the weights of each class; for regression [nodes, PARTS]: the weight, and
            the weighted sum as limbs, see `add_product`
    """

    weight: NDArray[np.int64]
    target: NDArray[Any]
    sums: NDArray[np.int64]


class TreeLeaves(NamedTuple):
    """The leaf of each row in each tree.

    roots   uint64 [trees], positions of the roots among the nodes
    leaves  uint32 [rows, trees], out: number of the leaf in its tree
    bags    uint16 [trees, rows], multiplicities in the bag: only out-of-bag rows are routed. None to route all
            rows, compiled separately
    """

    roots: NDArray[np.uint64]
    leaves: NDArray[np.uint32]
    bags: NDArray[np.uint16] | None = None


@inlined
def _always(state, tree, row):
    return True


@inlined
def _is_out_of_bag(bags, tree, row):
    if bags is None:
        return True
    return bags[tree, row] == 0


@inlined
def _out_of_bag(state, tree, row):
    return _is_out_of_bag(state.bags, tree, row)


@inlined
def _weighs(state, tree, row):
    return state.weight[row] > 0


@inlined
def add_ballot(cast, row, ballot):
    """Add a ballot to the votes of a row; cast: Votes."""
    classes = np.uint64(cast.votes.shape[1])
    if ballot < classes:
        cast.votes[row, ballot] += 1.0
    else:
        for k in range(classes):
            cast.votes[row, k] += cast.mixed[ballot - classes, k]


@inlined
def _cast(state, layout, tree, row, node):
    """Add the ballot of the leaf at `node`."""
    add_ballot(state, row, np.uint64(layout.links[node + node]) & layout.ballot)


@inlined
def add_to_spread(spread, row, value):
    """Add the prediction of a tree to the sums of a row, see `new_spread`."""
    if np.isnan(spread[row, 0]):
        spread[row, 0] = value
    difference = value - spread[row, 0]
    spread[row, 1] += difference
    spread[row, 2] += difference * difference


@inlined
def _cast_spread(state, layout, tree, row, node):
    ballot = np.uint64(layout.links[node + node]) & layout.ballot
    add_ballot(state.cast, row, ballot)
    add_to_spread(state.spread, row, state.value[ballot - _ONE])  # ballot 0 is for a class


@inlined
def _weigh_class(state, layout, tree, row, node):
    state.sums[node, np.uint64(state.target[row])] += state.weight[row]


@inlined
def _weigh_number(state, layout, tree, row, node):
    state.sums[node, np.uint64(0)] += state.weight[row]
    add_product(state.sums, node, state.weight[row], state.target[row])


@inlined
def _note(state, layout, tree, row, node):
    _cast(state.cast, layout, tree, row, node)
    ballot = np.uint64(layout.links[node + node]) & layout.ballot
    state.leaves[row, state.tree + tree] = state.first + np.uint32(ballot - _ONE)  # ballot 0 is for a class


@inlined
def _write_leaf(state, layout, tree, row, node):
    state.leaves[row, tree] = np.uint32(node - state.roots[tree])


@inlined
def add_ballots(inputs, directions, roots, votes, scratch):
    """Add the ballots of all trees to Votes. directions: None if no node is oblique, compiled separately."""
    if directions is None:
        if inputs.by_level:
            route_levels(inputs, roots, _cast, votes, scratch)
        else:
            route(inputs, roots, _always, _cast, votes, scratch)
    else:
        route(inputs, roots, _always, _cast, votes, scratch)


@kernel
def vote(
    tiles, rows, by_level, thresholds, links, shift, default, ballot, directions, sets, missing, roots, mixed, votes,
    numbers, value,
):  # fmt: skip
    """Add the ballots of all trees, in their order, to votes.

    The arguments are the fields of RouteInputs with its NodeLayout, the roots, and the fields of Votes and of
    RouteScratch: Numba takes two microseconds to unpack the tuples, a tenth of the time of predicting a single row.

    Tomasi 2017, section 5; Ho 1995, section 3 (soft votes). Cost: rows * trees * depth visits of about 2 ns.
    Oracle: tests/naive/predict.py sum_of_votes.
    """
    layout = NodeLayout(thresholds, links, shift, default, ballot)
    inputs = RouteInputs(tiles, rows, by_level, layout, directions, sets, missing)
    add_ballots(inputs, directions, roots, Votes(mixed, votes), RouteScratch(numbers, value))


@kernel
def vote_spread(inputs, roots, votes, scratch):
    """Add the ballots of all trees, as `vote`, to SpreadVotes."""
    route(inputs, roots, _always, _cast_spread, votes, scratch)


@kernel
def note_leaves(inputs, roots, leaves, scratch):
    """Add the ballots of all trees, as `vote`, and record the leaves in LeafNumbers. Oracle: tests/naive/predict.py
    find_leaf."""
    route(inputs, roots, _always, _note, leaves, scratch)


@kernel
def place_leaves(inputs, tree_leaves, scratch):
    """Record in TreeLeaves the leaf of each row, or of each out-of-bag row, in each tree.

    Cost as `vote`. Oracle: tests/naive/predict.py find_leaf.
    """
    route(inputs, tree_leaves.roots, _out_of_bag, _write_leaf, tree_leaves, scratch)


@kernel
def weigh_classes(inputs, root, weighed, scratch):
    """Add the rows of the bag of the tree that begins at `root`, uint64 [1], to Weighed."""
    route(inputs, root, _weighs, _weigh_class, weighed, scratch)


@kernel
def weigh_numbers(inputs, root, weighed, scratch):
    """Add the rows of the bag of a regression tree to Weighed, as `weigh_classes`."""
    route(inputs, root, _weighs, _weigh_number, weighed, scratch)


@kernel
def add_up(starts, feature, right_child, counts):
    """Set the counts of each inner node to the sum of the counts of its children.

    starts       int64 [trees + 1], where trees begin among the nodes, and the end of the last
    feature      int32 [nodes]; LEAF in a leaf
    right_child  uint32 [nodes], number within the tree
    counts       int64 [nodes, classes]
    """
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        for back in range(end - begin):
            node = end - 1 - back
            if feature[node] != LEAF:
                left, right = node + 1, begin + np.int64(right_child[node])
                for k in range(counts.shape[1]):
                    counts[node, k] = counts[left, k] + counts[right, k]
