"""Sets of grey images, read in order in chunks of bounded size: an IDX file, a folder, a column of a table, an array.

The IDX format is that of the MNIST digits, plain or compressed with gzip: two zero bytes, the type of a value (8 for
unsigned bytes), the number of dimensions, each dimension as a big-endian uint32, then the values. Images have three
dimensions (images, rows, columns), labels one. A folder has one subfolder per class, or all images directly in it and
without labels. A column of a table has images encoded as PNG, JPEG or TIFF, or as arrays or lists of pixels.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import cells, text_of_categories
from bigforest.encode.roles import USUAL_NAMES, check_column
from bigforest.errors import ConfigError, DataError, counted, system_error
from bigforest.source.source import Source
from bigforest.storage.paths import walk

# Larger images are refused before they are decoded: a small file may claim any number of pixels.
MAX_PIXELS = 1 << 26

# Most images of a chunk, however small they are: their labels and names take memory too.
MAX_CHUNK = 1 << 13


class DamagedImage(DataError):
    """Error about a single image. The other images of its set can be read."""


class Chunk(NamedTuple):
    """Consecutive images.

    images   sound images in order, uint8 [images, rows, columns]; one array for consecutive images of one shape.
    names    names of the sound images: number in the set from 0, or path below the folder.
    labels   labels of the sound images; None in a set without labels.
    damaged  name of each damaged image, and its fault.
    """

    images: list[NDArray[np.uint8]]
    names: list[str]
    labels: pl.Series | None
    damaged: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Images that are read in order.

    name      for messages.
    count     number of images, sound or not.
    labelled  True if chunks have labels.
    chunks    function (images, pixels) that yields chunks of at most `images` and at most MAX_CHUNK images. A chunk
              ends at the latest with the image that completes `pixels` pixels.
    """

    name: str
    count: int
    labelled: bool
    chunks: Callable[[int, int], Iterator[Chunk]]


def runs(images: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Group consecutive images of the same shape into arrays [images, rows, columns]."""
    return [np.stack(list(run)) for _, run in groupby(images, key=lambda image: image.shape)]


def check_shape(rows: int, columns: int) -> None:
    """Raise DamagedImage for an image without pixels, or with more than MAX_PIXELS."""
    if rows < 1 or columns < 1:
        raise DamagedImage(f"it has no pixels ({rows} x {columns})")
    if rows * columns > MAX_PIXELS:
        raise DamagedImage(f"it claims to have {rows} x {columns} pixels, more than the {MAX_PIXELS:,} allowed")


def grey_levels(pixels: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Convert an array of images to grey images, and find the sound ones.

    pixels  [images, rows, columns] or [images, rows, columns, 1, 3 or 4 channels]: whole numbers from 0 to 255,
            or booleans, which become 0 and 255. A fourth channel is ignored.

    Returns uint8 [images, rows, columns] and bool [images], False for an image with other values. Colours are weighed
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


SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "TIFF")
# Modes in which Pillow opens images of 16 bits, and of 32 bits, which are refused.
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N")
_TOO_DEEP = ("I", "F")


def check_pillow() -> None:
    """Raise ConfigError if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "encoded images are read with Pillow, which is not installed: pip install 'bigforest[images]'"
        ) from error


def decode_image(content: Path | bytes) -> NDArray[np.uint8]:
    """Decode the first frame of an image to grey values, uint8 [rows, columns], turned upright as its EXIF data says.

    Colours are weighed as in ITU-R BT.601, transparency is ignored, and 16 bits are cut to the upper 8. Raises
    DamagedImage for an image that cannot be decoded, is too large or has pixels of 32 bits, and OSError, naming the
    file, for an error of the system.
    """
    from PIL import Image, ImageOps

    if isinstance(content, Path) and not content.is_file():  # reading a pipe would wait
        raise DamagedImage("it is a link to a file that does not exist, a pipe or a device")
    try:
        with warnings.catch_warnings():
            # Sizes are checked below, and Pillow's warnings about odd metadata do not matter here.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=_FORMATS) as image:
                check_shape(image.height, image.width)
                if image.mode in _TOO_DEEP:
                    raise DamagedImage("its pixels have 32 bits; convert it to 8 or 16")
                image.load()
                upright = ImageOps.exif_transpose(image)
                if upright.mode in _DEEP:
                    return (np.asarray(upright) >> 8).astype(np.uint8)
                return np.array(upright.convert("L"), dtype=np.uint8)
    except (DamagedImage, MemoryError):
        raise
    except Exception as error:  # decoders raise any error for damaged bytes
        if isinstance(content, Path) and (named := system_error(error, content)) is not None:
            raise named from error
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DamagedImage(f"it cannot be decoded ({detail})") from error


