"""From a table to a store or to predictions. Outputs are complete or absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from bigforest.encode.targets import USUAL_NAMES
from bigforest.events import Listener, Notice
from bigforest.execution.arguments import column_names, options_of, resources_of, target_of
from bigforest.execution.connect import open_resources
from bigforest.options.docstrings import with_entries
from bigforest.options.explicit import explicit_options, given
from bigforest.options.train_config import TrainConfig
from bigforest.predict.files import TEXT, is_prediction, write_predictions
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.rows import open_rows
from bigforest.predict.score import FilePrediction
from bigforest.progress import watching
from bigforest.source import check_csv, open_source, opens_quickly
from bigforest.source.files import find_files
from bigforest.source.in_memory import numeric_categories, with_columns_beside
from bigforest.storage.atomic import TemporaryFolder, check_output, staged
from bigforest.storage.paths import absolute, as_path
from bigforest.store.format import is_meant_as_store, is_store
from bigforest.store.store import Store
from bigforest.training.run import columns_first
from bigforest.training.run_state import TrainingJob


@with_entries
@explicit_options
def encode_store(
    data: Any,
    out: str | Path,
    *,
    target: str | ArrayLike | None = None,
    # Options, written by docs/options.py.
    max_bins: Literal["exact"] | int = "exact",
    group: str | ArrayLike | None = None,
    weight: str | ArrayLike | None = None,
    class_weight: Mapping[Any, float] | str | Path | None = None,
    task: Literal["classification", "regression"] | None = None,
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    # End of the options.
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Store:
    """Presort a table into the store `out`, to train on it many times.

    Arguments that are not described here, and the errors, are the same as for `train`.

    Parameters
    ----------
    data : path or table
        The table, as for `train`.
    out : path
        Folder of the store.
    target : str or ArrayLike
        The target column, or one value per row.
    overwrite : bool, default=False
        Replace an existing store at `out`.

    Returns
    -------
    Store
    """
    from bigforest.encode.encode import encode  # which predicting has no need of

    resources = resources_of(threads, scratch, memory)
    job = make_job(data, target, exclude, given(locals()))
    config = TrainConfig(**job.options)
    check_csv(job.data, config.missing)
    with (
        watching(listener) as listener,
        columns_first(job, resources),
        open_resources(scheduler, resources, as_path(out), listener, beside=True) as resources,
        staged(out, overwrite=overwrite, kind="store", is_ours=is_store) as folder,
        TemporaryFolder(resources.scratch) as work,
    ):
        encode(
            open_source(job.data, scratch=work, memory=resources.memory, missing=config.missing),
            job.target,
            folder,
            config=config,
            exclude=job.exclude,
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
    coverage: float | None = None,
    reject_above: float | None = None,
    coverage_by: Any = None,
    jackknife: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: int | str | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> FilePrediction:
    """Predict every row of a table of any size and write the predictions to the file `out`, in order and in bounded
    memory.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path
        A table as for `train`.
    out : str or Path
        File for the predictions. The names .csv, .tsv, .ndjson and .jsonl select these formats; any other name is
        Parquet.
    proba : bool, default=False
        Also write one column p_<class> per class.
    keep : sequence of str, default=()
        Columns of the table to copy to the file.
    vote : str or None, default=None
        "soft", "hard" or "stochastic"; None as in training.
    ties : str or None, default=None
        Prediction if classes have equal votes: "lowest", "reject" (null) or "random". None as in training: "lowest", or
        "reject" for the subspace families.
    unseen : str, default="larger"
        A level that did not occur in training goes to the "larger" child of a node, counts as "missing", or is an
        "error".
    quantiles : sequence of float, default=()
        For regression: shares from 0 to 1, each written as a column such as q0.1. See `Forest.predict`.
    coverage : float or None, default=None
        Also write prediction intervals (regression; columns low and high) or prediction sets (classification; column
        set) that contain the true value with approximately this probability. See `Forest.predict`.
    reject_above : float or None, default=None
        For classification: null for rows whose estimated error is above this limit. See `Forest.predict`.
    coverage_by : str, Series or None, default=None
        With `coverage`, a column of categories that are calibrated separately. See `Forest.predict`.
    jackknife : bool, default=False
        With `coverage`, intervals by the jackknife+ after bootstrap. See `Forest.predict`.
    memory : int, str or None, default=None
        Memory budget of the whole process, such as "4GB". None for no limit. If the trees do not fit, they are loaded
        in groups. Does not change the predictions.
    overwrite : bool, default=False
        Replace an existing file at `out`.
    threads, scratch, listener, scheduler
        As for `train`.

    Returns
    -------
    FilePrediction
        The scores, if the table has the target.

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError
    """
    resources = resources_of(threads, scratch, memory)
    forest = opened_forest(forest)
    rule = forest.rule(vote, ties, unseen, quantiles, None, coverage, reject_above, coverage_by, jackknife)
    if not opens_quickly(data):
        check_output(out, overwrite=overwrite, kind="prediction", is_ours=is_prediction, may_end=TEXT)
    notice = _notice_of_training(forest, data)
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, as_path(out), listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
    ):
        source = open_rows(data, forest.spec, scratch=work, memory=resources.memory)
        done = write_predictions(
            forest,
            source,
            out,
            rule,
            proba=proba,
            keep=column_names(keep, "keep"),
            resources=resources,
            listener=listener,
            overwrite=overwrite,
        )
        if notice is not None:
            listener(notice)
        return done


def _notice_of_training(forest: Forest, data: Any) -> Notice | None:
    """What to say where a forest predicts the table that it was grown on: its trees know most of the rows."""
    if forest.origin is None or not isinstance(data, str | Path) or forest.origin.data != absolute(data):
        return None
    way = "the out-of-bag report has the error on unseen rows" if forest.has_oob else "evaluate it on other rows"
    return Notice(f"the forest was trained on these rows, so they are predicted better than new ones; {way}")


def make_job(
    data: Any, target: Any, exclude: Any, options: dict[str, Any], validate: Any = None, *, resumes: bool = False
) -> TrainingJob:
    """The job of training on a table, with the columns that were given as arrays. Categories of a pandas frame are
    categories, also those of numbers; a forest that is resumed has its own."""
    beside = {"target": target, "weight": options.get("weight"), "group": options.get("group")}
    coded = [] if resumes else numeric_categories(data[0] if isinstance(data, tuple) and data else data)
    data, names = with_columns_beside(data, beside)
    options = options_of(options | {name: names[name] for name in ("weight", "group") if name in options})
    target, left_out = target_of(names["target"]), tuple(column_names(exclude, "exclude"))
    if coded:
        usual = next((name for name in USUAL_NAMES if name in data.columns), None)
        no_features = {target or usual, *names.values(), *left_out}
        given = column_names(options.get("categories", ()), "categories")
        options["categories"] = tuple(dict.fromkeys([*given, *(name for name in coded if name not in no_features)]))
    return TrainingJob(data, target, left_out, options, validate)


def default_output(data: str | Path, suffix: str) -> Path:
    """Default name of the output, in the current folder: flights.csv gives flights<suffix>.

    Raises DataError if nothing exists at `data`.
    """
    path = as_path(data)
    name = path.resolve().name.removesuffix(".store") if is_meant_as_store(path) else find_files(data)[0]
    return Path(name + suffix)
