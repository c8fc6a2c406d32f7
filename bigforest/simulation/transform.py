"""Rotation and scaling of all rows alike."""

from __future__ import annotations

import numpy as np

from bigforest.simulation.families import Floats
from bigforest.simulation.streams import Purpose, parameters

LARGEST_SCALE = 10.0


def haar_rotation(dims: int, random: np.random.Generator) -> Floats:
    """A rotation drawn uniformly, [dims, dims], orthogonal with determinant 1.

    The Q of a QR decomposition of normal numbers, its columns signed so that R has a positive diagonal, without which
    it would not be uniform (Mezzadri, 2007); one column is turned round where the determinant is -1.
    """
    q, r = np.linalg.qr(random.standard_normal((dims, dims)))
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    if np.linalg.slogdet(q)[0] < 0:
        q[:, 0] = -q[:, 0]
    return np.ascontiguousarray(q)


class Transform:
    """Rotate, then stretch every dimension by a factor of its own, uniform on (0, 10); each only if it is requested."""

    def __init__(self, dims: int, seed: int, *, rotate: bool, scale: bool) -> None:
        self.rotation = haar_rotation(dims, parameters(seed, Purpose.ROTATION)) if rotate else None
        self.scales = parameters(seed, Purpose.SCALE).uniform(0, LARGEST_SCALE, dims) if scale else None

    def apply(self, values: Floats) -> Floats:
        """The transformed rows of `values` [rows, dims]; may change them in place."""
        if self.rotation is not None:
            values = values @ self.rotation.T
        if self.scales is not None:
            values *= self.scales
        return values
