"""bigforest images"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Choice, Given, flag, option
from .show import Facts, count, duration, lines

# Options by argument of `images_to_features`, with its defaults, in the order of --help.
IMAGES: dict[str, Choice] = {
    "features": option(
        str, "pixels|neighbours", "Pixels only, or also the directional neighbours of Ho 1995.", default="pixels"
    ),
    "size": option(
        str,
        "ROWSxCOLS",
        "Size of the canvas on which images are centred. Default: the size of the images.",
    ),
    "crop": flag("Crop images to the bounding box of the ink.", "--crop"),
    "ink": option(int, "N", "Lowest grey value that counts as ink for --crop. Default: the threshold, or 1."),
    "invert": flag("For dark ink on light paper.", "--invert"),
    "threshold": option(int, "N", "Pixels are true from this grey value on. Default of neighbours: 128."),
    "stride": option(
        str, "paper|full", "Neighbours at the positions of the paper, or at all positions.", default="paper"
    ),
    "labels": option(str, "FILE", "IDX file of labels. Default: the one next to SOURCE, by its name."),
    "column": option(str, "NAME", "Column of images in a table. Default: the only one."),
    "target": option(str, "NAME", "Column of labels in a table. Default: target, label, class or y."),
    "names": flag("Also write the file or number of every image, as column image.", "--names"),
    "on_corrupt": option(
        str, "skip|refuse", "Skip damaged images and report them, or stop at the first.", default="skip"
    ),
}


def _draw(facts: Facts) -> None:
    skipped = f" ({count(facts['skipped'], 'damaged image')} left out)" if facts["skipped"] else ""
    lines(
        ("images", count(facts["rows"]) + skipped),
        ("size", " x ".join(map(str, facts["size"]))),
        ("features", count(facts["features"])),
        ("target", "the label" if facts["labelled"] else "none, because there are no labels"),
        ("time", duration(facts["seconds"])),
        ("table", facts["out"]),
    )


@command(_draw, settings=IMAGES, run=options.run_options("overwrite", "scratch"))
def images(
    source: Annotated[
        str,
        options.argument(
            "SOURCE",
            "An IDX file of images, a folder with one subfolder of PNG, JPEG or TIFF files per class, or a table "
            "with an image column.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", show_default=False, help="The features, a Parquet file.")],
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Convert images to a table of features for training.

    Example: bigforest images train-images-idx3-ubyte.gz --out digits.parquet --size 20x20 --crop --threshold 128
    """
    import bigforest

    return {"out": out, **asdict(bigforest.images_to_features(source, out, **settings, **run))}
