"""A grown forest: opening it, predicting with it, writing a copy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import bigforest  # whose explanations, pictures and reports stand above a forest, and are loaded when they are named
from bigforest.common.errors import ConfigError, FormatError
from bigforest.common.process_cache import ProcessCache
from bigforest.forest.format import ranks as training_ranks
from bigforest.forest.format.files import check_bytes, check_file, file_kind, read_header
from bigforest.forest.format.parts import check_parts, part_paths
from bigforest.forest.format.schema import BOOSTING, FEATURES, RANKS, RUN, SHRUNK
from bigforest.forest.format.shrinkage import Shrinkage, read_shrinkage
from bigforest.forest.format.summary import write_run
from bigforest.forest.grown import GrownForest
from bigforest.forest.load import tree_votes
from bigforest.predict.html import html_of
from bigforest.schema.labels import label_type
from bigforest.schema.options import check_amount
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.paths import as_path, local_path
from bigforest.storage.regular_files import copy_regular, open_regular

RUN_FILE = "run.parquet"


def is_forest(path: Path) -> bool:
    """Whether `path` is the directory of a forest, of whatever version and in whatever state."""
    return file_kind(path / RUN_FILE) == "run"


def read_forest(path: str | Path, *, holding: object = None) -> Forest:
    """Open the forest in the directory `path`.

    Metadata and columns of all files are checked here, the nodes before they are first used for prediction
    (or by `Forest.check`), the rows of the other files when they are requested.

    Parameters
    ----------
    path : str or Path
        Folder of the forest, local or s3://.
    holding : object, default=None
        An object to keep as long as the forest or a LazyFrame of its files is in use.

    Returns
    -------
    Forest

    Raises
    ------
    FormatError
        When it is not a forest, is incomplete, damaged, put together from different forests, or of a newer version.
    """
    directory = as_path(path)
    paths = part_paths(directory)
    header = check_parts(paths)
    check_file(directory / "features.parquet", "features", FEATURES, header.identity)
    check_file(directory / RUN_FILE, "run", RUN, header.identity)
    if header.config.ranks:
        check_file(directory / training_ranks.FILE, training_ranks.KIND, RANKS, header.identity)
    if header.config.boosts:
        check_file(directory / tree_votes.FILE, tree_votes.KIND, BOOSTING, header.identity)
    label_type(header.spec.target)
    return Forest(directory, header, paths, read_shrinkage(directory), holding)


def opened_forest(forest: Forest | str | Path) -> Forest:
    """The forest that a user names: itself, or the one in a directory. Raises FormatError, as `read_forest`."""
    return forest if isinstance(forest, Forest) else read_forest(forest)


def grown_forest(directory: Path, shrinkage: Shrinkage) -> Forest:
    """The forest of the trees in `directory`, all of which are there, while its other files may not be."""
    paths = part_paths(directory)
    return Forest(directory, check_parts(paths), paths, shrinkage)


class Forest(GrownForest):
    """A grown forest, from `bigforest.train` or `bigforest.read_forest`. May be used from several threads."""

    # What other modules of the package call is not for users.
    _INTERNAL = frozenset({"calibration", "passes", "predictor", "reader", "rule", "take", "tree_votes"})

    def __new__(cls, *given: Any, **fields: Any) -> Forest:
        if len(given) + len(fields) < 2:
            raise ConfigError("a forest is opened by bigforest.read_forest(path), and grown by bigforest.train")
        return object.__new__(cls)

    def __reduce__(self) -> tuple[Callable[..., Forest], tuple[Any, ...]]:
        """A forest is handed to other processes as its place, and read there once as long as it does not change.

        One in a temporary folder, which goes away with this object, is handed on as the bytes of its files.
        """
        amount = self.shrinkage.amount if self._shrunk else None
        if self._holding is not None:
            files = {str(path.relative_to(self.directory)): path.read_bytes() for path in self._files()}
            return _carried, (files, amount)
        looked_at = [*self._parts, self.directory / RUN_FILE]
        stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in looked_at]
        return _again, (str(self.directory.resolve()), self._identity, tuple(stamps), amount)

    def __repr__(self) -> str:
        classes = "" if self.is_regression else f"{len(self.classes)} classes, "
        return (
            f"Forest({self.trees} trees, {len(self.spec.features)} features, {classes}"
            f"target {self.spec.target.name!r}, {self.spec.rows} rows)"
        )

    def _repr_html_(self) -> str:
        return html_of(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__()} - self._INTERNAL)

    def __len__(self) -> int:
        return self.trees

    def __getitem__(self, number: int) -> Tree:
        """The tree of this number, from 0; or, if negative, from the end."""
        place = operator.index(number)
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
        """The class of every row, in order, or the number that the trees predict on average.

        Random draws are keyed by the number of the row in `data`. Threads and memory never change an answer.

        Parameters
        ----------
        data : DataFrame, LazyFrame, table or ndarray
            A frame of Polars or pandas or a pyarrow Table that has the training features by name; or a numpy array
            [rows, features] with the features in the order of training, an array of objects if some are categories, or
            a sparse matrix of scipy, of which about 64 MB of cells are dense at a time. Null and NaN are missing.
        vote : {"soft", "hard", "stochastic"} or None, default=None
            See forest/load/vote_rule.py VoteRule; None as in training.
        ties : {"lowest", "reject", "random"} or None, default=None
            Which of the classes with most votes it is; "reject" gives null. None as in training: "lowest", or "reject"
            for forests in subspaces.
        keep : sequence of str, default=()
            Columns of a table to hand through.
        threads : int or None, default=None
            Worker threads, None for all processors; a LazyFrame is run by Polars' own.
        memory : int, str or None, default=None
            Most memory of the whole process, `data` included, such as "4GB"; None for no limit. Trees that do not fit
            are loaded a group at a time, except for a LazyFrame, which needs all of them.
        unseen : {"larger", "missing", "error"}, default="larger"
            A level of a category that was not there in training goes with the larger child of a node, counts as
            missing, or is an error.
        quantiles : sequence of float, default=()
            Of the regression targets: shares from 0 to 1. A forest that was trained with keep_targets gives each row
            the distribution of the targets in the leaves it ends in, trees alike and in a leaf by weight (Meinshausen
            2006); a quantile is the smallest target whose share, with all below it, reaches that.
        trees : iterable of int or None, default=None
            Numbers of the trees that answer, such as range(50); None for all.
        coverage : float or None, default=None
            Also say, for each row, in which interval the number is with about this probability, or in which set of
            classes the class: conformal prediction from the out-of-bag rows (metrics/conformal.py; Johansson 2014). Of
            numbers by bins of the prediction, of classes by class.
        reject_above : float or None, default=None
            Of classes: no prediction (null) for rows of which more than this share would be wrong. That is the error
            of out-of-bag rows whose predicted class has as many of the votes.
        coverage_by : str, Series or None, default=None
            With coverage, a column of categories (text, booleans, whole numbers, dates), which `data` has too:
            rows of each are calibrated apart, so that the coverage is that of each (Mondrian; metrics/categories.py).
            Its name, where the table that the forest was trained on can be read again; or that table's column, as a
            Series with its name.
        jackknife : bool, default=False
            With coverage, for regression: intervals by the jackknife+ after bootstrap (metrics/jackknife.py; Kim, Xu
            and Barber 2020), which have the number with a probability of 1 - 2 (1 - coverage) or more, whatever the
            data, where rows are exchangeable, the number of trees was drawn at random, and no option was chosen by the
            rows. All trees are held in memory.

        Returns
        -------
        DataFrame, LazyFrame, table or ndarray
            The same kind of table with the columns `keep` and `prediction`, in the type of the target (float64 for
            numbers), those of the quantiles, `q0.1` and so on, and with coverage `low` and `high`, or `set`, a list of
            classes. Of an array [rows], where a rejected row is nan or None; with quantiles or coverage
            [rows, quantiles, low and high] of these, of classes bool [rows, classes]. A LazyFrame stays lazy and
            streams.

        Raises
        ------
        ConfigError
            For an unusable option or too little memory.
        DataError
            For a feature that is not there or of another kind, a missing value where trees split on projections, or an
            unseen level that is an error; for the values of a LazyFrame when it is collected, where some versions of
            Polars make a ComputeError of it.
        FormatError
            For a forest that is damaged.
        """
        from bigforest.predict.in_memory import predict

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
        """The share of each class in the votes of every row, in order: columns `keep` and p_<class>.

        vote "soft": mean posterior; "hard": share of trees; None as in training. The rest is as in `predict`;
        numpy gives float64 [rows, classes]. A forest that predicts numbers refuses, with ConfigError.

        Parameters
        ----------
        data, keep, threads, memory, unseen, trees
            As for `predict`.
        vote : str or None, default=None
            "soft": mean posterior; "hard": share of trees; None as in training.

        Returns
        -------
        DataFrame, table or ndarray
            As of `predict`: the columns `keep` and p_<class>; float64 of shape (rows, classes) for an array.

        Raises
        ------
        ConfigError, DataError, FormatError
            As `predict`; ConfigError also for a forest that predicts numbers.
        """
        from bigforest.predict.in_memory import predict

        rule = self.rule(vote, unseen=unseen, trees=trees)
        return predict(self, data, rule, keep=keep, threads=threads, memory=memory, proba=True)

    def score(self, data: Any, y: Any = None, **options: Any) -> float:
        """How well the rows of a table are predicted: the share of right classes, or R2 of numbers.

        Rows without a true value do not count; a rejected row, and one of an unknown class, is wrong.

        Parameters
        ----------
        data : table or path
            A table in memory as for `predict`, with the target unless `y` is given; or a pair (X, y).
        y : object, default=None
            The true classes or numbers: an array, a list or a Series, [rows] or [rows, 1].
        **options
            As for `predict`: vote, ties, trees and so on.

        Returns
        -------
        float

        Raises
        ------
        ConfigError, DataError, FormatError
            As `predict`.
        """
        from bigforest.predict.score import score

        if isinstance(data, tuple) and len(data) == 2 and y is None:
            data, y = data
        return score(self, self.predict(data, **options), data, y)

    def apply(
        self, data: Any, unseen: str = "larger", trees: Iterable[int] | None = None, threads: int | None = None
    ) -> NDArray[np.uint32]:
        """Number of the leaf, among the nodes of its tree, in which each row ends in each tree.

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
            As `predict`.
        """
        from bigforest.predict.in_memory import apply_forest

        return apply_forest(self, data, self.rule(unseen=unseen, trees=trees), threads)

    def inbag(self, trees: Iterable[int] | None = None, group: Any = None) -> pl.DataFrame:
        """How often each training row is in the bag of each tree: the column row, and a column 0, 1, ... per tree.

        row is the number of the row in the training table. Bags are not kept but drawn again, so this takes time, and
        two bytes for each row and tree.

        Parameters
        ----------
        trees : iterable of int or None, default=None
            Numbers of the trees; None for all.
        group : object, default=None
            Of a forest whose bags are drawn by groups: that column of the training table, an array or a Series.

        Returns
        -------
        DataFrame

        Raises
        ------
        ConfigError
            Where the forest does not know enough of its table: rows were left out or drawn by class, and it has no
            out-of-bag report, as those that were merged.
        DataError
            For groups that are not those of training.
        """
        from bigforest.forest.inbag import bags_of

        return bags_of(self, self._numbers(trees) or range(self.trees), group)

    def explain(self, data: Any = None, out: str | Path | None = None, **options: Any) -> bigforest.Explanation:
        """Why the forest answers as it does, as tables.

        Parameters
        ----------
        data : table or path, default=None
            Rows to explain by, as for `bigforest.explain_forest`.
        out : str, Path or None, default=None
            Folder of the tables; None for a temporary one, which lives as long as the Explanation.
        **options
            Of `bigforest.explain_forest`, which raises the same errors.

        Returns
        -------
        Explanation
        """
        return bigforest.explain_forest(self, data, out, **options)

    @property
    def plot(self) -> bigforest.Pictures:
        """Pictures of the forest, as Altair charts: `forest.plot.error()` and so on; needs the extra `plot`."""
        return bigforest.Pictures(self)

    def report(self, data: Any = None, out: str | Path = "report.html", **options: Any) -> Path:
        """One HTML file about the forest.

        Parameters
        ----------
        data : table or path, default=None
            The table the forest was grown on, for what only rows can tell.
        out : str or Path, default="report.html"
            The file.
        **options
            Of `bigforest.report_forest`, which raises the same errors.

        Returns
        -------
        Path
        """
        return bigforest.report_forest(self, data, out, **options)

    @property
    def feature_importances(self) -> NDArray[np.float64]:
        """Share of each feature in all decrease of impurity, in the order of `features` (forest/format/schema.py
        FEATURES)."""
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
        """A Polars expression for the prediction of each row, named "prediction", in any frame with the features.

        Elementwise, so that lazy queries stream; reads only features that some tree splits on.

        Parameters
        ----------
        proba : bool, default=False
            A struct of p_<class> instead, named "probabilities".
        coverage : float or None, default=None
            A struct of prediction, low and high, or set, instead, named "answer".
        row : str or None, default=None
            Name of an integer column with the number of the row, from 0; needed for a stochastic vote and random
            ties, because an expression sees pieces of the table in no fixed order.
        vote, ties, unseen, reject_above, coverage_by, jackknife
            As for `predict`.

        Returns
        -------
        Expr

        Raises
        ------
        ConfigError
            For an unusable option.
        DataError
            When it runs; some versions of Polars make a ComputeError of it.
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

    def to_onnx(self, dtype: str = "float32") -> Any:
        """The forest as a model of ONNX, for the families axis and tree without categories.

        Its input X is [rows, features], in the order of `features`, NaN for missing values; its outputs are the label
        and the probabilities (float32), or the prediction. Booleans are labelled 0 and 1.

        Parameters
        ----------
        dtype : {"float32", "float64"}, default="float32"
            Type of the input. With float32 thresholds are rounded down to it, so that no float32 row changes sides.

        Returns
        -------
        onnx.ModelProto

        Raises
        ------
        ConfigError
            For what ONNX cannot say, and where onnx is not installed (the extra `onnx`).
        """
        from bigforest.export.onnx import to_onnx

        return to_onnx(self, dtype)

    def to_treelite(self) -> Any:
        """The forest as a model of treelite, for the families axis and tree; categories too.

        It takes rows as `to_matrix` gives them, in float64, and averages the votes: shares of the classes, in their
        order, or the number predicted.

        Returns
        -------
        treelite.Model

        Raises
        ------
        ConfigError
            For what treelite cannot say, and where it is not installed (the extra `treelite`).
        """
        from bigforest.export.treelite import to_treelite

        return to_treelite(self)

    def to_sklearn(self) -> Any:
        """The forest as scikit-learn's, with its trees, for the families axis and tree without categories.

        scikit-learn takes rows as float32: of these it gives the same answers. Infinite values it refuses.

        Returns
        -------
        sklearn.ensemble.RandomForestClassifier or sklearn.ensemble.RandomForestRegressor

        Raises
        ------
        ConfigError
            For what scikit-learn cannot say, and where it is not installed (the extra `sklearn`).
        """
        from bigforest.export.sklearn import to_sklearn

        return to_sklearn(self)

    def to_sql(self, table: str = "rows", keep: Sequence[str] = ()) -> str:
        """The forest as a query in SQL that predicts every row of a table, for the families axis and tree.

        NULL is missing; NaN must be NULL. The result has the columns `keep`, then `prediction` and, of classes, a
        column p_<class> for each.

        Parameters
        ----------
        table : str, default="rows"
            Name of the table in the database.
        keep : sequence of str, default=()
            Columns of the table to copy.

        Returns
        -------
        str

        Raises
        ------
        ConfigError
            For what SQL cannot say: dates and times, nested columns, splits at infinities.
        """
        from bigforest.export.sql import to_sql

        return to_sql(self, table, keep)

    def to_matrix(self, data: Any) -> NDArray[np.float64]:
        """A table as the array that exported models read: float64 [rows, features], in the order of `features`.

        Dates and times are the numbers behind them, a category is the place of its level among the levels of training
        (as in levels.parquet, from 0; their number where it was not there), NaN is missing.

        Parameters
        ----------
        data : table or ndarray
            As for `predict`.

        Raises
        ------
        DataError
            For a feature that is not there or of another kind.
        """
        from bigforest.predict.in_memory import feature_matrix

        return feature_matrix(self, data)

    def shrink(self, amount: float) -> Forest:
        """The same trees with the values of their leaves shrunk by another lambda (Agarwal et al. 2022).

        Shares the files of this forest; `write` makes a forest of it. There is no out-of-bag report, as that is of
        another lambda.

        Parameters
        ----------
        amount : float
            Lambda, in rows: a node of n rows keeps n / (n + lambda) of what sets it apart from the node above. 0
            leaves values as they were grown.

        Returns
        -------
        Forest

        Raises
        ------
        ConfigError
            Unless it is a finite number, 0 or more.
        """
        check_amount(amount)
        found = Shrinkage(float(amount))
        return Forest(self.directory, self._header, self._parts, found, self._holding, shrunk=True)

    def write(self, path: str | Path, overwrite: bool = False) -> None:
        """Copy the forest to the directory `path`.

        Parameters
        ----------
        path : str or Path
            The folder to make.
        overwrite : bool, default=False
            Replace a forest that is already there.

        Raises
        ------
        OutputExistsError
            If something is there already.
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
                if read_header(target, None)[0].identity != self._identity:
                    raise FormatError(f"{source} belongs to another forest: its dataspec or configuration differs")
            if self._shrunk:
                seconds = {**dict(self.run.select("stage", "seconds").iter_rows()), SHRUNK: 0.0}
                threads = self.run["threads"][0]
                write_run(copy, seconds, threads, self.spec, self.config, self.origin, self.shrinkage)


def _carried(files: dict[str, bytes], amount: float | None) -> Forest:
    """The forest of these files, in a temporary folder of its own. Raises FormatError."""
    home = TemporaryFolder(None)
    try:
        for name, content in files.items():
            path = home.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        forest = read_forest(home.path, holding=home)
        return forest if amount is None else forest.shrink(amount)
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
        return f"Tree({self.number}, {len(self)} nodes, {self.leaves} leaves, depth {self.depth})"

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """One row per node, in the order of their numbers; columns as in forest/format/schema.py NODES."""
        return self.forest.nodes.filter(pl.col("tree") == self.number).collect()

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return int(self.nodes["left"].null_count())

    @property
    def depth(self) -> int:
        """Level of the deepest leaf, the root having 0."""
        return int(self.nodes["depth"].to_numpy().max())

    def predict(self, data: Any, **options: Any) -> Any:
        """`Forest.predict` by this tree alone."""
        return self.forest.predict(data, trees=[self.number], **options)

    def predict_proba(self, data: Any, **options: Any) -> Any:
        """`Forest.predict_proba` by this tree alone."""
        return self.forest.predict_proba(data, trees=[self.number], **options)

    def apply(self, data: Any, threads: int | None = None) -> Any:
        """Number of the leaf that each row of `data` ends in, uint32 [rows]."""
        return self.forest.apply(data, trees=[self.number], threads=threads)[:, 0]


_opened: ProcessCache[Forest] = ProcessCache(2)


def _again(directory: str, identity: str, stamps: tuple[tuple[str, int, int], ...], amount: float | None) -> Forest:
    """The forest in a directory, which other stamps of its files make another one, shrunk by `amount` unless None.

    Raises FormatError.
    """

    def opened() -> Forest:
        forest = read_forest(directory)
        if forest._identity != identity:
            raise FormatError(f"{directory} is not the forest that was sent: it has changed, or this is another disk")
        return forest if amount is None else forest.shrink(amount)

    return _opened.get((directory, identity, stamps, amount), opened)
