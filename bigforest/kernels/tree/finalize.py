"""Convert trees in codes to tables of nodes: thresholds in values, decreases of impurity. Oracle:
tests/naive/tree.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.deviance import logarithm
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.kernels.common.limbs import PARTS, add_product, as_float, carry
from bigforest.kernels.common.midpoint import midpoint
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.scan.categorical_missing import SEEN_LEFT, UNSEEN
from bigforest.kernels.scan.impurity import POISSON, impurity_of

# A series replaces (1 + x) log(1 + x) - x for smaller abs(x), where cancellation would lose digits.
_SERIES = 0.01


@inlined
def describe_node(nodes, node, sums, impurity):
    """Return the weight (uint64) of a node, and its impurity or, for regression, its mean target in steps."""
    if sums is not None:
        weight = np.uint64(nodes.counts[node, 0])
        return weight, np.float64(sums[node]) / np.float64(weight)
    weight = np.uint64(0)
    for k in range(np.uint64(nodes.counts.shape[1])):
        weight += np.uint64(nodes.counts[node, k])
    return weight, impurity_of(impurity, nodes.counts[node], np.float64(weight))


@inlined
def side_deviance(mean, node_mean):
    """Return half the Poisson deviance of the mean of a child from the mean of its node.

    Means can be negative only by rounding.
    """
    if node_mean <= 0.0:
        return 0.0
    apart = (larger(mean, 0.0) - node_mean) / node_mean
    if abs(apart) < _SERIES:
        series = 0.0
        for k in range(8, 1, -1):
            series = 1.0 / (k * (k - 1)) - apart * series
        return node_mean * apart * apart * series
    return node_mean * ((1.0 + apart) * logarithm(1.0 + apart) - apart)


@inlined
def decrease_of(node, child_l, child_r, weight, value, sums, impurity, scale):
    """Return the decrease of impurity by the split of a node between two children; see `finalize_nodes`."""
    w, w_l, w_r = np.float64(weight[node]), np.float64(weight[child_l]), np.float64(weight[child_r])
    if sums is None:
        return value[node] - (w_l * value[child_l] + w_r * value[child_r]) / w
    if impurity == POISSON:
        return (w_l * side_deviance(value[child_l], value[node]) + w_r * side_deviance(value[child_r], value[node])) / w
    # The variance of the means of the children. `centre` is subtracted from both means, so that no digits cancel.
    centre = sums[node] // np.int64(weight[node])
    mean_l = np.float64(sums[child_l] - centre * np.int64(weight[child_l])) / w_l
    mean_r = np.float64(sums[child_r] - centre * np.int64(weight[child_r])) / w_r
    return (w_l / w) * (w_r / w) * (mean_l - mean_r) * (mean_l - mean_r) * scale[1] * scale[1]


@kernel
def finalize_nodes(
    nodes,
    sums,
    subsets,
    dictionaries,
    has_thresholds,
    impurity,
    scale,
    threshold,
    default_left,
    gain,
    weight,
    value,
    start,
):
    """Compute the columns that a table of nodes has and a tree in codes lacks.

    nodes           CodeTree of kernels/tree/builder.py, grown on classes or numbers
    sums            nodes.sum; None for classes
    subsets         Subsets of kernels/scan/categorical_missing.py; None without categories and missing values
    dictionaries    Dictionaries of store/store.py
    has_thresholds  True if `threshold` has the thresholds of all nodes on entry, False if only of oblique nodes
    impurity        see impurity_of
    scale           float64 [2], offset and step of regression targets, see TargetSpec; not used for classes
    threshold       float64 [nodes], out: nan in a leaf and on a category; infinite if only missing values go right
    default_left    bool [nodes], out: True if rows without a value went left; in nodes without such rows, True if the
                    left child weighs at least as much as the right one; False in leaves and oblique nodes
    gain            float64 [nodes], out: impurity of the node less the weighted mean impurity of its children; nan in a
                    leaf
    weight          uint64 [nodes], out
    value           float64 [nodes], out: impurity for classes, mean for numbers
    start           int64 [nodes + 1], out: node i lists the levels start[i]:start[i + 1]; not written without subsets
    """
    low, high = dictionaries.low, dictionaries.high
    if subsets is not None:
        start[0] = np.int64(0)
        for node in range(np.uint64(nodes.feature.size)):
            start[node + np.uint64(1)] = start[node] + np.int64(subsets.size[node])
    for back in range(np.uint64(nodes.feature.size)):
        node = np.uint64(nodes.feature.size) - np.uint64(1) - back  # children before their parent
        weight[node], answer = describe_node(nodes, node, sums, impurity)
        value[node] = answer if sums is None else scale[0] + answer * scale[1]
        default_left[node] = False
        if nodes.feature[node] == LEAF:
            threshold[node] = np.nan
            gain[node] = np.nan
            continue
        child_l = node + np.uint64(1)
        child_r = np.uint64(nodes.right[node])
        gain[node] = decrease_of(node, child_l, child_r, weight, value, sums, impurity, scale)
        if nodes.feature[node] == OBLIQUE:
            continue
        default_left[node] = weight[child_l] >= weight[child_r]
        if subsets is not None and subsets.missing[node] != UNSEEN:
            default_left[node] = subsets.missing[node] == SEEN_LEFT
        if subsets is not None and subsets.size[node] > np.uint32(0):
            threshold[node] = np.nan
        elif subsets is not None and nodes.right_code[node] == np.uint32(0):
            threshold[node] = np.inf
        elif not has_thresholds:
            first = np.uint64(dictionaries.offsets[np.uint64(nodes.feature[node])])
            last = np.uint64(low.size) - np.uint64(1)  # codes may be arbitrary if another process writes to the store
            below = smaller(first + np.uint64(nodes.left_code[node]), last)
            above = smaller(first + np.uint64(nodes.right_code[node]), last)
            threshold[node] = midpoint(high[below], low[above])


@kernel
def describe_classes(starts, feature, right, totals, impurity, weight, value, gain):
    """Compute weight, impurity and decrease of the nodes of trees from wide class weights (64 bits).

    starts   int64 [trees + 1], tree t has the nodes starts[t]:starts[t + 1]
    feature  int32 [nodes], LEAF in a leaf
    right    uint32 [nodes], number of the right child within the tree
    totals   int64 [nodes, classes], weights by class
    weight   uint64 [nodes], out
    value    float64 [nodes], out: impurity
    gain     float64 [nodes], out: decrease of impurity, nan in a leaf
    """
    for tree in range(starts.size - 1):
        for back in range(starts[tree + 1] - starts[tree]):
            node = starts[tree + 1] - 1 - back  # children before their parent
            total = np.uint64(0)
            for k in range(totals.shape[1]):
                total += np.uint64(totals[node, k])
            weight[node] = total
            value[node] = impurity_of(impurity, totals[node], np.float64(total))
            gain[node] = np.nan
            if feature[node] != LEAF:
                child_r = starts[tree] + np.int64(right[node])
                gain[node] = decrease_of(node, node + 1, child_r, weight, value, None, impurity, None)


@inlined
def mean_above(sums, node, centre, spare):
    """Return the mean of a node minus `centre` (int64), without cancellation; spare: int64 [1, PARTS], scratch."""
    for part in range(1, PARTS):
        spare[0, part] = sums[node, part]
    add_product(spare, 0, sums[node, 0], -centre)
    return as_float(spare, 0) / np.float64(sums[node, 0])


@kernel
def describe_numbers(starts, feature, right, sums, spare, impurity, scale, weight, value, gain):
    """Compute weight, mean and decrease of impurity of the nodes of trees from wide weights and weighted sums.

    sums   int64 [nodes, PARTS], see kernels/common/limbs.py; `carry` is called here
    spare  int64 [1, PARTS], scratch

    For the other arguments see `finalize_nodes` and `describe_classes`.
    """
    for node in range(sums.shape[0]):
        carry(sums, node)
    for tree in range(starts.size - 1):
        for back in range(starts[tree + 1] - starts[tree]):
            node = starts[tree + 1] - 1 - back  # children before their parent
            weight[node] = np.uint64(sums[node, 0])
            mean = as_float(sums, node) / np.float64(sums[node, 0])
            value[node] = scale[0] + mean * scale[1]
            gain[node] = np.nan
            if feature[node] == LEAF:
                continue
            child_l, child_r = node + 1, starts[tree] + np.int64(right[node])
            w, w_l, w_r = np.float64(sums[node, 0]), np.float64(sums[child_l, 0]), np.float64(sums[child_r, 0])
            if impurity == POISSON:
                deviance_l = side_deviance(value[child_l], value[node])
                deviance_r = side_deviance(value[child_r], value[node])
                gain[node] = (w_l * deviance_l + w_r * deviance_r) / w
                continue
            centre = np.int64(np.floor(mean))
            apart = mean_above(sums, child_l, centre, spare) - mean_above(sums, child_r, centre, spare)
            gain[node] = (w_l / w) * (w_r / w) * apart * apart * scale[1] * scale[1]
