"""Rotation and scaling, the same for all rows."""

from __future__ import annotations

import numpy as np

from bigforest.simulation.families import Floats
from bigforest.simulation.streams import Purpose, parameters

LARGEST_SCALE = 10.0


def haar_rotation(dims: int, random: np.random.Generator) -> Floats:
    """Draw a rotation uniformly: float64 [dims, dims], orthogonal with determinant 1.

    It is the Q of a QR decomposition of normal numbers. The columns are signed so that R has a positive diagonal, which
    makes Q uniform (Mezzadri, 2007). One column is negated where the determinant is -1.
    """
    q, r = np.linalg.qr(random.standard_normal((dims, dims)))
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    if np.linalg.slogdet(q)[0] < 0:
        q[:, 0] = -q[:, 0]
    return np.ascontiguousarray(q)


class Transform:
    """Optional rotation, then optional scaling of every dimension by its own factor, uniform on (0, 10)."""

    def __init__(self, dims: int, seed: int, *, rotate: bool, scale: bool) -> None:
        self.rotation = haar_rotation(dims, parameters(seed, Purpose.ROTATION)) if rotate else None
        self.scales = parameters(seed, Purpose.SCALE).uniform(0, LARGEST_SCALE, dims) if scale else None

    def apply(self, values: Floats) -> Floats:
        """Return the transformed rows of `values`, float64 [rows, dims], which may be changed in place."""
        if self.rotation is not None:
            values = values @ self.rotation.T
        if self.scales is not None:
            values *= self.scales
        return values
