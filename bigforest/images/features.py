"""Fit images of any shape to a canvas of one size, and compute the feature sets of Ho.

The sets of Ho, Random Decision Forests, ICDAR 1995, are pixels (f1), and pixels with directional neighbours (f2).
Oracle: tests/naive/images.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows of a large image that are widened to int64 at a time.
_STRIP = 256


def fit(images: NDArray[np.uint8], size: tuple[int, int], *, crop: bool, ink: int) -> tuple[NDArray[np.uint8], int]:
    """Place every image in the middle of a black canvas.

    images  uint8 [images, rows, columns].
    size    rows and columns of the canvas.
    crop    cut each image to the smallest box with all pixels of at least `ink`. Without such pixels it becomes black.

    Images larger than the canvas are scaled down (`shrink_image`). Margins are equal on both sides; an odd row or
    column is below or to the right. Returns uint8 [images, *size], and the number of images that were scaled down.
    """
    if not crop and images.shape[1:] == size:
        return images, 0
    boxes = _ink_boxes(images >= ink) if crop else np.tile([0, images.shape[1], 0, images.shape[2]], (len(images), 1))
    heights, widths = boxes[:, 1] - boxes[:, 0], boxes[:, 3] - boxes[:, 2]
    large = np.flatnonzero((heights > size[0]) | (widths > size[1]))
    canvas = _place_boxes(images, boxes, size)
    for number in large:
        top, bottom, left, right = boxes[number]
        shrunk = shrink_image(images[number, top:bottom, left:right], size)
        box = np.array([[0, shrunk.shape[0], 0, shrunk.shape[1]]])
        canvas[number] = _place_boxes(shrunk[None], box, size)[0]
    return canvas, len(large)


def shrink_image(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize an image, uint8 [rows, columns], to the largest that fits into `size` with its proportions.

    The result has at least one row and one column. A new pixel is the mean of the area that it covers, rounded half up;
    the arithmetic is in integers.
    """
    rows, columns = image.shape
    if rows * size[1] >= columns * size[0]:
        new = (size[0], max(1, (2 * columns * size[0] + rows) // (2 * rows)))
    else:
        new = (max(1, (2 * rows * size[1] + columns) // (2 * columns)), size[1])
    strips = [_area_sums(image[row : row + _STRIP], new[1]) for row in range(0, rows, _STRIP)]
    total = _area_sums(np.concatenate(strips).T, new[0]).T
    area = rows * columns
    return ((2 * total + area) // (2 * area)).astype(np.uint8)


def _area_sums(lines: NDArray[np.integer[Any]], new: int) -> NDArray[np.int64]:
    """Return the sums of each line over `new` stretches of equal length, times `new`, int64 [lines, new].

    A value on the edge between two stretches is divided between them by length.
    """
    old = lines.shape[1]
    whole, part = np.divmod(np.arange(new + 1) * old, new)
    before = np.zeros((len(lines), old + 1), dtype=np.int64)
    np.cumsum(lines, axis=1, out=before[:, 1:])
    until = new * before[:, whole] + part * lines[:, whole.clip(max=old - 1)].astype(np.int64)
    return np.diff(until, axis=1)


def _ink_boxes(ink: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the smallest box with all ink of each image, int64 [images, 4].

    The columns are first row, row past the last, first column and column past the last; all are 0 without ink.
    """
    boxes = np.zeros((len(ink), 4), dtype=np.int64)
    for axis, at in ((2, 0), (1, 2)):
        inked = np.asarray(ink.any(axis=axis))
        boxes[:, at] = inked.argmax(axis=1)
        boxes[:, at + 1] = inked.shape[1] - inked[:, ::-1].argmax(axis=1)
    boxes[~ink.any(axis=(1, 2))] = 0
    return boxes


def _place_boxes(images: NDArray[np.uint8], boxes: NDArray[np.int64], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Place the box of each image in the middle of a black canvas; a box that does not fit is cut on both sides."""
    taken, inside = [], []
    for axis, length in enumerate(size):
        start, stop = boxes[:, 2 * axis, None], boxes[:, 2 * axis + 1, None]
        source = np.arange(length) - (length - (stop - start)) // 2 + start
        inside.append((source >= start) & (source < stop))
        taken.append(source.clip(0, images.shape[axis + 1] - 1))
    numbers = np.arange(len(images))[:, None, None]
    canvas: NDArray[np.uint8] = images[numbers, taken[0][:, :, None], taken[1][:, None, :]]
    canvas *= inside[0][:, :, None] & inside[1][:, None, :]
    return canvas


# Number of pairs of pixels of a neighbour feature.
RUN = 4


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Neighbour features of one direction: True if both pixels are set in one of RUN pairs, which lie side by side.

    letter  first letter of the names of the features.
    pair    offset from the first pixel of a pair to the second, in rows and columns.
    run     offset from one pair to the next.
    paper   steps in rows and columns at which the paper takes the feature.
    """

    letter: str
    pair: tuple[int, int]
    run: tuple[int, int]
    paper: tuple[int, int]

    def grid(self, size: tuple[int, int], stride: str) -> tuple[range, range]:
        """Return the rows and the columns of the places. All pixels of a feature lie in the image.

        The place of a feature is the first pixel of its first pair.
        """
        steps = self.paper if stride == "paper" else (1, 1)
        ranges = []
        for axis in range(2):
            ends = [k * self.run[axis] + more for k in range(RUN) for more in (0, self.pair[axis])]
            ranges.append(range(-min(ends), max(-min(ends), size[axis] - max(ends)), steps[axis]))
        return ranges[0], ranges[1]


# From these steps follow the 852 features of the paper for 20 x 20 pixels: 400 pixels and 452 neighbours.
DIRECTIONS = (
    Neighbour("h", (0, 2), (1, 0), (2, 1)),
    Neighbour("v", (2, 0), (0, 1), (1, 2)),
    Neighbour("n", (2, 2), (1, -1), (2, 2)),
    Neighbour("s", (2, -2), (1, 1), (2, 2)),
)

# Rows and columns of the smallest image in which every direction has a place.
SMALLEST = RUN + 2


def feature_names(size: tuple[int, int], features: str, stride: str) -> list[str]:
    """Return the names of the features: p_<row>_<column> for each pixel. With features "neighbours", names with h, v, n
    and s follow, for each place of a direction (`Neighbour.grid`)."""
    grids = [("p", (range(size[0]), range(size[1])))]
    if features == "neighbours":
        grids += [(direction.letter, direction.grid(size, stride)) for direction in DIRECTIONS]
    return [f"{letter}_{row}_{column}" for letter, (rows, columns) in grids for row in rows for column in columns]


def feature_values(images: NDArray[np.uint8], features: str, stride: str, threshold: int | None) -> NDArray[Any]:
    """Compute features [features, images] of images uint8 [images, rows, columns], in the order of `feature_names`.

    Without a threshold, features are grey values, uint8. With a threshold they are bool: a pixel is True from the
    threshold on. Neighbours need a threshold.
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
