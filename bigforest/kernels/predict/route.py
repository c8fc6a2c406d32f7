"""Route rows through trees: the loops of prediction and of the out-of-bag report.

Many rows go node by node (`route`). Nodes are visited in the order in which they are stored, each with the list of the
rows of a tile that reach it. So a node is read once, its column of the tile is in the cache, and a row at a node costs
few instructions and no branch:

    rows at a node      7  2  9  4  1
    goes left?          1  0  1  0  1
    rows after          7  9  1 | 2  4      rows of the left child, then rows of the right child

Rows that are few compared with the nodes of a tree go level by level, in several trees at once (`route_levels`). All
rows of a tile advance together, each from its current node, so many independent loads are in flight, and a node can be
prefetched a level ahead. A row that has reached its leaf is dropped from the list without a branch: a branch on data is
mispredicted at every other step, which costs more than the step. The fewer rows a tile has, the more trees are walked
at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.partition import is_up_to
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.numbers import prefetch, smaller
from bigforest.kernels.predict.flat_tree import MORE, TERMS, TILE, RouteInputs, is_listed

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
# Words of a block of a direction, see `Directions` in flat_tree.py.
_BLOCK = np.uint64(2 * TERMS)


@inlined
def add_block(tile, directions, word, rows, value):
    """Add the terms of the block that begins at `word`, in order, to value[i] for rows[i]; return True if the direction
    continues."""
    at, weight = directions.at[word : word + _BLOCK], directions.weight[word : word + _BLOCK]
    first, second, third, last = at[0], at[2], at[4], at[6] & ~MORE
    a, b, c, d = weight[1], weight[3], weight[5], weight[7]
    for i in range(np.uint64(rows.size)):
        row = np.uint64(rows[i])
        projection = value[i] + a * np.float64(tile[row, first])
        projection += b * np.float64(tile[row, second])
        projection += c * np.float64(tile[row, third])
        value[i] = projection + d * np.float64(tile[row, last])
    return at[6] >= MORE


@inlined
def project_tile(tile, directions, block, rows, value):
    """Set value[i] to the projection of rows[i] (kernels/common/layout.py Terms) on the direction that begins with
    `block`.

    Most directions have one term or two, and padding of weight 0; skipping the padding saves an eighth of the time.
    """
    word = block * _BLOCK
    at, weight = directions.at[word : word + _BLOCK], directions.weight[word : word + _BLOCK]
    if weight[5] == 0.0:
        first, second = at[0], at[2]
        a, b = weight[1], weight[3]
        for i in range(np.uint64(rows.size)):
            row = np.uint64(rows[i])
            value[i] = (0.0 + a * np.float64(tile[row, first])) + b * np.float64(tile[row, second])
    else:
        for i in range(np.uint64(rows.size)):
            value[i] = 0.0
        while add_block(tile, directions, word, rows, value):
            word += _BLOCK


@inlined
def look_up_tile(tile, layout, sets, node, category, rows, value):
    """Set value[i] to 0 if rows[i] goes left at a node on the category in column `category`, else to 1."""
    default = (np.uint64(layout.links[node + node + _ONE]) & layout.default) != _ZERO
    for i in range(np.uint64(rows.size)):
        code = np.uint64(tile[np.uint64(rows[i]), category])
        value[i] = np.float64(is_listed(sets, np.uint64(layout.links[node + node]), code) == default)


@inlined
def look_at(tile, layout, directions, sets, node, rows, value):
    """Set value[i] to the number that an inner node compares for rows[i]; return the largest number that goes left.

    sets  None if no node is on a category, compiled separately
    """
    column = np.uint64(layout.links[node + node + _ONE]) >> layout.shift
    if sets is None:
        project_tile(tile, directions, column, rows, value)
        return layout.thresholds[node + node]
    else:  # noqa: RET505, only this form is dropped when sets is None
        category = column - sets.features  # wraps round for other features
        if category < sets.features:
            look_up_tile(tile, layout, sets, node, category, rows, value)
            return 0.0
        project_tile(tile, directions, column, rows, value)
        return layout.thresholds[node + node]


@inlined
def split_by(goes_left, arguments, rows, spare):
    """Partition rows as `partition_by`, with a counter for each side: 7 % faster on 28 columns of float32."""
    size_l, size_r = _ZERO, _ZERO
    for i in range(np.uint64(rows.size)):
        row = rows[i]
        rows[size_l] = row
        spare[size_r] = row
        left = goes_left(i, row, *arguments)
        size_l += left
        size_r += _ONE - left
    for i in range(size_r):
        rows[size_l + i] = spare[i]
    return size_l


@inlined
def is_left_or_missing(i, row, column, limit):
    """Return 1 if the value of a row is at most `limit` or missing (NaN), else 0, as uint64."""
    return np.uint64(not column[np.uint64(row)] > limit)


@inlined
def is_left(i, row, column, limit):
    """Return 1 if the value of a row is at most `limit`, else 0, as uint64."""
    return np.uint64(column[np.uint64(row)] <= limit)


@inlined
def split_numbers(column, limit, default, missing, rows, spare):
    """Partition rows by a column: values up to `limit` go left, and missing values if `default` is set.

    rows     [n], mutated: stably reordered, rows that go left first
    spare    of the type of rows [>= n], scratch
    missing  None if no value is NaN, compiled separately

    Return the number of rows that go left, uint64.
    """
    if missing is not None and default:
        return split_by(is_left_or_missing, (column, limit), rows, spare)
    return split_by(is_left, (column, limit), rows, spare)


@inlined
def is_in_mask(i, row, column, mask, other):
    """Return 1 if the code of a row is in `mask`, a bit for each code below 64, else 0; inverted if `other` is 1."""
    code = np.uint64(np.int64(column[np.uint64(row)]))
    return ((mask >> (code & np.uint64(63))) & np.uint64(code < np.uint64(64))) ^ other


@inlined
def is_in_words(i, row, column, words, low, span, other):
    """Return 1 if the code of a row is in `words`, a bit for each of `span` codes from `low` on, else 0; inverted if
    `other` is 1."""
    at = np.uint64(np.int64(column[np.uint64(row)])) - low  # wraps round for codes below `low`
    within = np.uint64(at < span)
    at &= _ZERO - within
    return ((np.uint64(words[at >> np.uint64(5)]) >> (at & np.uint64(31))) & within) ^ other


@inlined
def is_in_list(i, row, column, sets, number, other):
    """Return 1 if the code of a row is in set `number` of LevelSets, else 0; inverted if `other` is 1."""
    return np.uint64(is_listed(sets, number, np.uint64(np.int64(column[np.uint64(row)])))) ^ other


@inlined
def split_levels(column, sets, number, default, rows, spare):
    """Partition rows by a column: codes in a set of LevelSets go left or, with `default`, all other codes.

    For rows, spare and the result see `split_numbers`.
    """
    mask, other = sets.mask[number], np.uint64(default)
    low, span, first = sets.low[number], sets.span[number], sets.first[number]
    if mask != _ZERO:
        return split_by(is_in_mask, (column, mask, other), rows, spare)
    if (sets.first[number + _ONE] - first) << np.uint64(5) >= span:
        return split_by(is_in_words, (column, sets.words[first:], low, span, other), rows, spare)
    return split_by(is_in_list, (column, sets, number, other), rows, spare)


@inlined
def split_by_value(tile, layout, sets, missing, node, rows, spare):
    """Partition rows at an inner node that is not oblique.

    tile  [used features, rows of a tile]; for rows, spare and the result see `split_numbers`
    sets  None if no node is on a category, compiled separately
    """
    link = np.uint64(layout.links[node + node + _ONE])
    column, default = link >> layout.shift, (link & layout.default) != _ZERO
    if sets is None:
        return split_numbers(tile[column], layout.thresholds[node + node], default, missing, rows, spare)
    else:  # noqa: RET505, only this form is dropped when sets is None
        if column < sets.features:
            return split_numbers(tile[column], layout.thresholds[node + node], default, missing, rows, spare)
        number = np.uint64(layout.links[node + node])
        return split_levels(tile[column - sets.features], sets, number, default, rows, spare)


@inlined
def split_rows(tile, layout, directions, sets, missing, node, rows, spare, value):
    """Partition rows at an inner node.

    tile        of RouteInputs; for rows, spare and the result see `split_numbers`; value: float64 [>= n], scratch
    directions  None if no node is oblique, compiled separately
    """
    if directions is None:
        return split_by_value(tile, layout, sets, missing, node, rows, spare)
    else:  # noqa: RET505, only this form is dropped when directions is None
        cut = look_at(tile, layout, directions, sets, node, rows, value)
        return split_by(is_up_to, (value, cut), rows, spare)


class RouteScratch(NamedTuple):
    """Scratch of one call of a kernel that routes rows.

    numbers  uint32 [5, rows of a tile]: rows, scratch, and node, begin and end of ranges of rows that wait. For
             `route_levels` [5, TILE]: the pairs (TreeLanes) that are not yet at a leaf, and the node of each pair. The
             other three rows are unused
    value    float64 [rows of a tile]
    """

    numbers: NDArray[np.uint32]
    value: NDArray[np.float64]


def new_scratch(inputs: RouteInputs) -> RouteScratch:
    """Allocate RouteScratch for these inputs."""
    rows = inputs.tiles.shape[2 if inputs.directions is None else 1]
    return RouteScratch(np.empty((5, TILE if inputs.by_level else rows), np.uint32), np.empty(rows))


@inlined
def rows_of_tile(tiles, directions):
    """Return the number of rows in a tile of RouteInputs."""
    if directions is None:
        return tiles.shape[2]
    else:  # noqa: RET505, only this form is dropped when directions is None
        return tiles.shape[1]


@inlined
def descend(tile, inputs, node, listed, scratch, first, tree, arrive, state):
    """Send the `listed` rows of scratch.numbers[0] from the root `node` to their leaves; see `route` for `arrive`.

    tile  of RouteInputs; its row r has the number first + r

    Ranges of rows that wait are not empty and do not overlap, so there are fewer ranges than rows. Cost: one visit per
    row and level, of about 1 ns, or 4 ns for two terms, and one visit per node that a row reaches.
    Oracle: tests/naive/predict.py find_leaf.
    """
    layout = inputs.layout
    rows, spare = scratch.numbers[0], scratch.numbers[1]
    nodes, begins, ends = scratch.numbers[2], scratch.numbers[3], scratch.numbers[4]
    waiting = _ZERO
    begin, end = _ZERO, listed
    while True:
        node_rows = rows[begin:end]
        link = np.uint64(layout.links[node + node + _ONE])
        if link != _ZERO:
            at = begin + split_rows(
                tile, layout, inputs.directions, inputs.sets, inputs.missing, node, node_rows, spare, scratch.value
            )
            right = node + (link & (layout.default - _ONE))
            if begin < at < end:
                nodes[waiting], begins[waiting], ends[waiting] = right, at, end
                waiting += _ONE
            node = node + _ONE if at > begin else right
            end = at if at > begin else end
            continue
        for i in range(np.uint64(node_rows.size)):
            arrive(state, layout, tree, first + np.uint64(node_rows[i]), node)
        if waiting == _ZERO:
            break
        waiting -= _ONE
        node, begin, end = np.uint64(nodes[waiting]), np.uint64(begins[waiting]), np.uint64(ends[waiting])


@inlined
def route(inputs, roots, goes, arrive, state, scratch):
    """Route the rows of RouteInputs through trees, one after the other: the loop of every kernel that routes rows.

    goes(state, tree, row)                  returns True if a row is routed through a tree
    arrive(state, layout, tree, row, node)  is called, tree by tree, for each row and its leaf `node`
    roots                                   uint64 [trees]; the number of a tree is its index here
    scratch                                 from `new_scratch`

    Both functions are inlined. Rows are numbered as in `inputs`.
    """
    rows = scratch.numbers[0]
    size = np.uint64(rows_of_tile(inputs.tiles, inputs.directions))
    tiles = (np.uint64(inputs.rows) + size - _ONE) // size
    for tree in range(np.uint64(roots.size)):
        for number in range(tiles):
            first = number * size
            listed = _ZERO
            for row in range(smaller(size, np.uint64(inputs.rows) - first)):
                rows[listed] = np.uint32(row)
                listed += np.uint64(goes(state, tree, first + row))
            if listed > _ZERO:
                descend(inputs.tiles[number], inputs, roots[tree], listed, scratch, first, tree, arrive, state)


class TreeLanes(NamedTuple):
    """Trees through which a tile is routed at once. A pair is a row and a tree, in one number.

    Pair p is row p & mask of the tile, and tree p >> shift of these trees.

    trees  uint64, number of trees
    mask   uint64
    shift  uint64; a tile has 1 << shift rows
    """

    trees: np.uint64
    mask: np.uint64
    shift: np.uint64


@inlined
def lanes_of(height):
    """Return TreeLanes for tiles of `height` rows, with TILE pairs."""
    shift = _ZERO
    while _ONE << shift < np.uint64(height):
        shift += _ONE
    return TreeLanes(np.uint64(TILE) >> shift, (_ONE << shift) - _ONE, shift)


@inlined
def _axis_goes_left(tile, layout, missing, shift, node, row):
    """Return True if a row goes left at an axis node.

    missing  None if no value is NaN, compiled separately: complete tables do not pay for the check
    """
    link = np.uint64(layout.links[node + node + _ONE])
    value = tile[row + ((link >> layout.shift) << shift)]
    threshold = layout.thresholds[node + node]
    if missing is None:
        return value <= threshold
    else:  # noqa: RET505, only this form is dropped when missing is None
        return (value <= threshold) | ((value != value) & ((link & layout.default) != np.uint64(0)))


@inlined
def _goes_left(tile, layout, sets, missing, shift, node, row):
    """Return True if a row of a flat tile goes left at a node that is not oblique; shift: field of TreeLanes.

    sets  None if no node is on a category, compiled separately
    """
    if sets is None:
        return _axis_goes_left(tile, layout, missing, shift, node, row)
    else:  # noqa: RET505, only this form is dropped when sets is None
        link = np.uint64(layout.links[node + node + _ONE])
        column = link >> layout.shift
        # By arithmetic: a branch on the kind of node would be mispredicted at every other node.
        category = np.uint64(column >= sets.features)
        number = np.uint64(layout.links[node + node]) & (_ZERO - category)
        mask = sets.mask[number]
        value = tile[row + ((column - (sets.features & (_ZERO - category))) << shift)]
        code = np.uint64(np.int64(value if category else tile.dtype.type(0)))
        listed = (mask >> (code & np.uint64(63))) & np.uint64(code < np.uint64(64))
        if mask | (category ^ _ONE) == _ZERO:
            listed = np.uint64(is_listed(sets, number, code))
        default, threshold = np.uint64((link & layout.default) != _ZERO), layout.thresholds[node + node]
        up_to = np.uint64(value <= threshold)
        if missing is not None:
            up_to |= np.uint64(value != value) & default
        return (up_to ^ (category & (up_to ^ listed ^ default))) & _ONE == _ONE


@inlined
def step(tile, inputs, lanes, position, pair):
    """Move a pair on the flat `tile` one level down from the node position[pair]; return False if the node is a
    leaf."""
    layout = inputs.layout
    node = np.uint64(position[pair])
    threshold = layout.thresholds[node + node]
    link = np.uint64(layout.links[node + node + _ONE])
    left = _goes_left(tile, layout, inputs.sets, inputs.missing, lanes.shift, node, pair & lanes.mask)
    child = node + _ONE if left else node + (link & (layout.default - _ONE))
    prefetch(layout.links, child + child)
    position[pair] = child
    return threshold == threshold


@inlined
def descend_levels(tile, inputs, lanes, listed, scratch):
    """Move the pairs scratch.numbers[0, :listed] from the nodes scratch.numbers[1, pair] to their leaves.

    The tile is flat. Cost: one visit per pair and level, of about 3 ns. Oracle: tests/naive/predict.py find_leaf.
    """
    active, position = scratch.numbers[0], scratch.numbers[1]
    going = listed
    while going > _ZERO:
        kept = _ZERO
        for i in range(going):
            pair = np.uint64(active[i])
            active[kept] = pair
            kept += np.uint64(step(tile, inputs, lanes, position, pair))
        going = kept


@inlined
def route_levels(inputs, roots, arrive, state, scratch):
    """Route all rows through all trees like `route`, but level by level; inputs.by_level must be True."""
    active, position = scratch.numbers[0], scratch.numbers[1]
    height, trees = np.uint64(inputs.tiles.shape[2]), np.uint64(roots.size)
    lanes = lanes_of(height)
    tiles = (np.uint64(inputs.rows) + height - _ONE) // height
    for tree in range(_ZERO, trees, lanes.trees):
        for number in range(tiles):
            first = number * height
            rows = smaller(height, np.uint64(inputs.rows) - first)
            listed = _ZERO
            for lane in range(smaller(lanes.trees, trees - tree)):
                for j in range(rows):
                    pair = (lane << lanes.shift) | j
                    active[listed] = np.uint32(pair)
                    position[pair] = np.uint32(roots[tree + lane])
                    listed += _ONE
            descend_levels(inputs.tiles[number].reshape(-1), inputs, lanes, listed, scratch)
            for lane in range(smaller(lanes.trees, trees - tree)):
                for row in range(rows):
                    node = np.uint64(position[(lane << lanes.shift) | row])
                    arrive(state, inputs.layout, tree + lane, first + row, node)
