"""Commands that make tables: `images`, features of images, and `simulate`, rows drawn from a distribution."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Choice, Given, flag, option
from .show import Facts, count, duration, lines, percent

# Options by argument of `images_to_features`, with its defaults, in the order of --help.
IMAGES: dict[str, Choice] = {
    "features": option(
        str, "pixels|neighbours", "Pixels alone, or with the directional neighbours of Ho 1995.", default="pixels"
    ),
    "size": option(
        str,
        "ROWSxCOLS",
        "Size of the canvas on which images are centred. Default: the size of the images.",
    ),
    "crop": flag("Crop images to the bounding box of the ink.", "--crop"),
    "ink": option(int, "N", "Lowest grey value that counts as ink for --crop. Default: the threshold, or 1."),
    "invert": flag("Invert images of dark ink on light paper.", "--invert"),
    "threshold": option(int, "N", "Pixels are true from this grey value on. Default of neighbours: 128."),
    "stride": option(
        str, "paper|full", "Neighbours at the positions of Ho 1995, or at all positions.", default="paper"
    ),
    "labels": option(str, "FILE", "IDX file of labels. Default: found next to SOURCE by its name."),
    "column": option(str, "NAME", "Column of images in a table. Default: the only one."),
    "target": option(str, "NAME", "Column of labels in a table. Default: target, label, class or y."),
    "names": flag("Also write the column image: file or number of every image.", "--names"),
    "on_corrupt": option(
        str, "skip|refuse", "Skip damaged images and report them, or stop at the first.", default="skip"
    ),
}


def _draw_images(facts: Facts) -> None:
    skipped = f" ({count(facts['skipped'], 'damaged image')} left out)" if facts["skipped"] else ""
    lines(
        ("images", count(facts["rows"]) + skipped),
        ("size", " x ".join(map(str, facts["size"]))),
        ("features", count(facts["features"])),
        ("target", "the label" if facts["labelled"] else "none, because there are no labels"),
        ("time", duration(facts["seconds"])),
        ("table", facts["out"]),
    )


@command(_draw_images, settings=IMAGES, run=options.run_options("overwrite", "scratch"))
def images(
    source: Annotated[
        str,
        options.argument(
            "SOURCE",
            "An IDX file of images, a folder of PNG, JPEG or TIFF files or with one subfolder of them per class, or a "
            "table with an image column.",
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


# Options by argument of `bigforest.simulate`, with its defaults, in the order of --help.
SIMULATE = {
    "dims": option(
        int, "P", "Number of columns x0, x1, ... Default for shapes: 2. Further columns of shapes are noise."
    ),
    "rotate": flag("Rotate all rows by one random rotation.", "--rotate"),
    "scale": flag("Multiply every column by a random factor from 0 to 10.", "--scale"),
    "affine": flag("Rotate, then scale.", "--affine"),
    "outliers": option(
        int, "N", "Number of rows to append, around the same means with 4 times the covariance.", default=0
    ),
    "noise": option(float, "F", "shapes: probability of a wrong label. Default: 0.1."),
    "truth": flag("Also write the label without noise, as truth.", "--truth"),
    "sample": option(int, "N", "Number of the sample. Another one has other rows of the same distribution.", default=0),
    "seed": option(int, "N", "Random seed. The same seed and options give the same table.", default=0),
    "out": option(str, "FILE", "The table. Default: KIND.parquet."),
}


def _draw_simulate(facts: Facts) -> None:
    lines(
        ("rows", count(facts["rows"])),
        ("features", count(facts["dims"])),
        ("Bayes error", _bayes(facts["bayes"])),
        ("time", duration(facts["seconds"])),
        ("table", facts["out"]),
    )


def _bayes(bayes: Facts | None) -> str:
    if bayes is None:
        return "not worked out, because that takes long with this many dims (see bigforest.bayes_error)"
    spread = f" +- {percent(bayes['standard_error'])}" if bayes["standard_error"] else ""
    return f"{percent(bayes['error'])}{spread}, {bayes['how']}"


@command(_draw_simulate, settings=SIMULATE, run=options.run_options("overwrite"))
def simulate(
    kind: Annotated[
        str, options.argument("KIND", "trunk, parity, multimodal, modified-trunk, orthant, sparse-parity or shapes.")
    ],
    rows: Annotated[int, typer.Option(metavar="N", show_default=False, help="Number of rows, without outliers.")],
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Draw a table of any size from a known distribution.

    Example: bigforest simulate trunk --rows 1000 --dims 100 --rotate
    """
    import bigforest
    from bigforest.errors import naming_file

    settings.setdefault("out", f"{kind}.parquet")
    table = bigforest.simulate(kind, rows=rows, **settings, **run)
    with naming_file(settings["out"]):
        columns = len(table.collect_schema())
    bayes = bigforest.bayes_error(
        kind, **{name: settings[name] for name in ("dims", "noise", "seed") if name in settings}
    )
    return {
        "out": settings["out"],
        "rows": rows + settings.get("outliers", 0),
        "dims": columns - 1 - settings.get("truth", False),
        "bayes": None if bayes is None else asdict(bayes),
    }
