"""Grow one tree depth-first from its bag, in memory. Oracle: tests/naive/tree.py.

A node is popped, numbered (so numbers run in preorder), and either becomes a leaf or draws features, scans each for
its best threshold, and partitions its rows stably between its children, whose random keys follow from its own. What
happens in a node therefore depends on its rows and its key alone, whichever order nodes are visited in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.impurity import GINI, impurity_of
from bigforest.kernels.jit import helper, inlined, kernel
from bigforest.kernels.pairs import PAIRS
from bigforest.kernels.partition import partition
from bigforest.kernels.rng import GOLDEN, LEFT, RIGHT, mix
from bigforest.kernels.scan import (
    BUCKETS,
    CODE,
    FEATURE,
    ONE,
    SHIFT32,
    SORT_BUCKETS,
    W_L,
    W_R,
    ZERO,
    Pairs,
    as_key,
    gather,
    sort_rows,
)
from bigforest.kernels.scan_many import scan_many, walk_many, walk_scores
from bigforest.kernels.scan_two import boundaries_two, scan_two


class Rules(NamedTuple):
    """What stops and steers a tree; plain numbers, as kernels take them. max_depth -1 is unlimited."""

    mtry: int
    impurity: int
    max_depth: int
    min_split: int
    min_leaf: int
    redraw: bool


class Nodes(NamedTuple):
    """A tree in preorder. A split sends codes up to left_code to the left; right_code is the smallest on the right.

    feature int32 (-1 in a leaf), left, right uint32 (0 in a leaf), depth uint32, left_code, right_code uint32,
    gain float64, weight int64, counts uint32 [nodes, classes].
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    left_code: NDArray[np.uint32]
    right_code: NDArray[np.uint32]
    gain: NDArray[np.float64]
    counts: NDArray[np.uint32]


class Work(NamedTuple):
    """Scratch of one growing tree: allocated once, reused by every scan."""

    codes: NDArray[np.uint32]
    add: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    places: NDArray[np.uint32]
    hist2: NDArray[np.uint64]
    sums2: NDArray[np.uint64]
    hist: NDArray[np.uint32]
    groups: NDArray[np.uint32]
    edge: NDArray[np.float64]
    bound: NDArray[np.float64]
    left: NDArray[np.int64]
    inner: NDArray[np.int64]
    pairs: Pairs


# Up to this many rows sorting beats histogram, bound and opening.
SORTED_TWO = np.uint64(128)
SORTED_MANY = np.uint64(512)


