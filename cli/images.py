"""bigforest images"""

from __future__ import annotations

from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


def images(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="An IDX file of images, a folder with a folder of PNG, JPEG or TIFF files per class, or a table with "
            "a column of images.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", show_default=False, help="The features, a Parquet file.")],
    features: Annotated[
        str,
        typer.Option(metavar="pixels|neighbours", help="Pixels alone, or with the directional neighbours of Ho 1995."),
    ] = "pixels",
    size: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLS", help="Put every image into the middle of this; their own size unless given."),
    ] = None,
    crop: Annotated[bool, typer.Option("--crop", help="Put only the box around the ink there.")] = False,
    ink: Annotated[
        int | None,
        typer.Option(metavar="N", help="Least grey value that is ink for --crop; the threshold, or 1, unless given."),
    ] = None,
    invert: Annotated[bool, typer.Option("--invert", help="For dark ink on light paper.")] = False,
    threshold: Annotated[
        int | None,
        typer.Option(metavar="N", help="Pixels are true from this grey value on; neighbours need one, 128."),
    ] = None,
    stride: Annotated[
        str, typer.Option(metavar="paper|full", help="Neighbours at the places of the paper, or at all.")
    ] = "paper",
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="IDX file of labels; the one beside SOURCE by its name unless given."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of images in a table; the only one unless given.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of labels in a table; target, label, class or y unless given."),
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Also write the file or number of every image, as column image.")
    ] = False,
    on_corrupt: Annotated[
        str, typer.Option(metavar="skip|refuse", help="Leave damaged images out and name them, or stop at the first.")
    ] = "skip",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    scratch: options.Scratch = None,
) -> None:
    """Turn images into a table of features to train on.

    Example: bigforest images train-images-idx3-ubyte.gz --out digits.parquet --size 20x20 --crop --threshold 128
    """
    import bigforest

    from .progress import watching
    from .show import show

    begin = perf_counter()
    with watching(quiet=quiet) as listener:
        done = bigforest.images_to_features(
            source,
            out,
            features=features,
            size=size,
            crop=crop,
            ink=ink,
            invert=invert,
            threshold=threshold,
            stride=stride,
            labels=labels,
            column=column,
            target=target,
            names=names,
            on_corrupt=on_corrupt,
            scratch=scratch,
            overwrite=overwrite,
            listener=listener,
        )
    show({"out": out, **asdict(done), "seconds": perf_counter() - begin}, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines

    skipped = f" ({count(facts['skipped'], 'damaged image')} left out)" if facts["skipped"] else ""
    lines(
        console,
        [
            ("images", count(facts["rows"]) + skipped),
            ("size", " x ".join(map(str, facts["size"]))),
            ("features", count(facts["features"])),
            ("target", "the label" if facts["labelled"] else "none, because there are no labels"),
            ("time", duration(facts["seconds"])),
            ("table", facts["out"]),
        ],
    )
