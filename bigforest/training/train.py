"""`bigforest.train` and `bigforest.plan_training`: from a table and options to a forest, or to a plan.

`bigforest.shrink_forest` shrinks a finished forest by a given lambda, or by the lambda with the lowest out-of-bag loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

import bigforest  # the annotation bigforest.Plan loads the class only when it is needed
from bigforest.encode.arguments import column_arguments
from bigforest.errors import ConfigError, api
from bigforest.events import Listener
from bigforest.execution.connect import open_resources
from bigforest.execution.resources import resources_of
from bigforest.forest.ballots import lambdas_to_try
from bigforest.forest.forest_files import FOREST
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import write_run
from bigforest.grow.forest import ForestJob
from bigforest.oob.report import write_oob
from bigforest.options.signatures import documented_options, explicit_options, given, with_options_of
from bigforest.options.values import check_amount
from bigforest.predict.export_file import SUFFIXES, format_of
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.progress import watching
from bigforest.source.files import separated
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.paths import as_path, is_folder
from bigforest.training.plan import open_table, resolve
from bigforest.training.run import StageTimer, train_forest
from bigforest.training.run import resume as resume_run
from bigforest.training.run_folder import Run, output_of

# The stages of `shrink_forest` when it chooses lambda. Trees are not grown again, and a boosted stage is dropped.
_SHRINKING = ("read", "encode", "oob")


@documented_options
@explicit_options
def train(
    data: Any = None,
    target: str | ArrayLike | None = None,
    *,
    # Options, written by docs/options.py.
    trees: int = 100,
    seed: int = 0,
    family: Literal["axis", "tree", "rotation", "sparse-oblique", "subspace-cap", "subspace-perceptron"] = "axis",
    mtry: Literal["sqrt", "log2", "half", "all"] | int | float | None = None,
    feature_fraction: float | None = None,
    splitter: Literal["best", "random"] = "best",
    impurity: Literal["gini", "entropy", "error", "variance", "poisson"] | None = None,
    max_depth: int | None = None,
    min_split: int = 2,
    min_leaf: int | None = None,
    max_leaf_nodes: int | None = None,
    min_impurity_decrease: float = 0.0,
    ccp_alpha: float = 0.0,
    max_bins: Literal["exact"] | int = "exact",
    ranks: bool = False,
    constants: Literal["redraw", "count"] = "redraw",
    vote: Literal["soft", "hard"] = "soft",
    shrink: Literal["auto", "off"] | float = "auto",
    power: Literal["auto", "off"] | float = "auto",
    refine: Literal["auto", "off"] | int = "auto",
    stop_oob: float | None = None,
    bootstrap: bool = True,
    sample_fraction: float = 1.0,
    replace: bool = True,
    calibration: float | None = None,
    sampling: Literal["uniform", "stratified", "balanced", "arc-x4", "adaboost"] = "uniform",
    group: str | ArrayLike | None = None,
    weight: str | ArrayLike | None = None,
    class_weight: Mapping[Any, float] | str | Path | None = None,
    task: Literal["classification", "regression"] | None = None,
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    min_level: str | int | None = None,
    keep_targets: bool = False,
    keep_votes: bool = False,
    projections: str | int | None = None,
    projection_kind: Literal["rerf", "sporf", "gaussian", "very-sparse"] = "rerf",
    density: float | None = None,
    mean_difference: Literal["none", "consecutive", "vs-largest", "all"] = "none",
    mean_difference_scope: Literal["tree", "node"] = "tree",
    normalize: Literal["none", "zscore", "minmax"] = "none",
    axes: int | None = None,
    orthogonal: bool = True,
    rotation: Literal["random", "pca", "pca-classes"] = "random",
    axis_features: int | None = None,
    axes_from: str | Sequence[str] = (),
    subspace: str | int | None = None,
    subspace_per: Literal["tree", "node"] = "tree",
    steps: int = 50,
    max_epochs: int = 100,
    ties: Literal["lowest", "reject", "random"] | None = None,
    # End of the options.
    exclude: Sequence[str] = (),
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: str | Path | None = None,
    validate: Any = None,
    tune: int | str | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    scheduler: Any = None,
    listener: Listener | None = None,
) -> Forest:
    """Train a forest on a table.

    The columns in use and the options, which are the fields of `TrainConfig`, determine the forest; `tune` chooses some
    options. Arguments that say how to run, such as `memory` and `threads`, do not change a bit of it.

    Parameters
    ----------
    data : path, table or store
        A path, glob or folder (Parquet, Arrow, CSV, NDJSON), a Polars, pandas or pyarrow table, a numpy array or a list
        of rows, a mapping of columns, or a store made by `encode_store`. A scipy sparse matrix is streamed to
        `scratch`; this needs memory for one copy of it as CSR and 64 MB. A pair (X, y) is the same as `data` and
        `target`.
    target : str or array-like, optional
        The target column, or its values, of shape [rows] or [rows, 1]. None for the first of the columns target, label,
        class and y that exists.
    exclude : sequence of str, default=()
        Columns to ignore.
    out : path, optional
        Folder to write the forest to. None for a temporary folder, which exists as long as the Forest object;
        `Forest.write` makes a permanent copy. An interrupted run leaves the folder `out`.unfinished, which `resume`
        continues.
    overwrite : bool, default=False
        Replace an existing forest at `out`.
    resume : path, optional
        The `out` of an interrupted run, to continue it; the result is the same as without the interruption. Or a
        finished forest, to add trees up to the number `trees`. Other arguments must be the same as before, except those
        that say how to run, and `trees` for a finished forest. Pass `data` again if it was a table in memory or has
        moved.
    validate : path or table, optional
        Another table with the target. `forest.validation` is the error on its rows by number of trees, under the
        forest's own rules for votes and ties, without the boosted stage. Pass it again with `resume`.
    tune : int or str, optional
        Compare this number of default configurations by their out-of-bag losses, or all of them within a time such as
        "10m", and return the forest of the winner: see `compare`. The given options apply to all of them.
        `forest.tuning` is the table of the candidates.
    memory : str or int, optional
        Memory budget of the whole process, such as "4GB" (1 GB is 10**9 bytes) or a number of bytes. None for no limit.
    threads : int, optional
        Worker threads. None for all processors.
    scratch : path, optional
        Folder for the presorted table and temporary files. None for a folder next to `out` if it is given, otherwise
        the system's temporary folder.
    scheduler : Client, str or None, default=None
        Where to run. None for the active `distributed.Client`, or the threads of this process if there is none; a
        Client; the address of a scheduler, tcp:// or tls://; or "threads". On a cluster, `threads` and `memory` apply
        to each worker, and the table, `out` and `scratch` must be on disks that all workers share.
    listener : callable, optional
        Function that is called with every event of the run (`bigforest.events`). By default, work that takes
        more than two seconds shows progress bars on a terminal and in a notebook. Elsewhere each stage of more than two
        seconds is logged by the logger "bigforest" at level INFO. Notices, such as the compilation of kernels once per
        machine, are logged as warnings.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        For an unusable option.
    DataError
        For an unusable table.
    FormatError
        For a damaged store or run.
    OutputExistsError, BusyError
        When `out` exists already, or another run writes to it.
    DiskFullError, StorageError
        When a disk is full, or an object store refuses.
    ClusterError
        For a cluster that cannot be used or was lost.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> forest.predict({"length": [1.0, 4.0], "width": [1.0, 3.0]})["prediction"].to_list()
    ['a', 'b']
    >>> forest.oob.error
    0.0
    """
    arguments = column_arguments(data, target, exclude, given(locals()), resumes=resume is not None)
    if resume is not None and (out is not None or overwrite):
        raise ConfigError(
            f"{api('resume')} writes to {resume} and needs neither {api('out')} nor {api('overwrite')}; drop them"
        )
    if data is None and resume is None:
        raise ConfigError(f"no table to train on; give {api('data')}, or the forest to resume")
    if tune is not None and (resume is not None or validate is not None):
        raise ConfigError(
            f"{api('tune')} compares new forests, so there is nothing to resume or validate; drop one of them"
        )
    output = None if out is None else as_path(out)
    if output is not None and output.suffix.lower() in SUFFIXES.values():
        raise ConfigError(
            f"{output} is named as a file for {format_of(None, output)}, and training writes the folder of a forest; "
            f"set {api('out')} to {output.stem}.forest, and export that"
        )
    if resume is not None:
        output = output_of(resume)
    resources = resources_of(threads, scratch, memory)
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, output, listener) as resources,
    ):
        if tune is not None:
            from bigforest.training.compare import tuned_forest

            return tuned_forest(arguments, tune, output, resources, listener, overwrite=overwrite)
        if resume is not None:
            return resume_run(output_of(resume), arguments, resources, listener, validate=validate)
        return train_forest(Run.of(arguments), output, resources, listener, validate=validate, overwrite=overwrite)


@with_options_of(train)
def plan_training(
    data: Any,
    target: str | ArrayLike | None = None,
    *,
    exclude: Sequence[str] = (),
    out: str | Path | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    **options: Any,
) -> bigforest.Plan:
    """Estimate what `train` with the same arguments needs, and whether it fits: see `Plan`.

    Reads only metadata if possible. The target is read if nothing else bounds the number of classes. A table is
    streamed once to `scratch` unless it is Parquet, a store, or in memory.

    Parameters
    ----------
    data : path or table
        The table, as for `train`.
    target : str or ArrayLike or None, default=None
        The target column, as for `train`.
    exclude, out, memory, threads, scratch, **options
        As for `train`.

    Returns
    -------
    Plan

    Raises
    ------
    ConfigError, DataError

    Examples
    --------
    >>> import bigforest as bf
    >>> plan = bf.plan_training({"size": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "a", "b", "b"]}, "kind", trees=10)
    >>> plan.rows, plan.features, plan.fits
    (4, 1, True)
    """
    run = Run.of(column_arguments(data, target, exclude, options))
    resources = resources_of(threads, scratch, memory)
    home = Path.cwd() if out is None else as_path(out).resolve().parent
    if not is_folder(home):
        raise ConfigError(f"the folder {home} of the output does not exist; create it first")
    with TemporaryFolder(resources.scratch) as work:
        return resolve(run, open_table(run, work, verify=False), resources).summary(home)


def shrink_forest(
    forest: Forest | str | Path,
    out: str | Path,
    *,
    amount: float | None = None,
    data: Any = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Forest:
    """Shrink the leaves of a forest by another lambda (Agarwal et al. 2022), and write it to `out`.

    The trees do not change, byte for byte. A boosted stage is dropped. `Forest.shrink` explains lambda, and shrinks by
    a given `amount` without writing.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    out : str or Path
        Folder of the new forest.
    amount : float or None, default=None
        Lambda, in rows; the new forest then has no out-of-bag report. None to select the lambda with the lowest
        out-of-bag log loss (mean squared error for regression, or Poisson deviance), as `train` does with
        shrink="auto"; the table is then read again, and a new report is made.
    data : table or path, default=None
        The training table, or a store of it. None if it is still in the same place.
    threads, scratch, memory, overwrite, listener
        As for `train`.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        For an invalid option. Without `amount`, for a forest without known out-of-bag rows.
    DataError
        For another table.
    FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.shrink_forest(forest, "shrunk.forest", amount=5.0).shrinkage.amount
    5.0
    """
    if amount is not None:
        check_amount(amount)
    [forest] = trees_alone([opened_forest(forest)], "shrinking", listener)
    if amount is not None:
        forest.shrink(amount).write(out, overwrite)
        return read_forest(out)
    resources = resources_of(threads, scratch, memory)
    lambdas = _lambdas(forest)
    origin = forest.origin
    assert origin is not None
    if data is None and origin.data is None:
        raise ConfigError(
            f"the forest was grown on a table in memory or on standard input; give it again as {api('data')}, or set "
            f"{api('amount')}"
        )
    data = separated(origin.data if data is None else data, forest.spec.separator)
    run = Run(data, forest.spec.target.name, origin.exclude, forest.config, origin.fingerprint)
    with (
        watching(listener) as listener,
        staged(out, FOREST, overwrite=overwrite) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        timer = StageTimer(listener)
        resources = replace(resources, scratch=work)
        plan = resolve(run, open_table(run, work, memory=resources.memory), resources)
        plan = replace(plan, stages=_SHRINKING)
        store = plan.for_store(plan.make_store(work / "table.store", timer, "the forest was grown on")).store
        forest.shrink(0.0).write(directory)
        store = ranked_store(store, forest.config, directory)
        report = write_oob(ForestJob(store, forest.config, directory, resources, timer), lambdas)
        seconds = dict(forest.run.select("stage", "seconds").iter_rows()) | {"oob": timer.seconds["oob"]}
        write_run(directory, seconds, resources.workers, forest.files.header, origin, report)
    return read_forest(out)


def _lambdas(forest: Forest) -> tuple[float, ...]:
    """Return the lambdas to choose from. Raises ConfigError if the forest has no out-of-bag rows to choose by."""
    advice = f"set {api('amount')}"
    if not forest.config.bootstrap:
        raise ConfigError(f"the forest was grown without bootstrap, so no row is out of bag to choose by; {advice}")
    if forest.config.boosts:
        raise ConfigError(
            f"with sampling {forest.config.sampling!r} the out-of-bag error is biased, so nothing is chosen by it; "
            f"{advice}"
        )
    if forest.origin is None or forest.origin.merged or forest.revised in ("pruned", "calibrated"):
        raise ConfigError(
            f"the forest was {forest.revised or 'merged'}, so its out-of-bag rows are not known; {advice}"
        )
    config = replace(forest.config, shrink="auto")
    lambdas = lambdas_to_try(config, forest.spec.rows, forest.spec.target.answer_width)
    if not lambdas:
        problem = "votes are hard" if forest.config.vote == "hard" else "the table has too many rows and classes"
        raise ConfigError(f"lambda cannot be chosen where {problem}; {advice}")
    return lambdas