@kernel
def make_work(rows, classes):
    """Scratch for nodes of up to `rows` rows and `classes` classes."""
    slots = max(np.int64(rows) + 1, 64)
    return Work(
        np.empty(slots, np.uint32),
        np.empty(slots, np.uint64),
        np.empty(slots, np.uint64),
        np.empty(SORT_BUCKETS + 2, np.uint32),
        np.empty(BUCKETS, np.uint64),
        np.empty(BUCKETS + 1, np.uint64),
        np.empty(BUCKETS * classes, np.uint32),
        np.empty(BUCKETS * classes // 8, np.uint32),
        np.empty(BUCKETS, np.float64),
        np.empty(BUCKETS + BUCKETS // 8, np.float64),
        np.empty(classes, np.int64),
        np.empty(classes, np.int64),
        Pairs(
            np.empty(PAIRS, np.uint64),
            np.empty(PAIRS, np.uint32),
            np.empty(PAIRS, np.uint32),
            np.empty(PAIRS, np.uint32),
            np.empty(PAIRS, np.float64),
        ),
    )


@inlined
def scan_feature(feature, low, high, items, n, total, sq, weight, rules, table, best, limit, work):
    """Offer every threshold of `feature`, whose codes are in work.codes[:n], low < high. Picks the way by size."""
    classes = total.size
    if rules.impurity == GINI:
        if classes == 2:
            if n > SORTED_TWO:
                wanted = np.uint64(64)
                while wanted < np.uint64(BUCKETS) and wanted * np.uint64(8) < n:
                    wanted *= np.uint64(2)
                scan_two(
                    work.codes,
                    low,
                    high,
                    work.add,
                    items,
                    n,
                    wanted,
                    work.hist2,
                    work.sums2,
                    work.edge,
                    work.bound,
                    total[ONE],
                    weight,
                    rules.min_leaf,
                    feature,
                    best,
                    limit,
                    work.keys,
                    work.places,
                    work.pairs,
                )
                return
        elif n > SORTED_MANY or (
            np.uint64(high - low) * np.uint64(classes) < n and np.uint64(high - low) < np.uint64(256)
        ):
            wanted = np.uint64(256) if n < np.uint64(32768) else np.uint64(BUCKETS)
            scan_many(
                work.codes,
                low,
                high,
                items,
                n,
                wanted,
                work.hist,
                work.groups,
                work.bound,
                work.left,
                work.inner,
                total,
                sq,
                weight,
                rules.min_leaf,
                feature,
                best,
                limit,
                work.keys,
                work.places,
                work.pairs,
            )
            return
    if classes == 2 and rules.impurity == GINI:
        for i in range(n):
            work.keys[i] = as_key(work.codes[i], items[i])
        boundaries_two(
            work.keys,
            ZERO,
            n,
            np.uint64(weight),
            0,
            0,
            total[ONE],
            weight,
            rules.min_leaf,
            feature,
            best,
            limit,
            work.pairs,
        )
        return
    sort_rows(work.codes, low, high, items, n, work.keys, work.places, work.pairs)
    if rules.impurity != GINI:
        walk_scores(
            rules.impurity,
            table,
            work.keys,
            n,
            work.left,
            work.inner,
            total,
            weight,
            rules.min_leaf,
            feature,
            best,
        )
    else:
        for k in range(np.uint64(classes)):
            work.left[k] = 0
        walk_many(work.keys, ZERO, n, work.left, total, 0, 0, sq, weight, rules.min_leaf, feature, best, limit)


@helper
def find_split(codes, by_row, items, n, key, total, sq, weight, rules, table, constant, perm, undo, best, limit, work):
    """Draw features and scan them; the best split is left in `best` (feature -1: none).

    constant uint64 [words]: bit f is set where feature f is known to be constant in this node; found ones are added.
    perm int64 [features] is the identity before and after, so that the draw depends on `key` alone.
    """
    features = np.uint64(perm.size)
    mtry = np.uint64(rules.mtry)
    best[FEATURE] = -1
    limit[0] = -1.0
    if total.size == 2 and rules.impurity == GINI and n > SORTED_TWO:
        for i in range(n):
            item = items[i]
            work.add[i] = (item & np.uint64(0xFFFF)) << (((item >> np.uint64(16)) & ONE) << np.uint64(5))
    drawn = ZERO
    usable = ZERO
    state = key
    while drawn < features and (usable < mtry if rules.redraw else (drawn < mtry or usable == ZERO)):
        state += GOLDEN
        j = drawn + (((mix(state) >> SHIFT32) * (features - drawn)) >> SHIFT32)
        feature = perm[j]
        perm[j] = perm[drawn]
        perm[drawn] = feature
        undo[drawn] = j
        drawn += ONE
        word = np.uint64(feature) >> np.uint64(6)
        bit = ONE << (np.uint64(feature) & np.uint64(63))
        if constant[word] & bit:
            continue
        low, high = gather(codes, by_row, np.uint64(feature), items, n, work.codes)
        if low == high:
            constant[word] |= bit
            continue
        usable += ONE
        scan_feature(feature, low, high, items, n, total, sq, weight, rules, table, best, limit, work)
    while drawn > ZERO:
        drawn -= ONE
        j = undo[drawn]
        feature = perm[drawn]
        perm[drawn] = perm[j]
        perm[j] = feature


@kernel
def longer(array, size):
    """A copy of a 1-D or 2-D array with room for `size` rows."""
    copy = np.empty((size,) + array.shape[1:], array.dtype)
    copy[: array.shape[0]] = array
    return copy


@kernel
def grow(codes, by_row, items, classes, key, rules, table):
    """Grow a tree on the rows of `items` and return its Nodes.

    codes Codes; by_row Rows; items uint64 [n >= 1] (row << 32 | class << 16 | multiplicity, rows ascending), reordered in place;
    classes int; key uint64; rules Rules; table int64 from impurity.entropy_table. Total weight below 2**31.
    """
    features = codes.place.shape[0]
    words = (features + 63) // 64
    work = make_work(items.size, classes)
    best = np.empty(6, np.int64)
    limit = np.empty(1, np.float64)
    perm = np.arange(features)
    undo = np.empty(features, np.uint64)

    room = 256
    feature_of = np.empty(room, np.int32)
    right_of = np.empty(room, np.uint32)
    depth_of = np.empty(room, np.uint32)
    left_code = np.empty(room, np.uint32)
    right_code = np.empty(room, np.uint32)
    gain_of = np.empty(room, np.float64)
    counts_of = np.empty((room, classes), np.uint32)
    count = 0

    # The stack holds nodes still to be numbered: the right siblings along the path, and the next node.
    deep = 64
    begin_at = np.empty(deep, np.uint64)
    end_at = np.empty(deep, np.uint64)
    key_at = np.empty(deep, np.uint64)
    depth_at = np.empty(deep, np.int64)
    parent_at = np.empty(deep, np.int64)
    total_at = np.empty((deep, classes), np.int64)
    constant_at = np.empty((deep, words), np.uint64)
    total = np.zeros(classes, np.int64)
    total_l = np.zeros(classes, np.int64)
    constant = np.zeros(words, np.uint64)
    top = 1
    begin_at[0] = ZERO
    end_at[0] = np.uint64(items.size)
    key_at[0] = key
    depth_at[0] = 0
    parent_at[0] = -1
    total_at[0] = 0
    for i in range(items.size):
        item = items[i]
        total_at[0, (item >> np.uint64(16)) & np.uint64(0xFFFF)] += np.int64(item & np.uint64(0xFFFF))
    constant_at[0] = ZERO

    while top > 0:
        top -= 1
        begin = begin_at[top]
        n = end_at[top] - begin
        depth = depth_at[top]
        weight = np.int64(0)
        sq = np.int64(0)
        if count == room:
            room *= 2
            feature_of = longer(feature_of, room)
            right_of = longer(right_of, room)
            depth_of = longer(depth_of, room)
            left_code = longer(left_code, room)
            right_code = longer(right_code, room)
            gain_of = longer(gain_of, room)
            counts_of = longer(counts_of, room)
        for k in range(classes):
            here = total_at[top, k]
            total[k] = here
            weight += here
            sq += here * here
            counts_of[count, k] = here
        node = count
        count += 1
        if parent_at[top] >= 0:
            right_of[parent_at[top]] = node
        feature_of[node] = -1
        right_of[node] = 0
        depth_of[node] = depth
        left_code[node] = 0
        right_code[node] = 0
        gain_of[node] = np.nan
        if sq == weight * weight or weight < rules.min_split or weight < 2 * rules.min_leaf or depth == rules.max_depth:
            continue
        constant[:] = constant_at[top]
        rows = items[begin : begin + n]
        find_split(
            codes,
            by_row,
            rows,
            n,
            key_at[top],
            total,
            sq,
            weight,
            rules,
            table,
            constant,
            perm,
            undo,
            best,
            limit,
            work,
        )
        if best[FEATURE] < 0:
            continue
        size_l, below, above = partition(codes, best[FEATURE], best[CODE], rows, n, work.keys, total_l)
        feature_of[node] = best[FEATURE]
        left_code[node] = below
        right_code[node] = above
        for k in range(classes):
            total[k] -= total_l[k]
        share_l = np.float64(best[W_L]) / np.float64(weight)
        gain_of[node] = impurity_of(rules.impurity, total_at[top], weight) - (
            share_l * impurity_of(rules.impurity, total_l, best[W_L])
            + (1.0 - share_l) * impurity_of(rules.impurity, total, best[W_R])
        )
        if top + 2 > deep:
            deep *= 2
            begin_at = longer(begin_at, deep)
            end_at = longer(end_at, deep)
            key_at = longer(key_at, deep)
            depth_at = longer(depth_at, deep)
            parent_at = longer(parent_at, deep)
            total_at = longer(total_at, deep)
            constant_at = longer(constant_at, deep)
        own_key = key_at[top]
        for side in range(2):  # the right child below the left one, which is numbered next
            parent_at[top] = -1 if side else node
            depth_at[top] = depth + 1
            key_at[top] = mix(own_key ^ (LEFT if side else RIGHT))
            begin_at[top] = begin if side else begin + size_l
            end_at[top] = begin + size_l if side else begin + n
            for k in range(classes):
                total_at[top, k] = total_l[k] if side else total[k]
            constant_at[top] = constant
            top += 1
    return Nodes(
        feature_of[:count].copy(),
        right_of[:count].copy(),
        depth_of[:count].copy(),
        left_code[:count].copy(),
        right_code[:count].copy(),
        gain_of[:count].copy(),
        counts_of[:count].copy(),
    )
