"""Add up the votes of trees on their out-of-bag rows, from the leaves of these rows; update the losses of the rows.

Finding the leaves (route_codes.py, route.py) and adding up their votes are separate steps: leaves are found once, in
any order of the trees, and votes are added in the order of the trees. The *ballot* of a leaf is a number: the only
class that it votes for, or the number of classes plus its row in a table of votes (flat_tree.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.deviance import logarithm
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger, prefetch, smaller
from bigforest.kernels.predict.accumulate import Votes, add_ballot, add_to_spread

_ONE = np.uint64(1)
# Numbers in a cache line. Votes are prefetched _AHEAD rows ahead, ballots twice as far.
_LINE = np.uint64(8)
_AHEAD = np.uint64(32)


class RoutedRows(NamedTuple):
    """Rows of a range of the table, and the leaves of some trees in which they end.

    rows    uint16, rows routed through the first tree, then through the second, and so on; numbers within the range
    leaves  uint32, number of the leaf of each row in its tree
    end     int64 [trees], where the rows of each tree end in `rows`
    first   int64 [trees + 1], where the nodes of each tree begin in `ballot`, and the end of the last
    ballot  uint32 [nodes], ballots of leaves
    """

    rows: NDArray[np.uint16]
    leaves: NDArray[np.uint32]
    end: NDArray[np.int64]
    first: NDArray[np.int64]
    ballot: NDArray[np.uint32]


class OobVotes(NamedTuple):
    """Out-of-bag votes on rows, and the rows on which each tree is the first to vote.

    cast     Votes
    voters   uint32 [rows], number of trees that voted so far
    reached  int64 [trees], number of rows whose first voter is this tree
    heard    int64 [trees], weight of these rows
    weight   int64 [rows]; None if all weights are 1, compiled separately
    """

    cast: Votes
    voters: NDArray[np.uint32]
    reached: NDArray[np.int64]
    heard: NDArray[np.int64]
    weight: NDArray[np.int64] | None


class ClassVotes(NamedTuple):
    """Out-of-bag votes of classification trees.

    truth       uint16 [rows]
    prediction  uint16 [rows], the class with most votes (the lowest among ties), for rows with voters
    wrong       int64 [trees], change of the weight of the rows with a wrong prediction when this tree has voted
    """

    oob: OobVotes
    truth: NDArray[np.uint16]
    prediction: NDArray[np.uint16]
    wrong: NDArray[np.int64]


class NumberVotes(NamedTuple):
    """Out-of-bag votes of regression trees. A prediction is votes / voters.

    truth   float64 [rows]
    unit    factor of errors; losses are multiplied by its square
    floor   smallest prediction if the loss is the Poisson deviance; None for the squared error, compiled separately
    share   factor of losses, in addition to the weight, before rounding to whole numbers
    change  int64 [trees], change of the sum of these losses when this tree has voted
    """

    oob: OobVotes
    truth: NDArray[np.float64]
    unit: float
    floor: float | None
    share: float
    change: NDArray[np.int64]


class LambdaVotes(NamedTuple):
    """Votes of trees for the true classes of rows, with leaves shrunk by each of several lambdas.

    mixed   float64 [leaves, classes * lambdas], votes of each leaf for the first class with each lambda, then for the
            next class; leaf i has the ballot classes + i
    truth   uint16 [rows], class of each; 0 for regression
    votes   float64 [rows, lambdas], sums
    voters  uint32 [rows], number of trees that voted so far
    """

    mixed: NDArray[np.float64]
    truth: NDArray[np.uint16]
    votes: NDArray[np.float64]
    voters: NDArray[np.uint32]


@inlined
def _weight_of(weight, row):
    if weight is None:
        return np.int64(1)
    return weight[row]


@inlined
def _hear(oob, tree, row):
    """Count a row that has no voter yet."""
    oob.reached[tree] += 1
    oob.heard[tree] += _weight_of(oob.weight, row)


@inlined
def _count_class_vote(state, tree, row, ballot):
    oob = state.oob
    add_ballot(oob.cast, row, ballot)
    votes = oob.cast.votes
    has_voters = np.int64(oob.voters[row] > np.uint32(0))
    if has_voters == 0:
        _hear(oob, tree, row)
    truth, weight = np.uint64(state.truth[row]), _weight_of(oob.weight, row)
    best, most = np.uint64(0), votes[row, 0]
    # Without branches: the leading class changes often while trees are few.
    for k in range(_ONE, np.uint64(votes.shape[1])):
        vote = votes[row, k]
        best = k if vote > most else best
        most = larger(most, vote)
    before = has_voters & np.int64(np.uint64(state.prediction[row]) != truth)
    state.wrong[tree] += weight * (np.int64(best != truth) - before)
    state.prediction[row] = np.uint16(best)
    oob.voters[row] += np.uint32(1)


@inlined
def _loss_of(truth, prediction, unit, floor, factor):
    if floor is None:
        error = (prediction - truth) * unit
        return error * error * factor
    prediction = larger(prediction, floor)
    return 2.0 * (truth * logarithm(truth / prediction) - truth + prediction) * unit * unit * factor


@inlined
def _loss(state, row):
    """Return the loss of a row, times its weight and `share`, rounded."""
    oob = state.oob
    prediction = oob.cast.votes[row, 0] / np.float64(oob.voters[row])
    factor = np.float64(_weight_of(oob.weight, row)) * state.share
    return np.int64(np.rint(_loss_of(state.truth[row], prediction, state.unit, state.floor, factor)))


@inlined
def _count_number_vote(state, tree, row, ballot):
    oob = state.oob
    if oob.voters[row] == 0:
        _hear(oob, tree, row)
    else:
        state.change[tree] -= _loss(state, row)
    add_ballot(oob.cast, row, ballot)
    oob.voters[row] += np.uint32(1)
    state.change[tree] += _loss(state, row)


@inlined
def _add_spread(state, tree, row, leaf):
    value, spread = state
    add_to_spread(spread, row, value[leaf])


@inlined
def _add_lambdas(state, tree, row, leaf):
    lambdas, tried = state
    first = np.uint64(lambdas.truth[row]) * tried
    for k in range(tried):
        lambdas.votes[row, k] += lambdas.mixed[leaf, first + k]
    lambdas.voters[row] += np.uint32(1)


@inlined
def _prefetch_nothing(state, row, leaf):
    """Prefetch nothing."""


@inlined
def _prefetch_votes(state, row, ballot):
    """If the leaf is mixed, prefetch its ballot and the votes on the row."""
    cast = state.oob.cast
    width = np.uint64(cast.votes.shape[1])
    if ballot >= width:
        begin = (ballot - width) * width
        for k in range(np.uint64(0), width, _LINE):
            prefetch(cast.mixed, begin + k)
            prefetch(cast.votes, row * width + k)
        prefetch(cast.mixed, begin + width - _ONE)


@inlined
def _prefetch_lambdas(state, row, leaf):
    """Prefetch the ballots of a leaf for the true class of a row."""
    lambdas, tried = state
    first = leaf * np.uint64(lambdas.mixed.shape[1]) + np.uint64(lambdas.truth[row]) * tried
    prefetch(lambdas.mixed, first)
    prefetch(lambdas.mixed, first + tried - _ONE)


@inlined
def _add_up(routed, rows, least, ballots, prefetch_row, count, state):
    """Call count(state, tree, row, ballot - least) for each row, tree by tree. Return False if an index is invalid.

    rows            uint64, number of rows of the range
    least, ballots  uint64, the smallest valid ballot, and the number of valid ballots
    prefetch_row    function prefetch_row(state, row, ballot - least) that prefetches the numbers of a later row
    """
    begin = np.uint64(0)
    for tree in range(np.uint64(routed.end.size)):
        first, end = np.uint64(routed.first[tree]), np.uint64(routed.end[tree])
        nodes = np.uint64(routed.first[tree + _ONE]) - first
        for i in range(begin, end):
            prefetch(routed.ballot, first + np.uint64(routed.leaves[smaller(i + _AHEAD + _AHEAD, end - _ONE)]))
            later = smaller(i + _AHEAD, end - _ONE)
            row, leaf = np.uint64(routed.rows[later]), np.uint64(routed.leaves[later])
            if row < rows and leaf < nodes:
                prefetch_row(state, row, np.uint64(routed.ballot[first + leaf]) - least)
            row, leaf = np.uint64(routed.rows[i]), np.uint64(routed.leaves[i])
            if row >= rows or leaf >= nodes:
                return False
            ballot = np.uint64(routed.ballot[first + leaf]) - least  # wraps round for ballots below `least`
            if ballot >= ballots:
                return False
            count(state, tree, row, ballot)
        begin = end
    return True


@inlined
def _add_votes(routed, count, state):
    """Add up the ballots of Votes, see `_add_up`."""
    votes, mixed = state.oob.cast.votes, state.oob.cast.mixed
    ballots = np.uint64(votes.shape[1]) + np.uint64(mixed.shape[0])
    return _add_up(routed, np.uint64(votes.shape[0]), np.uint64(0), ballots, _prefetch_votes, count, state)


@kernel
def add_classes(routed, classes):
    """Add the ballots of RoutedRows to ClassVotes, tree by tree. Return False if an index is invalid.

    Breiman 2001, section 3.1; Tomasi 2017, section 6. Cost: some ns for each row of each tree. Oracle:
    tests/naive/oob.py.
    """
    return _add_votes(routed, _count_class_vote, classes)


@kernel
def add_numbers(routed, numbers):
    """Add the ballots of RoutedRows to NumberVotes; return as `add_classes`.

    Oracle of the deviance: scikit-learn (tests/training/test_poisson.py).
    """
    return _add_votes(routed, _count_number_vote, numbers)


@kernel
def add_spread(routed, value, spread):
    """Add the predictions of trees for their rows to `spread`; return as `add_classes`.

    routed  RoutedRows; a ballot is 1 + the index in `value`
    value   float64 [leaves]
    spread  float64 [rows, 3], see accumulate.py new_spread

    Cost: some ns for each row of each tree. Oracle: tests/naive/oob.py.
    """
    rows, values = np.uint64(spread.shape[0]), np.uint64(value.size)
    return _add_up(routed, rows, _ONE, values, _prefetch_nothing, _add_spread, (value, spread))


@kernel
def add_by_lambda(routed, lambdas):
    """Add the votes of trees for the true classes of their rows to LambdaVotes; return as `add_classes`.

    Every leaf has a ballot of its own. Cost: some ns for each row of each tree. Oracle: tests/naive/shrinkage.py.
    """
    tried = np.uint64(lambdas.votes.shape[1])
    rows, leaves = np.uint64(lambdas.votes.shape[0]), np.uint64(lambdas.mixed.shape[0])
    classes = np.uint64(lambdas.mixed.shape[1]) // tried
    return _add_up(routed, rows, classes, leaves, _prefetch_lambdas, _add_lambdas, (lambdas, tried))
