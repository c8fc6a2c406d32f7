"""Images in a folder: one subfolder per class, or all in one place and without labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import DataError
from bigforest.images.decode import SUFFIXES, check_pillow, decode_image
from bigforest.images.imageset import MAX_CHUNK, Chunk, DamagedImage, ImageSet, runs
from bigforest.storage.paths import walk

# Name, label, and a function that returns the image or raises DamagedImage.
Entry = tuple[str, object, Callable[[], NDArray[np.uint8]]]


def folder_images(folder: Path) -> ImageSet:
    """Return the PNG, JPEG and TIFF files below `folder`, sorted by class, the name of the subfolder, and then by path.

    Files directly in the folder have no class; then subfolders may have no images. Hidden files and other kinds of
    files are skipped; links to folders are not followed. Raises DataError if there is no image.
    """
    check_pillow()
    classes = sorted(
        entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
    )
    counts = {label: len(_files(folder / label)) for label in classes}
    classes = [label for label in classes if counts[label]]
    loose = [file for file in sorted(folder.iterdir()) if _is_image(file)]
    if loose and classes:
        raise DataError(
            f"{folder} has images both directly in it ({loose[0].name}) and in {classes[0]}/; "
            "put every image into the folder of its class, or all into one"
        )
    if not loose and not classes:
        raise DataError(f"{folder} has no images ({', '.join(SUFFIXES)}), nor any in subfolders; check the path")

    def entries() -> Iterator[Entry]:
        for file in loose:
            yield file.name, None, partial(decode_image, file)
        for label in classes:
            for file in _files(folder / label):
                yield str(file.relative_to(folder)), label, partial(decode_image, file)

    total = sum(counts.values()) + len(loose)
    text = pl.String() if classes else None
    return ImageSet(str(folder), total, bool(classes), lambda most, pixels: decoded(entries(), text, most, pixels))


def decoded(entries: Iterable[Entry], label: pl.DataType | None, most: int, pixels: int) -> Iterator[Chunk]:
    """Yield chunks of images that come one by one; label: type of their labels, None without labels."""
    images: list[NDArray[np.uint8]] = []
    names: list[str] = []
    labels: list[object] = []
    damaged: list[tuple[str, str]] = []
    held = 0

    def chunk() -> Chunk:
        return Chunk(runs(images), names, None if label is None else pl.Series(labels, dtype=label), damaged)

    for name, answer, read in entries:
        try:
            images.append(read())
        except DamagedImage as error:
            damaged.append((name, str(error)))
        else:
            names.append(name)
            labels.append(answer)
            held += images[-1].size
        if held >= pixels or len(images) + len(damaged) >= min(most, MAX_CHUNK):
            yield chunk()
            images, names, labels, damaged, held = [], [], [], [], 0
    if images or damaged:
        yield chunk()


def _files(folder: Path) -> list[Path]:
    """List all image files below a folder, sorted by path. Raises OSError for a folder that cannot be read."""
    paths: list[Path] = []
    for place, folders, files in walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]
        paths.extend(file for name in files if _is_image(file := place / name))
    return sorted(paths)


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.name[0] != "." and not file.is_dir()
