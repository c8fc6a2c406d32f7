"""Add up the values of small trees for many rows at once.

The leaves of a tree are numbered from the left, and each row has a bit for each leaf:

    node by node: clear the bits of the leaves on the left for the rows that go right
    the lowest bit that is set is the leaf of the row

Every node compares all rows in the order of the memory and without a branch, so the compiler makes vector instructions
of it. For trees of few nodes this is faster than lists of the rows at a node (kernels/predict/route.py).
QuickScorer: Lucchese et al. 2015. Oracle: tests/naive/refine.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import smaller
from bigforest.kernels.predict.flat_tree import NodeLayout
from bigforest.kernels.predict.route import is_in_mask, is_left, is_left_or_missing

# Most leaves of a tree: bits of a word.
MOST_LEAVES = 32

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF)
_MANTISSA_BITS, _BIAS = np.uint32(23), np.uint32(127)


@inlined
def _clear(goes_left, arguments, kept, bits):
    """Clear all bits except `kept` for the rows that go right."""
    for i in range(np.uint64(bits.size)):
        bits[i] &= np.uint32(kept | (_ZERO - goes_left(i, i, *arguments)))


@inlined
def _clear_at(node, tile, layout, sets, missing, kept, bits):
    """Call `_clear` at an inner node; sets, missing: fields of RouteInputs."""
    link = np.uint64(layout.links[node + node + _ONE])
    column, default = link >> layout.shift, (link & layout.default) != _ZERO
    if sets is not None and column >= sets.features:
        mask = sets.mask[np.uint64(layout.links[node + node])]
        _clear(is_in_mask, (tile[column - sets.features], mask, np.uint64(default)), kept, bits)
    elif missing is not None and default:
        _clear(is_left_or_missing, (tile[column], layout.thresholds[node + node]), kept, bits)
    else:
        _clear(is_left, (tile[column], layout.thresholds[node + node]), kept, bits)


@kernel
def add_values(tiles, rows, thresholds, links, shift, default, ballot, sets, missing, roots, values, sums, scratch):
    """Add the values of the leaves of all trees to sums, float64 [rows, outputs], in the order of the trees.

    The arguments up to `missing` are fields of RouteInputs and of its NodeLayout. No node is oblique, all sets have a
    mask, and a tree has up to MOST_LEAVES leaves.

    roots    uint64 [trees], positions of the roots among the nodes
    values   float64 [leaves, outputs]
    scratch  uint32 [rows of a tile] and uint64 [MOST_LEAVES]

    Cost: for each row and tree of 15 leaves about 1 ns, and 0.3 ns for each output.
    """
    layout = NodeLayout(thresholds, links, shift, default, ballot)
    size, outputs = np.uint64(tiles.shape[2]), np.uint64(sums.shape[1])
    bits_of_tile, leaves = scratch
    for number in range(np.uint64(tiles.shape[0])):
        first = number * size
        if first >= np.uint64(rows):
            break
        tile, bits = tiles[number], bits_of_tile[: smaller(size, np.uint64(rows) - first)]
        for t in range(np.uint64(roots.size)):
            for i in range(np.uint64(bits.size)):
                bits[i] = np.uint32(_ALL)
            node, leaf, waiting = np.uint64(roots[t]), _ZERO, _ONE
            while waiting > _ZERO:
                link = np.uint64(links[node + node + _ONE])
                if link == _ZERO:
                    leaves[leaf] = (np.uint64(links[node + node]) & ballot) - outputs
                    leaf, waiting = leaf + _ONE, waiting - _ONE
                else:
                    # A subtree of n leaves has 2 n - 1 nodes.
                    on_left = ((_ONE << ((link & (default - _ONE)) >> _ONE)) - _ONE) << leaf
                    _clear_at(node, tile, layout, sets, missing, _ALL ^ on_left, bits)
                    waiting += _ONE
                node += _ONE
            for i in range(np.uint64(bits.size)):
                lowest = np.uint64(bits[i]) & (_ZERO - np.uint64(bits[i]))
                bits[i] = (np.float32(lowest).view(np.uint32) >> _MANTISSA_BITS) - _BIAS
            for i in range(np.uint64(bits.size)):
                value = leaves[np.uint64(bits[i])]
                for k in range(outputs):
                    sums[first + i, k] += values[value, k]