# Number of dimensions of an IDX file of images, and of labels.
IMAGES, LABELS = 3, 1
_WHAT = {IMAGES: "images", LABELS: "labels"}
_UNSIGNED_BYTE = 8
_GZIP = b"\x1f\x8b"

# Largest compression ratio of deflate. A compressed file whose header declares more values than this allows is refused
# before values are unpacked.
_MOST_COMPRESSION = 1032


class Idx(NamedTuple):
    """An open IDX file, and the shape in its header."""

    path: Path
    stream: IO[bytes]
    shape: tuple[int, ...]


def idx_images(path: Path, labels: Path | None) -> ImageSet:
    """Return the images in the IDX file `path`, with the labels in the IDX file `labels`, if any.

    Raises DataError if a header or the size of a file is wrong, or the numbers of images and labels differ. Reading
    chunks raises it for a damaged file, because no image after the damage can be found.
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
                sizes = counted(label_array.shape[0], "label"), counted(shape[0], "image")
                raise DataError(f"{labels} has {sizes[0]} and {path} {sizes[1]}; give those of one set")

    def chunks(most: int, pixels: int) -> Iterator[Chunk]:
        step = max(1, min(most, MAX_CHUNK, pixels // (shape[1] * shape[2])))
        with ExitStack() as stack:
            images = stack.enter_context(_open(path, IMAGES))
            label_array = None if labels is None else stack.enter_context(_open(labels, LABELS))
            for start in range(0, shape[0], step):
                count = min(step, shape[0] - start)
                read = _values(images, count * shape[1] * shape[2]).reshape(count, *shape[1:])
                target = None if label_array is None else pl.Series(_values(label_array, count))
                yield Chunk([read], [str(number) for number in range(start, start + count)], target, [])
            for file in (images, label_array):
                if file is not None and _bytes(file, 1):
                    raise DataError(f"{file.path} continues after the {_promised(file)} it declares")

    return ImageSet(str(path), shape[0], labels is not None, chunks)


def labels_beside(path: Path) -> Path | None:
    """Return the file of labels next to a file of images, compressed or not. None if there is none of matching name."""
    name = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    if "images" not in path.name:
        return None
    both = [path.with_name(name + suffix) for suffix in ("", ".gz")]
    return next((file for file in both if file.is_file()), None)


@contextmanager
def _open(path: Path, dimensions: int) -> Iterator[Idx]:
    """Open an IDX file. Raises DataError unless it has this many dimensions and the size that its header declares.

    Of a compressed file, only an upper bound of the unpacked size is known here.
    """
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
    """Read the header of an IDX file and return the shape. Raises DataError unless it has this many dimensions."""
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
    """Read the next `count` values. Raises DataError if the file has fewer."""
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
    """Return the error of the system, naming the file, that caused `error`; else a DataError for a damaged file."""
    return system_error(error, path) or DataError(f"{path}: the file is damaged ({error}); get it again")


# Name, label, and a function that returns the image or raises DamagedImage.
Entry = tuple[str, object, Callable[[], NDArray[np.uint8]]]


def folder_images(folder: Path) -> ImageSet:
    """Return the PNG, JPEG and TIFF files below `folder`, sorted by class and then by path.

    The class of a file is the name of its subfolder of `folder`. Files directly in `folder` have no class. Hidden
    files and folders and other kinds of files are skipped; links to folders are not followed. Raises DataError if there
    is no image, or if there are images both directly in `folder` and in subfolders; ConfigError without Pillow.
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


