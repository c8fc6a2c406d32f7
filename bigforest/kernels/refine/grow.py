"""Grow the small trees of a sequence of the boosted stage, one after the other, on bins of the ranks.

    for each round:
        gradients and curvatures of the loss, as whole numbers of a unit: their sums do not depend on the order
        draw features
        until the tree has enough leaves, split the leaf with the largest gain:
            count the rows of the smaller child by bin of each drawn feature
            counts of the larger child = counts of the parent - counts of the smaller child
            for both children: score every edge between bins
        add the value of its leaf to the sum of each row

The score of a node is gradient**2 / (curvature + penalty), summed over the outputs. The gain of a split is the score of
its two sides minus the score of the node (Newton's method; Friedman 2001). Scores are float64, computed from exact sums
in a fixed order, so they have the same bits on every processor. Ties go to the feature drawn first, then to missing
values on the left, then to the lowest edge. Of leaves with equal gains, the leaf made first is split. Missing values of
a number are in bin 0, which is tried on both sides. The bins of a category are ordered by gradient over curvature in
the node; missing is one of its levels.

A round calls `correct`, then `grow_tree`, which is compiled with or without the code for categories and missing values,
and for one output or several. Oracle: tests/naive/refine.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.rng import GOLDEN, draw_rows, scramble
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import bits_of, float_of, larger, smaller
from bigforest.kernels.refine.link import POISSON, SOFTMAX, SQUARED, correct

# Most bins of a feature, and words of 64 bits that hold one bit for each.
BINS = 256
WORDS = 4
# Most counts and sums of the leaves of a tree.
MAX_COUNTS = 1 << 24
# Kinds of features: plain numbers; numbers with bin 0 for missing values; levels; levels with a last bin for the rest.
NUMBERS, GAPS, LEVELS, POOLED = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)

# Random stream of the stage; common/rng.py has the others.
PURPOSE_REFINE = np.uint64(9)

_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
# Features that are counted together: their counts stay in the cache, and consecutive additions are to different
# features, so that none waits for an addition to the same bin.
_BLOCK = np.uint64(8)
# With several outputs, the words of a bin are padded to a multiple of this number, for vector instructions.
_VECTOR = 4
# A gradient and a curvature share a word: (gradient << 32) + curvature, and so do their sums.
_HALF, _LOWER = np.int64(32), np.int64(0xFFFFFFFF)
_SUM_BITS = np.int64(31)
_MANTISSA_BITS, _BIAS = np.int64(52), np.int64(1023)
# Smaller sums get the unit of this sum: their own unit might not be a normal number.
_LEAST_SUM = 1e-290
# Columns of the table of nodes of a tree under construction; the left child is 0 in a leaf.
_BEGIN, _END, _FEATURE, _CUT, _DEFAULT, _LEFT, _SLOT = 0, 1, 2, 3, 4, 5, 6
NODE_FIELDS = 7
# Gaps of the Shell sort of bins.
_GAPS = (132, 57, 23, 10, 4, 1)


class SequenceRows(NamedTuple):
    """The rows of the bag of a sequence.

    bins    uint8 [features, rows]
    kinds   uint8 [features]
    sizes   int32 [features], number of bins
    truth   float64 [rows], numbers or classes
    weight  float64 [rows], with a mean of 1 over the table
    start   float64 [rows, outputs], predictions before the stage, see link.py
    added   float64 [rows, outputs], sums of the values of the trees so far; updated
    """

    bins: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    truth: NDArray[np.float64]
    weight: NDArray[np.float64]
    start: NDArray[np.float64]
    added: NDArray[np.float64]


class StageRules(NamedTuple):
    """Rules by which trees grow.

    loss      see link.py
    rate      learning rate
    leaves    most leaves of a tree
    least     fewest rows of a leaf
    penalty   added to the curvature of a node
    smooth    added to the curvature of each level when levels are ordered, and of each side of a split on levels
    """

    loss: np.int64
    rate: float
    leaves: int
    least: int
    penalty: float
    smooth: float


class StageNodes(NamedTuple):
    """Nodes of trees in preorder, one tree after the other. The value in a leaf is in parentheses.

    ends     int64 [trees + 1], where trees begin, and the end of the last
    feature  int32 (LEAF)
    right    uint32 (0), number of the right child in the tree
    depth    uint32
    cut      uint64 (0), last bin that goes left; on levels undefined
    default  bool (False), True if missing values and levels that are not listed go left
    listed   uint64 [nodes, WORDS], listed bins of nodes on levels; undefined in other nodes
    rows     uint64, rows of the bag
    gain     float64 (0)
    value    float64 [nodes, outputs], on the scale of the link, multiplied by the rate
    """

    ends: NDArray[np.int64]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    cut: NDArray[np.uint64]
    default: NDArray[np.bool_]
    listed: NDArray[np.uint64]
    rows: NDArray[np.uint64]
    gain: NDArray[np.float64]
    value: NDArray[np.float64]


class TreeScratch(NamedTuple):
    """Scratch of a tree, and its nodes.

    means    float64 [rows, outputs], predictions with the trees so far
    whole    int64, a word with gradient and curvature for each output. One output: [rows, 1]. Several outputs:
             [rows, words_of_bin], the number 1, then a word for each output, then zeros, so that a row is added to a
             bin in one loop
    order    uint32 [rows]; spare: the same
    counts   int64 [slots, bins of the drawn features * words_of_bin], rows and sums by bin. There is a slot for each
             leaf of a tree; a single slot if all would have more than MAX_COUNTS numbers: both children are counted
             then
    firsts   uint64 [drawn features + 1], where the bins of each feature begin in a slot, and the end of the last
    ranked   uint64 [BINS], ordered bins of a feature
    nodes    uint64 [nodes, NODE_FIELDS]; gain: float64 [nodes]; totals: int64 [nodes, words_of_bin]
    value    float64 [nodes, outputs]
    """

    means: NDArray[np.float64]
    whole: NDArray[np.int64]
    order: NDArray[np.uint32]
    spare: NDArray[np.uint32]
    counts: NDArray[np.int64]
    firsts: NDArray[np.uint64]
    ranked: NDArray[np.uint64]
    nodes: NDArray[np.uint64]
    gain: NDArray[np.float64]
    totals: NDArray[np.int64]
    value: NDArray[np.float64]


class NonPlainScratch(NamedTuple):
    """Scratch of a tree where some features are not plain numbers.

    keys    float64 [BINS], by which levels are ordered
    listed  uint64 [nodes, WORDS], see StageNodes
    """

    keys: NDArray[np.float64]
    listed: NDArray[np.uint64]


def words_of_bin(outputs: int) -> int:
    """Return the number of words of a bin, or of a node. They are its rows, a sum for each output, and zeros."""
    return 2 if outputs == 1 else -(-(1 + outputs) // _VECTOR) * _VECTOR


def _make_scratch(rows: SequenceRows, leaves: int, drawn: int) -> TreeScratch:
    """Allocate the scratch of a sequence."""
    size, outputs = rows.start.shape
    nodes, width = 2 * leaves - 1, words_of_bin(outputs)
    slot = int(np.sort(rows.sizes)[-drawn:].sum()) * width
    whole = np.zeros((size, width if outputs > 1 else 1), np.int64)
    whole[:, 0] = 1
    return TreeScratch(
        np.empty((size, outputs)),
        whole,
        np.empty(size, np.uint32),
        np.empty(size, np.uint32),
        np.empty((leaves if leaves * slot <= MAX_COUNTS else 1, slot), np.int64),
        np.zeros(drawn + 1, np.uint64),
        np.empty(BINS, np.uint64),
        np.zeros((nodes, NODE_FIELDS), np.uint64),
        np.empty(nodes),
        np.empty((nodes, width), np.int64),
        np.empty((nodes, outputs)),
    )


def grow_rounds(rows: SequenceRows, rules: StageRules, drawn: int, key: np.uint64, rounds: int) -> StageNodes:
    """Grow the trees of a sequence, and add their values to rows.added.

    drawn  number of features that are drawn for a tree; key: of the stream of the draws

    Cost of a tree: about 2.5 * rows * drawn features steps, of 1 ns for one output and 3 ns for ten. In addition, about
    3 ns for each node, drawn feature, and bin that has rows.
    """
    scratch, outputs = _make_scratch(rows, rules.leaves, drawn), rows.start.shape[1]
    several = np.empty(words_of_bin(outputs), np.int64) if outputs > 1 else None
    non_plain = None
    if (rows.kinds != NUMBERS).any():
        non_plain = NonPlainScratch(np.empty(BINS), np.zeros((len(scratch.nodes), WORDS), np.uint64))
    trees = []
    for chosen in _draw_features(len(rows.bins), drawn, key, rounds):
        np.copyto(scratch.means, rows.added)
        correct(rules.loss, rows.start, scratch.means)
        made = grow_tree(rows, rules, chosen, scratch, several, non_plain)
        trees.append(_preorder(int(made), scratch, non_plain))
    ends = np.cumsum([0, *(own[0].size for own in trees)])
    return StageNodes(ends, *(np.concatenate(own) for own in zip(*trees, strict=True)))


def _draw_features(features: int, drawn: int, key: np.uint64, rounds: int) -> NDArray[np.uint64]:
    """Draw features without replacement, anew for each round, uint64 [rounds, drawn] in the order of the draw."""
    states = scramble(key ^ scramble(np.arange(rounds, dtype=np.uint64) + GOLDEN))
    random = draw_rows(states[:, None], np.arange(drawn, dtype=np.uint64)) >> np.uint64(32)
    steps = random * np.arange(features, features - drawn, -1).astype(np.uint64) >> np.uint64(32)
    found = np.tile(np.arange(features, dtype=np.uint64), (rounds, 1))
    every = np.arange(rounds)
    for place, step in enumerate(steps.T.astype(np.int64)):
        own = found[:, place].copy()
        found[:, place] = found[every, place + step]
        found[every, place + step] = own
    return np.ascontiguousarray(found[:, :drawn])


def _preorder(made: int, scratch: TreeScratch, non_plain: NonPlainScratch | None) -> tuple[NDArray[Any], ...]:
    """Return the nodes of a grown tree in preorder: the fields of StageNodes but `ends`."""
    left = scratch.nodes[:made, _LEFT].tolist()
    order: list[int] = []
    depth: list[int] = []
    waiting = [(0, 0)]
    while waiting:
        node, level = waiting.pop()
        order.append(node)
        depth.append(level)
        if left[node]:
            waiting += [(left[node] + 1, level + 1), (left[node], level + 1)]
    number = np.zeros(made + 1, np.uint32)
    number[order] = np.arange(made)
    nodes = scratch.nodes[order]
    inner = nodes[:, _LEFT] > _ZERO
    return (
        np.where(inner, nodes[:, _FEATURE].astype(np.int32), np.int32(LEAF)),
        np.where(inner, number[nodes[:, _LEFT] + _ONE], np.uint32(0)),
        np.array(depth, np.uint32),
        np.where(inner, nodes[:, _CUT], _ZERO),
        inner & (nodes[:, _DEFAULT] == _ONE),
        np.zeros((made, WORDS), np.uint64) if non_plain is None else non_plain.listed[order],
        scratch.totals[order, 0].astype(np.uint64),
        np.where(inner, scratch.gain[order], 0.0),
        scratch.value[order],
    )


@inlined
def _power_of_two(exponent):
    return float_of((exponent + _BIAS) << _MANTISSA_BITS)


@inlined
def _unit_exponent(total):
    """Return the least exponent e for which total / 2**e, or _LEAST_SUM / 2**e if it is larger, is below 2**31."""
    return (bits_of(larger(total, _LEAST_SUM)) >> _MANTISSA_BITS) - _BIAS + np.int64(1) - _SUM_BITS


@inlined
def _gradient_and_curvature(loss, mean, truth, weight, k):
    """Return the gradient and the curvature of the loss of a row with respect to output k."""
    wanted = truth if loss != SOFTMAX else 1.0 if np.float64(k) == truth else 0.0
    curvature = 1.0 if loss == SQUARED else mean if loss == POISSON else mean * (1.0 - mean)
    return weight * (mean - wanted), weight * curvature


@inlined
def _find_gradients(rows, loss, scratch, several):
    """Write gradients and curvatures at scratch.means to scratch.whole; return the units of both, powers of two.

    Except for rounding errors, the sums of absolute values are below 2**31 units.
    """
    count, outputs = np.uint64(rows.truth.size), np.uint64(rows.start.shape[1])
    means, first = scratch.means, _ZERO if several is None else _ONE
    gradient_sum, curvature_sum = 0.0, 0.0
    for row in range(count):
        for k in range(outputs):
            gradient, curvature = _gradient_and_curvature(loss, means[row, k], rows.truth[row], rows.weight[row], k)
            gradient_sum += abs(gradient)
            curvature_sum += curvature
    gradient_at, curvature_at = _unit_exponent(gradient_sum), _unit_exponent(curvature_sum)
    per_gradient, per_curvature = _power_of_two(-gradient_at), _power_of_two(-curvature_at)
    for row in range(count):
        for k in range(outputs):
            gradient, curvature = _gradient_and_curvature(loss, means[row, k], rows.truth[row], rows.weight[row], k)
            upper, lower = np.int64(gradient * per_gradient) << _HALF, np.int64(curvature * per_curvature)
            scratch.whole[row, first + k] = upper + lower
    return _power_of_two(gradient_at), _power_of_two(curvature_at)


@inlined
def _place_bins(drawn, sizes, width, firsts):
    """Move the drawn features with more than one bin to the front and set `firsts` for them; return their number."""
    kept = _ZERO
    for j in range(np.uint64(drawn.size)):
        feature = drawn[j]
        if sizes[feature] > 1:
            drawn[kept] = feature
            kept += _ONE
            firsts[kept] = firsts[kept - _ONE] + np.uint64(sizes[feature]) * width
    return kept


@inlined
def _add_row(sums, at, whole, row, several):
    """Add a row to the number of rows and the sums from `at` on."""
    if several is None:
        sums[at] += 1
        sums[at + _ONE] += whole[row, _ZERO]
    else:
        for k in range(np.uint64(whole.shape[1])):
            sums[at + k] += whole[row, k]


@inlined
def _count(bins, order, whole, drawn, firsts, total, several, counts):
    """Set the counts of a slot to the rows of a node and their sums, by bin of each feature in `drawn`.

    order  uint32 [rows of the node]; total: int64 [words_of_bin] of the node

    With several outputs bin 0 is the rest of the total: most rows of sparse features are in it.
    """
    width = np.uint64(total.size)
    for k in range(firsts[drawn.size]):
        counts[k] = 0
    for begin in range(_ZERO, np.uint64(drawn.size), _BLOCK):
        end = smaller(begin + _BLOCK, np.uint64(drawn.size))
        for i in range(np.uint64(order.size)):
            row = np.uint64(order[i])
            first = whole[row, _ZERO]  # read once: for the compiler the sums may be the same array
            for j in range(begin, end):
                bin_of = np.uint64(bins[drawn[j], row])
                at = firsts[j] + bin_of * width
                if several is None:
                    counts[at] += 1
                    counts[at + _ONE] += first
                elif bin_of != _ZERO:
                    _add_row(counts, at, whole, row, several)
    if several is not None:
        for j in range(np.uint64(drawn.size)):
            for k in range(width):
                several[k] = total[k]
            for at in range(firsts[j] + width, firsts[j + _ONE], width):
                for k in range(width):
                    several[k] -= counts[at + k]
            for k in range(width):
                counts[firsts[j] + k] = several[k]


@inlined
def _newton_step(sums, units, penalty):
    """Return gradient / (curvature + penalty) of the sums in a word."""
    return np.float64(sums >> _HALF) * units[0] / (np.float64(sums & _LOWER) * units[1] + penalty)


@inlined
def _side_score(sums, units, penalty):
    """Return gradient**2 / (curvature + penalty) of the sums in a word: the score of a side for an output."""
    gradient = np.float64(sums >> _HALF) * units[0]
    return gradient * gradient / (np.float64(sums & _LOWER) * units[1] + penalty)


@inlined
def _order_levels(present, first, width, counts, units, smooth, keys, ranked):
    """Sort the first bins of `ranked`, as many as `present`, by gradient over curvature.

    Of several outputs, the one with the largest sum of scores over the bins is used. Ties go to the lowest bin.
    """
    chosen, most = _ONE, -1.0
    for k in range(_ONE, width):
        found = 0.0
        for i in range(present):
            found += _side_score(counts[first + ranked[i] * width + k], units, smooth)
        if found > most:
            chosen, most = k, found
    for i in range(present):
        own = ranked[i]
        keys[own] = _newton_step(counts[first + own * width + chosen], units, smooth)
    for gap in _GAPS:
        for i in range(gap, np.int64(present)):
            own, j = ranked[i], i
            while j >= gap and (
                keys[ranked[j - gap]] > keys[own] or (keys[ranked[j - gap]] == keys[own] and ranked[j - gap] > own)
            ):
                ranked[j] = ranked[j - gap]
                j -= gap
            ranked[j] = own


@inlined
def _scan(present, missing, counts, first, total, least, units, penalty, ranked, several, best):
    """Find the split with the best score above `best`. Return this score, the number of ordered bins on the left, the
    number of rows on the left, and True if missing values go left. If no score is above `best`, the number of bins is
    0.

    present  number of ordered bins, the first of `ranked`
    missing  number of rows in bin 0, which go to either side
    first    where the bins of the feature begin in `counts`
    total    int64 [words_of_bin], rows and sums of the node
    several  int64 [words_of_bin], scratch for the left side, and in `_count`; None for one output, compiled separately
    """
    rows, width = total[_ZERO], np.uint64(total.size)
    cut, rows_left, missing_left = _ZERO, np.int64(0), False
    for side in range(2 if missing > 0 else 1):
        with_missing = side == 0 and missing > 0
        on_left = counts[first] if with_missing else np.int64(0)
        sums = counts[first + _ONE] if with_missing else np.int64(0)
        if several is not None:
            for k in range(_ONE, width):
                several[k] = counts[first + k] if with_missing else np.int64(0)
        for i in range(present):
            at = first + ranked[i] * width
            on_left += counts[at]
            if several is None:
                sums += counts[at + _ONE]
            else:
                for k in range(_ONE, width):
                    several[k] += counts[at + k]
            if on_left < least:
                continue
            if rows - on_left < least:
                break
            if several is None:
                found = _side_score(sums, units, penalty) + _side_score(total[_ONE] - sums, units, penalty)
            else:
                found = 0.0
                for k in range(_ONE, width):
                    found += _side_score(several[k], units, penalty)
                    found += _side_score(total[k] - several[k], units, penalty)
            if found > best:
                best, cut, rows_left, missing_left = found, i + _ONE, on_left, with_missing
    return best, cut, rows_left, missing_left


@inlined
def _list_levels(present, cut, default, ranked, listed):
    """Set `listed`, uint64 [WORDS], to the ordered bins on the right if `default`, else to those on the left."""
    for word in range(WORDS):
        listed[word] = 0
    for i in range(present):
        if (i < cut) != default:
            own = ranked[i]
            listed[own >> np.uint64(6)] |= _ONE << (own & np.uint64(63))


@inlined
def _search(node, rows, rules, drawn, units, scratch, several, non_plain):
    """Find the best split of a node whose rows are counted. If there is none, its gain remains 0.

    Levels that are not listed go to the side of the pooled levels. If the node has no pooled levels, they go to the
    larger side, or left if both are equal. If no value of a number is missing in the node, missing values go there,
    too. The score of the node has the penalty of numbers, so a split on levels, with a larger penalty, must gain more.
    """
    nodes, total, ranked = scratch.nodes, scratch.totals[node], scratch.ranked
    width, counts = np.uint64(total.size), scratch.counts[nodes[node, _SLOT]]
    node_score = 0.0
    for k in range(_ONE, width):
        node_score += _side_score(total[k], units, rules.penalty)
    best = node_score
    for place in range(np.uint64(drawn.size)):
        feature, first, penalty = drawn[place], scratch.firsts[place], rules.penalty
        kind, bins = rows.kinds[feature], np.uint64(rows.sizes[feature])
        present, begin, missing = _ZERO, _ZERO, np.int64(0)
        if non_plain is not None and kind == GAPS:  # bin 0 of missing values is left out
            begin, missing = _ONE, counts[first]
        for b in range(begin, bins):
            if counts[first + b * width] > 0:
                ranked[present] = b
                present += _ONE
        if non_plain is not None and kind >= LEVELS:
            _order_levels(present, first, width, counts, units, rules.smooth, non_plain.keys, ranked)
            penalty += rules.smooth
        found, cut, rows_left, default = _scan(
            present, missing, counts, first, total, rules.least, units, penalty, ranked, several, best
        )
        if cut == _ZERO:
            continue
        default = default if missing > 0 else rows_left + rows_left >= total[_ZERO]
        if non_plain is not None and kind >= LEVELS:
            for i in range(present):
                if kind == POOLED and ranked[i] == bins - _ONE:
                    default = i < cut
            _list_levels(present, cut, default, ranked, non_plain.listed[node])
        nodes[node, _FEATURE], nodes[node, _CUT] = feature, ranked[cut - _ONE]
        nodes[node, _DEFAULT] = np.uint64(default)
        best, scratch.gain[node] = found, found - node_score


@inlined
def _goes_left(kind, bin_of, cut, default, node, non_plain):
    """Return True if a row of this bin goes left at a node."""
    if non_plain is None:
        return np.uint64(bin_of) <= cut
    if kind >= LEVELS:
        own = np.uint64(bin_of)
        return (((non_plain.listed[node, own >> np.uint64(6)] >> (own & np.uint64(63))) & _ONE) == _ONE) != default
    return default if kind == GAPS and bin_of == 0 else np.uint64(bin_of) <= cut


@inlined
def _split(node, left, rows, scratch, several, non_plain):
    """Divide the rows of a node between its children, the nodes `left` and `left` + 1."""
    nodes, order, spare, totals = scratch.nodes, scratch.order, scratch.spare, scratch.totals
    begin, end, feature = nodes[node, _BEGIN], nodes[node, _END], nodes[node, _FEATURE]
    cut, default, kind = nodes[node, _CUT], nodes[node, _DEFAULT] == _ONE, rows.kinds[feature]
    kept, moved, width = begin, _ZERO, np.uint64(totals.shape[1])
    for k in range(width):
        totals[left, k] = 0
    for i in range(begin, end):
        row = np.uint64(order[i])
        if _goes_left(kind, rows.bins[feature, row], cut, default, node, non_plain):
            order[kept] = np.uint32(row)
            kept += _ONE
            _add_row(totals[left], _ZERO, scratch.whole, row, several)
        else:
            spare[moved] = np.uint32(row)
            moved += _ONE
    for i in range(moved):
        order[kept + i] = spare[i]
    for k in range(width):
        totals[left + _ONE, k] = totals[node, k] - totals[left, k]
    nodes[node, _LEFT] = left
    nodes[left, _BEGIN], nodes[left, _END] = begin, kept
    nodes[left + _ONE, _BEGIN], nodes[left + _ONE, _END] = kept, end


@inlined
def _best_leaf(made, scratch):
    """Return the leaf with the largest gain, the first among ties; `made` if no leaf can be split."""
    best, gain = made, 0.0
    for node in range(made):
        if scratch.nodes[node, _LEFT] == _ZERO and scratch.gain[node] > gain:
            best, gain = node, scratch.gain[node]
    return best


@kernel
def grow_tree(rows, rules, drawn, scratch, several, non_plain):
    """Grow a tree into scratch.nodes, and add the values of its leaves to rows.added; return the number of its nodes.

    rows       SequenceRows; rules: StageRules; scratch: TreeScratch
    drawn      uint64 [drawn features], overwritten
    several    see `_scan`
    non_plain  NonPlainScratch; None if all features are plain numbers, compiled separately

    Node 0 is the root. The n-th split, from 0 on, makes the nodes 2 n + 1 and 2 n + 2. The smaller child gets a slot of
    its own, in which its rows are counted. The larger child keeps the slot of the parent, from which these counts are
    subtracted. With a single slot, the rows of both are counted. Each long function is called in one place only, to be
    compiled once.
    """
    units = _find_gradients(rows, rules.loss, scratch, several)
    nodes, totals, value, order = scratch.nodes, scratch.totals, scratch.value, scratch.order
    count, width = np.uint64(order.size), np.uint64(totals.shape[1])
    drawn = drawn[: _place_bins(drawn, rows.sizes, width, scratch.firsts)]
    shared, fewest = scratch.counts.shape[0] == 1, rules.least + rules.least
    nodes[_ZERO, _BEGIN], nodes[_ZERO, _END], nodes[_ZERO, _SLOT] = _ZERO, count, _ZERO
    for k in range(width):
        totals[_ZERO, k] = 0
    for i in range(count):
        order[i] = np.uint32(i)
        _add_row(totals[_ZERO], _ZERO, scratch.whole, i, several)
    made, small, large = _ONE, _ZERO, _ZERO
    while True:
        nodes[small, _LEFT], nodes[large, _LEFT] = _ZERO, _ZERO
        scratch.gain[small], scratch.gain[large] = 0.0, 0.0
        grows = (np.int64(made) + 1) >> 1 < rules.leaves
        for child in range((1 if made == _ONE else 2) if grows and totals[large, _ZERO] >= fewest else 0):
            node = small if child == 0 else large
            counts = scratch.counts[nodes[node, _SLOT]]
            if child == 0 or shared:
                own = order[nodes[node, _BEGIN] : nodes[node, _END]]
                _count(rows.bins, own, scratch.whole, drawn, scratch.firsts, totals[node], several, counts)
            else:
                other = scratch.counts[nodes[small, _SLOT]]
                for k in range(scratch.firsts[drawn.size]):
                    counts[k] -= other[k]
            if totals[node, _ZERO] >= fewest:
                _search(node, rows, rules, drawn, units, scratch, several, non_plain)
        best = _best_leaf(made, scratch) if grows else made
        if best == made:
            break
        _split(best, made, rows, scratch, several, non_plain)
        small, large = made, made + _ONE
        if totals[small, _ZERO] > totals[large, _ZERO]:
            small, large = large, small
        nodes[small, _SLOT] = _ZERO if shared else (made + _ONE) >> _ONE
        nodes[large, _SLOT] = nodes[best, _SLOT]
        made += _TWO
    for node in range(made):
        for k in range(_ONE, np.uint64(value.shape[1]) + _ONE):
            value[node, k - _ONE] = -(rules.rate * _newton_step(totals[node, k], units, rules.penalty))
        if nodes[node, _LEFT] == _ZERO:
            for i in range(nodes[node, _BEGIN], nodes[node, _END]):
                row = np.uint64(order[i])
                for k in range(np.uint64(value.shape[1])):
                    rows.added[row, k] += value[node, k]
    return made
