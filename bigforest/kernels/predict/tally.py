"""Adding up the votes of trees on their out-of-bag rows, from the leaves in which these end.

Finding the leaves (route_codes.py, route.py) and adding up their votes are separate steps: the leaves of a tree
are found once, in any order of the trees, and their votes added in the order of the trees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.prefetch import prefetch
from bigforest.kernels.predict.accumulate import Votes, add_ballot

_ONE = np.uint64(1)
# Numbers in a cache line, and how many rows ahead their data is prefetched.
_LINE = np.uint64(8)
_AHEAD = np.uint64(8)


class FoundLeaves(NamedTuple):
    """Leaves of some trees in which rows end.

    rows    uint16, those of the first tree, then those of the next one, numbered within the range
    leaves  uint32, number of the leaf in its tree
    end     int64 [trees], where the rows of each tree end
    first   int64 [trees], where the nodes of each tree begin in `ballot`, and where those of the last one end
    ballot  uint32 [nodes], of leaves; flat_tree.py says what it is
    """

    rows: NDArray[np.uint16]
    leaves: NDArray[np.uint32]
    end: NDArray[np.int64]
    first: NDArray[np.int64]
    ballot: NDArray[np.uint32]


class OobVotes(NamedTuple):
    """Out-of-bag votes on rows, and their error after each tree.

    cast     Votes
    voters   uint32 [rows], trees that voted so far, added to
    reached  int64 [trees], added to: rows without a voter before this tree; heard: their weight
    weight   int64 [rows]; None if all weights are 1, compiled separately
    """

    cast: Votes
    voters: NDArray[np.uint32]
    reached: NDArray[np.int64]
    heard: NDArray[np.int64]
    weight: NDArray[np.int64] | None


class ClassVotes(NamedTuple):
    """For classification.

    truth       uint16 [rows]
    prediction  uint16 [rows, lambdas], the class with most votes (the lowest among ties) where voters > 0, updated
    wrong       int64 [lambdas, trees], added to: by how much this tree changed the weight of the rows whose prediction
                is wrong
    """

    bag: OobVotes
    truth: NDArray[np.uint16]
    prediction: NDArray[np.uint16]
    wrong: NDArray[np.int64]


class NumberVotes(NamedTuple):
    """For regression: predictions are votes / voters.

    truth    float64 [rows]
    unit     factor of errors before they are squared
    share    factor of squares, besides the weight, before they are rounded to a whole number
    squared  int64 [lambdas, trees], added to: by how much this tree changed the sum of these squares
    """

    bag: OobVotes
    truth: NDArray[np.float64]
    unit: float
    share: float
    squared: NDArray[np.int64]


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
def _judge_class(state, tree, row, ballot):
    bag = state.bag
    add_ballot(bag.cast, row, ballot)
    votes = bag.cast.votes
    lambdas = np.uint64(state.prediction.shape[1])
    classes = np.uint64(votes.shape[1]) // lambdas
    heard = np.int64(bag.voters[row] > np.uint32(0))
    if heard == 0:
        _hear(bag, tree, row)
    truth, weight = np.uint64(state.truth[row]), _weight_of(bag.weight, row)
    for i in range(lambdas):  # without branches: the leading class changes often while trees are few
        own = np.uint64(i)
        first = own * classes
        best, most = np.uint64(0), votes[row, first]
        for k in range(_ONE, classes):
            vote = votes[row, first + np.uint64(k)]
            best = np.uint64(k) if vote > most else best
            most = max(most, vote)
        before = heard & np.int64(np.uint64(state.prediction[row, own]) != truth)
        state.wrong[own, tree] += weight * (np.int64(best != truth) - before)
        state.prediction[row, own] = np.uint16(best)
    bag.voters[row] += np.uint32(1)


@inlined
def _square(state, row, own):
    """The squared error of a row, by its weight, as a whole number; own: which of the lambdas."""
    bag = state.bag
    error = (bag.cast.votes[row, own] / np.float64(bag.voters[row]) - state.truth[row]) * state.unit
    return np.int64(np.rint(error * error * (np.float64(_weight_of(bag.weight, row)) * state.share)))


@inlined
def _judge_number(state, tree, row, ballot):
    bag = state.bag
    lambdas = np.uint64(bag.cast.votes.shape[1])
    if bag.voters[row] == 0:
        _hear(bag, tree, row)
    else:
        for i in range(lambdas):
            state.squared[np.uint64(i), tree] -= _square(state, row, np.uint64(i))
    add_ballot(bag.cast, row, ballot)
    bag.voters[row] += np.uint32(1)
    for i in range(lambdas):
        state.squared[np.uint64(i), tree] += _square(state, row, np.uint64(i))


@inlined
def _ask(found, cast, first, nodes, i):
    """Prefetch the mixed leaf of a later row, and its votes."""
    row, leaf = np.uint64(found.rows[i]), np.uint64(found.leaves[i])
    width = np.uint64(cast.votes.shape[1])
    ballot = np.uint64(found.ballot[first + leaf]) if leaf < nodes else np.uint64(0)
    if ballot >= width:
        begin = (ballot - width) * width
        for k in range(np.uint64(0), width, _LINE):
            prefetch(cast.mixed, begin + np.uint64(k))
            prefetch(cast.votes, row * width + np.uint64(k))
        prefetch(cast.mixed, begin + width - _ONE)


@inlined
def _add_up(found, judge, state):
    """Call `judge` with each row and its ballot, tree by tree; False if an index is out of range."""
    cast = state.bag.cast
    most = np.uint64(cast.votes.shape[1]) + np.uint64(cast.mixed.shape[0])
    rows = np.uint64(cast.votes.shape[0])
    begin = np.uint64(0)
    for t in range(np.uint64(found.end.size)):
        tree = np.uint64(t)
        first = np.uint64(found.first[tree])
        nodes = np.uint64(found.first[tree + _ONE]) - first
        for i in range(begin, np.uint64(found.end[tree])):
            _ask(found, cast, first, nodes, min(i + _AHEAD, np.uint64(found.end[tree]) - _ONE))
            row, leaf = np.uint64(found.rows[i]), np.uint64(found.leaves[i])
            if row >= rows or leaf >= nodes:
                return False
            ballot = np.uint64(found.ballot[first + leaf])
            if ballot >= most:
                return False
            judge(state, tree, row, ballot)
        begin = np.uint64(found.end[tree])
    return True


@kernel
def add_classes(found, classes):
    """Add the votes of FoundLeaves to ClassVotes, tree by tree; False if an index is out of range.

    Breiman 2001, section 3.1; Tomasi 2017, section 6. Cost: some ns for each row of each tree. Oracle:
    tests/naive/oob.py.
    """
    return _add_up(found, _judge_class, classes)


@kernel
def add_numbers(found, numbers):
    """`add_classes` for NumberVotes."""
    return _add_up(found, _judge_number, numbers)


@kernel
def add_spread(found, value, spread):
    """Add what the trees predict for their rows, and its square, to float64 [rows, 2]; False as `add_classes`.

    found  FoundLeaves; ballot: 1 + the place in `value`
    value  float64, of leaves

    Cost: some ns for each row of each tree. Oracle: tests/naive/oob.py.
    """
    rows, most = np.uint64(spread.shape[0]), np.uint64(value.size)
    begin = np.uint64(0)
    for t in range(np.uint64(found.end.size)):
        tree = np.uint64(t)
        first = np.uint64(found.first[tree])
        nodes = np.uint64(found.first[tree + _ONE]) - first
        for i in range(begin, np.uint64(found.end[tree])):
            row, leaf = np.uint64(found.rows[i]), np.uint64(found.leaves[i])
            if row >= rows or leaf >= nodes:
                return False
            place = np.uint64(found.ballot[first + leaf]) - _ONE
            if place >= most:
                return False
            spread[row, 0] += value[place]
            spread[row, 1] += value[place] * value[place]
        begin = np.uint64(found.end[tree])
    return True
