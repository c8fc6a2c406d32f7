"""The class Forest, which users hold: predictions, tables and copies of a trained forest."""

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

# Explanations, plots and reports are in layers above this module, which may not import them. Methods of Forest such as
# `explain` call the public functions of the package, which loads them when they are first used.
import bigforest
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import ConfigError, FormatError, api, counted
from bigforest.events import Listener, Notice
from bigforest.execution.process_cache import ProcessCache
from bigforest.forest.files import read_boosting, read_features
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.format import REFINEMENT, SHARPENED, SHRUNK, UNREFINED, VALIDATION
from bigforest.forest.leaf_votes import read_votes
from bigforest.forest.nodes import nodes_table
from bigforest.forest.oob_report import OobReport
from bigforest.forest.ranks import Ranks
from bigforest.forest.run_file import Choices, Origin, Power, Rounds, Shrinkage, replaced_forest
from bigforest.forest.tables import to_frame
from bigforest.html import facts_table
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import check_amount, check_power
from bigforest.predict.in_memory import apply_forest, expression, feature_matrix, predict
from bigforest.predict.loader import TreeLoader
from bigforest.predict.rows import Reader
from bigforest.predict.vote_rule import VoteRules, requested_trees, tree_numbers
from bigforest.progress import watching
from bigforest.storage.atomic import TemporaryFolder
from bigforest.store.levels import Levels


def read_forest(path: str | Path, *, holding: object = None) -> Forest:
    """Open the forest in the folder `path`.

    This checks the metadata and the columns of the files that every forest has. Nodes are checked before they are first
    used for prediction (or by `Forest.check`), other files when they are read.

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

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> forest.write("kind.forest")
    >>> bf.read_forest("kind.forest").predict({"length": [1.0], "width": [1.0]})["prediction"].to_list()
    ['a']
    """
    return Forest(ForestFiles.open(path, holding))


def opened_forest(forest: Forest | str | Path) -> Forest:
    """Return the forest, opened if a path is given. Raises FormatError as `read_forest` does."""
    return forest if isinstance(forest, Forest) else read_forest(forest)


def trees_alone(forests: Sequence[Forest], use: str, listener: Listener | None = None) -> list[Forest]:
    """Return forests without their boosted stages. If one has a stage, a notice names `use`, such as "shrinking"."""
    if any(forest.files.is_refined for forest in forests):
        with watching(listener) as listener:
            listener(Notice(f"{use} is for the trees alone, so the boosted stage of the forest is left out"))
    return [forest.unrefined() for forest in forests]


