"""`forest.plot`: plots of a forest, as Altair charts; and `bigforest.plot_forest`, plots as files in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.errors import ConfigError, OutputExistsError, api, shown
from bigforest.events import Listener
from bigforest.execution.resources import resources_of
from bigforest.explain.explain import explain_forest
from bigforest.explain.options import ExplainOptions
from bigforest.explain.refine import scale_of
from bigforest.explain.row_table import sampled
from bigforest.options.values import check_word, is_integer, several, some_of
from bigforest.plot.accuracy import (
    confusion_chart,
    error_chart,
    has_rejection,
    precision_recall_chart,
    rejection_chart,
    reliability_chart,
    roc_chart,
    rounds_chart,
)
from bigforest.plot.draw import FORMATS, PICTURE, altair, converter, milliseconds, without_checks, write_chart
from bigforest.plot.explanations import (
    dependence_chart,
    interactions_chart,
    map_chart,
    surface_chart,
    swarm_chart,
    waterfall_chart,
)
from bigforest.plot.forest import DEPTH, MOST_DEPTH, depth_chart, importance_chart, leaves_chart, time_chart, tree_chart
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.rows import open_rows
from bigforest.source.source import Source
from bigforest.storage.atomic import TemporaryFolder, check_output, made_folder
from bigforest.storage.paths import as_path

# Rows of a table that are read at a time, and most rows of a sample.
_SLICE = 1 << 16
_DRAWN = 1000
# Most rows of the sample for interactions; rows of the sample for a surface, and values of each feature.
_PAIR_ROWS = 100
_SURFACE_ROWS, _GRID = 200, 30
# Options of the map. With fewer neighbors, most rows have none in common, and a few outliers fill the plot.
MAP = {"sample": 500, "neighbors": 2000}
_NONE_OUT_OF_BAG = "every row is in the bag of every tree, so there is nothing out of bag to draw"


@dataclass(frozen=True)
class Pictures:
    """Plots of a forest: `forest.plot.error()` and so on return Altair charts, which notebooks show.

    forest  the forest to plot.
    how     options of `bigforest.explain_forest` about the run: threads, memory, scratch, listener, scheduler. None for
            the defaults.

    All plots raise ConfigError if the extra `plot` is not installed, or the forest lacks the data for the plot.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> forest.plot.error().save("error.html")
    """

    forest: Forest
    how: dict[str, Any] | None = None

    def error(self) -> Any:
        """Plot the out-of-bag error against the number of trees, with a band of two standard errors to each side.

        If rows are weighted, there is no band.

        Examples
        --------
        >>> forest.plot.error().save("error.html")
        """
        self._check_oob()
        return error_chart(self.forest)

    def rounds(self) -> Any:
        """Plot the out-of-bag loss against the number of rounds of the boosted stage, for all tried numbers from 0 on.

        Examples
        --------
        >>> refined = bf.train(table, "kind", trees=10, refine=2)
        >>> refined.plot.rounds().save("rounds.html")
        """
        altair()
        if not self.forest.rounds.tried:
            raise ConfigError(f"no boosted stage was tried for this forest; train it with {api('refine')}")
        return rounds_chart(self.forest)

    def confusion(self) -> Any:
        """Plot out-of-bag rows by true and predicted class.

        Examples
        --------
        >>> forest.plot.confusion().save("confusion.html")
        """
        self._check_oob(classes=True)
        return confusion_chart(self.forest)

    def reliability(self, label: Any = None) -> Any:
        """Plot the share of rows of a class against their mean out-of-bag probability.

        Parameters
        ----------
        label : object, default=None
            Positive class. None for the second of two, otherwise each of the six classes with most rows.

        Examples
        --------
        >>> forest.plot.reliability().save("reliability.html")
        """
        self._check_oob(classes=True)
        return reliability_chart(self.forest, label)

    def roc(self, label: Any = None) -> Any:
        """Plot the ROC curve of out-of-bag rows: a class against the rest.

        Parameters
        ----------
        label : object, default=None
            Positive class. None for the second of two, otherwise each of the six classes with most rows.

        Examples
        --------
        >>> forest.plot.roc().save("roc.html")
        """
        self._check_oob(classes=True)
        return roc_chart(self.forest, label)

    def precision_recall(self, label: Any = None) -> Any:
        """Plot precision against recall for out-of-bag rows: a class against the rest.

        Parameters
        ----------
        label : object, default=None
            Positive class. None for the second of two, otherwise each of the six classes with most rows.

        Examples
        --------
        >>> forest.plot.precision_recall().save("precision_recall.html")
        """
        self._check_oob(classes=True)
        return precision_recall_chart(self.forest, label)

    def rejection(self) -> Any:
        """Plot the error of the predicted out-of-bag rows against their share, if the least certain ones are rejected.

        Examples
        --------
        >>> forest.plot.rejection().save("rejection.html")
        """
        self._check_oob(classes=True)
        if not has_rejection(self.forest):
            raise ConfigError(
                "the forest was grown with boosting, so its out-of-bag error is biased and has no rejection curve"
            )
        return rejection_chart(self.forest)

    def importance(self) -> Any:
        """Plot the most important features by the decrease of impurity, with two standard errors over the trees.

        Examples
        --------
        >>> forest.plot.importance().save("importance.html")
        """
        return self._importance("importance", None)

    def unbiased(self, data: Any) -> Any:
        """Plot the most important features by the decrease of impurity in out-of-bag rows (MDI-oob).

        Parameters
        ----------
        data : table or path
            The training table, as for `bigforest.explain_forest`.

        Examples
        --------
        >>> forest.plot.unbiased(table).save("unbiased.html")
        """
        return self._importance("unbiased", data)

    def permutation(self, data: Any) -> Any:
        """Plot the most important features by permuting them among out-of-bag rows.

        Parameters
        ----------
        data : table or path
            The training table, as for `bigforest.explain_forest`.

        Examples
        --------
        >>> forest.plot.permutation(table).save("permutation.html")
        """
        return self._importance("permutation", data)

    def dependence(self, data: Any, features: Sequence[str] | None = None) -> Any:
        """Plot the partial dependence on features, over a sample of at most 1,000 rows.

        Parameters
        ----------
        data : table or path
            Rows with the features of the forest.
        features : sequence of str or None, default=None
            Names of features. None for those with the largest decrease of impurity.

        Examples
        --------
        >>> forest.plot.dependence(table).save("dependence.html")
        """
        altair()
        features = None if features is None else several(features)
        if features is not None and any(not isinstance(name, str) for name in features):
            raise ConfigError(
                f"{api('features')} must be names, not {shown(features)}; for pairs, use {api('explain_forest')}"
            )
        rows, _ = self._sample(data)
        curves = self.explain("dependence", rows, features=features)["dependence"]
        return dependence_chart(curves, self.forest.is_regression, milliseconds(self.forest))

    def waterfall(self, data: Any, row: int = 0, label: Any = None) -> Any:
        """Plot the contributions of features to the prediction of a row.

        With a boosted stage, contributions to classes add up to log odds or log probabilities, not to probabilities.
        Without a stage they add up to the share of votes, before the power.

        Parameters
        ----------
        data : table or path
            Rows with the features of the forest.
        row : int, default=0
            Number of the row, from 0.
        label : object, default=None
            Class whose probability is explained. None for the second of two, otherwise the most frequent one.

        Examples
        --------
        >>> forest.plot.waterfall(table, row=3).save("waterfall.html")
        """
        altair()
        values = self._row(data, row)
        contributions = self._contributions(values, label)
        return waterfall_chart(contributions, values.row(0, named=True), row, scale_of(self.forest))

    def swarm(self, data: Any, label: Any = None) -> Any:
        """Plot the contributions of features to the predictions of all rows, or of a sample of 1,000 rows.

        The scale of the contributions is that of `waterfall`.

        Parameters
        ----------
        data : table or path
            Rows with the features of the forest.
        label : object, default=None
            Class whose probability is explained. None for the second of two, otherwise the most frequent one.

        Examples
        --------
        >>> forest.plot.swarm(table).save("swarm.html")
        """
        altair()
        rows, of = self._sample(data)
        categories = {feature.name for feature in self.forest.spec.features if feature.kind != "numeric"}
        return swarm_chart(self._contributions(rows, label), rows, categories, of, scale_of(self.forest))

    def depth(self) -> Any:
        """Plot the number of leaves by depth, and the number of trees by maximum depth.

        Examples
        --------
        >>> forest.plot.depth().save("depth.html")
        """
        return depth_chart(self.forest)

    def leaves(self) -> Any:
        """Plot the number of leaves by their number of bag rows.

        Examples
        --------
        >>> forest.plot.leaves().save("leaves.html")
        """
        return leaves_chart(self.forest)

    def tree(self, number: int = 0, depth: int = DEPTH) -> Any:
        """Plot the upper levels of a tree: conditions, classes or means, and numbers of bag rows.

        Parameters
        ----------
        number : int, default=0
            Number of the tree, from 0.
        depth : int, default=3
            Levels below the root to draw, at most 8.

        Examples
        --------
        >>> forest.plot.tree(number=2, depth=2).save("tree.html")
        """
        if not is_integer(number, 0, self.forest.trees - 1):
            raise ConfigError(f"{api('tree')} must be a number from 0 to {self.forest.trees - 1}, not {shown(number)}")
        if not is_integer(depth, 0, MOST_DEPTH):
            raise ConfigError(f"{api('depth')} must be a number of levels from 0 to {MOST_DEPTH}, not {shown(depth)}")
        return tree_chart(self.forest, number, depth)

    def time(self) -> Any:
        """Plot the seconds of each stage of the run.

        Examples
        --------
        >>> forest.plot.time().save("time.html")
        """
        return time_chart(self.forest)

    def surface(self, data: Any, features: Sequence[str] | None = None, label: Any = None) -> Any:
        """Plot the mean prediction over a sample of at most 200 rows, by the values of two features.

        Parameters
        ----------
        data : table or path
            Rows with the features of the forest.
        features : sequence of two str or None, default=None
            Names of features. None for the two with the largest decrease of impurity.
        label : object, default=None
            Class whose probability is explained. None for the second of two, otherwise the most frequent one.

        Examples
        --------
        >>> forest.plot.surface(table, ["length", "width"]).save("surface.html")
        """
        altair()
        if features is None:
            ranked = self.explain("importance")["importance"]
            ranked = ranked.sort("importance", descending=True, nulls_last=True, maintain_order=True)
            features = ranked["feature"].head(2).to_list()
        names = several(features)
        if len(names) != 2 or any(not isinstance(name, str) for name in names) or names[0] == names[1]:
            raise ConfigError(f"a surface needs two features, each once, not {shown(features)}")
        classes, label = self._class_option(label)
        rows, _ = self._sample(data)
        tables = self.explain("dependence", rows, features=[names], classes=classes, grid=_GRID, sample=_SURFACE_ROWS)
        return surface_chart(tables["dependence-pairs"], names[0], names[1], label, milliseconds(self.forest))

    def interactions(self, data: Any, label: Any = None) -> Any:
        """Plot the mean interactions of pairs of features over all rows, or over a sample of 100 rows.

        They are exact, which takes long for large forests: `plan_explanation` with the part `interactions` estimates
        the time.

        Parameters
        ----------
        data : table or path
            Rows with the features of the forest.
        label : object, default=None
            Class whose probability is explained. None for the second of two, otherwise the most frequent one.

        Examples
        --------
        >>> forest.plot.interactions(table).save("interactions.html")
        """
        altair()
        classes, _ = self._class_option(label)
        rows, _ = self._sample(data, _PAIR_ROWS)
        pairs = self.explain("interactions", rows, classes=classes)["interaction-pairs"]
        return interactions_chart(pairs, rows.height)

    def map(self, data: Any) -> Any:
        """Plot at most 500 rows as points. Rows with large RF-GAP proximities are close to each other.

        Parameters
        ----------
        data : table or path
            The training table, as for `bigforest.explain_forest`.

        Examples
        --------
        >>> forest.plot.map(table).save("map.html")
        """
        altair()
        with self.opened(data) as source:
            neighbors = self.explain("proximities", source, **MAP)["neighbors"]
            if not neighbors.height:
                raise ConfigError(_NONE_OUT_OF_BAG)
            target = source.column(self.forest.spec.target.name)
            return map_chart(neighbors, target, not self.forest.is_regression)

    @contextmanager
    def opened(self, data: Any) -> Iterator[Source]:
        """Open a table as a Source, within a `with` block. Raises ConfigError if `data` is None.

        Several plots and explanations can take the Source as `data`. They then use the same rows, even if a file is
        replaced meanwhile or a stream can be read only once.
        """
        if data is None:
            raise ConfigError(f"this needs rows: set {api('data')} to a table with the features of the forest")
        options = self.how or {}
        resources = resources_of(options.get("threads"), options.get("scratch"), options.get("memory"))
        with TemporaryFolder(resources.scratch) as folder:
            yield open_rows(data, self.forest.spec, scratch=folder, memory=resources.memory)

    def _check_oob(self, classes: bool = False) -> None:
        """Raise ConfigError if Altair or out-of-bag rows are lacking; with `classes`, also for a regression forest."""
        altair()
        if classes and self.forest.is_regression:
            raise ConfigError("this plot is for classification, and this is a regression forest")
        if not self.forest.oob.rows_used:
            raise ConfigError(_NONE_OUT_OF_BAG)

    def explain(self, parts: str | Sequence[str], data: Any = None, **options: Any) -> dict[str, pl.DataFrame]:
        """Return the tables of these sections of an explanation, except for those by tree, which are large.

        They are computed with the options `how`. The Explanation ends here, and with it its temporary folder. Altair
        would keep it until garbage is collected, as it keeps the frames of its callers.
        """
        explained = explain_forest(self.forest, data, parts=parts, **options, **(self.how or {}))
        return {name: explained[name] for name in explained if not name.endswith("-trees")}

    def _importance(self, kind: str, data: Any) -> Any:
        altair()
        return importance_chart(self.forest, self.explain(kind, data)[kind], kind)

    def _contributions(self, rows: pl.DataFrame, label: Any) -> pl.DataFrame:
        classes, _ = self._class_option(label)
        return self.explain("contributions", rows, classes=classes)["contributions"].sort("row")

    def _class_option(self, label: Any) -> tuple[list[Any] | None, Any]:
        """Return the option `classes` that explains one class, and this class; both None for regression.

        label  the class; None for the second of two, otherwise the most frequent one
        """
        classes = self.forest.classes
        if label is not None:
            named = ExplainOptions(classes=[label])
            named.check_names(self.forest.spec, "label")
            label = classes[named.codes(self.forest.spec.target)[0]]
        elif len(classes) == 2:
            label = classes[1]
        elif classes:  # the class with most rows in the bags
            roots = self.forest.nodes.filter(pl.col("node") == 0).select("counts").collect().to_series()
            sums = [sum(counts) for counts in zip(*roots.to_list(), strict=True)]
            label = classes[sums.index(max(sums))]
        return None if label is None else [label], label

    def _row(self, data: Any, row: int) -> pl.DataFrame:
        """Return a row of a table. Raises ConfigError for a row that the table does not have."""
        with self.opened(data) as source:
            if not is_integer(row, 0, source.rows - 1):
                raise ConfigError(f"{api('row')} must be a number from 0 to {source.rows - 1}, not {shown(row)}")
            return pl.concat(list(source.batches([*source.schema], _SLICE, row, row + 1)))

    def _sample(self, data: Any, most: int = _DRAWN) -> tuple[pl.DataFrame, int]:
        """Return a sample of `most` rows of a table, or all rows if it has fewer, and the number of all rows."""
        with self.opened(data) as source:
            chosen = sampled(source.rows, most, 0)
            pieces, begin = [], 0
            for piece in source.batches([*source.schema], _SLICE):
                rows = chosen[(chosen >= begin) & (chosen < begin + piece.height)]
                pieces.append(piece[(rows - begin).tolist()])
                begin += piece.height
            return pl.concat(pieces), source.rows


# Plots in their order. For each: the condition for drawing it by default, which `_possible` checks ("" for never), and
# its arguments, by their names in `plot_forest`.
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
    out: str | Path = "pictures",
    *,
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
    out : str or Path, default="pictures"
        Output folder, created if it does not exist.
    what : sequence of str or str, optional
        Names of plots, some of `PICTURES`. None for all plots that the forest and the rows allow, except `surface`,
        which is about two features, and `interactions`, which is slow.
    format : {"svg", "png", "html"}, default="svg"
        HTML shows values on hover, and needs no network.
    row : int, default=0
        Number of the row of the waterfall, from 0.
    tree : int, default=0
        Number of the tree to plot, from 0.
    depth : int, default=3
        Levels of this tree below the root to draw, at most 8.
    features : sequence of str, optional
        Features of dependence and surface; surface needs exactly two. None for those with the largest decrease of
        impurity.
    label : optional
        Class of waterfall, swarm, surface and interactions, and the positive class of reliability, roc and
        precision-recall. None for the second of two classes, otherwise the most frequent one; for the last three, the
        six most frequent ones. Refused for a regression forest.
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
        If a file exists and `overwrite` is False, or if `out` is a file.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.plot_forest(forest, table, "plots", what="roc")
    [PosixPath('plots/roc.svg')]
    """
    check_word(format, FORMATS, "format")
    forest = opened_forest(forest)
    altair()
    converter()
    named = ExplainOptions(classes=None if label is None else [label], features=features)
    named.check_names(forest.spec, "label")
    plot = Pictures(forest, {"threads": threads, "scratch": scratch, "memory": memory, "listener": listener})
    requested = None if what is None else some_of(what, PICTURES, "what")
    folder = as_path(out)
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{out} is a file; plots are written to a folder: choose another output")
    with nullcontext() if data is None else plot.opened(data) as source, made_folder(folder), without_checks():
        names = _possible(plot, source) if requested is None else requested
        options = {"row": row, "tree": tree, "depth": depth, "features": named.features, "label": label}
        arguments = options | {"data": source}
        paths = [folder / f"{name}.{format}" for name in names]
        for path in paths:
            check_output(path, PICTURE, overwrite=overwrite)
        written: list[Path] = []
        try:
            for name, path in zip(names, paths, strict=True):
                draw = getattr(plot, name.replace("-", "_"))
                write_chart(draw(*(arguments[argument] for argument in _PLOTS[name][1])), path, overwrite=overwrite)
                written.append(path)
        except BaseException:
            for path in () if overwrite else written:  # a repeated call would be refused because of these files
                path.unlink(missing_ok=True)
            raise
    return paths


def _possible(plot: Pictures, source: Source | None) -> tuple[str, ...]:
    """Return the names of the plots that are drawn by default with this forest and these rows, in their order."""
    forest, available = plot.forest, {"forest"}
    if forest.has_oob and forest.oob.rows_used:
        available |= {"out of bag"} if forest.is_regression else {"out of bag", "classes out of bag"}
        available |= {"rejection"} if has_rejection(forest) else set()
    available |= {"rounds"} if forest.rounds.tried else set()
    if source is not None:
        spec = forest.spec
        is_training = spec.target.name in source.schema and source.rows == spec.rows + spec.dropped
        available |= {"rows", "training rows"} if is_training and forest.has_bags else {"rows"}
    return tuple(name for name, (needs, _) in _PLOTS.items() if needs in available)
