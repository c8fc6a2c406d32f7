"""The functions behind the commands: from a table to a forest, a store or predictions, whole or not at all.

The module is not called train.py: importing a module of that name would hide the function `bigforest.train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigforest.common.errors import ConfigError
from bigforest.common.events import Listener, by_logging, silent
from bigforest.encode.pipeline import encode
from bigforest.execution.arguments import column_names, options_of, resources_of, target_of
from bigforest.execution.connect import crew_of
from bigforest.execution.resources import Resources
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.predict.files import is_prediction
from bigforest.predict.files import predict_file as predict_source
from bigforest.predict.forest import Forest, read_forest
from bigforest.predict.score import FilePrediction
from bigforest.schema.config import TrainConfig
from bigforest.source import open_source
from bigforest.source.files import find_files
from bigforest.storage.atomic import TemporaryFolder, check_output, staged
from bigforest.storage.paths import as_path, is_folder
from bigforest.store.format import is_store
from bigforest.store.store import Store
from bigforest.training.job import TrainingJob, agreed, open_table
from bigforest.training.plan import Plan, make_plan
from bigforest.training.resumable_run import named_output
from bigforest.training.run import Clock, train_new, train_temporary
from bigforest.training.run import resume as resume_run


def train(
    data: Any = None,
    target: str | None = None,
    *,
    out: str | Path | None = None,
    listener: Listener = by_logging,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    exclude: Sequence[str] = (),
    resume: str | Path | None = None,
    scheduler: Any = None,
    validate: Any = None,
    **config: Any,
) -> Forest:
    """Grow a forest on a table.

    data       a path, glob or folder (Parquet, Arrow, CSV, NDJSON), a Polars, pandas or pyarrow table, a pair
               (X, y) of numpy arrays, or a store made by `encode_store`.
    target     the column to learn; None for the first of target, label, class and y that there is.
    out        folder the forest is written to; None keeps it in a temporary folder as long as the Forest
               object lives (`Forest.write` keeps it for good). A run that is interrupted leaves the folder
               `out`.unfinished, from which `resume` goes on.
    listener   is told of every event of the run (common/events.py). Unless given, the logger "bigforest" says when
               kernels are compiled, which takes long, once per machine.
    overwrite  replace a forest that is already at `out`.
    threads    worker threads; None for all processors. The forest does not depend on it.
    scratch    folder for the presorted table and temporary files; None for the system's, or, with `out`, for
               one beside it.
    memory     most memory of the whole process, such as "4GB" (10**9 bytes each) or a number of bytes; None for no
               limit. The forest does not depend on it.
    exclude    columns to leave out.
    resume     an `out` to go on with, to the same forest that an undisturbed run gives; or a finished forest, to
               which trees are added up to the number `trees`. Of the other arguments, only those that say how to
               run, and `trees` for a finished forest, may differ from before; data is needed again when it was a
               table in memory, and may be given when it has moved.
    scheduler  who does the work: None for the active `distributed.Client` and without one the threads of this process;
               a Client; the address of a scheduler, tcp:// or tls://; "threads". On a cluster, threads and memory are
               of each worker, and table, out and scratch on disks that all of them share. The forest does not depend
               on it.
    validate   another table with the target: `forest.validation` is the error on its rows after each tree, by the
               forest's own rules for votes and ties. Give it again with `resume`.
    config     the fields of TrainConfig: trees, seed, mtry, impurity, family and so on.

    Raises ConfigError for an unusable option, DataError for an unusable table, FormatError for a damaged store
    or run, OutputExistsError when `out` is taken, BusyError while another run writes it, DiskFullError, and
    ClusterError for a cluster that cannot be used or was lost.
    """
    task = TrainingJob(data, target_of(target), tuple(column_names(exclude, "exclude")), options_of(config), validate)
    if resume is not None and (out is not None or overwrite):
        raise ConfigError(f"resume writes to {resume} and needs neither out nor overwrite; drop them")
    if data is None and resume is None:
        raise ConfigError("there is no table to train on; give data, or the forest to resume")
    place = out if resume is None else named_output(resume)
    resources = resources_of(threads, scratch, memory)
    with crew_of(scheduler, resources, None if place is None else as_path(place), listener) as resources:
        return _train(task, place, resume is not None, overwrite, resources, Clock(listener))


def _train(
    task: TrainingJob, place: str | Path | None, resume: bool, overwrite: bool, resources: Resources, clock: Clock
) -> Forest:
    if place is not None:
        if resume:
            resume_run(as_path(place), task, resources, clock)
            return read_forest(place)
        trees = train_new(task, as_path(place), resources, clock, overwrite=overwrite)
        return _with_trees(read_forest(place), trees)
    home = TemporaryFolder(resources.scratch)
    try:
        directory, trees = train_temporary(task, home.path, resources, clock)
        return _with_trees(read_forest(directory, holding=home), trees)
    except BaseException:
        home.remove()
        raise


def encode_store(
    data: Any,
    out: str | Path,
    *,
    target: str | None = None,
    max_bins: str | int = "exact",
    exclude: Sequence[str] = (),
    group: str | None = None,
    task: str | None = None,
    categories: Sequence[str] = (),
    weight: str | None = None,
    class_weight: Any = None,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener = by_logging,
    scheduler: Any = None,
) -> Store:
    """Presort a table into the store `out`, to train on it many times.

    Arguments and errors are those of `train`.
    """
    resources = resources_of(threads, scratch, memory)
    columns = {"task": task, "categories": categories, "weight": weight, "class_weight": class_weight}
    config = TrainConfig(**options_of({"max_bins": max_bins, "group": group, **columns}))
    with (
        crew_of(scheduler, resources, as_path(out), listener, beside=True) as resources,
        staged(out, overwrite=overwrite, kind="store", is_ours=is_store) as place,
        TemporaryFolder(resources.scratch) as work,
    ):
        encode(
            open_source(data, scratch=work, memory=resources.memory),
            target_of(target),
            place,
            config=config,
            exclude=column_names(exclude, "exclude"),
            resources=resources,
            listener=listener,
        )
    return Store.open(out)


def predict_file(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    proba: bool = False,
    keep: Sequence[str] = (),
    vote: str | None = None,
    ties: str | None = None,
    unseen: str = "larger",
    quantiles: Sequence[float] = (),
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: int | str | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    scheduler: Any = None,
) -> FilePrediction:
    """Predict every row of a table of any size into the Parquet file `out`, in order and in bounded memory.

    forest     a Forest or the path of one.
    data       a table as for `train`.
    proba      also write one column p_<class> per class.
    keep       columns of the table to copy to the file.
    vote       "soft", "hard" or "stochastic"; None as in training.
    ties       among equal classes "lowest", "reject" (null) or "random"; None as in training: "lowest", or "reject"
               for forests in subspaces.
    unseen     a level of a category that was not there in training goes with the "larger" child of a node, counts as
               "missing", or is an "error".
    quantiles  of the numbers to predict, shares from 0 to 1, each a column such as q0.1: see `Forest.predict`.
    memory     most memory of the whole process, such as "4GB"; None for no limit. Trees that do not fit are loaded a
               group at a time. Never changes an answer.
    overwrite  replace a file of predictions that is already at `out`.

    The other arguments are those of `train`. The result says how well the table's own labels were met, if it
    has any. Raises ConfigError, DataError, FormatError and OutputExistsError.
    """
    resources = resources_of(threads, scratch, memory)
    check_output(out, overwrite=overwrite, kind="prediction", is_ours=is_prediction)
    if not isinstance(forest, Forest):
        forest = read_forest(forest)
    with (
        crew_of(scheduler, resources, as_path(out), listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
    ):
        return predict_source(
            forest,
            open_source(data, scratch=work, memory=resources.memory),
            out,
            proba=proba,
            keep=column_names(keep, "keep"),
            vote=vote,
            ties=ties,
            unseen=unseen,
            quantiles=quantiles,
            resources=resources,
            listener=listener,
            overwrite=overwrite,
        )


def plan_training(
    data: Any,
    target: str | None = None,
    *,
    out: str | Path | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    exclude: Sequence[str] = (),
    **config: Any,
) -> Plan:
    """What `train` with the same arguments will take, and whether it fits: see `Plan`.

    Reads metadata only where it can: the target is read when nothing else bounds its classes, and tables other than
    Parquet, stores and those in memory are streamed once into `scratch`. Raises ConfigError and DataError.
    """
    task = TrainingJob(data, target_of(target), tuple(column_names(exclude, "exclude")), options_of(config))
    resources = resources_of(threads, scratch, memory)
    home = Path.cwd() if out is None else as_path(out).resolve().parent
    if not is_folder(home):
        raise ConfigError(f"the folder {home} of the output does not exist; create it first")
    with TemporaryFolder(resources.scratch) as work:
        table = open_table(data, work, verify=False)
        settled = agreed(table, task) if isinstance(table, Store) else task.config
        return make_plan(table, data, task.target, task.exclude, settled, resources, home)


def _with_trees(forest: Forest, trees: FlatTrees | None) -> Forest:
    """The forest, which need not read its trees where they are at hand."""
    if trees is not None:
        forest.take(trees)
    return forest


def default_output(data: str | Path, suffix: str) -> Path:
    """Name of the output, in the current folder, for a table or store: flights.csv gives flights<suffix>.

    Raises DataError when there is nothing at `data`.
    """
    place = as_path(data)
    name = place.resolve().name.removesuffix(".store") if is_store(place) else find_files(data)[0]
    return Path(name + suffix)
