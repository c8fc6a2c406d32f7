"""`bigforest.plot_forest`: pictures of a forest in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigforest.errors import OutputExistsError
from bigforest.events import Listener
from bigforest.explain.options import ExplainOptions
from bigforest.options.values import check_word, some_of
from bigforest.plot.accuracy import has_rejection
from bigforest.plot.draw import FORMATS, altair, converter, write_chart
from bigforest.plot.pictures import Pictures
from bigforest.plot.tree import DEPTH
from bigforest.predict.forest import Forest, opened_forest
from bigforest.source import Source
from bigforest.storage.atomic import check_output, made_folder
from bigforest.storage.paths import as_path

# The plots, in their order: what has to be there for one to be drawn unasked, "" for never, and the arguments it takes.
_PLOTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "error": ("out of bag", ()),
    "rounds": ("rounds", ()),
    "confusion": ("classes out of bag", ()),
    **dict.fromkeys(("reliability", "roc", "precision-recall"), ("classes out of bag", ("label",))),
    "rejection": ("rejection", ()),
    "importance": ("forest", ()),
    "unbiased": ("training rows", ("data",)),
    "permutation": ("training rows", ("data",)),
    "dependence": ("rows", ("data", "features")),
    "waterfall": ("rows", ("data", "row", "label")),
    "swarm": ("rows", ("data", "label")),
    "surface": ("", ("data", "features", "label")),
    "interactions": ("", ("data", "label")),
    "map": ("training rows", ("data",)),
    "depth": ("forest", ()),
    "leaves": ("forest", ()),
    "tree": ("forest", ("tree", "depth")),
    "time": ("forest", ()),
}
PICTURES = tuple(_PLOTS)


def plot_forest(
    forest: Forest | str | Path,
    data: Any = None,
    *,
    out: str | Path,
    what: Iterable[str] | str | None = None,
    format: str = "svg",
    row: int = 0,
    tree: int = 0,
    depth: int = DEPTH,
    features: Sequence[str] | None = None,
    label: Any = None,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
) -> list[Path]:
    """Write plots of a forest to the folder `out`, each a file NAME.svg, .png or .html.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : path or table, optional
        Rows. For dependence, waterfall, swarm, surface and interactions any rows with the features of the forest; for
        unbiased, permutation and map the training table with the target.
    out : str or Path
        Output folder, created if it does not exist.
    what : sequence of str or str, optional
        Names of plots, some of `PICTURES`. None for all that the forest and the rows allow, except `surface`, which
        draws two features, and `interactions`, which is slow.
    format : {"svg", "png", "html"}, default="svg"
        HTML shows values on hover, and needs no network.
    row : int, default=0
        Number of the row of the waterfall, from 0.
    tree : int, default=0
        Number of the tree to draw, from 0.
    depth : int, default=3
        Levels of the tree below the root to draw, at most 8.
    features : sequence of str, optional
        Features of dependence, and two of surface. None for those with the largest decrease of impurity.
    label : optional
        Class of waterfall, swarm, surface and interactions, and the positive class of reliability, roc and
        precision-recall. None for the second of two, otherwise the most frequent one, or several. Refused for a
        regression forest.
    overwrite : bool, default=False
        Replace existing files.
    threads, scratch, memory, listener : optional
        As for `explain_forest`.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ConfigError
        For a plot that cannot be drawn, or if the extra `plot` is not installed.
    DataError
        For rows that do not fit.
    FormatError
        For a damaged forest.
    OutputExistsError
        If a file exists.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> [path.name for path in bf.plot_forest(forest, out="plots", what="roc")]
    ['roc.svg']
    """
    check_word(format, FORMATS, "format")
    forest = opened_forest(forest)
    altair()
    converter()
    named = ExplainOptions(classes=None if label is None else [label], features=features)
    named.check_names(forest.spec, forest.classes, "label")
    plot = Pictures(forest, {"threads": threads, "scratch": scratch, "memory": memory, "listener": listener})
    names = _possible(plot, data) if what is None else some_of(what, PICTURES, "what")
    given = {"data": data, "row": row, "tree": tree, "depth": depth, "features": features, "label": label}
    folder = as_path(out)
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{out} is a file; plots are written to a folder: choose another output")
    with made_folder(folder):
        paths = [folder / f"{name}.{format}" for name in names]
        for path in paths:
            check_output(path, overwrite=overwrite, kind="picture", is_ours=Path.is_file)
        for name, path in zip(names, paths, strict=True):
            draw = getattr(plot, name.replace("-", "_"))
            write_chart(draw(*(given[argument] for argument in _PLOTS[name][1])), path, overwrite=overwrite)
    return paths


def _possible(plot: Pictures, data: Any) -> tuple[str, ...]:
    """Return the pictures that can be drawn, in their order."""
    forest, there = plot.forest, {"forest"}
    if forest.has_oob and forest.oob.rows_used:
        there |= {"out of bag"} if forest.is_regression else {"out of bag", "classes out of bag"}
        there |= {"rejection"} if has_rejection(forest) else set()
    there |= {"rounds"} if forest.rounds.tried else set()
    if data is not None:
        with plot.opened(data) as source:
            there |= {"rows", "training rows"} if is_training(forest, source) else {"rows"}
    return tuple(name for name, (needs, _) in _PLOTS.items() if needs in there)


def is_training(forest: Forest, source: Source) -> bool:
    """Return whether a table looks like the training table, with bags that can be drawn again."""
    spec = forest.spec
    return forest.has_bags and spec.target.name in source.schema and source.rows == spec.rows + spec.dropped
