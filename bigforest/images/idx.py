"""Reader of the IDX format of the MNIST digits, plain or compressed with gzip.

Two zero bytes, the type of a value (8 for unsigned bytes), the number of dimensions, each dimension as a big-endian
uint32, then the values. Images have three dimensions (images, rows, columns), labels one.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import DataError, system_error
from bigforest.images.imageset import MAX_CHUNK, Chunk, DamagedImage, ImageSet, check_shape

IMAGES, LABELS = 3, 1
_WHAT = {IMAGES: "images", LABELS: "labels"}
_UNSIGNED_BYTE = 8
_GZIP = b"\x1f\x8b"

# Deflate cannot compress better, so a header of a larger size is refused before anything is unpacked.
_MOST_COMPRESSION = 1032


class Idx(NamedTuple):
    """An open IDX file at its first value, and the shape in its header."""

    path: Path
    stream: IO[bytes]
    shape: tuple[int, ...]


def idx_images(path: Path, labels: Path | None) -> ImageSet:
    """Return the images in the IDX file `path`, with the labels in the IDX file `labels`, if any.

    Raises DataError if a header is wrong or the two files do not fit. Reading raises it for a damaged file, in which
    no later image can be found.
    """
    with _open(path, IMAGES) as images:
        shape = images.shape
    try:
        check_shape(*shape[1:])
    except DamagedImage as error:
        raise DataError(f"{path}: an image is damaged: {error}; check that this is the right file") from error
    if labels is not None:
        with _open(labels, LABELS) as label_array:
            if label_array.shape[0] != shape[0]:
                raise DataError(
                    f"{labels} has {label_array.shape[0]} labels and {path} {shape[0]} images; give those of one set"
                )

    def chunks(most: int, pixels: int) -> Iterator[Chunk]:
        step = max(1, min(most, MAX_CHUNK, pixels // (shape[1] * shape[2])))
        with ExitStack() as stack:
            images = stack.enter_context(_open(path, IMAGES))
            answers = None if labels is None else stack.enter_context(_open(labels, LABELS))
            for start in range(0, shape[0], step):
                count = min(step, shape[0] - start)
                read = _values(images, count * shape[1] * shape[2]).reshape(count, *shape[1:])
                target = None if answers is None else pl.Series(_values(answers, count))
                yield Chunk([read], [str(number) for number in range(start, start + count)], target, [])
            for file in (images, answers):
                if file is not None and _bytes(file, 1):
                    raise DataError(f"{file.path} continues after the {_promised(file)} it declares")

    return ImageSet(str(path), shape[0], labels is not None, chunks)


def labels_beside(path: Path) -> Path | None:
    """Return the existing labels file that belongs to an images file by its name, compressed or not, or None."""
    name = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    if "images" not in path.name:
        return None
    both = [path.with_name(name + suffix) for suffix in ("", ".gz")]
    return next((file for file in both if file.is_file()), None)


@contextmanager
def _open(path: Path, dimensions: int) -> Iterator[Idx]:
    """Open the IDX file of this many dimensions. Raises DataError when it is none."""
    with ExitStack() as stack:
        try:
            stream: IO[bytes] = stack.enter_context(path.open("rb"))
            size = path.stat().st_size
            compressed = stream.read(2) == _GZIP
            stream.seek(0)
            if compressed:
                stream = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=stream)))
        except OSError as error:
            raise _refused(path, error) from error
        file = Idx(path, stream, _shape(path, stream, dimensions))
        promised = math.prod(file.shape)
        whole = 4 + 4 * dimensions + promised
        if whole > _MOST_COMPRESSION * size if compressed else whole != size:
            raise DataError(
                f"{path} has {size:,} bytes, which do not fit the {promised:,} values its header declares "
                f"({' x '.join(map(str, file.shape))}); the file is cut off or damaged"
            )
        yield file


def _shape(path: Path, stream: IO[bytes], dimensions: int) -> tuple[int, ...]:
    """Return the dimensions in the header of the file."""
    kind = _WHAT[dimensions]
    start = Idx(path, stream, ())
    magic = _bytes(start, 4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DataError(f"{path} is not an IDX file of {kind} (its first bytes are {magic.hex(' ') or 'missing'})")
    if magic[2] != _UNSIGNED_BYTE:
        raise DataError(f"{path}: values of IDX type 0x{magic[2]:02x} cannot be read, only unsigned bytes (0x08)")
    if magic[3] != dimensions:
        hint = f"; these are {_WHAT[magic[3]]}" if magic[3] in _WHAT else ""
        raise DataError(
            f"{path}: {kind} have {dimensions} dimensions, not {magic[3]} as the values of this file{hint}; give the "
            "other file"
        )
    header = _bytes(start, 4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path} ends within its header; the file is cut off")
    shape: tuple[int, ...] = struct.unpack(f">{dimensions}I", header)
    if not shape[0]:
        raise DataError(f"{path} has no {kind}; check that it is the right file")
    return shape


def _values(file: Idx, count: int) -> NDArray[np.uint8]:
    content = _bytes(file, count)
    if len(content) < count:
        raise DataError(f"{file.path} ends before the {_promised(file)} it declares; it is cut off")
    return np.frombuffer(content, dtype=np.uint8)


def _promised(file: Idx) -> str:
    return f"{file.shape[0]:,} {_WHAT[len(file.shape)]}"


def _bytes(file: Idx, count: int) -> bytes:
    """Read the next `count` bytes, or fewer at the end of the file."""
    try:
        return file.stream.read(count)
    except EOFError as error:
        raise DataError(f"{file.path}: the compressed file is cut off; get it again") from error
    except (OSError, zlib.error) as error:
        raise _refused(file.path, error) from error


def _refused(path: Path, error: Exception) -> Exception:
    """Return the error of a file that cannot be read: that of the system, naming the file, or of its content."""
    return system_error(error, path) or DataError(f"{path}: the file is damaged ({error}); get it again")
