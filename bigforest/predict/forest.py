"""The class Forest: opening a forest, predicting with it, writing a copy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import bigforest  # whose explanations, pictures and reports stand above a forest, and are loaded when they are named
from bigforest.columns.labels import label_type
from bigforest.errors import ConfigError, FormatError, counted, damaged_forest
from bigforest.execution.process_cache import ProcessCache
from bigforest.forest import ranks as training_ranks
from bigforest.forest.choices import Choices, Power, Shrinkage
from bigforest.forest.files import (
    check_bytes,
    check_file,
    file_kind,
    read_choices,
    read_forest_levels,
    read_header,
    write_run,
)
from bigforest.forest.format import BOOSTING, FEATURES, RANKS, RUN, SHARPENED, SHRUNK
from bigforest.forest.parts import check_parts, part_paths
from bigforest.options.values import check_amount, check_power
from bigforest.predict import tree_votes
from bigforest.predict.exportable import ExportableForest
from bigforest.predict.html import html_of
from bigforest.predict.in_memory import apply_forest, feature_matrix, predict
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.paths import as_path, local_path
from bigforest.storage.regular_files import copy_regular, open_regular

RUN_FILE = "run.parquet"


def is_forest(path: Path) -> bool:
    """Whether `path` is the folder of a forest, of any version and in any state."""
    return file_kind(path / RUN_FILE) == "run"


def read_forest(path: str | Path, *, holding: object = None) -> Forest:
    """Open the forest in the folder `path`.

    Metadata and columns of all files are checked here, nodes before they are first used for prediction (or by
    `Forest.check`), and the rows of the other files when they are read.

    Parameters
    ----------
    path : str or Path
        Folder of the forest, local or s3://.
    holding : object, default=None
        An object to keep alive as long as the forest or a LazyFrame of its files is in use.

    Returns
    -------
    Forest

    Raises
    ------
    FormatError
        If it is not a forest, is incomplete or damaged, contains files of different forests, or has a newer version.
    """
    directory = as_path(path)
    header, parts = check_parts(part_paths(directory))
    check_file(directory / "features.parquet", "features", FEATURES, header.identity)
    check_file(directory / RUN_FILE, "run", RUN, header.identity)
    if header.config.ranks:
        check_file(directory / training_ranks.FILE, training_ranks.KIND, RANKS, header.identity)
    if header.config.boosts:
        check_file(directory / tree_votes.FILE, tree_votes.KIND, BOOSTING, header.identity)
    label_type(header.spec.target)
    return Forest(directory, header, parts, read_choices(directory), holding)


def opened_forest(forest: Forest | str | Path) -> Forest:
    """The forest that a user names: itself, or the one in a directory. Raises FormatError, as `read_forest`."""
    return forest if isinstance(forest, Forest) else read_forest(forest)


def grown_forest(directory: Path, choices: Choices, holding: object = None) -> Forest:
    """The forest whose trees have just been written to `directory`, while its other files may not be there. Its parts
    are checked when they are first read."""
    header, _ = read_header(part_paths(directory)[0], "trees")
    levels = read_forest_levels(directory, header)
    return Forest(directory, replace(header, levels=levels), None, choices, holding)


class Forest(ExportableForest):
    """A trained forest, from `bigforest.train` or `bigforest.read_forest`. Can be used from several threads.

    `predict`, `predict_proba` and `score` are for tables, `expr` is for lazy queries. `oob` is the out-of-bag report.
    `explain`, `plot` and `report` show why it predicts what it does. `nodes` and `features` are its trees as tables,
    `forest[0]` is a single tree. `write` saves it.

    Examples
    --------
    >>> forest = bigforest.train("flights.parquet", target="late")
    >>> forest.oob.error  # error to expect for new rows
    >>> forest.predict(new)["prediction"]
    """

    # What other modules of the package call is not for users.
    _INTERNAL = frozenset(
        {
            *("calibration", "each_tree", "header", "node_count", "passes", "predictor", "reader"),
            *("read_parts", "rule", "take", "tree_nodes", "tree_votes"),
        }
    )

    def __new__(cls, *given: Any, **fields: Any) -> Forest:
        if len(given) + len(fields) < 2:
            raise ConfigError("a forest is opened by bigforest.read_forest(path), and grown by bigforest.train")
        return object.__new__(cls)

    def __reduce__(self) -> tuple[Callable[..., Forest], tuple[Any, ...]]:
        """A forest is handed to other processes as its place, and read there once as long as it does not change.

        One in a temporary folder, which goes away with this object, is handed on as the bytes of its files.
        """
        changed = (self.choices, self._changed) if self._changed else None
        if self._holding is not None:
            files = {str(path.relative_to(self.directory)): path.read_bytes() for path in self._files()}
            return _carried, (files, changed)
        looked_at = [*self.part_files, self.directory / RUN_FILE]
        stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in looked_at]
        return _again, (str(self.directory.resolve()), self.identity, tuple(stamps), changed)

    def __repr__(self) -> str:
        classes = "" if self.is_regression else f"{counted(len(self.classes), 'class')}, "
        return (
            f"Forest({counted(self.trees, 'tree')}, {counted(len(self.spec.features), 'feature')}, {classes}"
            f"target {self.spec.target.name!r}, {counted(self.spec.rows, 'row')})"
        )

    def _repr_html_(self) -> str:
        return html_of(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__()} - self._INTERNAL)

    def __len__(self) -> int:
        return self.trees

    def __getitem__(self, number: int) -> Tree:
        """The tree of this number, from 0; or, if negative, from the end."""
        try:
            place = operator.index(number)
        except TypeError:
            raise TypeError(f"trees are numbered; give the number of one, not {number!r}") from None
        if not -self.trees <= place < self.trees:
            raise IndexError(f"the forest has the trees 0 to {self.trees - 1}, and no tree {number}")
        return Tree(self, place % self.trees)

    def predict(
        self,
        data: Any,
        vote: str | None = None,
        ties: str | None = None,
        keep: Sequence[str] = (),
        threads: int | None = None,
        memory: int | str | None = None,
        unseen: str = "larger",
        quantiles: Sequence[float] = (),
        trees: Iterable[int] | None = None,
        coverage: float | None = None,
        reject_above: float | None = None,
        coverage_by: Any = None,
        jackknife: bool = False,
    ) -> Any:
        """Predict the class of every row, or the mean target for regression, in order.

        Random draws are keyed by the number of the row in `data`. Threads and memory do not change the predictions.

        Parameters
        ----------
        data : DataFrame, LazyFrame, table or ndarray
            A table with the training features by name: a Polars or pandas frame, a pyarrow Table or any object that
            exports an Arrow stream, a mapping of columns, a list of mappings, or a numpy array with named fields. Or a
            numpy array or list [rows, features] with the features in the order of training, an array of objects if some
            are categories; or a scipy sparse matrix, of which about 64 MB of cells are dense at a time. Null and NaN
            are missing.
        vote : {"soft", "hard", "stochastic"} or None, default=None
            "soft" averages class probabilities, "hard" counts one vote per tree, "stochastic" draws a class with its
            mean probability. None as in training.
        ties : {"lowest", "reject", "random"} or None, default=None
            Prediction if classes have equal votes; "reject" gives null. None as in training: "lowest", or "reject" for
            the subspace families.
        keep : sequence of str, default=()
            Columns of the table to copy to the result.
        threads : int or None, default=None
            Worker threads. None for all processors. A LazyFrame uses the threads of Polars.
        memory : int, str or None, default=None
            Memory budget of the whole process including `data`, such as "4GB". None for no limit. If the trees do not
            fit, they are loaded in groups, except for a LazyFrame, which needs all of them in memory.
        unseen : {"larger", "missing", "error"}, default="larger"
            A level that did not occur in training goes to the larger child of a node, counts as missing, or is an
            error.
        quantiles : sequence of float, default=()
            For regression with `keep_targets`: shares from 0 to 1. The distribution of a row is the mean over the trees
            of the weighted targets in its leaf (Meinshausen 2006). A quantile is the smallest target at which the
            cumulative share reaches the requested one.
        trees : iterable of int or None, default=None
            Numbers of the trees to use, such as range(50). None for all.
        coverage : float or None, default=None
            Also return a prediction interval (regression) or a prediction set (classification) for each row that
            contains the true value with approximately this probability. The method is conformal prediction on
            out-of-bag rows (Johansson et al. 2014), by bins of the prediction for regression and by class for
            classification.
        reject_above : float or None, default=None
            For classification: null for rows whose estimated error is above this limit. The estimate is the error of
            out-of-bag rows with the same probability of their predicted class.
        coverage_by : str, Series or None, default=None
            With `coverage`, a column of categories (text, booleans, integers, dates) that `data` has too. Rows of each
            category are calibrated separately (Mondrian), so the coverage holds for each. Pass its name if the training
            table can be read again, otherwise the column of that table as a named Series.
        jackknife : bool, default=False
            With `coverage`, for regression: intervals by the jackknife+ after bootstrap (Kim, Xu and Barber 2020). They
            contain the target with a probability of at least 1 - 2 (1 - coverage), for any data, if rows are
            exchangeable, the number of trees was drawn at random, and no option was selected on the rows. All trees are
            held in memory.

        Returns
        -------
        DataFrame, LazyFrame, table or ndarray
            The same kind of table as `data` (Polars for mappings and named fields, pyarrow for Arrow streams), with the
            columns `keep` and `prediction`, in the type of the target (float64 for regression). With quantiles it also
            has columns such as `q0.1`; with coverage it has `low` and `high`, or `set`, a list of classes. For an array
            or a list of rows the result is an array of shape [rows], with nan or None for rejected rows. With quantiles
            or coverage it is [rows, quantiles, low and high], or for classification bool [rows, classes]. A LazyFrame
            stays lazy and streams.

        Raises
        ------
        ConfigError
            For an invalid option or too little memory.
        DataError
            For a feature that is missing or of another kind, a missing value in a forest grown with `ranks`, or an
            unseen level if that is an error. For the values of a LazyFrame it is raised when it is collected; some
            versions of Polars convert it to a ComputeError.
        FormatError
            For a damaged forest.
        """
        rule = self.rule(vote, ties, unseen, quantiles, trees, coverage, reject_above, coverage_by, jackknife)
        return predict(self, data, rule, keep=keep, threads=threads, memory=memory)

    def predict_proba(
        self,
        data: Any,
        vote: str | None = None,
        keep: Sequence[str] = (),
        threads: int | None = None,
        memory: int | str | None = None,
        unseen: str = "larger",
        trees: Iterable[int] | None = None,
    ) -> Any:
        """Predict class probabilities of every row, in order: columns `keep` and p_<class>.

        Parameters
        ----------
        data, keep, threads, memory, unseen, trees
            As for `predict`.
        vote : str or None, default=None
            "soft": mean class probabilities of the trees; "hard": share of trees. None as in training. Both are raised
            to the power of the forest and scaled to sum to 1, unless `vote` is another than in training, or `trees` is
            set.

        Returns
        -------
        DataFrame, table or ndarray
            As for `predict`: the columns `keep` and p_<class>, or float64 of shape (rows, classes) for an array.

        Raises
        ------
        ConfigError, DataError, FormatError
            As for `predict`; ConfigError also for a regression forest.
        """
        rule = self.rule(vote, unseen=unseen, trees=trees)
        return predict(self, data, rule, keep=keep, threads=threads, memory=memory, proba=True)

    def score(self, data: Any, y: Any = None, **options: Any) -> float:
        """Return the accuracy on the rows of a table, or R2 for regression.

        Rows without a true value are ignored. A rejected row, or one of an unknown class, counts as wrong.

        Parameters
        ----------
        data : table or path
            A table in memory as for `predict`, with the target unless `y` is given; or a pair (X, y).
        y : object, default=None
            The true classes or targets: an array, a list or a Series, of shape [rows] or [rows, 1].
        **options
            As for `predict`: vote, ties, trees and so on.

        Returns
        -------
        float

        Raises
        ------
        ConfigError, DataError, FormatError
            As for `predict`.
        """
        from bigforest.predict.score import score

        if isinstance(data, tuple) and len(data) == 2 and y is None:
            data, y = data
        return score(self, self.predict(data, **options), data, y)

    def apply(
        self, data: Any, unseen: str = "larger", trees: Iterable[int] | None = None, threads: int | None = None
    ) -> NDArray[np.uint32]:
        """Return the leaf of each row in each tree, as the number of the node in its tree.

        Parameters
        ----------
        data : table or path
            A table in memory or an array, as for `predict`. The whole forest is held in memory.
        unseen, trees, threads
            As for `predict`.

        Returns
        -------
        ndarray of uint32, shape (rows, trees)

        Raises
        ------
        ConfigError, DataError, FormatError
            As for `predict`.
        """
        return apply_forest(self, data, self.rule(unseen=unseen, trees=trees), threads)

    def inbag(self, trees: Iterable[int] | None = None, group: Any = None) -> pl.DataFrame:
        """Return how often each training row is in the bag of each tree: the column row, and a column 0, 1, ... per
        tree.

        `row` is the number of the row in the training table. Bags are not stored but recomputed, which takes time, and
        two bytes per row and tree.

        Parameters
        ----------
        trees : iterable of int or None, default=None
            Numbers of the trees; None for all.
        group : object, default=None
            If bags are drawn by groups: that column of the training table, as an array or a Series.

        Returns
        -------
        DataFrame

        Raises
        ------
        ConfigError
            If the forest lacks information about its table: rows were left out or drawn by class, and it has no
            out-of-bag report, as for merged forests.
        DataError
            For groups that differ from those of training.
        """
        from bigforest.predict.inbag import bags_of

        return bags_of(self, self._numbers(trees) or range(self.trees), group)

    def explain(self, data: Any = None, out: str | Path | None = None, **options: Any) -> bigforest.Explanation:
        """Explain the predictions of the forest, as tables.

        Parameters
        ----------
        data : table or path, default=None
            Rows to explain, as for `bigforest.explain_forest`.
        out : str, Path or None, default=None
            Folder of the tables. None for a temporary one, which exists as long as the Explanation.
        **options
            Options of `bigforest.explain_forest`, which raises the same errors.

        Returns
        -------
        Explanation
        """
        return bigforest.explain_forest(self, data, out, **options)

    @property
    def plot(self) -> bigforest.Pictures:
        """Plots of the forest as Altair charts: `forest.plot.error()` and so on. Needs the extra `plot`."""
        return bigforest.Pictures(self)

    def report(self, data: Any = None, out: str | Path = "report.html", **options: Any) -> Path:
        """Write a report about the forest as one HTML file.

        Parameters
        ----------
        data : table or path, default=None
            The training table, for the parts of the report that need rows.
        out : str or Path, default="report.html"
            The file.
        **options
            Options of `bigforest.report_forest`, which raises the same errors.

        Returns
        -------
        Path
        """
        return bigforest.report_forest(self, data, out, **options)

    @property
    def feature_importances(self) -> NDArray[np.float64]:
        """Share of each feature in the total decrease of impurity, in the order of `features`."""
        return self.features["importance"].to_numpy()

    def expr(
        self,
        proba: bool = False,
        vote: str | None = None,
        ties: str | None = None,
        row: str | None = None,
        unseen: str = "larger",
        coverage: float | None = None,
        reject_above: float | None = None,
        coverage_by: Any = None,
        jackknife: bool = False,
    ) -> pl.Expr:
        """Return a Polars expression for the prediction of each row, named "prediction", for any frame with the
        features.

        It is elementwise, so lazy queries stream. It reads only features that some tree splits on.

        Parameters
        ----------
        proba : bool, default=False
            Return a struct of p_<class> instead, named "probabilities".
        coverage : float or None, default=None
            Return a struct of prediction and low and high, or set, instead, named "answer".
        row : str or None, default=None
            Name of an integer column with the number of the row, from 0. Needed for a stochastic vote and random ties,
            because an expression sees parts of the table in no fixed order.
        vote, ties, unseen, reject_above, coverage_by, jackknife
            As for `predict`.

        Returns
        -------
        Expr

        Raises
        ------
        ConfigError
            For an invalid option.
        DataError
            When the query runs; some versions of Polars convert it to a ComputeError.
        """
        from bigforest.predict.lazy import expression

        rule = self.rule(
            vote,
            ties,
            unseen,
            coverage=coverage,
            reject_above=reject_above,
            coverage_by=coverage_by,
            jackknife=jackknife,
        )
        return expression(self, rule, proba=proba, row=row)

    def to_matrix(self, data: Any) -> NDArray[np.float64]:
        """Convert a table to the array that exported models read: float64 [rows, features], in the order of `features`.

        Dates and times become numbers. A category becomes the index of its level among the levels of training (as in
        levels.parquet, from 0; the number of levels if it did not occur there), or the value of its level where trees
        split on projections. NaN is missing.

        Parameters
        ----------
        data : table or ndarray
            As for `predict`.

        Raises
        ------
        DataError
            For a feature that is missing or of another kind.
        """
        return feature_matrix(self, data)

    def shrink(self, amount: float) -> Forest:
        """Return the same trees with leaf values shrunk by another lambda (Agarwal et al. 2022).

        The result shares the files of this forest; `write` saves it as a forest. It has no out-of-bag report, because
        the existing one is for another lambda. A power that was selected for its class probabilities is dropped.

        Parameters
        ----------
        amount : float
            Lambda, in rows: a step below a node of n rows is multiplied by n / (n + lambda). 0 means no shrinkage.

        Returns
        -------
        Forest

        Raises
        ------
        ConfigError
            If it is not a finite number of at least 0.
        """
        check_amount(amount)
        choices = self.choices.for_other_shares(self.config.power, Shrinkage(float(amount)))
        return self._with(choices, (*self._changed, SHRUNK))

    def sharpen(self, power: float) -> Forest:
        """Return the same trees with class probabilities raised to another power, scaled to sum to 1.

        The result shares the files of this forest; `write` saves it as a forest. Predicted classes do not change. It
        has no out-of-bag report, because the existing one is for another power.

        Parameters
        ----------
        power : float
            A whole number of quarters from 0.25 to 16. 1 gives the shares of the votes themselves.

        Returns
        -------
        Forest

        Raises
        ------
        ConfigError
            For another power, or a regression forest.
        """
        check_power(power)
        if self.is_regression:
            raise ConfigError(f"{self.spec.target.name!r} is a regression target, without class probabilities")
        return self._with(replace(self.choices, power=Power(float(power))), (*self._changed, SHARPENED))

    def _with(self, choices: Choices, changed: tuple[str, ...]) -> Forest:
        """The same trees with other choices, by these stages."""
        return Forest(self.directory, self.header, self._parts, choices, self._holding, changed=changed)

    def write(self, path: str | Path, overwrite: bool = False) -> None:
        """Copy the forest to the folder `path`.

        Parameters
        ----------
        path : str or Path
            The folder to create.
        overwrite : bool, default=False
            Replace an existing forest.

        Raises
        ------
        OutputExistsError
            If something exists at `path`.
        FormatError
            For files that are damaged or links.
        """
        with staged(path, overwrite=overwrite, kind="forest", is_ours=is_forest) as copy:
            for source in self._files():
                target = copy / source.relative_to(self.directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                with open_regular(local_path(source)):
                    check_bytes(source)  # before the copy: another file may have any size
                copy_regular(source, target)
                # The copy, which nobody else changes, is what is looked at.
                check_bytes(target)
                if read_header(target, None)[0].identity != self.identity:
                    raise damaged_forest(
                        f"{source} belongs to another forest, as its dataspec or configuration differs"
                    )
            if self._changed:
                seconds = {**dict(self.run.select("stage", "seconds").iter_rows()), **dict.fromkeys(self._changed, 0.0)}
                threads = self.run["threads"][0]
                write_run(copy, seconds, threads, self.header, self.origin, self.choices)


# The choices of a forest, and the stages by which they are others than those of its files; None where they are these.
_Changed = tuple[Choices, tuple[str, ...]] | None


def _carried(files: dict[str, bytes], changed: _Changed) -> Forest:
    """The forest of these files, in a temporary folder of its own. Raises FormatError."""
    home = TemporaryFolder(None)
    try:
        for name, content in files.items():
            path = home.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        forest = read_forest(home.path, holding=home)
        return forest if changed is None else forest._with(*changed)
    except BaseException:
        home.remove()
        raise


class Tree:
    """A tree of a forest, `forest[number]`.

    forest  whose tree it is.
    number  of the tree, from 0.
    """

    def __init__(self, forest: Forest, number: int) -> None:
        self.forest = forest
        self.number = number

    def __len__(self) -> int:
        return self.nodes.height

    def __repr__(self) -> str:
        return f"Tree({self.number}, {counted(len(self), 'node')}, {counted(self.leaves, 'leaf')}, depth {self.depth})"

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """One row per node, in the order of their numbers, with the columns of `Forest.nodes`."""
        return self.forest.tree_nodes(self.number).collect()

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return int(self.nodes["left"].null_count())

    @property
    def depth(self) -> int:
        """Depth of the deepest leaf; the root has depth 0."""
        return int(self.nodes["depth"].to_numpy().max())

    def predict(self, data: Any, **options: Any) -> Any:
        """`Forest.predict` with this tree only."""
        return self.forest.predict(data, trees=[self.number], **options)

    def predict_proba(self, data: Any, **options: Any) -> Any:
        """`Forest.predict_proba` with this tree only."""
        return self.forest.predict_proba(data, trees=[self.number], **options)

    def apply(self, data: Any, threads: int | None = None) -> Any:
        """Number of the leaf of each row of `data`, uint32 [rows]."""
        return self.forest.apply(data, trees=[self.number], threads=threads)[:, 0]


_opened: ProcessCache[Forest] = ProcessCache(2)


def _again(directory: str, identity: str, stamps: tuple[tuple[str, int, int], ...], changed: _Changed) -> Forest:
    """The forest in a directory, which other stamps of its files make another one.

    Raises FormatError.
    """

    def opened() -> Forest:
        forest = read_forest(directory)
        if forest.identity != identity:
            raise FormatError(f"{directory} is not the forest that was sent: it has changed, or this is another disk")
        return forest if changed is None else forest._with(*changed)

    return _opened.get((directory, identity, stamps, changed), opened)