def decoded(entries: Iterable[Entry], label_type: pl.DataType | None, most: int, pixels: int) -> Iterator[Chunk]:
    """Yield chunks of images that are read one by one; damaged images count as images.

    label_type    type of the labels; None without labels
    most, pixels  see ImageSet.chunks
    """
    images: list[NDArray[np.uint8]] = []
    names: list[str] = []
    labels: list[object] = []
    damaged: list[tuple[str, str]] = []
    held = 0

    def chunk() -> Chunk:
        return Chunk(runs(images), names, None if label_type is None else pl.Series(labels, dtype=label_type), damaged)

    for name, label, read in entries:
        try:
            images.append(read())
        except DamagedImage as error:
            damaged.append((name, str(error)))
        else:
            names.append(name)
            labels.append(label)
            held += images[-1].size
        if held >= pixels or len(images) + len(damaged) >= min(most, MAX_CHUNK):
            yield chunk()
            images, names, labels, damaged, held = [], [], [], [], 0
    if images or damaged:
        yield chunk()


def _files(folder: Path) -> list[Path]:
    """List the image files below a folder, sorted by path, except hidden ones.

    Raises OSError for a folder that cannot be read.
    """
    paths: list[Path] = []
    for place, folders, files in walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]
        paths.extend(file for name in files if _is_image(file := place / name))
    return sorted(paths)


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.name[0] != "." and not file.is_dir()


# Rows of encoded images that are read at a time. Sizes of images are known only when they are decoded.
ENCODED_ROWS = 256


def table_images(source: Source, column: str | None, target: str | None) -> ImageSet:
    """Return the images in a table.

    column  the column of images: binary (encoded images), a struct with a binary field `bytes` (as Hugging Face
            writes them), or arrays or lists of whole numbers from 0 to 255 or booleans. An array has shape (rows,
            columns), (rows, columns, channels) or, for square images, (pixels,). A list has the pixels of a square
            image. None for the only column of these types.
    target  the column of labels; None for a column with a usual name, if any.

    Raises DataError if there is no column of images or no column of this name. Raises ConfigError if both are the same
    column, or for encoded images without Pillow.
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

    labels  labels of the images, [images], or None.

    Raises DataError.
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
    """Return the column of images, as `table_images` chooses it."""
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
    """Return True for a column of encoded images: binary, or a struct with a binary field `bytes`."""
    if isinstance(dtype, pl.Struct):
        return any(field.name == "bytes" and field.dtype == pl.Binary for field in dtype.fields)
    return dtype == pl.Binary


def _encoded_chunks(source: Source, column: str, target: str | None, most: int, pixels: int) -> Iterator[Chunk]:
    """Yield the chunks of a column of encoded images; most, pixels: see ImageSet.chunks."""

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
    """Yield the chunks of a column of arrays or lists of pixels; most, pixels: see ImageSet.chunks.

    Raises DataError for images that are not square if the column has lists or arrays of one dimension.
    """
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
    """Return a chunk of images.

    part     the images, as for `grey_levels`.
    rows     number of each image of `part` in the set, int64.
    labels   labels of consecutive images from number `first` on; None without labels.
    damaged  further images of the chunk that are damaged, see Chunk.
    """
    grey, sound = grey_levels(part)
    damaged = damaged + [(str(row), "a pixel is missing or not a whole number from 0 to 255") for row in rows[~sound]]
    kept = rows[sound]
    kept_labels = None if labels is None else labels.gather(kept - first)
    images = [grey if sound.all() else grey[sound]] if len(kept) else []
    return Chunk(images, [str(row) for row in kept], kept_labels, sorted(damaged, key=lambda entry: int(entry[0])))


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
    """Return the number of pixels of the first image of a column of lists. Raises DataError if all are missing."""
    for batch in source.batches([column], ENCODED_ROWS):
        lengths = cells(batch, column).list.len().drop_nulls()
        if len(lengths):
            return int(lengths[0])
    raise DataError(f"{source.name}: every image of {column!r} is missing; choose another column")