class Forest:
    """A trained forest, from `bigforest.train` or `bigforest.read_forest`. Can be used from several threads.

    `predict`, `predict_proba` and `score` are for tables, `expr` is for lazy queries. `oob` is the out-of-bag report.
    `explain`, `plot` and `report` show why it predicts what it does. `nodes` and `features` are tables of its nodes
    and features, `forest[0]` is a single tree. `write` saves it.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> forest
    Forest(10 trees, 2 features, 2 classes, target 'kind', 40 rows)
    >>> forest.oob.error
    0.0
    >>> forest.classes
    ['a', 'b']
    """

    # For other modules of the package.
    files: ForestFiles
    rules: VoteRules
    loader: TreeLoader
    reader: Reader

    def __init__(self, files: ForestFiles) -> None:
        if not isinstance(files, ForestFiles):
            raise ConfigError("a forest is opened by bigforest.read_forest(path), and grown by bigforest.train")
        self.files = files
        self.rules = VoteRules(files)
        self.loader = TreeLoader(files)
        self.reader = Reader(files)

    def __reduce__(self) -> tuple[Callable[..., Forest], tuple[Any, ...]]:
        """Pickle the path of the forest and the digest of its run. A process keeps the last two unpickled forests open.

        A forest in a temporary folder, which is removed with this object, is pickled as the bytes of its files.
        """
        files, changes = self.files, (self.choices, *self.files.changed)
        if files.holding is not None:
            with files.same_run():
                content = {str(path.relative_to(files.directory)): path.read_bytes() for path in files.paths}
            return _unpacked, (content, changes)
        return _reopened, (str(files.directory), None if files.stamp is None else files.stamp.digest, changes)

    def __getstate__(self) -> dict[str, bytes]:
        """Return the contents of the files by name, for libraries that save objects without pickle, as skops does."""
        with TemporaryFolder(None) as home:
            self.write(home / "forest")
            written = ForestFiles.open(home / "forest")
            return {str(path.relative_to(written.directory)): path.read_bytes() for path in written.paths}

    def __setstate__(self, content: dict[str, bytes]) -> None:
        self.__init__(_unpacked(content).files)  # type: ignore[misc]

    def __repr__(self) -> str:
        classes = "" if self.is_regression else f"{counted(len(self.classes), 'class')}, "
        return (
            f"Forest({counted(self.trees, 'tree')}, {counted(len(self.spec.features), 'feature')}, {classes}"
            f"target {self.spec.target.name!r}, {counted(self.spec.rows, 'row')})"
        )

    def _repr_html_(self) -> str:
        spec = self.spec
        facts = {
            "trees": f"{self.trees:,} ({self.config.family})",
            "target": spec.target.name,
            "rows": f"{spec.rows:,}",
            "features": f"{len(spec.features):,}",
        }
        if not self.is_regression:
            facts["classes"] = f"{len(self.classes):,}"
        if self.has_oob:
            rows = counted(self.oob.rows_used, "row")
            facts["out of bag"] = f"{self.oob.measure} {self.oob.error:.6g} on {rows}"
        if self.is_tuned:
            facts["chosen"] = self.files.winner
        return facts_table("Forest", facts)

    def __len__(self) -> int:
        return self.trees

    def __getitem__(self, number: int) -> Tree:
        """Return the tree of this number, from 0; a negative number counts from the end."""
        try:
            place = operator.index(number)
        except TypeError:
            raise TypeError(f"trees are numbered; give the number of one, not {number!r}") from None
        if not -self.trees <= place < self.trees:
            raise IndexError(f"the forest has the trees 0 to {self.trees - 1}, and no tree {number}")
        return Tree(self, place % self.trees)

    @property
    def directory(self) -> Path:
        """The folder of the files."""
        return self.files.directory

    @property
    def spec(self) -> DataSpec:
        """The dataspec: features and target of the training table."""
        return self.files.spec

    @property
    def config(self) -> TrainConfig:
        """The configuration with which the forest was trained."""
        return self.files.config

    @property
    def identity(self) -> str:
        """Dataspec and configuration as text, the same in all files of a forest. Forests of other runs may share it."""
        return self.files.identity

    @property
    def choices(self) -> Choices:
        """Lambda, power and the rounds of the boosted stage, and how they were selected."""
        return self.files.choices

    @property
    def shrinkage(self) -> Shrinkage:
        """The lambda by which leaf values are shrunk, and how it was selected."""
        return self.files.shrinkage

    @property
    def power(self) -> Power:
        """The power to which class probabilities are raised, and how it was selected."""
        return self.files.power

    @property
    def rounds(self) -> Rounds:
        """The rounds of the boosted stage, 0 without one, and how they were selected (option `refine`)."""
        return self.files.rounds

    @property
    def refinement(self) -> pl.DataFrame:
        """One row per node of the boosted stage; columns in docs/reference/files.md. Raises ConfigError without one."""
        if not self.files.is_refined:
            raise ConfigError(f"the forest has no boosted stage; train it with {api('refine')}")
        return self.files.read(REFINEMENT)

    @property
    def part_files(self) -> list[Path]:
        """The files of the trees, in order."""
        return self.files.part_files

    @property
    def is_temporary(self) -> bool:
        """True if the files are removed with this object."""
        return self.files.holding is not None

    @property
    def trees(self) -> int:
        """Number of trees."""
        return self.files.trees

    @property
    def classes(self) -> list[Any]:
        """Labels of the target in ascending order; none for regression.

        Dates, times and decimals are Python objects. Times are cut to microseconds.
        """
        return self.files.classes

    @property
    def is_regression(self) -> bool:
        """True if the forest predicts a number, not a class."""
        return self.files.is_regression

    @property
    def nodes(self) -> pl.LazyFrame:
        """One row per node, by tree and node; columns as in docs/reference/files.md."""
        return self.files.nodes

    @property
    def features(self) -> pl.DataFrame:
        """One row per feature with its importance; columns as in docs/reference/files.md."""
        with self.files.same_run():
            return to_frame(read_features(self.directory, self.files.header))

    @property
    def feature_importances(self) -> NDArray[np.float64]:
        """Share of each feature in the total decrease of impurity, in the order of `features`."""
        return self.features["importance"].to_numpy()

    @property
    def levels(self) -> Levels:
        """The levels of categories."""
        return self.files.levels

    @property
    def ranks(self) -> Ranks | None:
        """The ranks of the training values, if the forest was trained with `ranks`."""
        return self.files.ranks

    @property
    def run(self) -> pl.DataFrame:
        """One row per stage of training; columns as in docs/reference/files.md."""
        return self.files.run

    @property
    def origin(self) -> Origin | None:
        """The table that the forest was trained on, or the forests it was merged from; None if it is not recorded."""
        return self.files.origin

    @property
    def revised(self) -> str | None:
        """The change since training: "pruned", "calibrated", "shrunk", "sharpened" or "unrefined"; None if there was
        none. After several changes, it is the one named first in this list."""
        return self.files.revised

    @property
    def has_oob(self) -> bool:
        """True if there is an out-of-bag report: trees had bags, and the forest was neither merged nor revised."""
        return self.files.has_oob

    @property
    def has_bags(self) -> bool:
        """True if there is an out-of-bag report, and the bags can be drawn again: the forest is not boosted."""
        return self.has_oob and not self.config.boosts

    @property
    def oob(self) -> OobReport:
        """The out-of-bag report. Raises ConfigError for a forest without one (`has_oob`), and FormatError."""
        return self.files.oob

    @property
    def has_votes(self) -> bool:
        """True if the votes of trees on out-of-bag rows are kept with the forest. Lambda and power do not change
        them."""
        return self.files.has_votes

    @property
    def oob_votes(self) -> pl.LazyFrame:
        """One row per tree and training row that is not in its bag, by tree and row, with its leaf; columns as in
        docs/reference/files.md. A merged forest has the votes of the forests it was merged from.

        Raises ConfigError for a forest without them (`has_votes`), and FormatError.
        """
        if not self.has_votes:
            raise ConfigError(
                f"the votes of the trees are not kept with this forest; train it with {api('keep_votes')}"
            )
        with self.files.same_run():
            return read_votes(self.directory, self.files.header, self.files.holding, self.files.stamp)

    @property
    def has_targets(self) -> bool:
        """True if the training targets in the leaves are kept with the forest, so that it can predict quantiles."""
        return self.files.has_targets

    @property
    def has_validation(self) -> bool:
        """True if the forest was trained with a validation set, and neither merged nor revised."""
        return self.files.has_validation

    @property
    def validation(self) -> pl.DataFrame:
        """Error on the validation set after each tree, without a boosted stage; columns as in docs/reference/files.md.

        Raises ConfigError for a forest without it (`has_validation`), and FormatError.
        """
        if not self.has_validation:
            raise ConfigError(
                f"the forest was trained without a validation set; evaluate it on one with {api('validate_forest')}"
            )
        return self.files.read(VALIDATION)

    @property
    def is_tuned(self) -> bool:
        """True if the forest is the winner of a comparison that `train(tune=...)` made."""
        return self.files.is_tuned

    @property
    def tuning(self) -> pl.DataFrame:
        """The candidates that the forest was chosen from; columns as in docs/reference/files.md.

        Raises ConfigError for a forest that was not chosen by `tune`, and FormatError.
        """
        return self.files.tuning

    @property
    def boosting(self) -> pl.DataFrame:
        """One row per tree of a forest grown with boosting: its weighted error and its vote; columns as in
        docs/reference/files.md.

        Raises ConfigError for a forest that is not boosted, and FormatError.
        """
        if not self.config.boosts:
            raise ConfigError(
                f"the forest was grown with sampling {self.config.sampling!r}, and all its trees have equal votes"
            )
        with self.files.same_run():
            return to_frame(read_boosting(self.directory, self.files.header))

    def check(self) -> None:
        """Read and check all nodes now rather than at the first prediction. Raises FormatError.

        Examples
        --------
        >>> forest.check()  # raises FormatError for damaged files
        """
        self.loader.check()

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
            numpy array or list [rows, features] with the features in the order of training; with categories, an array
            of objects. Or a scipy sparse matrix, of which about 64 MB of cells are made dense at a time. Null and
            NaN are missing.
        vote : {"soft", "hard", "stochastic"} or None, default=None
            "soft" averages class probabilities, "hard" counts one vote per tree, "stochastic" draws a class with its
            mean probability. None as in training. With another vote than in training, or with `trees`, a boosted stage
            is left out.
        ties : {"lowest", "reject", "random"} or None, default=None
            Prediction if classes have equal votes; "reject" gives null. None as in training: "lowest", or "reject" for
            the subspace families.
        keep : sequence of str, default=()
            Columns of the table to copy to the result.
        threads : int or None, default=None
            Worker threads. None for all processors. A LazyFrame uses the threads of Polars.
        memory : int, str or None, default=None
            Memory budget of the whole process including `data`, such as "4GB". None for no limit. If the trees do not
            fit, they are loaded in groups; for a LazyFrame all trees must fit.
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
            For each row, also return a prediction interval (regression) or a prediction set (classification) that
            contains the true value with approximately this probability. The method is conformal prediction on
            out-of-bag rows (Johansson et al. 2014). Classes, or bins of the predicted number, are calibrated
            separately. Intervals are wider where the trees differ more, if enough trees vote on a row.
        reject_above : float or None, default=None
            For classification: null for rows whose estimated error is above this limit. The estimate is the error of
            out-of-bag rows by the probability of their predicted class, smoothed so that it never rises with that
            probability.
        coverage_by : str, Series or None, default=None
            With `coverage`, a column of categories (text, booleans, integers, dates) that `data` has too. Rows of each
            category are calibrated separately (Mondrian), so the coverage holds for each. Pass its name if the training
            table can be read again, otherwise the column of that table as a named Series. A Series is matched with the
            training rows by place, whatever its index is; only its length can be checked.
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
            or a list of rows the result is an array of shape [rows], with nan, NaT or None for rejected rows. With
            quantiles or coverage, its columns are only the quantiles, then low and high; for classification it is bool
            [rows, classes], True for the classes in the set. A LazyFrame stays lazy and streams.

        Raises
        ------
        ConfigError
            For an invalid option or too little memory.
        DataError
            For a feature that is missing or of another kind, or an unseen level if that is an error. For a missing
            value if trees split on projections and were grown with `ranks`. Errors in the values of a LazyFrame are
            raised when the frame is collected; some versions of Polars convert them to a ComputeError.
        FormatError
            For a damaged forest.

        Examples
        --------
        >>> forest.predict({"length": [1.0, 4.0], "width": [1.0, 3.0]})["prediction"].to_list()
        ['a', 'b']
        """
        rule = self.rules.make(vote, ties, unseen, quantiles, trees, coverage, reject_above, coverage_by, jackknife)
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
            "soft" or "stochastic": mean class probabilities of the trees. "hard": share of the trees that vote for
            each class. None as in training. These shares are raised to the power of the forest, scaled to sum to 1 and
            corrected by a boosted stage, unless `vote` differs from training or `trees` is set.

        Returns
        -------
        DataFrame, LazyFrame, table or ndarray
            As for `predict`: the columns `keep` and p_<class>, or float64 of shape (rows, classes) for an array.

        Raises
        ------
        ConfigError, DataError, FormatError
            As for `predict`; ConfigError also for a regression forest.

        Examples
        --------
        >>> forest.predict_proba({"length": [1.0, 4.0], "width": [1.0, 3.0]}).columns
        ['p_a', 'p_b']
        """
        rule = self.rules.make(vote, unseen=unseen, trees=trees)
        return predict(self, data, rule, keep=keep, threads=threads, memory=memory, proba=True)

    def score(self, data: Any, y: Any = None, **options: Any) -> float:
        """Return the accuracy on the rows of a table; for regression R2, which is nan for a single row.

        Rows without a true value are ignored. All other rows have equal weights; `predict_file` uses a column of
        weights. A row that is rejected, or whose true class is unknown to the forest, counts as wrong. If all true
        values are missing, or all true classes unknown, DataError is raised.

        Parameters
        ----------
        data : DataFrame, LazyFrame, table or ndarray
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

        Examples
        --------
        >>> forest.score(table)
        1.0
        """
        from bigforest.predict.score import labelled, score
        from bigforest.source.in_memory import check_order

        if isinstance(data, tuple) and len(data) == 2 and y is None:
            data, y = data
        if y is None:
            data = labelled(self.spec, data)
            y = data.get_column(self.spec.target.name)
        check_order(data, y, "y")
        return score(self.spec, self.predict(data, **options), y)

    def apply(
        self, data: Any, unseen: str = "larger", trees: Iterable[int] | None = None, threads: int | None = None
    ) -> NDArray[np.uint32]:
        """Return the leaf of each row in each tree, as the number of the node in its tree.

        Parameters
        ----------
        data : DataFrame, LazyFrame, table or ndarray
            A table in memory or an array, as for `predict`. The whole forest is loaded into memory.
        unseen, trees, threads
            As for `predict`.

        Returns
        -------
        ndarray of uint32, shape (rows, trees)
            A column per tree, in the order of `trees`.

        Raises
        ------
        ConfigError, DataError, FormatError
            As for `predict`.

        Examples
        --------
        >>> forest.apply({"length": [1.0, 4.0], "width": [1.0, 3.0]}, trees=[0])
        array([[1],
               [2]], dtype=uint32)
        """
        order = requested_trees(trees, self.trees)
        rule = self.rules.make(unseen=unseen, trees=order or None)
        leaves = apply_forest(self, data, rule, threads)
        return leaves[:, np.searchsorted(rule.trees, order)] if order else leaves

    def inbag(self, trees: Iterable[int] | None = None, group: Any = None) -> pl.DataFrame:
        """Return how often each training row is in the bag of each tree: the column row, and a column 0, 1, ... per
        tree.

        `row` is the number of the row in the training table. Bags are not stored but recomputed. This takes time,
        and two bytes of memory per row and tree.

        Parameters
        ----------
        trees : iterable of int or None, default=None
            Numbers of the trees; None for all.
        group : object, default=None
            If bags are drawn by groups: that column of the training table, as an array or a Series. It is compared with
            the out-of-bag report, for which all bags are drawn.

        Returns
        -------
        DataFrame

        Raises
        ------
        ConfigError
            For boosting, whose bags depend on the errors of the trees. If rows were left out or drawn by class, and the
            forest has no out-of-bag report (for example a merged forest). If groups were drawn and `group` is not
            given, or the reverse.
        DataError
            For groups that differ from the groups of training.

        Examples
        --------
        >>> bag = forest.inbag(trees=[0])
        >>> bag.columns, bag["0"].sum()
        (['row', '0'], 40)
        """
        from bigforest.predict.inbag import bags_of

        return bags_of(self.files, tree_numbers(trees, self.trees) or range(self.trees), group)

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

        Examples
        --------
        >>> forest.explain(parts="importance")["importance"]["feature"].to_list()
        ['length', 'width']
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

        Examples
        --------
        >>> forest.report(table, "kind.html").name
        'kind.html'
        """
        return bigforest.report_forest(self, data, out, **options)

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

        It is elementwise, so lazy queries stream. It reads only features that some tree splits on; with a boosted stage
        it reads all features.

        Parameters
        ----------
        proba : bool, default=False
            Return a struct instead, named "probabilities": p_<class> for each class.
        coverage : float or None, default=None
            Return a struct instead, named "answer": prediction, and low and high, or set.
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
            As for `predict`, when the query runs; some versions of Polars convert it to a ComputeError.

        Examples
        --------
        >>> import polars as pl
        >>> rows = pl.LazyFrame({"length": [1.0, 4.0], "width": [1.0, 3.0]})
        >>> rows.with_columns(kind=forest.expr()).collect()["kind"].to_list()
        ['a', 'b']
        """
        rule = self.rules.make(
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
        split on projections. Missing numbers are NaN. Missing categories are NaN too, with two exceptions: where trees
        split on projections, they have a value; if none was missing in training, they count as levels that did not
        occur there.

        Parameters
        ----------
        data : table or ndarray
            As for `predict`.

        Raises
        ------
        DataError
            For a feature that is missing or of another kind.

        Examples
        --------
        >>> forest.to_matrix({"length": [1.0, 4.0], "width": [1.0, 3.0]}).shape
        (2, 2)
        """
        return feature_matrix(self, data)

    def to_onnx(self, dtype: str = "float32") -> Any:
        """Convert the forest to an ONNX model, for the families axis and tree without categories.

        The input X is [rows, features], in the order of `features`, with NaN for missing values. The outputs are the
        label and the probabilities (float32), or the prediction. A boosted stage is included. Booleans are labelled 0
        and 1.

        Parameters
        ----------
        dtype : {"float32", "float64"}, default="float32"
            Type of the input. With float32, thresholds are rounded down to it, so that every float32 row goes to the
            same side.

        Returns
        -------
        onnx.ModelProto

        Raises
        ------
        ConfigError
            If ONNX does not support the forest, or onnx is not installed (the extra `onnx`).

        Examples
        --------
        >>> type(forest.to_onnx()).__name__
        'ModelProto'
        """
        from bigforest.export.onnx import to_onnx

        return to_onnx(self.files, dtype)

    def to_treelite(self) -> Any:
        """Convert the forest to a treelite model, for the families axis and tree, including categories.

        The input is the array that `to_matrix` returns. The output is the mean over the trees: class probabilities, in
        the order of the classes, or the regression prediction.

        Returns
        -------
        treelite.Model

        Raises
        ------
        ConfigError
            If treelite does not support the forest, for example its boosted stage (see `unrefined`) or a power other
            than 1 (see `sharpen`), or is not installed (the extra `treelite`).

        Examples
        --------
        >>> forest.to_treelite().num_tree
        10
        """
        from bigforest.export.treelite import to_treelite

        return to_treelite(self.files)

    def to_sklearn(self) -> Any:
        """Convert the forest to a scikit-learn forest with the same trees, for the families axis and tree without
        categories.

        scikit-learn converts rows to float32; for float32 rows the predictions are the same. It refuses infinite
        values. For regression, the impurity of a node does not include the impurity of its leaves, which is not stored;
        importances are exact.

        Returns
        -------
        sklearn.ensemble.RandomForestClassifier or sklearn.ensemble.RandomForestRegressor

        Raises
        ------
        ConfigError
            If scikit-learn does not support the forest, for example its boosted stage (see `unrefined`) or a power
            other than 1 (see `sharpen`), or is not installed (the extra `sklearn`).

        Examples
        --------
        >>> forest.to_sklearn().n_classes_
        2
        """
        from bigforest.export.sklearn import to_sklearn

        return to_sklearn(self.files)

    def to_sql(self, table: str = "rows", keep: Sequence[str] = (), dialect: str = "standard") -> str:
        """Convert the forest to an SQL query that predicts every row of a table, for the families axis and tree.

        NULL and NaN are missing. The result has the columns `keep`, then `prediction` and, for classification, one
        column p_<class> per class; a boosted stage is included.

        Parameters
        ----------
        table : str, default="rows"
            Name of the table in the database.
        keep : sequence of str, default=()
            Columns of the table to copy.
        dialect : {"standard", "mysql"}, default="standard"
            "standard" for DuckDB, SQLite and PostgreSQL, "mysql" for MySQL 8 and MariaDB.

        Returns
        -------
        str

        Raises
        ------
        ConfigError
            If SQL does not support the forest, for example dates and times, nested columns, or names that differ in
            case alone.

        Examples
        --------
        >>> '"length"' in forest.to_sql("flowers")
        True
        """
        from bigforest.export.sql import to_sql

        return to_sql(self.files, table, keep, dialect)

    def shrink(self, amount: float) -> Forest:
        """Return the same trees with leaf values shrunk by another lambda (Agarwal et al. 2022).

        The result shares the files of this forest; `write` saves it as a forest. It has no out-of-bag report, because
        the existing one is for another lambda. A power that was selected by out-of-bag loss, and a boosted stage, are
        dropped.

        Parameters
        ----------
        amount : float
            Lambda, in rows: the change of the value from a node of n rows to its child is multiplied by
            n / (n + lambda). 0 means no shrinkage.

        Returns
        -------
        Forest

        Raises
        ------
        ConfigError
            If it is not a finite number of at least 0.

        Examples
        --------
        >>> forest.shrink(5.0).shrinkage.amount
        5.0
        """
        check_amount(amount)
        [plain] = trees_alone([self], "shrinking")
        choices = plain.choices.for_other_shares(Shrinkage(float(amount)))
        return Forest(plain.files.with_choices(choices, SHRUNK))

    def sharpen(self, power: float) -> Forest:
        """Return the same trees with class probabilities raised to another power, scaled to sum to 1.

        The result shares the files of this forest; `write` saves it as a forest. A boosted stage is dropped. If there
        is none, predicted classes do not change. The result has no out-of-bag report, because the existing one is for
        another power.

        Parameters
        ----------
        power : float
            A whole number of quarters from 0.25 to 16. 1 returns the shares of the votes themselves.

        Returns
        -------
        Forest

        Raises
        ------
        ConfigError
            For another power, or a regression forest.

        Examples
        --------
        >>> forest.sharpen(2.0).power.amount
        2.0
        """
        check_power(power)
        if self.is_regression:
            raise ConfigError(f"{self.spec.target.name!r} is a regression target, without class probabilities")
        [plain] = trees_alone([self], "another power")
        choices = replace(plain.choices, power=Power(float(power)))
        return Forest(plain.files.with_choices(choices, SHARPENED))

    def unrefined(self) -> Forest:
        """Return the same trees without the boosted stage, which the option `refine` of `train` adds.

        The result shares the files of this forest; `write` saves it as a forest. It has no out-of-bag report, because
        the existing one includes the stage. A forest without a stage is returned as it is.

        Returns
        -------
        Forest

        Examples
        --------
        >>> forest.unrefined().rounds.amount
        0.0
        """
        if not self.files.is_refined:
            return self
        return Forest(self.files.with_choices(replace(self.choices, rounds=Rounds()), UNREFINED))

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
            If something exists at `path`, unless it is a forest and `overwrite` is set.
        FormatError
            For files that are damaged or links.

        Examples
        --------
        >>> forest.write("kind.forest")
        >>> bf.read_forest("kind.forest").trees
        10
        """
        self.files.copy(path, overwrite=overwrite)


# Arguments of `ForestFiles.with_choices`: the choices, and the revisions that are not yet in the files of the forest.
_Changes = tuple[Any, ...]


def _unpacked(content: dict[str, bytes], changes: _Changes | None = None) -> Forest:
    """Return the forest whose files have these contents, in a temporary folder of this process.

    Raises FormatError for a file outside the folder of the forest.
    """
    home = TemporaryFolder(None)
    try:
        for name, data in content.items():
            path = home.path / name
            if ".." in path.parts or not path.is_relative_to(home.path):
                raise FormatError(f"a forest has no file {name!r}; this content is damaged, or no forest")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        files = ForestFiles.open(home.path, home)
        return Forest(files if changes is None else files.with_choices(*changes))
    except BaseException:
        home.remove()
        raise


_opened: ProcessCache[Forest] = ProcessCache(2)


def _reopened(directory: str, digest: str | None, changes: _Changes) -> Forest:
    """Return the forest in a directory, opened once for each run.

    digest  text that identifies the run

    Raises FormatError if the directory contains another run.
    """

    def opened() -> Forest:
        files = ForestFiles.open(directory)
        if files.stamp is None or files.stamp.digest != digest:
            raise replaced_forest(files.directory)
        return Forest(files.with_choices(*changes))

    return _opened.get((directory, digest, changes), opened)


class Tree:
    """A tree of a forest, `forest[number]`.

    forest  the forest of the tree.
    number  number of the tree in the forest, from 0.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> tree = forest[0]
    >>> tree.leaves, tree.depth
    (2, 1)
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
        nodes = self.forest.files.tree_arrays(self.number)
        tree, number = np.full(nodes.feature.size, self.number, np.uint32), np.arange(nodes.feature.size)
        return to_frame(nodes_table(nodes, tree, number.astype(np.uint32), self.forest.files.header))

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return int(self.nodes["left"].null_count())

    @property
    def depth(self) -> int:
        """Depth of the deepest leaf; the root has depth 0."""
        return int(self.nodes["depth"].to_numpy().max())

    def predict(self, data: Any, **options: Any) -> Any:
        """Predict with this tree only; options as for `Forest.predict` with `trees`.

        Examples
        --------
        >>> tree.predict({"length": [1.0, 4.0], "width": [1.0, 3.0]})["prediction"].to_list()
        ['a', 'b']
        """
        return self.forest.predict(data, trees=[self.number], **options)

    def predict_proba(self, data: Any, **options: Any) -> Any:
        """Predict class probabilities with this tree only; options as for `Forest.predict_proba` with `trees`.

        Examples
        --------
        >>> tree.predict_proba({"length": [1.0, 4.0], "width": [1.0, 3.0]}).rows()
        [(1.0, 0.0), (0.0, 1.0)]
        """
        return self.forest.predict_proba(data, trees=[self.number], **options)

    def apply(self, data: Any, threads: int | None = None) -> Any:
        """Return the number of the leaf of each row of `data`, uint32 [rows].

        Examples
        --------
        >>> tree.apply({"length": [1.0, 4.0], "width": [1.0, 3.0]}).tolist()
        [1, 2]
        """
        return self.forest.apply(data, trees=[self.number], threads=threads)[:, 0]
