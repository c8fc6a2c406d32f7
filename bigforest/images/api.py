"""The function behind `bigforest images`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigforest.common.checks import check_flag, check_word
from bigforest.common.events import Listener
from bigforest.common.progress import watching
from bigforest.execution.arguments import resources_of
from bigforest.forest.format.table_file import check_table_file
from bigforest.images.convert import KIND, ImageConfig, ImageFeatures, convert, open_images
from bigforest.storage.atomic import TemporaryFolder


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

    The columns are the features (`feature_names` in images/features.py), bool with a threshold, otherwise uint8. The
    last column is the label, `target`.

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
        down. None for the size of the images, which must then be the same for all.
    crop : bool, default=False
        Crop images to the bounding box of the ink.
    ink : int or None, default=None
        Lowest grey value that counts as ink for `crop`. None for the threshold, or 1 if there is none.
    invert : bool, default=False
        Convert dark ink on light paper to light on dark.
    threshold : int or None, default=None
        Pixels are true from this grey value on. None keeps grey values, but is 128 for neighbours.
    stride : str, default="paper"
        Positions of the neighbour features: "paper" uses 452 of them for 20 x 20 pixels, "full" all 1,062.
    labels : str, Path or None, default=None
        The IDX file of labels. None for the one next to the images by its name, if it exists.
    column : str or None, default=None
        The image column of a table. None for the only one.
    target : str or None, default=None
        The label column of a table. None for the one with a usual name, if there is one.
    names : bool, default=False
        Also write a first column `image`: the file's path below the folder, or the number of the image.
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
    """
    config = ImageConfig(
        features=features, size=size, crop=crop, ink=ink, invert=invert, threshold=threshold, stride=stride
    )
    check_word(on_corrupt, ("skip", "refuse"), "on_corrupt")
    check_flag(names, "names")
    check_table_file(out, KIND, overwrite=overwrite)
    resources = resources_of(None, scratch, None)
    with watching(listener) as listener, TemporaryFolder(resources.scratch) as work:
        images = open_images(source, labels=labels, column=column, target=target, scratch=work)
        return convert(images, out, config, names=names, on_corrupt=on_corrupt, overwrite=overwrite, listener=listener)
