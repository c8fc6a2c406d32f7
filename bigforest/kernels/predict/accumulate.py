"""What is done with rows that come to leaves: their ballots, votes out of bag, counts of classes, and the places."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.limbs import add_product
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.predict.route import route

_ONE = np.uint64(1)


class Votes(NamedTuple):
    """Sums of ballots.

    mixed  float64 [ballots, classes], those that are not for one class alone (flat_tree.py)
    votes  float64 [rows, classes], added to; of numbers [rows, 1], sums of what trees predict

    Where leaves are shrunk by several lambdas, both have as many columns for each of them, one after the other.
    """

    mixed: NDArray[np.float64]
    votes: NDArray[np.float64]


class OobVotes(NamedTuple):
    """Votes of the trees that did not see a row, and how right they were after each of them.

    cast     Votes
    bags     uint16 [trees, rows], times the row is in the bag
    voters   uint32 [rows], trees that voted so far, added to
    reached  int64 [trees], added to: rows that had no voter before this tree; heard: what these weigh
    weight   int64 [rows]; None where all weigh 1, compiled apart
    """

    cast: Votes
    bags: NDArray[np.uint16]
    voters: NDArray[np.uint32]
    reached: NDArray[np.int64]
    heard: NDArray[np.int64]
    weight: NDArray[np.int64] | None


class ClassVotes(NamedTuple):
    """Of a forest that predicts classes.

    truth       uint16 [rows]
    prediction  uint16 [rows, lambdas], the class with most votes (the lowest of equals) where voters > 0, updated
    wrong       int64 [lambdas, trees], added to: by how much this tree changed the weight of the rows whose prediction
                is wrong
    """

    bag: OobVotes
    truth: NDArray[np.uint16]
    prediction: NDArray[np.uint16]
    wrong: NDArray[np.int64]


class NumberVotes(NamedTuple):
    """Of one that predicts numbers, which are votes over voters.

    truth    float64 [rows]
    unit     by what errors are multiplied before they are squared
    share    by what squares are multiplied, beside the weight, before they are rounded to a whole number
    squared  int64 [lambdas, trees], added to: by how much this tree changed the sum of these squares
    """

    bag: OobVotes
    truth: NDArray[np.float64]
    unit: float
    share: float
    squared: NDArray[np.int64]


class LeafCounts(NamedTuple):
    """Rows that end in leaves.

    truth   int32 [rows], class of each; -1 where unknown: such a row counts nowhere
    counts  int64 [nodes, classes], added to
    """

    truth: NDArray[np.int32]
    counts: NDArray[np.int64]


class LeafNumbers(NamedTuple):
    """The leaves of trees that predict numbers in which rows end, and their votes.

    cast    Votes
    first   uint32, number that the first leaf of these trees has: they are numbered in the order of the nodes
    tree    uint64, number of the first of these trees
    leaves  uint32 [rows, trees], set for these trees
    """

    cast: Votes
    first: np.uint32
    tree: np.uint64
    leaves: NDArray[np.uint32]


class Weighed(NamedTuple):
    """What the leaves of a tree hold of its bag, by wide weights.

    weight  int64 [rows], of each in the bag; 0 of others
    target  [rows], classes, uint16, or numbers, int64
    held    int64 [nodes, classes], the weight of each, added to; of numbers [nodes, PARTS]: the weight, and the sum by
            weight as limbs, see `add_product`
    """

    weight: NDArray[np.int64]
    target: NDArray[Any]
    held: NDArray[np.int64]


class Places(NamedTuple):
    """The leaves of trees in which rows end.

    roots   uint64 [trees], positions of the roots among the nodes
    leaves  uint32 [rows, trees], set: number of the leaf in its tree
    """

    roots: NDArray[np.uint64]
    leaves: NDArray[np.uint32]


@inlined
def _always(state, tree, row):
    return True


@inlined
def _out_of_bag(state, tree, row):
    return state.bag.bags[tree, row] == 0


@inlined
def _known(state, tree, row):
    return state.truth[row] >= 0


@inlined
def _weighs(state, tree, row):
    return state.weight[row] > 0


@inlined
def _weight_of(weight, row):
    if weight is None:
        return np.int64(1)
    return weight[row]


@inlined
def _hear(bag, tree, row):
    """Note that a row has its first voter."""
    bag.reached[tree] += 1
    bag.heard[tree] += _weight_of(bag.weight, row)


@inlined
def _cast(state, layout, tree, row, node):
    """Add the ballot of the leaf at `node`."""
    classes = np.uint64(state.votes.shape[1])
    ballot = np.uint64(layout.links[node + node]) & layout.ballot
    if ballot < classes:
        state.votes[row, ballot] += 1.0
    else:
        for k in range(classes):
            state.votes[row, np.uint64(k)] += state.mixed[ballot - classes, np.uint64(k)]


@inlined
def _judge_class(state, layout, tree, row, node):
    bag = state.bag
    _cast(bag.cast, layout, tree, row, node)
    votes = bag.cast.votes
    lambdas = np.uint64(state.prediction.shape[1])
    classes = np.uint64(votes.shape[1]) // lambdas
    if bag.voters[row] == 0:
        _hear(bag, tree, row)
    for i in range(lambdas):
        own = np.uint64(i)
        first = own * classes
        best = first
        for k in range(first + _ONE, first + classes):
            if votes[row, np.uint64(k)] > votes[row, best]:
                best = np.uint64(k)
        if bag.voters[row] > 0 and state.prediction[row, own] != state.truth[row]:
            state.wrong[own, tree] -= _weight_of(bag.weight, row)
        if best - first != state.truth[row]:
            state.wrong[own, tree] += _weight_of(bag.weight, row)
        state.prediction[row, own] = best - first
    bag.voters[row] += np.uint32(1)


@inlined
def _square(state, row, own):
    """The squared error of a row, by its weight, as a whole number; own: which of the lambdas."""
    bag = state.bag
    error = (bag.cast.votes[row, own] / np.float64(bag.voters[row]) - state.truth[row]) * state.unit
    return np.int64(np.rint(error * error * (np.float64(_weight_of(bag.weight, row)) * state.share)))


@inlined
def _judge_number(state, layout, tree, row, node):
    bag = state.bag
    lambdas = np.uint64(bag.cast.votes.shape[1])
    if bag.voters[row] == 0:
        _hear(bag, tree, row)
    else:
        for i in range(lambdas):
            state.squared[np.uint64(i), tree] -= _square(state, row, np.uint64(i))
    _cast(bag.cast, layout, tree, row, node)
    bag.voters[row] += np.uint32(1)
    for i in range(lambdas):
        state.squared[np.uint64(i), tree] += _square(state, row, np.uint64(i))


@inlined
def _count(state, layout, tree, row, node):
    state.counts[node, np.uint64(state.truth[row])] += 1


@inlined
def _weigh_class(state, layout, tree, row, node):
    state.held[node, np.uint64(state.target[row])] += state.weight[row]


@inlined
def _weigh_number(state, layout, tree, row, node):
    state.held[node, np.uint64(0)] += state.weight[row]
    add_product(state.held, node, state.weight[row], state.target[row])


@inlined
def _note(state, layout, tree, row, node):
    _cast(state.cast, layout, tree, row, node)
    ballot = np.uint64(layout.links[node + node]) & layout.ballot
    state.leaves[row, state.tree + tree] = state.first + np.uint32(ballot - _ONE)  # ballot 0 is for a class


@inlined
def _place(state, layout, tree, row, node):
    state.leaves[row, tree] = np.uint32(node - state.roots[tree])


@kernel
def vote(way, roots, votes, scratch):
    """Add the ballots of all trees, in their order, to Votes; way, roots and scratch are those of route.py.

    Tomasi 2017, section 5; Ho 1995, section 3 (soft votes). Cost: rows * trees * depth visits of about 2 ns.
    Oracle: tests/naive/predict.py sum_of_votes.
    """
    route(way, roots, _always, _cast, votes, scratch)


@kernel
def note_leaves(way, roots, leaves, scratch):
    """Like `vote`, but writes down Leaves as well. Oracle: tests/naive/predict.py find_leaf."""
    route(way, roots, _always, _note, leaves, scratch)


@kernel
def place_leaves(way, places, scratch):
    """Write down the leaf of each row in each tree: Places, whose roots are those of the trees.

    Cost as `vote`. Oracle: tests/naive/predict.py find_leaf.
    """
    route(way, places.roots, _always, _place, places, scratch)


@kernel
def vote_out_of_bag(way, roots, classes, scratch):
    """Like `vote`, but a tree votes only on rows that are not in its bag; keeps Classes after every tree.

    Breiman 2001, section 3.1; Tomasi 2017, section 6. Cost as `vote` on the rows out of bag, which are 37% of
    all in a bootstrap. Oracle: tests/naive/oob.py.
    """
    route(way, roots, _out_of_bag, _judge_class, classes, scratch)


@kernel
def average_out_of_bag(way, roots, numbers, scratch):
    """`vote_out_of_bag` for Numbers. Oracle: tests/naive/oob.py."""
    route(way, roots, _out_of_bag, _judge_number, numbers, scratch)


@kernel
def count_leaves(way, roots, counts, scratch):
    """Count rows into the leaves that they end in, by their classes: Counts. Oracle: tests/naive/calibrate.py."""
    route(way, roots, _known, _count, counts, scratch)


@kernel
def weigh_classes(way, root, weighed, scratch):
    """Add the rows of the bag of the tree that begins at `root`, uint64 [1], to Weighed."""
    route(way, root, _weighs, _weigh_class, weighed, scratch)


@kernel
def weigh_numbers(way, root, weighed, scratch):
    """`weigh_classes` for numbers."""
    route(way, root, _weighs, _weigh_number, weighed, scratch)


@kernel
def add_up(starts, feature, right_child, counts):
    """Make the counts of inner nodes the sums of those of their children.

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
