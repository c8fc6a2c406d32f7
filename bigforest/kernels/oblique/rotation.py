"""A tree's own axes, and the table in their coordinates. Oracle: tests/naive/rotation.py.

Sums run in a fixed order, so that axes and projections do not depend on a library's threads.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.rng import GOLDEN, mix
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.oblique.directions import NORMAL_STEP, normal_of


@kernel
def draw_axes(key, orthogonal, axes):
    """Fill axes float64 [axes, features] with Gaussian directions of length 1 from the stream `key`.

    orthogonal: each is made orthogonal to those before (Gram and Schmidt, modified), in groups of
    as many as there are features. A direction that nearly vanishes in this is drawn again.
    """
    features = axes.shape[1]
    drawn = np.uint64(0)
    for a in range(axes.shape[0]):
        first = a - a % features if orthogonal else a
        length = 0.0
        while length < NORMAL_STEP:
            for f in range(features):
                drawn += np.uint64(1)
                axes[a, f] = normal_of(mix(key + drawn * GOLDEN))
            for other in range(first, a):
                shadow = 0.0
                for f in range(features):
                    shadow += axes[a, f] * axes[other, f]
                for f in range(features):
                    axes[a, f] -= shadow * axes[other, f]
            length = 0.0
            for f in range(features):
                length += axes[a, f] * axes[a, f]
            length = np.sqrt(length)
        for f in range(features):
            axes[a, f] /= length


@kernel
def project_on_axes(values, weights, projections):
    """projections[a, i] = projection of row i on axis a, as kernels/common/layout.py Terms defines it.

    values float64 [features, rows], weights float64 [axes, features], projections float64 [axes, rows]. Features of
    weight 0 are no terms. Cost: a fraction of a nanosecond per row, axis and feature.
    """
    for a in range(np.uint64(weights.shape[0])):
        out = projections[a]
        for i in range(np.uint64(out.size)):
            out[i] = 0.0
        for f in range(np.uint64(weights.shape[1])):
            weight = weights[a, f]
            if weight != 0.0:
                column = values[f]
                for i in range(np.uint64(out.size)):
                    out[i] += weight * column[i]
