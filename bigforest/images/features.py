"""Feature sets of Ho, Random Decision Forests, ICDAR 1995: pixels (f1), and pixels with directional neighbours (f2).

Oracle: tests/naive/images.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RUN = 4


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Neighbour features of one direction: True if both pixels are set in one of RUN pairs, which lie side by side.

    pair    offset from the first pixel of a pair to the second, in rows and columns.
    run     offset from one pair to the next.
    paper   steps in rows and columns at which the paper takes the feature.
    """

    letter: str
    pair: tuple[int, int]
    run: tuple[int, int]
    paper: tuple[int, int]

    def grid(self, size: tuple[int, int], stride: str) -> tuple[range, range]:
        """Return rows and columns of the places whose pixels all lie in the image."""
        steps = self.paper if stride == "paper" else (1, 1)
        ranges = []
        for axis in range(2):
            ends = [k * self.run[axis] + more for k in range(RUN) for more in (0, self.pair[axis])]
            ranges.append(range(-min(ends), max(-min(ends), size[axis] - max(ends)), steps[axis]))
        return ranges[0], ranges[1]


# The paper has 852 features for 20 x 20 pixels, which follow from these steps.
DIRECTIONS = (
    Neighbour("h", (0, 2), (1, 0), (2, 1)),
    Neighbour("v", (2, 0), (0, 1), (1, 2)),
    Neighbour("n", (2, 2), (1, -1), (2, 2)),
    Neighbour("s", (2, -2), (1, 1), (2, 2)),
)

# The smallest image in which every direction has a place.
SMALLEST = RUN + 2


def feature_names(size: tuple[int, int], features: str, stride: str) -> list[str]:
    """Return p_<row>_<column> for each pixel and, with features "neighbours", h_, v_, n_ and s_ for each place."""
    grids = [("p", (range(size[0]), range(size[1])))]
    if features == "neighbours":
        grids += [(direction.letter, direction.grid(size, stride)) for direction in DIRECTIONS]
    return [f"{letter}_{row}_{column}" for letter, (rows, columns) in grids for row in rows for column in columns]


def feature_values(images: NDArray[np.uint8], features: str, stride: str, threshold: int | None) -> NDArray[Any]:
    """Compute features [features, images] of images uint8 [images, rows, columns], in the order of `feature_names`.

    Grey values, uint8; with a threshold bool, set where a pixel reaches it. Neighbours need one.
    """
    # Images last, so that every operation below runs over all images of a pixel at once.
    pixels: NDArray[Any] = np.ascontiguousarray(images.transpose(1, 2, 0))
    if threshold is not None:
        pixels = pixels >= threshold
    parts = [pixels]
    if features == "neighbours":
        parts += [_neighbours(pixels, direction, stride) for direction in DIRECTIONS]
    return np.concatenate([part.reshape(-1, len(images)) for part in parts])


def _neighbours(pixels: NDArray[np.bool_], direction: Neighbour, stride: str) -> NDArray[np.bool_]:
    """Compute the features of one direction at its places, bool [rows, columns, images]."""
    rows, columns = direction.grid((pixels.shape[0], pixels.shape[1]), stride)

    def moved(down: int, right: int) -> NDArray[np.bool_]:
        return pixels[
            rows.start + down : rows.stop + down : rows.step,
            columns.start + right : columns.stop + right : columns.step,
        ]

    lit = np.zeros((len(rows), len(columns), pixels.shape[2]), dtype=np.bool_)
    for k in range(RUN):
        down, right = k * direction.run[0], k * direction.run[1]
        lit |= moved(down, right) & moved(down + direction.pair[0], right + direction.pair[1])
    return lit
