"""Base class of the estimators: fitting, adding trees, leaves, and bags."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from bigforest import read_forest, train
from bigforest.errors import ConfigError, DataError, counted, listed
from bigforest.events import Event, Listener, Notice, StageAdvanced, StageFinished, silent
from bigforest.options.signatures import option_entries, section, with_section
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import BOOSTED, Task, check_flag, is_integer
from bigforest.predict.forest import Forest
from bigforest.sklearn.parameters import (
    balanced_in_bags,
    check_single,
    names_of_parameters,
    seed_of,
    threads_of,
    training_options,
)
from bigforest.sklearn.tables import (
    category_names,
    check_dense,
    checked_sample_weight,
    has_text,
    header,
    item_or_list,
    named,
    objects_of,
    outputs_of,
    table_frame,
    unmasked,
)
from bigforest.sklearn.tree import ForestTree, mean_of_shares, path_matrix
from bigforest.source.in_memory import (
    SparseTable,
    frame_in_memory,
    free_name,
    in_another_order,
    is_sparse,
    numeric_categories,
    series_of,
)
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.paths import as_path

_Estimator = TypeVar("_Estimator", bound=type[BaseEstimator])
# Names of options, as docstrings have them, and the names of the parameters.
_WORDS = {"`mtry`": "`max_features`", "`sample_fraction`": "`max_samples`"}
# Options that are columns, and the parameters of `fit` with the values of these columns.
_ADDED = {"weight": "sample_weight", "group": "groups"}
# Parameters for one tree on all rows, which leaves no row out of bag.
_ALONE = {"n_estimators": 1, "bootstrap": False, "max_samples": None, "replace": True, "sampling": "uniform"}
_ALONE |= {"stop_oob": None, "calibration": None, "keep_votes": False, "oob_score": False, "warm_start": False}


def keep_parameters(estimator: Any, parameters: Mapping[str, Any]) -> None:
    """Store the arguments of __init__ unchanged, as scikit-learn requires; `parameters` are the locals of __init__."""
    for name, value in parameters.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


class BaseBigForest(BaseEstimator):  # type: ignore[misc]
    """Forest as an estimator; the public classes declare the parameters and define the prediction.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, or the maximum with `stop_oob`. Must be 1 for the family tree.
    min_samples_split : int or float, default=2
        Minimum number of bag rows in a node that is split. A float is a fraction of the rows, rounded up. With
        weights, the node must weigh more than `min_samples_split` - 2 rows of mean weight.
    min_weight_fraction_leaf : float, default=0.0
        Minimum share of the total weight in a leaf; without weights, of the number of rows.
    max_samples : int or float, default=None
        Size of a bag: a number of draws, or a fraction of the rows. None for as many draws as rows.
    oob_score : bool or callable, default=False
        Whether to compute `oob_score_` and the out-of-bag predictions. A callable is the score, `oob_score(truth,
        prediction)`.
    warm_start : bool, default=False
        Whether `fit` adds trees to the existing forest, up to `n_estimators`. The table, the weights and all other
        parameters that change the forest must be the same. One fit with all trees has the same result.
    random_state : int, RandomState or None, default=0
        Random seed. With 0, the default, every fit gives the same forest. None draws another seed for each fit.
    n_jobs : int, default=None
        Number of threads. None for all processors, or, in worker processes of joblib, the share that joblib allows.
        Negative numbers count from all processors, as in joblib: -1 is all. The forest does not depend on it.
    verbose : int, default=0
        1 prints notices and the stages of a fit with their times, 2 also their progress.
    categories : sequence of str or int, default=None
        Names or positions of columns of integers or booleans to treat as categories. Text, categorical and enum columns
        are always categories. Exceptions, which are compared by value: pandas categories of dates or fractions, and
        ordered categories of numbers that ascend or descend.
    memory : int or str, default=None
        Memory budget of the whole process while fitting, such as "4GB". None for no limit. The forest does not depend
        on it.
    scratch : path, default=None
        Folder for temporary files. None for the system's temporary folder.
    monotonic_cst : None, default=None
        Only None is supported: splits are selected by decrease of impurity only.

    Attributes
    ----------
    forest_ : bigforest.Forest
        The forest as a bigforest object: its tables, the out-of-bag report, lazy prediction and more. With several
        outputs there is one for each, in `forests_`.
    forests_ : list of bigforest.Forest
        The forest of each output.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the columns, if X is a table with names.
    n_outputs_ : int
        Number of outputs: columns of y, or 1.
    feature_importances_ : ndarray of float64 of shape (n_features_in_,)
        Mean over the trees of each column's share in the decrease of impurity, as in scikit-learn; with several
        outputs, the mean over those with a split.
    estimators_ : list of ForestTree
        The trees, as estimators, each with its nodes as `tree_`. With several outputs, entry i is the i-th tree
        of each.
    estimators_samples_ : list of ndarray of int32
        Rows in the bag of each tree, recomputed when requested. They are the same for all outputs. Not available with
        boosting, and for several outputs if rows are drawn by class.
    oob_score_ : float
        With `oob_score`: the score of the out-of-bag predictions.
    """

    # Impurities by the names of criteria.
    _criteria: ClassVar[Mapping[str, str]]
    _task: ClassVar[Task]

    forests_: list[Forest]
    n_features_in_: int

    def __len__(self) -> int:
        """Return the number of trees."""
        check_is_fitted(self)
        return len(self.forests_[0])

    def __getitem__(self, number: int) -> ForestTree:
        """Return the tree of this number, see `estimators_`."""
        return self.estimators_[number]

    def __iter__(self) -> Iterator[ForestTree]:
        return iter(self.estimators_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = self.stop_oob is None and getattr(self, "sampling", None) not in BOOSTED
        tags.input_tags.allow_nan = not self.ranks
        tags.input_tags.sparse = True
        return tags

    @property
    def forest_(self) -> Forest:
        """The forest. Raises AttributeError if there are several, one for each output."""
        check_is_fitted(self)
        if len(self.forests_) > 1:
            raise AttributeError(
                f"there are {len(self.forests_)} forests, one for each output of y: forests_[0] to "
                f"forests_[{len(self.forests_) - 1}]"
            )
        return self.forests_[0]

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Mean over the trees of the share of each column of X in the tree's decrease of impurity, float64 [features].

        As in scikit-learn: trees of a single leaf are left out, and the shares sum to 1, or are 0 without any split.
        """
        check_is_fitted(self)
        shares_of_forests = np.zeros((len(self.forests_), self.n_features_in_))
        for shares, forest in zip(shares_of_forests, self.forests_, strict=True):
            means = forest.explain(parts="importance", listener=silent)["importance"]["importance"]
            np.add.at(shares, list(self._places(forest).values()), means.to_numpy())
        return mean_of_shares(shares_of_forests)

    @property
    def estimators_(self) -> list[ForestTree]:
        """The trees, as estimators with methods and attributes of scikit-learn's trees."""
        check_is_fitted(self)
        seed = self.forests_[0].config.seed
        return [ForestTree(self, number, seed) for number in range(len(self))]

    @property
    def estimators_samples_(self) -> list[NDArray[np.int32]]:
        """Numbers of the rows in the bag of each tree, ascending, repeated as in the bag. Recomputed at every access.

        Raises AttributeError with boosting, because bags depend on the errors of trees, and for several outputs whose
        rows are drawn by class, because their bags differ.
        """
        check_is_fitted(self)
        if self.forests_[0].config.boosts:
            raise AttributeError("with boosting, bags depend on the errors of the trees, and are not recomputed")
        if len(self.forests_) > 1 and any(forest.config.sampling != "uniform" for forest in self.forests_):
            raise AttributeError("each output has bags of its own, by its classes: see `inbag` of each of forests_")
        bags = self.forests_[0].inbag(group=self._groups)
        rows = bags["row"].to_numpy().astype(np.int32)
        return [np.repeat(rows, bags[str(tree)].to_numpy()) for tree in range(len(self))]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train the forest.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            Training rows.
        y : array-like or table of shape (n_samples,) or (n_samples, n_outputs)
            Classes or targets of the rows.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Row weights of at least 0. None for 1 for all rows.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, such as a patient: all rows of a group are in a bag, or out of it.

        Returns
        -------
        self : object
            The fitted estimator.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bigforest.sklearn import BigForestClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> BigForestClassifier(n_estimators=10).fit(X, y).score(X, y) > 0.9
        True
        """
        check_single(self._parameters())
        if y is None:
            raise DataError(f"This {type(self).__name__} requires y to be passed, but the target y is None")
        check_dense(y)
        warn_of_order(X, y=y, sample_weight=sample_weight, groups=groups)
        self._fit_outputs(X, outputs_of(y, warn=True), sample_weight, groups)
        return self

    def _fit_outputs(self, X: Any, outputs: Sequence[Any], sample_weight: Any, groups: Any) -> None:
        raise NotImplementedError

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf of each row in each tree.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of int64 of shape (n_samples, n_estimators)
            Nodes of a tree are numbered in preorder, the root is 0. With several outputs the shape is (n_samples,
            n_estimators, n_outputs_).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bigforest.sklearn import BigForestClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> BigForestClassifier(n_estimators=10).fit(X, y).apply(X).shape
        (150, 10)
        """
        leaves = self._leaves(X)
        return leaves if leaves.shape[2] > 1 else leaves[:, :, 0]

    def decision_path(self, X: Any) -> tuple[Any, NDArray[np.int64]]:
        """Return the nodes on the path of each row.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        indicator : sparse matrix in CSR format of shape (n_samples, n_nodes)
            1 if a node is on the path of a row, including its leaf.
        n_nodes_ptr : ndarray of int64 of shape (n_estimators * n_outputs_ + 1,)
            The nodes of tree i are the columns from n_nodes_ptr[i] to before n_nodes_ptr[i + 1]. With several outputs,
            tree i of output j is number i * n_outputs_ + j.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bigforest.sklearn import BigForestClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> indicator, first = BigForestClassifier(n_estimators=10).fit(X, y).decision_path(X)
        >>> indicator.shape[0], first.shape
        (150, (11,))
        """
        leaves = self._leaves(X)
        parents = [[nodes.parents for nodes in forest.files.each_tree()] for forest in self.forests_]
        by_tree = [parent for of_outputs in zip(*parents, strict=True) for parent in of_outputs]
        first = np.cumsum([0, *(parent.size for parent in by_tree)])
        placed = zip(by_tree, first, strict=False)
        parent = np.concatenate([np.where(parent < 0, -1, parent + root) for parent, root in placed])
        return path_matrix(leaves.reshape(len(leaves), -1) + first[:-1], parent), first

    def _leaves(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf of each row in each tree of each output, int64 [rows, trees, outputs]."""
        return np.stack(self._answers(X, "apply"), axis=2).astype(np.int64)

    def _answers(self, X: Any, method: str, **options: Any) -> list[Any]:
        """Call a method of the forest of each output with the rows X; return the results."""
        check_is_fitted(self)
        table, threads = self._read(X), threads_of(self.n_jobs)
        return [getattr(forest, method)(table, threads=threads, **options) for forest in self.forests_]

    @classmethod
    def _ours(cls) -> Any:
        """Return the estimator of this package, which declares the parameters; a derived class may have others."""
        return next(kind for kind in cls.__mro__ if BaseBigForest in kind.__bases__)

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._ours()._get_param_names()}

    def _single_tree(self) -> BaseBigForest:
        """Return an unfitted estimator of one tree on all rows, with the parameters of this estimator that apply."""
        options = self._parameters()
        forest: BaseBigForest = self._ours()(
            **options | {name: _ALONE[name] for name in _ALONE.keys() & options.keys()}
        )
        return forest

    def _fit(
        self, X: Any, targets: Sequence[pl.Series], sample_weight: Any, groups: Any, class_weights: Sequence[Any]
    ) -> bool:
        """Grow a forest for each target, or add trees; return False if there are no trees to add.

        class_weights  option class_weight of each output, or "balanced_subsample"
        """
        frame, names = self._table(X)
        check_consistent_length(frame, *targets)
        options = self._training_options(X, frame, names, sample_weight, class_weights)
        target_name = free_name("target", names)
        added = _added_columns({"weight": sample_weight, "group": groups}, frame, [*names, target_name])
        options |= {option: column.name for option, column in added.items()}
        frames = [frame.with_columns([target.alias(target_name), *added.values()]) for target in targets]
        called = {"data: ": "X: "}
        for option, column in added.items():
            parameter = _ADDED[option]
            called |= {f"{parameter} {column.name!r}": parameter, repr(column.name): parameter}
        with names_of_parameters(called) as renamed:
            run: dict[str, Any] = {"memory": self.memory, "scratch": self.scratch, "threads": threads_of(self.n_jobs)}
            run["listener"] = _listener(self.verbose, renamed)
            each = [
                options | (balanced_in_bags(options) if weight == "balanced_subsample" else {"class_weight": weight})
                for weight in class_weights
            ]
            self._check_flags(each[0])
            homes = []
            if self.warm_start and hasattr(self, "forests_"):
                if not self._grows_further(options, len(targets)):
                    return False
                homes = self._copy_forests()  # trees are added to copies
                called |= {str(home.path / "forest"): "the forest" for home in homes}
                each = [{"resume": home.path / "forest", "trees": options["trees"]} for home in homes]
            else:
                seed = seed_of(self.random_state)
                each = [{**chosen, "seed": seed} for chosen in each]
            outputs = ["y"] if len(targets) == 1 else [f"y[:, {number}]" for number in range(len(targets))]
            grown = []
            for table, chosen, output in zip(frames, each, outputs, strict=True):
                called |= {f"target {target_name!r}": output, repr(target_name): output}
                grown.append(train(table, target_name, scheduler="threads", **chosen, **run))
            self.forests_ = [read_forest(home.path / "forest", holding=home) for home in homes] or grown
        self._names, self._options, self._groups = names, options, added.get("group")
        return True

    def _training_options(
        self, X: Any, frame: Any, names: Sequence[str], sample_weight: Any, class_weights: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the options of `train`, except for columns of weights and groups. Raises ConfigError.

        frame  table of X
        names  names of its columns
        """
        weighted = sample_weight is not None or any(weight is not None for weight in class_weights)
        options = training_options(
            self._parameters(), self._criteria, frame.shape[0], weighted=weighted, outputs=len(class_weights)
        )
        coded = [name for name, is_coded in numeric_categories(X).items() if is_coded]
        categories = list(dict.fromkeys([*category_names(self.categories, names), *coded]))
        if isinstance(frame, SparseTable) and categories:
            raise ConfigError("categories are columns of a table, and X is a sparse matrix; give a frame or an array")
        return options | {"task": self._task, "categories": categories, "class_weight": item_or_list(class_weights)}

    def _check_flags(self, options: Mapping[str, Any]) -> None:
        """Raise ConfigError for an oob_score or a warm_start of another type, and for an oob_score without bags."""
        if not callable(self.oob_score):
            check_flag(self.oob_score, "oob_score")
        check_flag(self.warm_start, "warm_start")
        if self.oob_score and not TrainConfig.of(**options).bootstrap:
            raise ConfigError("Out of bag estimation only available if bootstrap=True, which some families exclude")

    def _copy_forests(self) -> list[TemporaryFolder]:
        """Return a folder for each forest, with a copy of it named forest."""
        homes = [TemporaryFolder(None if self.scratch is None else as_path(self.scratch)) for _ in self.forests_]
        for forest, home in zip(self.forests_, homes, strict=True):
            forest.write(home.path / "forest")
        return homes

    def _grows_further(self, options: Mapping[str, Any], outputs: int) -> bool:
        """Return True for more trees than exist; for the same number warn and return False.

        Raises ConfigError for fewer trees, or for parameters or outputs that differ from the existing forest.
        """
        trees, grown = options["trees"], len(self)
        if trees < grown:
            raise ConfigError(
                f"n_estimators={trees} must be larger or equal to len(estimators_)={grown} when warm_start==True"
            )
        if trees == grown:
            warnings.warn(
                "Warm-start fitting without increasing n_estimators does not fit new trees.", UserWarning, stacklevel=5
            )
            return False
        if outputs != len(self.forests_):
            raise ConfigError(
                f"warm_start adds trees to forests of {counted(len(self.forests_), 'output')}, and y has {outputs}; "
                f"give y as it was, or warm_start=False"
            )
        for option, parameter in _ADDED.items():
            if (option in options) != (option in self._options):
                before = f"{'with' if option in self._options else 'without'} {parameter}"
                raise ConfigError(
                    f"warm_start adds trees to a forest grown {before}; fit {before} again, or set warm_start=False"
                )
        seed = self.forests_[0].config.seed
        if is_integer(self.random_state) and self.random_state != seed:
            raise ConfigError(
                f"warm_start adds trees to a forest grown with random_state {seed}, which is {self.random_state} now; "
                "set it back, or warm_start=False"
            )
        changed = [name for name, value in options.items() if name != "trees" and self._options.get(name) != value]
        if changed:
            raise ConfigError(
                f"warm_start adds trees to a forest grown with {changed[0]} {self._options.get(changed[0])!r}, which "
                f"is {options[changed[0]]!r} now; set it back, or warm_start=False"
            )
        return True

    def _table(self, X: Any) -> tuple[pl.DataFrame | SparseTable, list[str]]:
        """Return X as a table, validated as scikit-learn does, and its column names."""
        frame = table_frame(X := unmasked(X))
        if frame is None:
            cells = objects_of(X)
            if cells is not None and has_text(cells):
                frame = table_frame(frame_in_memory(self._objects(cells)))
                assert frame is not None
                return frame, frame.columns
            X = self._array(X if cells is None else cells)
            names = [f"x{place}" for place in range(X.shape[1])]
            return SparseTable(X, names) if is_sparse(X) else named(X, names), names
        if not frame.width:
            raise DataError("X has no columns; give at least one")
        validate_data(self, X if hasattr(X, "iloc") else header(frame), skip_check_array=True)
        return frame, frame.columns

    def _read(self, X: Any) -> Any:
        """Return rows to predict, validated against the training rows: a frame, or a dense or sparse array."""
        frame = table_frame(X := unmasked(X))
        if frame is not None:
            validate_data(self, X if hasattr(X, "iloc") else header(frame), skip_check_array=True, reset=False)
            # scikit-learn checks only names that are text.
            if frame.columns != self._names and {*frame.columns} == {*self._names}:
                raise DataError(f"the columns of X are in another order than in fit: {listed(self._names)}; reorder X")
            return named(frame, self._names)
        categories = any(feature.kind == "category" for feature in self.forests_[0].spec.features)
        cells = objects_of(X)
        if categories and cells is not None:
            return self._objects(cells, reset=False)
        X = self._array(X if cells is None else cells, reset=False)
        return named(X.toarray() if is_sparse(X) else X, self._names) if categories else X

    def _objects(self, cells: NDArray[np.object_], *, reset: bool = True) -> NDArray[np.object_]:
        """Return an array of objects, validated by scikit-learn."""
        checked: NDArray[np.object_] = validate_data(
            self, cells, dtype=None, ensure_all_finite="allow-nan", reset=reset
        )
        return checked

    def _array(self, X: Any, *, reset: bool = True) -> Any:
        """Return X, validated by scikit-learn. Objects, as in lists with None, and longer floats become float64."""
        finite = True if self.ranks else "allow-nan"
        X = validate_data(self, X, accept_sparse="csr", ensure_all_finite=finite, reset=reset)
        if X.dtype.kind == "O" or (X.dtype.kind == "f" and X.dtype.itemsize > 8):
            X = check_array(X, dtype=np.float64, accept_sparse="csr", ensure_all_finite=finite)
        return X

    def _places(self, forest: Forest) -> dict[str, int]:
        """Return the column number in X of each feature, by name."""
        column = {name: number for number, name in enumerate(self._names)}
        return {feature.name: column[feature.column or feature.name] for feature in forest.spec.features}

    def _out_of_bag(self, rows: int, names_of: Callable[[Forest], list[str]]) -> list[NDArray[np.float64]]:
        """Return columns of the out-of-bag report by output, float64 [rows of X, columns].

        Rows without votes have NaN, with a warning.

        names_of  function that returns the names of the columns for the forest of an output
        """
        outputs = []
        for forest in self.forests_:
            names = names_of(forest)
            report = forest.oob.rows.select("row", *names).collect()
            predictions = np.full((rows, len(names)), np.nan)
            predictions[report["row"].to_numpy()] = report.select(
                pl.col(names).cast(pl.Float64).fill_null(np.nan)
            ).to_numpy()
            outputs.append(predictions)
        if any(np.isnan(predictions[:, 0]).any() for predictions in outputs):
            warnings.warn(
                "Some inputs do not have OOB scores. This probably means too few trees were used to compute any "
                "reliable OOB estimates.",
                UserWarning,
                stacklevel=5,
            )
        return outputs

    def _scored(self, truth: Any, prediction: NDArray[Any], voted: NDArray[np.bool_], score: Callable[..., Any]) -> Any:
        """Score the rows `voted`: by the parameter oob_score if it is a function, else by `score`. NaN without rows."""
        if not voted.any():
            return float("nan")
        chosen = self.oob_score if callable(self.oob_score) else score
        return chosen(np.asarray(truth)[voted], prediction[voted])


def described(estimator: _Estimator) -> _Estimator:
    """Add the shared parameters and attributes, and the options, to the docstring of an estimator."""
    if estimator.__doc__ and BaseBigForest.__doc__:  # there are none with python -OO
        doc, shared = inspect.cleandoc(estimator.__doc__), inspect.cleandoc(BaseBigForest.__doc__)
        entries = option_entries(words=_WORDS) | section(shared, "Parameters") | section(doc, "Parameters")
        parameters = [entries[name] for name in inspect.signature(estimator).parameters]
        attributes = section(doc, "Attributes") | section(shared, "Attributes")
        estimator.__doc__ = with_section(with_section(doc, "Parameters", parameters), "Attributes", attributes.values())
    return estimator


def warn_of_order(X: Any, **columns: Any) -> None:
    """Warn if a pandas column has the index of X in another order."""
    for role, values in columns.items():
        if in_another_order(X, values):
            warnings.warn(
                f"{role} has the index of X in another order, and rows are matched by their places, as in "
                f"scikit-learn; give {role}.loc[X.index] if the indexes are right",
                stacklevel=3,
            )


def _added_columns(values_of: Mapping[str, Any], frame: Any, taken: Sequence[str]) -> dict[str, pl.Series]:
    """Return the columns to add to the table of X, by option.

    values_of  values of each option of _ADDED; None for no column
    taken      names that the columns may not have
    """
    columns = {}
    for option, values in values_of.items():
        if values is not None:
            checked = checked_sample_weight(values, frame) if option == "weight" else values
            columns[option] = series_of(checked, free_name(option, taken), _ADDED[option])
            check_consistent_length(frame, columns[option])
    return columns


def _listener(verbose: Any, renamed: Callable[[str], str]) -> Listener:
    """Return a listener that prints notices and stages of a run, and from verbose=2 on their progress.

    renamed  function that renames columns and options in a notice.

    With verbose=0 it prints nothing. Raises ConfigError for another type than an integer.
    """
    if not isinstance(verbose, int | np.integer):
        raise ConfigError(f"verbose must be a whole number, not {verbose!r}")
    if not verbose:
        return silent

    def show(event: Event) -> None:
        if isinstance(event, StageFinished):
            print(f"[bigforest] {event.stage}: {event.seconds:.2f} s", file=sys.stdout)
        elif isinstance(event, Notice):
            print(f"[bigforest] {renamed(event.text)}", file=sys.stdout)
        elif isinstance(event, StageAdvanced) and verbose > 1:
            print(f"[bigforest] {event.stage}: {event.done} done", file=sys.stdout)

    return show
