"""Grow the small trees of a sequence of the boosted stage, one after the other, on bins of the ranks.

    for each round:
        gradients and curvatures of the loss, as whole numbers of a unit: their sums do not depend on the order
        draw features
        until the tree has enough leaves, split the leaf with the largest gain:
            count the rows of the smaller child by bin of each drawn feature; the rest of the parent is the other child
            for both: look at every edge between bins
        add the values of the leaves to the scores

The gain of a split is the sum over its sides and the outputs of gradient**2 / (curvature + penalty), minus that of the
node (Newton's method; Friedman 2001). It is compared as float64 computes it from exact sums in a fixed order, which has
the same bits on every processor. Ties go to the feature drawn first, then to missing values on the left, then to the
lowest edge; among leaves to the one made first. A feature with missing values has these in bin 0, which is tried on
either side. The bins of a category are ordered by gradient over curvature in the node.

Oracle: tests/naive/refine.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.rng import GOLDEN, below, mix
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.refine.link import POISSON, SOFTMAX, SQUARED, put_means

# Most bins of a feature, and words of 64 bits that hold one bit for each.
BINS = 256
WORDS = 4
# Most counts and sums of the leaves of a tree.
MAX_COUNTS = 1 << 24
# Kinds of features: with bin 0 for missing values, on levels, on levels of which the last bin has those in no other.
NUMBERS, GAPS, LEVELS, POOLED = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)

# Streams of a stage, beside those of common/rng.py.
PURPOSE_REFINE = np.uint64(9)

_ZERO, _ONE = np.uint64(0), np.uint64(1)
# A gradient and a curvature share a word: (gradient << 32) + curvature, and so do their sums.
_HALF, _CURVE = np.int64(32), np.int64(0xFFFFFFFF)
_SUM_BITS = np.int64(31)
_MANTISSA_BITS, _BIAS = np.int64(52), np.int64(1023)
# Sums below it are as good as 0: their unit would not be a normal number.
_LEAST_SUM = 1e-290
# Columns of the table of nodes of a tree under construction.
_BEGIN, _END, _FEATURE, _CUT, _DEFAULT, _LEFT, _SLOT = 0, 1, 2, 3, 4, 5, 6
NODE_FIELDS = 7
# Distances of the shell sort of bins.
_GAPS = (132, 57, 23, 10, 4, 1)


class SequenceRows(NamedTuple):
    """The rows of the bag of a sequence.

    bins    uint8 [rows, features]
    kinds   uint8 [features]
    sizes   int32 [features], number of bins
    truth   float64 [rows], numbers or classes
    weight  float64 [rows], 1 on average
    start   float64 [rows, outputs], scores before the stage
    added   float64 [rows, outputs], sums of the values of the trees so far; added to
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
    key       uint64, of the stream of features
    rate      learning rate
    leaves    most leaves of a tree
    least     fewest rows of a leaf
    drawn     features drawn for a tree
    penalty   added to the curvature of a node
    smooth    added to the curvature of a level, by which levels are ordered, and to those of nodes split on levels
    """

    loss: np.int64
    key: np.uint64
    rate: float
    leaves: np.int64
    least: np.int64
    drawn: np.int64
    penalty: float
    smooth: float


class StageNodes(NamedTuple):
    """Nodes of trees in preorder, one tree after the other; in brackets the value in a leaf.

    ends     int64 [trees + 1], where trees begin, and the last one ends
    feature  int32 (LEAF)
    right    uint32 (0), number of the right child in the tree
    depth    uint32
    cut      int32 (0), last bin that goes left; on levels undefined
    default  bool (False), whether missing values go left, and levels that are not listed
    listed   uint64 [nodes, WORDS] (0), bins that are listed, of nodes on levels
    rows     uint64, rows of the bag
    gain     float64 (0)
    value    float64 [nodes, outputs], on the scale of the link, multiplied by the rate
    """

    ends: NDArray[np.int64]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    cut: NDArray[np.int32]
    default: NDArray[np.bool_]
    listed: NDArray[np.uint64]
    rows: NDArray[np.uint64]
    gain: NDArray[np.float64]
    value: NDArray[np.float64]


class StageScratch(NamedTuple):
    """Scratch of growing.

    floats   float64 [rows, 2 * outputs], gradients and curvatures
    whole    int64 [rows, outputs], the same as whole numbers that share a word
    order    uint32 [rows]; spare: the same
    features int32 [features]
    counts   int64 [slots, drawn features, bins, 1 + outputs], rows and sums by bin, of the leaves of a tree; a single
             slot where there is no memory for all: both children are counted then
    left     int64 [1 + outputs], of the left side of a split
    keys     float64 [BINS], by which levels are ordered; ranked: int64 [BINS], their bins
    nodes    int64 [nodes, NODE_FIELDS]; gain: float64 [nodes]; totals: int64 [nodes, 1 + outputs]
    listed   uint64 [nodes, WORDS]
    stack    int64 [nodes, 3]
    """

    floats: NDArray[np.float64]
    whole: NDArray[np.int64]
    order: NDArray[np.uint32]
    spare: NDArray[np.uint32]
    features: NDArray[np.int32]
    counts: NDArray[np.int64]
    left: NDArray[np.int64]
    keys: NDArray[np.float64]
    ranked: NDArray[np.int64]
    nodes: NDArray[np.int64]
    gain: NDArray[np.float64]
    totals: NDArray[np.int64]
    listed: NDArray[np.uint64]
    stack: NDArray[np.int64]


def make_nodes(trees: int, leaves: int, outputs: int) -> StageNodes:
    """Allocate the nodes of this many trees."""
    most = trees * (2 * leaves - 1)
    return StageNodes(
        np.zeros(trees + 1, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.uint32),
        np.empty(most, np.uint32),
        np.empty(most, np.int32),
        np.empty(most, np.bool_),
        np.empty((most, WORDS), np.uint64),
        np.empty(most, np.uint64),
        np.empty(most),
        np.empty((most, outputs)),
    )


def make_scratch(features: int, rows: int, outputs: int, leaves: int, drawn: int, bins: int) -> StageScratch:
    """Allocate the scratch of a sequence; bins: most of a feature."""
    nodes, width = 2 * leaves - 1, 1 + outputs
    slots = leaves if leaves * drawn * bins * width <= MAX_COUNTS else 1
    return StageScratch(
        np.empty((rows, 2 * outputs)),
        np.empty((rows, outputs), np.int64),
        np.empty(rows, np.uint32),
        np.empty(rows, np.uint32),
        np.empty(features, np.int32),
        np.empty((slots, drawn, bins, width), np.int64),
        np.empty(width, np.int64),
        np.empty(BINS),
        np.empty(BINS, np.int64),
        np.empty((nodes, NODE_FIELDS), np.int64),
        np.empty(nodes),
        np.empty((nodes, width), np.int64),
        np.empty((nodes, WORDS), np.uint64),
        np.empty((nodes, 3), np.int64),
    )


@inlined
def _power_of_two(exponent):
    return np.int64((exponent + _BIAS) << _MANTISSA_BITS).view(np.float64)


@inlined
def _exponent_above(number):
    """Return e with number < 2**e, for a number of at least _LEAST_SUM."""
    return (np.float64(number).view(np.int64) >> _MANTISSA_BITS) - _BIAS + np.int64(1)


@inlined
def _find_slopes(rows, rules, scratch):
    """Put gradients and curvatures into scratch.whole; return the units of both, powers of two.

    The sums of absolute values are below 2**31 units, and a few for rounding.
    """
    outputs = np.uint64(rows.start.shape[1])
    score = scratch.keys[: rows.start.shape[1]]
    slope_sum, curve_sum = 0.0, 0.0
    for i in range(np.uint64(rows.start.shape[0])):
        row = np.uint64(i)
        for k in range(outputs):
            score[np.uint64(k)] = rows.start[row, np.uint64(k)] + rows.added[row, np.uint64(k)]
        put_means(rules.loss, score)
        truth, weight = rows.truth[row], rows.weight[row]
        for k in range(outputs):
            mean = score[np.uint64(k)]
            wanted = truth if rules.loss != SOFTMAX else 1.0 if np.float64(k) == truth else 0.0
            curve = 1.0 if rules.loss == SQUARED else mean if rules.loss == POISSON else mean * (1.0 - mean)
            at = np.uint64(k) + np.uint64(k)
            scratch.floats[row, at] = weight * (mean - wanted)
            scratch.floats[row, at + _ONE] = weight * curve
            slope_sum += abs(scratch.floats[row, at])
            curve_sum += scratch.floats[row, at + _ONE]
    slope_at = _exponent_above(max(slope_sum, _LEAST_SUM)) - _SUM_BITS
    curve_at = _exponent_above(max(curve_sum, _LEAST_SUM)) - _SUM_BITS
    per_slope, per_curve = _power_of_two(-slope_at), _power_of_two(-curve_at)
    for i in range(np.uint64(rows.start.shape[0])):
        row = np.uint64(i)
        for k in range(outputs):
            at = np.uint64(k) + np.uint64(k)
            slope = np.int64(scratch.floats[row, at] * per_slope)
            curve = np.int64(scratch.floats[row, at + _ONE] * per_curve)
            scratch.whole[row, np.uint64(k)] = (slope << _HALF) + curve
    return _power_of_two(slope_at), _power_of_two(curve_at)


@inlined
def _draw_features(features, drawn, state):
    """Put `drawn` different features at the beginning of `features`, int32 [features], in the order of the draw."""
    for f in range(features.size):
        features[f] = f
    for f in range(drawn):
        state += GOLDEN
        other = f + np.int64(below(mix(state), np.uint64(features.size - f)))
        features[f], features[other] = features[other], features[f]


@inlined
def _clear(counts):
    flat = counts.reshape(-1)
    for k in range(np.uint64(flat.size)):
        flat[np.uint64(k)] = 0


@inlined
def _count(bins, order, whole, features, counts):
    """Set counts, int64 [drawn features, bins, 1 + outputs], to the rows of a node and the sums of their slopes.

    bins  uint8 [all rows, features]; order: uint32 [rows of the node]; features: int32 [drawn features]
    """
    _clear(counts)
    outputs = np.uint64(whole.shape[1])
    if outputs == _ONE:
        for i in range(np.uint64(order.size)):
            row = np.uint64(order[np.uint64(i)])
            own = whole[row, _ZERO]
            for j in range(np.uint64(features.size)):
                at = np.uint64(bins[row, np.uint64(features[np.uint64(j)])])
                counts[np.uint64(j), at, _ZERO] += np.int64(1)
                counts[np.uint64(j), at, _ONE] += own
    else:
        for i in range(np.uint64(order.size)):
            row = np.uint64(order[np.uint64(i)])
            for j in range(np.uint64(features.size)):
                at = np.uint64(bins[row, np.uint64(features[np.uint64(j)])])
                cell = counts[np.uint64(j), at]
                cell[_ZERO] += np.int64(1)
                for k in range(outputs):
                    cell[np.uint64(k) + _ONE] += whole[row, np.uint64(k)]


@inlined
def _take_away(counts, part):
    """Subtract the counts of one child from those of the parent."""
    own, other = counts.reshape(-1), part.reshape(-1)
    for k in range(np.uint64(own.size)):
        own[np.uint64(k)] -= other[np.uint64(k)]


@inlined
def _slope(sums, units):
    """Return the sum of gradients in a word."""
    return np.float64(sums >> _HALF) * units[0]


@inlined
def _curve(sums, units):
    """Return the sum of curvatures in a word."""
    return np.float64(sums & _CURVE) * units[1]


@inlined
def _side(sums, units, penalty):
    slope = _slope(sums, units)
    return slope * slope / (_curve(sums, units) + penalty)


@inlined
def _score(left, total, units, penalty):
    """Return the score of a split: the sum over both sides and the outputs of gradient**2 / (curvature + penalty)."""
    found = 0.0
    for k in range(_ONE, np.uint64(total.size)):
        at = np.uint64(k)
        found += _side(left[at], units, penalty)
        found += _side(total[at] - left[at], units, penalty)
    return found


@inlined
def node_score(total, units, penalty):
    """Return the score of a node, which is that of a split with no row on the right."""
    found = 0.0
    for k in range(_ONE, np.uint64(total.size)):
        found += _side(total[np.uint64(k)], units, penalty)
    return found


@inlined
def _order_bins(kind, size, counts, units, smooth, keys, ranked):
    """Put the bins that have rows into `ranked`; return their number. Bin 0 of missing values is left out.

    The bins of a category are sorted by gradient over curvature, of several outputs by that of the one whose bins
    differ most. Ties go to the lowest bin.
    """
    here = np.int64(0)
    for b in range(np.int64(1 if kind == GAPS else 0), np.int64(size)):
        if counts[np.uint64(b), _ZERO] > 0:
            ranked[here] = b
            here += 1
    if kind < LEVELS:
        return here
    chosen, most = _ONE, -1.0
    for k in range(_ONE, np.uint64(counts.shape[1])):
        found = 0.0
        for i in range(here):
            found += _side(counts[np.uint64(ranked[i]), np.uint64(k)], units, smooth)
        if found > most:
            chosen, most = np.uint64(k), found
    for i in range(here):
        at = np.uint64(ranked[i])
        keys[at] = _slope(counts[at, chosen], units) / (_curve(counts[at, chosen], units) + smooth)
    for gap in _GAPS:
        for i in range(gap, here):
            own, j = ranked[i], i
            while j >= gap and (
                keys[ranked[j - gap]] > keys[own] or (keys[ranked[j - gap]] == keys[own] and ranked[j - gap] > own)
            ):
                ranked[j] = ranked[j - gap]
                j -= gap
            ranked[j] = own
    return here


@inlined
def _scan(here, missing, counts, total, least, units, penalty, scratch, best):
    """Return the best score, above `best`, the number of ordered bins on the left, the rows there, and whether missing
    values go left; -1 for the number where there is none.

    missing  number of rows in bin 0, which go to either side
    """
    ranked, left, rows = scratch.ranked, scratch.left, total[_ZERO]
    cut, rows_left, missing_left = np.int64(-1), np.int64(0), False
    for side in range(2 if missing > 0 else 1):
        with_missing = side == 0 and missing > 0
        for k in range(np.uint64(left.size)):
            left[np.uint64(k)] = counts[_ZERO, np.uint64(k)] if with_missing else np.int64(0)
        on_left, sums = left[_ZERO], left[_ONE]
        for i in range(here):
            at = np.uint64(ranked[i])
            on_left += counts[at, _ZERO]
            if left.size == 2:  # without an array, which is slower
                sums += counts[at, _ONE]
            else:
                for k in range(_ONE, np.uint64(left.size)):
                    left[np.uint64(k)] += counts[at, np.uint64(k)]
            if on_left < least:
                continue
            if rows - on_left < least:
                break
            if left.size == 2:
                found = _side(sums, units, penalty) + _side(total[_ONE] - sums, units, penalty)
            else:
                found = _score(left, total, units, penalty)
            if found > best:
                best, cut, rows_left, missing_left = found, i + 1, on_left, with_missing
    return best, cut, rows_left, missing_left


@inlined
def _list_levels(here, cut, default, scratch, listed):
    """Set `listed`, uint64 [WORDS], to the ordered bins on the side to which levels that are not listed do not go."""
    for word in range(WORDS):
        listed[word] = 0
    for i in range(here):
        if (i < cut) != default:
            own = np.uint64(scratch.ranked[i])
            listed[own >> np.uint64(6)] |= _ONE << (own & np.uint64(63))


@inlined
def _search(node, rows, rules, units, scratch):
    """Find the best split of a node, whose rows are counted; its gain is 0 where there is none.

    Rows of levels that are not listed go to the side of the pooled levels, or to the larger one. The score of a node is
    higher with the smaller penalty of numbers: splits on levels have to be better by that.
    """
    nodes, total, ranked = scratch.nodes, scratch.totals[node], scratch.ranked
    scratch.gain[node] = 0.0
    own = node_score(total, units, rules.penalty)
    best = own
    for place in range(rules.drawn):
        feature, counts = np.uint64(scratch.features[place]), scratch.counts[nodes[node, _SLOT], place]
        kind, bins = rows.kinds[feature], rows.sizes[feature]
        here = _order_bins(kind, bins, counts, units, rules.smooth, scratch.keys, ranked)
        missing = counts[_ZERO, _ZERO] if kind == GAPS else np.int64(0)
        penalty = rules.penalty + rules.smooth if kind >= LEVELS else rules.penalty
        found, cut, rows_left, default = _scan(here, missing, counts, total, rules.least, units, penalty, scratch, best)
        if cut < 0:
            continue
        default = default if missing > 0 else rows_left + rows_left >= total[_ZERO]
        if kind >= LEVELS:
            for i in range(here):
                if kind == POOLED and ranked[i] == np.int64(bins - 1):
                    default = i < cut
            _list_levels(here, cut, default, scratch, scratch.listed[node])
        nodes[node, _FEATURE], nodes[node, _CUT] = np.int64(feature), ranked[cut - 1]
        nodes[node, _DEFAULT] = np.int64(default)
        best, scratch.gain[node] = found, found - own


@inlined
def goes_left(kind, bin_of, cut, default, listed):
    """Return whether a row of this bin goes left at a node."""
    if kind >= LEVELS:
        own = np.uint64(bin_of)
        return (((listed[own >> np.uint64(6)] >> (own & np.uint64(63))) & _ONE) == _ONE) != default
    if kind == GAPS and bin_of == 0:
        return default
    return np.int64(bin_of) <= cut


@inlined
def _split(node, left, rows, scratch):
    """Divide the rows of a node between its children, the nodes `left` and `left` + 1."""
    nodes, order, spare = scratch.nodes, scratch.order, scratch.spare
    begin, end = nodes[node, _BEGIN], nodes[node, _END]
    feature = np.uint64(nodes[node, _FEATURE])
    kind = rows.kinds[feature]
    cut, default, listed = nodes[node, _CUT], nodes[node, _DEFAULT] == 1, scratch.listed[node]
    kept, moved = begin, np.int64(0)
    totals = scratch.totals
    _clear(totals[left])
    for i in range(begin, end):
        row = order[np.uint64(i)]
        if goes_left(kind, rows.bins[np.uint64(row), feature], cut, default, listed):
            order[np.uint64(kept)] = row
            kept += 1
            for k in range(np.uint64(scratch.whole.shape[1])):
                totals[left, np.uint64(k) + _ONE] += scratch.whole[np.uint64(row), np.uint64(k)]
        else:
            spare[np.uint64(moved)] = row
            moved += 1
    for i in range(moved):
        order[np.uint64(kept + i)] = spare[np.uint64(i)]
    totals[left, _ZERO] = kept - begin
    for k in range(totals.shape[1]):
        totals[left + 1, k] = totals[node, k] - totals[left, k]
    nodes[node, _LEFT] = left
    nodes[left, _BEGIN], nodes[left, _END] = begin, kept
    nodes[left + 1, _BEGIN], nodes[left + 1, _END] = kept, end


@inlined
def _best_leaf(made, scratch):
    """Return the leaf with the largest gain, the first of equals; -1 if none can be split."""
    best, gain = np.int64(-1), 0.0
    for node in range(made):
        if scratch.nodes[node, _LEFT] < 0 and scratch.gain[node] > gain:
            best, gain = np.int64(node), scratch.gain[node]
    return best


@inlined
def _grow_tree(rows, rules, units, scratch):
    """Grow a tree into scratch.nodes; node 0 is the root, and a leaf has no left child (-1).

    The children of the node that is split as the n-th are the nodes 2 n + 1 and 2 n + 2, so there is a slot for the
    counts of either: the smaller one is counted, and the rest of the parent is the other one. Each function is called
    in one place only, so that it is compiled once.
    """
    nodes, totals, count = scratch.nodes, scratch.totals, np.int64(rows.start.shape[0])
    shared = scratch.counts.shape[0] == 1
    nodes[0, _BEGIN], nodes[0, _END], nodes[0, _SLOT] = 0, count, 0
    _clear(totals[0])
    totals[0, _ZERO] = count
    for i in range(np.uint64(count)):
        scratch.order[np.uint64(i)] = np.uint32(i)
        for k in range(np.uint64(scratch.whole.shape[1])):
            totals[0, np.uint64(k) + _ONE] += scratch.whole[np.uint64(i), np.uint64(k)]
    made, small, large = np.int64(1), np.int64(0), np.int64(0)
    while True:
        nodes[small, _LEFT], nodes[large, _LEFT] = -1, -1
        scratch.gain[small], scratch.gain[large] = 0.0, 0.0
        searched = (made + 1) >> 1 < rules.leaves and totals[large, _ZERO] >= rules.least + rules.least
        for child in range((1 if made == 1 else 2) if searched else 0):
            node = small if child == 0 else large
            counts = scratch.counts[nodes[node, _SLOT]]
            if child == 0 or shared:
                order = scratch.order[nodes[node, _BEGIN] : nodes[node, _END]]
                _count(rows.bins, order, scratch.whole, scratch.features[: rules.drawn], counts)
            else:
                _take_away(counts, scratch.counts[nodes[small, _SLOT]])
            if totals[node, _ZERO] >= rules.least + rules.least:
                _search(node, rows, rules, units, scratch)
        best = _best_leaf(made, scratch) if (made + 1) >> 1 < rules.leaves else np.int64(-1)
        if best < 0:
            break
        _split(best, made, rows, scratch)
        small, large = made, made + 1
        if totals[small, _ZERO] > totals[large, _ZERO]:
            small, large = large, small
        nodes[small, _SLOT] = 0 if shared else (made + 1) >> 1
        nodes[large, _SLOT] = nodes[best, _SLOT]
        made += 2


@inlined
def _emit(first, rows, rules, units, scratch, out):
    """Write the tree in preorder from the node `first` of `out` on, and add the values of its leaves; return its end.

    An entry of the stack is a node, its depth, and the parent of a right child, which is numbered when it is reached.
    """
    nodes, stack, outputs = scratch.nodes, scratch.stack, np.uint64(rows.start.shape[1])
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, -1
    waiting, at = np.int64(1), first
    while waiting > 0:
        waiting -= 1
        node, depth, parent = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
        if parent >= 0:
            out.right[parent] = np.uint32(at - first)
        begin, end, inner = nodes[node, _BEGIN], nodes[node, _END], nodes[node, _LEFT] >= 0
        out.feature[at], out.right[at] = np.int32(nodes[node, _FEATURE] if inner else LEAF), np.uint32(0)
        out.depth[at], out.rows[at] = np.uint32(depth), np.uint64(end - begin)
        out.cut[at] = np.int32(nodes[node, _CUT] if inner else 0)
        out.default[at] = inner and nodes[node, _DEFAULT] == 1
        out.gain[at] = scratch.gain[node] if inner else 0.0
        on_levels = inner and rows.kinds[np.uint64(nodes[node, _FEATURE])] >= LEVELS
        for word in range(WORDS):
            out.listed[at, word] = scratch.listed[node, word] if on_levels else _ZERO
        for k in range(outputs):
            sums = scratch.totals[node, np.uint64(k) + _ONE]
            out.value[at, np.uint64(k)] = -(rules.rate * (_slope(sums, units) / (_curve(sums, units) + rules.penalty)))
        if inner:
            left = nodes[node, _LEFT]
            stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = left + 1, depth + 1, at
            stack[waiting + 1, 0], stack[waiting + 1, 1], stack[waiting + 1, 2] = left, depth + 1, -1
            waiting += 2
        else:
            for i in range(begin, end):
                row = np.uint64(scratch.order[np.uint64(i)])
                for k in range(outputs):
                    rows.added[row, np.uint64(k)] += out.value[at, np.uint64(k)]
        at += 1
    return at


@kernel
def grow_rounds(rows, rules, rounds, scratch, out):
    """Grow the trees of a sequence into `out`.

    rows     SequenceRows; rules: StageRules; scratch: StageScratch
    rounds   int64, number of trees
    out      StageNodes, out

    Cost: for each tree about 2.5 * rows * drawn features steps of 1 ns, and for each node and drawn feature a step of
    about 3 ns for each bin that has rows.
    """
    out.ends[0] = 0
    for r in range(rounds):
        units = _find_slopes(rows, rules, scratch)
        _draw_features(scratch.features, rules.drawn, mix(rules.key ^ mix(np.uint64(r) + GOLDEN)))
        _grow_tree(rows, rules, units, scratch)
        out.ends[r + 1] = _emit(out.ends[r], rows, rules, units, scratch, out)
