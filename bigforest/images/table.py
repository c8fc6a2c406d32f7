"""Images in a column of a table: encoded as PNG, JPEG or TIFF, or as arrays of pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import cells, text_of_categories
from bigforest.encode.roles import USUAL_NAMES, check_column
from bigforest.errors import ConfigError, DataError
from bigforest.images.imageset import (
    MAX_CHUNK,
    Chunk,
    DamagedImage,
    Entry,
    ImageSet,
    check_pillow,
    check_shape,
    decode_image,
    decoded,
    grey_levels,
)
from bigforest.source import Source

# Encoded images are read this many at a time, because their sizes are not known before.
ENCODED_ROWS = 256


def table_images(source: Source, column: str | None, target: str | None) -> ImageSet:
    """Return the images in a table.

    column  the column of images: binary (encoded images), a struct with a binary field `bytes` (as Hugging Face
            writes them), or arrays of whole numbers from 0 to 255 or booleans. An array has shape (rows, columns),
            (rows, columns, channels) or, for square images, (pixels,). None for the only column of these types.
    target  the column of labels; None for a column with a usual name, if any.

    Raises DataError if there is no such column.
    """
    column = _image_column(source, column)
    if target is not None:
        check_column(target, source.schema, "target")
    else:
        target = next((name for name in USUAL_NAMES if name in source.schema and name != column), None)
    if target == column:
        raise ConfigError(f"the column {column!r} cannot be both the images and their labels; name another target")
    dtype = source.schema[column]
    if _encoded(dtype):
        check_pillow()
        chunks = partial(_encoded_chunks, source, column, target)
    else:
        chunks = partial(_array_chunks, source, column, target)
    return ImageSet(source.name, source.rows, target is not None, chunks)


def array_images(images: Any, labels: Any) -> ImageSet:
    """Return the images of a numpy array [images, rows, columns] or [images, rows, columns, channels].

    labels  [images], or None.
    """
    where = "the array of images"
    if images.ndim not in (3, 4) or images.dtype.kind not in "biuf":
        shape = "(images, rows, columns) or (images, rows, columns, channels)"
        raise DataError(f"{where} must be numbers of shape {shape}, not {images.dtype} of {images.shape}")
    _check_array(where, images.shape[1:])
    if not len(images):
        raise DataError(f"{where} is empty")
    if labels is not None and np.shape(labels) != (len(images),):
        raise DataError(f"the labels have shape {np.shape(labels)}; {len(images)} images need ({len(images)},)")
    target = None if labels is None else text_of_categories(pl.Series(np.asarray(labels)))

    def chunks(most: int, pixels: int) -> Iterator[Chunk]:
        step = max(1, min(most, MAX_CHUNK, pixels // math.prod(images.shape[1:])))
        for start in range(0, len(images), step):
            part = images[start : start + step]
            yield _array_chunk(part, np.arange(start, start + len(part)), target, [])

    return ImageSet(where, len(images), labels is not None, chunks)


def _image_column(source: Source, requested: str | None) -> str:
    if requested is not None:
        check_column(requested, source.schema, "column")
        if not _is_image_type(source.schema[requested]):
            raise DataError(
                f"{source.name}: column {requested!r} has type {source.schema[requested]}; images are binary, a struct "
                "with a binary field bytes, or arrays or lists of whole numbers"
            )
        return requested
    images = [name for name, dtype in source.schema.items() if _is_image_type(dtype)]
    if len(images) != 1:
        problem = (
            f"has several columns that may be images ({', '.join(images)})" if images else "has no column of images"
        )
        raise DataError(f"{source.name}: the table {problem}; name the right one as column")
    return images[0]


def _is_image_type(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Array):
        inner: Any = dtype
        while isinstance(inner, pl.Array):
            inner = inner.inner
        return bool(inner.is_integer() or inner == pl.Boolean)
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return bool(inner.is_integer() or inner == pl.Boolean)
    return _encoded(dtype)


def _encoded(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(field.name == "bytes" and field.dtype == pl.Binary for field in dtype.fields)
    return dtype == pl.Binary


def _encoded_chunks(source: Source, column: str, target: str | None, most: int, pixels: int) -> Iterator[Chunk]:
    def entries() -> Iterator[Entry]:
        row = 0
        for batch in source.batches([column] if target is None else [column, target], ENCODED_ROWS):
            images = cells(batch, column)
            if isinstance(images.dtype, pl.Struct):
                images = images.struct.field("bytes")
            labels = [None] * len(batch) if target is None else text_of_categories(cells(batch, target)).to_list()
            for content, label in zip(images, labels, strict=True):
                yield str(row), label, partial(_decode, content)
                row += 1

    dtype = None if target is None else text_of_categories(pl.Series(dtype=source.schema[target])).dtype
    return decoded(entries(), dtype, most, pixels)


def _decode(content: bytes | None) -> NDArray[np.uint8]:
    if content is None:
        raise DamagedImage("it is missing (null)")
    return decode_image(content)


def _array_chunks(source: Source, column: str, target: str | None, most: int, pixels: int) -> Iterator[Chunk]:
    dtype = source.schema[column]
    width = _list_width(source, column) if isinstance(dtype, pl.List) else 0
    shape = dtype.shape if isinstance(dtype, pl.Array) else (width,)
    if len(shape) == 1:
        side = math.isqrt(shape[0])
        if side * side != shape[0]:
            raise DataError(
                f"{source.name}: the images of {column!r} have {shape[0]} pixels in a row, which is not a square "
                "number; give them as arrays of shape (rows, columns)"
            )
        shape = (side, side)
    _check_array(f"{source.name}: column {column!r}", shape)
    step = max(1, min(most, MAX_CHUNK, pixels // math.prod(shape)))
    start = 0
    for batch in source.batches([column] if target is None else [column, target], step):
        images = cells(batch, column)
        filled = images.is_not_null()
        wrong = [(place, "it is missing (null)") for place in (~filled).arg_true()]
        if width:
            fits = images.list.len().fill_null(0) == width
            wrong += [(place, f"it has not {width} pixels like the first") for place in (filled & ~fits).arg_true()]
            filled &= fits
            images = images.filter(filled).list.to_array(width)
        else:
            images = images.filter(filled)
        rows = filled.arg_true().to_numpy().astype(np.int64)
        labels = None if target is None else text_of_categories(cells(batch, target))
        damaged = [(str(start + place), why) for place, why in wrong]
        # With missing pixels, whole numbers become floats with NaN.
        part = images.to_numpy().reshape(len(rows), *shape)
        yield _array_chunk(part, start + rows, labels, damaged, start)
        start += batch.height


def _array_chunk(
    part: NDArray[Any],
    rows: NDArray[np.int64],
    labels: pl.Series | None,
    damaged: list[tuple[str, str]],
    first: int = 0,
) -> Chunk:
    """Return the chunk of the images `part`, numbered `rows`; `labels` begins with the label of number `first`."""
    grey, sound = grey_levels(part)
    damaged = damaged + [(str(row), "a pixel is missing or not a whole number from 0 to 255") for row in rows[~sound]]
    kept = rows[sound]
    answers = None if labels is None else labels.gather(kept - first)
    images = [grey if sound.all() else grey[sound]] if len(kept) else []
    return Chunk(images, [str(row) for row in kept], answers, sorted(damaged, key=lambda entry: int(entry[0])))


def _check_array(where: str, shape: tuple[int, ...]) -> None:
    """Raise DataError unless images can have this shape."""
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise DataError(
            f"{where} has images of shape {shape}; it must be (rows, columns) or (rows, columns, 1, 3 or 4)"
        )
    try:
        check_shape(*shape[:2])
    except DamagedImage as error:
        raise DataError(f"{where}: an image is damaged: {error}") from error


def _list_width(source: Source, column: str) -> int:
    """Return the number of pixels of the first image of a column of lists."""
    for batch in source.batches([column], ENCODED_ROWS):
        lengths = cells(batch, column).list.len().drop_nulls()
        if len(lengths):
            return int(lengths[0])
    raise DataError(f"{source.name}: every image of {column!r} is missing; choose another column")
