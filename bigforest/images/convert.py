"""Convert images to a table of features, chunk by chunk: read, fit into one size, compute features, write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.events import Listener, Notice, stage
from bigforest.execution.resources import resources_of
from bigforest.forest.tables import check_table_file, write_table_file
from bigforest.images.features import SMALLEST, feature_names, feature_values, fit
from bigforest.images.imageset import (
    Chunk,
    ImageSet,
    array_images,
    folder_images,
    idx_images,
    labels_beside,
    table_images,
)
from bigforest.options.values import check_flag, check_word, is_integer, plain
from bigforest.progress import watching
from bigforest.source.open import open_source
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.file_kinds import kind_of_file

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "image-features"
NAME, TARGET = "image", "target"

# A chunk ends at the image that reaches this number of pixels. If `size` is given, a chunk also has at most this number
# of feature values.
CHUNK_CELLS = 1 << 22

# More columns than this make Parquet's own bookkeeping larger than the table.
MAX_FEATURES = 1 << 16

# Most damaged images that are named in notices, and in the result. Further ones are only counted.
_NAMED = 20
_KEPT = 1000

_DEFAULT_THRESHOLD = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """Options of a conversion; see `bigforest.images_to_features`. Raises ConfigError.

    size       rows and columns of the canvas; "20x20" becomes (20, 20); None for the size of the images.
    threshold  None becomes 128 with neighbours.
    ink        None becomes the threshold, or 1 without a threshold.
    """

    features: str = "pixels"
    size: str | tuple[int, int] | None = None
    crop: bool = False
    ink: int | None = None
    invert: bool = False
    threshold: int | None = None
    stride: str = "paper"

    def __post_init__(self) -> None:
        for name, words in (("features", ("pixels", "neighbours")), ("stride", ("paper", "full"))):
            check_word(getattr(self, name), words, name)
        check_flag(self.crop, "crop")
        check_flag(self.invert, "invert")
        if self.features == "pixels" and self.stride != "paper":
            raise ConfigError(
                f"stride {self.stride!r} applies to neighbours, not to pixels; drop it, or choose neighbours"
            )
        for name in ("ink", "threshold"):
            value = plain(getattr(self, name))
            object.__setattr__(self, name, value)
            if value is not None and not is_integer(value, 1, 255):
                raise ConfigError(f"{api(name)} must be a grey value from 1 to 255, not {value!r}")
        if self.threshold is None and self.features == "neighbours":
            object.__setattr__(self, "threshold", _DEFAULT_THRESHOLD)
        if self.ink is None:
            object.__setattr__(self, "ink", self.threshold or 1)
        object.__setattr__(self, "size", None if self.size is None else _pair(self.size))

    def names(self, size: tuple[int, int]) -> list[str]:
        """Return the names of the features of images of this size. Raises ConfigError for too few pixels, or too many
        features."""
        if self.features == "neighbours" and min(size) < SMALLEST:
            raise ConfigError(
                f"neighbours need images of at least {SMALLEST} x {SMALLEST} pixels, not {size[0]} x {size[1]}; "
                "choose another size"
            )
        count = size[0] * size[1]
        names = feature_names(size, self.features, self.stride) if count <= MAX_FEATURES else []
        if not names or len(names) > MAX_FEATURES:
            raise ConfigError(
                f"images of {size[0]} x {size[1]} pixels have more than the {MAX_FEATURES:,} features a table can "
                "hold; choose a smaller size"
            )
        return names


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """The result of `images_to_features`.

    rows      number of images in the file.
    features  number of columns of features.
    size      rows and columns of pixels of the canvas.
    labelled  True if the table has the column target.
    shrunk    number of images that were scaled down to fit.
    skipped   number of images left out because they are damaged.
    damaged   names of the first 1,000 damaged images, each with its fault.

    Examples
    --------
    >>> import bigforest as bf, numpy as np
    >>> images = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8)
    >>> made = bf.images_to_features((images, ["dark", "light"]), "images.parquet", size=(8, 8))
    >>> made.rows, made.features, made.labelled
    (2, 64, True)
    """

    rows: int
    features: int
    size: tuple[int, int]
    labelled: bool
    shrunk: int
    skipped: int
    damaged: list[tuple[str, str]]


def images_to_features(
    source: Any,
    out: str | Path,
    *,
    features: str = "pixels",
    size: str | tuple[int, int] | None = None,
    crop: bool = False,
    ink: int | None = None,
    invert: bool = False,
    threshold: int | None = None,
    stride: str = "paper",
    labels: str | Path | None = None,
    column: str | None = None,
    target: str | None = None,
    names: bool = False,
    on_corrupt: str = "skip",
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> ImageFeatures:
    """Convert images to a table of features, the Parquet file `out`, in bounded memory.

    The columns are the features, bool with a threshold, otherwise uint8. If images have labels, the last column is
    the label, `target`.

    Parameters
    ----------
    source : object
        An IDX file of images (gzip or not); a folder with one subfolder of PNG, JPEG or TIFF files per class, or a
        folder of such files; a table as for `train` with an image column; or a numpy array [images, rows, columns],
        optionally in a pair with labels.
    out : str or Path
        The Parquet file.
    features : str, default="pixels"
        "pixels", or "neighbours": pixels and the directional neighbours of Ho 1995.
    size : str, (int, int) or None, default=None
        Rows x columns of the canvas, such as "20x20" or (20, 20). Images are centred on it; larger ones are scaled
        down. None for the size of the images, which must then be equal.
    crop : bool, default=False
        Crop images to the bounding box of the ink.
    ink : int or None, default=None
        Lowest grey value that counts as ink for `crop`. None for the threshold, or 1 if there is none.
    invert : bool, default=False
        Convert dark ink on light paper to light on dark.
    threshold : int or None, default=None
        Pixels are true from this grey value on. None keeps grey values, but is 128 for neighbours.
    stride : str, default="paper"
        Positions of the neighbour features. For images of 20 x 20 pixels, "paper" uses 452 of them, "full" all 1,062.
    labels : str, Path or None, default=None
        The IDX file of labels. None for the file next to the images that has `labels` for `images` in its name, if any.
    column : str or None, default=None
        The image column of a table. None for the only one.
    target : str or None, default=None
        The label column of a table. None for the one with a usual name, if there is one.
    names : bool, default=False
        Also write a first column `image`: the file's path below the folder, or the number of the image, from 0.
    on_corrupt : str, default="skip"
        "skip" leaves damaged images out and reports them in notices, "refuse" raises an error at the first.
    scratch, overwrite, listener
        As for `train`.

    Returns
    -------
    ImageFeatures

    Raises
    ------
    ConfigError, DataError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf, numpy as np
    >>> images = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8)
    >>> bf.images_to_features((images, ["dark", "light"]), "images.parquet", size=(8, 8)).features
    64
    """
    config = ImageConfig(
        features=features, size=size, crop=crop, ink=ink, invert=invert, threshold=threshold, stride=stride
    )
    check_word(on_corrupt, ("skip", "refuse"), "on_corrupt")
    check_flag(names, "names")
    resources = resources_of(None, scratch, None)
    with watching(listener) as listener, TemporaryFolder(resources.scratch) as work:
        check_table_file(out, KIND, overwrite=overwrite)
        images = open_images(source, labels=labels, column=column, target=target, scratch=work)
        run = _Conversion(images, config, names, on_corrupt, listener)
        if not images.labelled:
            listener(Notice(f"{images.name}: no labels, so the table has no column {TARGET}"))
        about = {"config": asdict(config)}
        write_table_file(out, run.tables(), kind=KIND, about=json.loads(json.dumps(about)), overwrite=overwrite)
        if run.skipped > _NAMED:
            left = counted(run.skipped - _NAMED, "more damaged image")
            listener(Notice(f"{images.name}: {left} left out"))
        if run.shrunk:
            were = "1 image was" if run.shrunk == 1 else f"{run.shrunk:,} images were"
            listener(Notice(f"{images.name}: {were} larger than {_text(run.size)} and scaled down to it"))
        counts = {"rows": run.rows, "features": len(run.columns), "shrunk": run.shrunk, "skipped": run.skipped}
        return ImageFeatures(size=run.size, labelled=images.labelled, damaged=run.damaged, **counts)


def open_images(source: Any, *, labels: Any, column: str | None, target: str | None, scratch: Path) -> ImageSet:
    """Open the images of `bigforest.images_to_features`, which documents arguments and errors."""
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir() and not any(map(kind_of_file, path.iterdir())):
            _refuse({"labels": labels, "column": column, "target": target}, "a folder of images")
            return folder_images(path)
        if path.is_file() and kind_of_file(path) is None:
            _refuse({"column": column, "target": target}, "an IDX file")
            return idx_images(path, labels_beside(path) if labels is None else Path(labels))
    pair = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
    if isinstance(pair[0], np.ndarray):
        _refuse({"labels": labels, "column": column, "target": target}, "an array of images")
        return array_images(*pair)
    _refuse({"labels": labels}, "a table, whose labels are a column (see target)")
    return table_images(open_source(source, scratch=scratch), column, target)


def _refuse(options: dict[str, object], kind: str) -> None:
    """Raise ConfigError for an option that is not None."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{api(name)} does not apply to {kind}; drop it")


