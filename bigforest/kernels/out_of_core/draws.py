"""What a node that is split by passes draws: the draws of growing in memory, one at a time. Oracles:
kernels/scan/features.py, kernels/oblique/directions.py, through grow/out_of_core/passes.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import ZERO
from bigforest.kernels.common.rng import LEFT, RIGHT, mix
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.oblique.directions import draw_cells, draw_column
from bigforest.kernels.oblique.mean_difference import is_offered
from bigforest.kernels.scan.draw import draw_feature, wanted_features


@kernel
def draw_order(key, rules, draw):
    """Draw all features in the node `key`: draw.perm is their order then, the first drawn first.

    The same draws as find_feature of kernels/scan/features.py makes; returns how many it wants.
    """
    features = np.uint64(draw.perm.size)
    state = key
    for drawn in range(features):
        _, state = draw_feature(draw, drawn, state)
    return wanted_features(rules, key, features)


@kernel
def child_keys(key):
    """Keys of the left and of the right child of the node `key`."""
    return mix(key ^ LEFT), mix(key ^ RIGHT)


@kernel
def draw_direction(sparse, key, column, at, drawn):
    """Write the terms of a column of the node `key` into the first half of `drawn`; see directions.draw_column. Cells
    are drawn with the first column."""
    if column == ZERO:
        draw_cells(sparse, key, drawn.cells)
    return draw_column(sparse, key, column, at, drawn, ZERO)


@kernel
def offered_differences(key, columns, features, offered):
    """Set offered[j], bool, to whether the node of this key looks at difference j; see mean_difference.is_offered."""
    for j in range(np.uint64(offered.size)):
        offered[j] = is_offered(key, j, columns, features)
