"""Sets of grey images, read in order in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import DataError

# Larger images are refused before they are decoded: a small file may claim any number of pixels.
MAX_PIXELS = 1 << 26

# Images of a chunk, however small they are: their labels and names take memory too.
MAX_CHUNK = 1 << 13


class DamagedImage(DataError):
    """One image cannot be read; the others can."""


class Chunk(NamedTuple):
    """Consecutive images.

    images   sound images in order, uint8 [images, rows, columns]; one array for consecutive images of one shape.
    names    of the sound images: number in the set from 0, or path below the folder.
    labels   of the sound images; None in a set without labels.
    damaged  name of each other image, and its fault.
    """

    images: list[NDArray[np.uint8]]
    names: list[str]
    labels: pl.Series | None
    damaged: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Images that can be read once from the first to the last.

    name      for messages.
    count     number of images, sound or not.
    labelled  True if chunks have labels.
    chunks    function (most images, most pixels) that yields chunks; only their last image may exceed the pixels.
    """

    name: str
    count: int
    labelled: bool
    chunks: Callable[[int, int], Iterator[Chunk]]


def runs(images: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Group consecutive images of the same shape into arrays [images, rows, columns]."""
    return [np.stack(list(run)) for _, run in groupby(images, key=lambda image: image.shape)]


def check_shape(rows: int, columns: int) -> None:
    """Raise DamagedImage unless an image of this shape can be held."""
    if rows < 1 or columns < 1:
        raise DamagedImage(f"it has no pixels ({rows} x {columns})")
    if rows * columns > MAX_PIXELS:
        raise DamagedImage(f"it claims to have {rows} x {columns} pixels, more than the {MAX_PIXELS:,} allowed")


def grey_levels(pixels: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Convert an array of images to grey images, and find the sound ones.

    pixels  [images, rows, columns] or [images, rows, columns, 1, 3 or 4 channels]: whole numbers from 0 to 255,
            or booleans, which become 0 and 255. A fourth channel is ignored.

    Returns uint8 [images, rows, columns] and bool [images], False for an image with other pixels. Colours are weighed
    as in ITU-R BT.601.
    """
    if pixels.dtype == np.bool_:
        pixels = pixels.view(np.uint8) * np.uint8(255)
    inside = tuple(range(1, pixels.ndim))
    sound = np.ones(len(pixels), dtype=np.bool_)
    if pixels.dtype != np.uint8:
        with np.errstate(invalid="ignore"):  # a missing pixel of an integer column is NaN here, and not sound
            in_range, whole = (pixels >= 0) & (pixels <= 255), pixels == np.floor(pixels)
        sound = np.asarray((in_range & whole).all(axis=inside))
        pixels = np.where(sound.reshape(-1, *[1] * len(inside)), pixels, 0).astype(np.uint8)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        return pixels[..., 0], sound
    if pixels.ndim == 4:
        weighed = pixels[..., :3].astype(np.uint32) @ np.array([19595, 38470, 7471], dtype=np.uint32)
        return ((weighed + 0x8000) >> 16).astype(np.uint8), sound
    return pixels, sound