class _Conversion:
    """Conversion of an image set. It yields the table, counts images and sends notices.

    rows, shrunk, skipped, damaged  see ImageFeatures, for the chunks converted so far.
    size     rows and columns of the canvas; (0, 0) until the size of the first image is known.
    columns  names of the features; empty until then.
    """

    def __init__(self, images: ImageSet, config: ImageConfig, names: bool, on_corrupt: str, listener: Listener) -> None:
        self.rows = self.shrunk = self.skipped = 0
        self.damaged: list[tuple[str, str]] = []
        self.size: tuple[int, int] = (0, 0)
        self.columns: list[str] = []
        self._images = images
        self._config = config
        self._names = names
        self._refuse = on_corrupt == "refuse"
        self._listener = listener
        if isinstance(config.size, tuple):
            self._resize(config.size)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of the file, in pieces.

        Raises DataError if no image is sound, for images of different sizes without `size`, and for a damaged image if
        these are refused.
        """
        most = CHUNK_CELLS // max(1, len(self.columns))
        with stage("images", self._images.count, "images", self._listener) as progress:
            for chunk in self._images.chunks(max(1, most), CHUNK_CELLS):
                self._tell(chunk.damaged)
                if chunk.names:
                    yield self._table(chunk)
                    self.rows += len(chunk.names)
                progress.advance(len(chunk.names) + len(chunk.damaged))
        if not self.rows:
            raise DataError(
                f"{self._images.name}: none of the {counted(self._images.count, 'image')} can be read; check the files"
            )

    def _resize(self, size: tuple[int, int]) -> None:
        self.size = size
        self.columns = self._config.names(size)

    def _tell(self, damaged: list[tuple[str, str]]) -> None:
        """Count damaged images and send notices. Raises DataError for the first one if they are refused."""
        for name, why in damaged:
            where = f"{self._images.name}: image {name} is damaged: {why}"
            if self._refuse:
                raise DataError(f"{where}; repair or remove it, or have damaged images skipped ({api('on_corrupt')})")
            if self.skipped < _NAMED:
                self._listener(Notice(f"{where}; it was left out"))
            if self.skipped < _KEPT:
                self.damaged.append((name, why))
            self.skipped += 1

    def _features(self, chunk: Chunk) -> NDArray[Any]:
        """Return the features of the sound images of a chunk, [features, images]."""
        config = self._config
        fitted = []
        at = 0
        for run in chunk.images:
            shape = (run.shape[1], run.shape[2])
            if not self.columns:
                self._resize(shape)
            if config.size is None and shape != self.size:
                raise DataError(
                    f"{self._images.name}: image {chunk.names[at]} has {_text(shape)} pixels and the first one "
                    f"{_text(self.size)}; choose a size for all"
                )
            at += len(run)
            grey = 255 - run if config.invert else run
            part, shrunk = fit(grey, self.size, crop=config.crop, ink=config.ink or 1)
            fitted.append(part)
            self.shrunk += shrunk
        return feature_values(np.concatenate(fitted), config.features, config.stride, config.threshold)

    def _table(self, chunk: Chunk) -> pa.Table:
        """Return the rows of a chunk: the image if requested, the features, and the target if images have labels."""
        import pyarrow as pa

        from bigforest.columns.arrow_arrays import arrow_array

        values = self._features(chunk)
        arrays: dict[str, Any] = {NAME: arrow_array(chunk.names, pa.string())} if self._names else {}
        arrays.update((name, arrow_array(values[place])) for place, name in enumerate(self.columns))
        if chunk.labels is not None:
            arrays[TARGET] = chunk.labels.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        return pa.table(arrays)


def _pair(size: Any) -> tuple[int, int]:
    """Parse "20x20" or a pair as rows and columns. Raises ConfigError."""
    sides = size.lower().split("x") if isinstance(size, str) else size
    try:
        rows, columns = (int(side) for side in sides)
    except (TypeError, ValueError):
        rows = columns = 0
    if rows < 1 or columns < 1:
        raise ConfigError(f"{api('size')} must be rows x columns, such as 20x20, not {size!r}")
    return rows, columns


def _text(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
