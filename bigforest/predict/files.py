"""Predictions of tables of any size, written batch by batch to a file: Parquet or text."""

from __future__ import annotations

import contextlib
import csv
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bigforest.columns.types import columns_named, types_within
from bigforest.errors import ConfigError, DataError, api
from bigforest.events import Listener, Notice, Stage, stage
from bigforest.execution.connect import open_resources
from bigforest.execution.resources import Resources, resources_of
from bigforest.forest.files import file_kind
from bigforest.forest.tables import write_pieces
from bigforest.options.values import check_flag, names_of
from bigforest.planning.sizes import row_ranges
from bigforest.predict.columns import (
    PREDICTION,
    check_classes,
    check_columns,
    prediction_names,
    prediction_table,
)
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.inputs import TableInput
from bigforest.predict.rows import UnseenLevels, check_schema, open_rows
from bigforest.predict.score import FilePrediction, Score, score_of
from bigforest.predict.vote_rule import VoteRule
from bigforest.progress import watching
from bigforest.source.open import opens_quickly
from bigforest.source.source import text_name
from bigforest.storage.atomic import OutputKind, TemporaryFolder, check_output, staged
from bigforest.storage.file_kinds import KINDS, TEXT
from bigforest.storage.paths import absolute_path, as_path, downloads, text_lines, write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

    from bigforest.source.source import Source

KIND = "predictions"
VERSION = 1

# Number of ranges of rows for each process of a cluster, without a memory budget.
_RANGES = 4
# Fewest rows of a range.
_FEWEST_ROWS = 4_096


def is_prediction(path: Path) -> bool:
    """Return True if a file contains predictions, so that it may be overwritten."""
    return _is_text_prediction(path) if path.suffix.lower() in TEXT else file_kind(path) == KIND


PREDICTION_FILE = OutputKind("prediction", is_prediction, TEXT)


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
    """Predict every row of a table of any size in bounded memory, and write predictions to the file `out`, in order.

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
        Columns of the table to copy to the file. From a CSV file, cells are copied as text: `00042` keeps its zeros.
        Integers of more than 64 bits become text.
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
        The number of rows written, and the scores if the table has the target.

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> import polars as pl
    >>> pl.DataFrame(table).drop("kind").write_csv("new.csv")
    >>> bf.predict_file(forest, "new.csv", "predictions.parquet").rows
    40
    >>> pl.read_parquet("predictions.parquet").columns
    ['prediction']
    """
    resources = resources_of(threads, scratch, memory)
    forest = opened_forest(forest)
    rule = forest.rules.make(vote, ties, unseen, quantiles, None, coverage, reject_above, coverage_by, jackknife)
    if not opens_quickly(data):
        check_output(out, PREDICTION_FILE, overwrite=overwrite)
    keep = names_of(keep, "keep")
    by = {} if rule.category is None else {"texts" if rule.category_is_text else "also": [rule.category]}
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, as_path(out), listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
    ):
        advice = "the out-of-bag report has the error on unseen rows" if forest.has_oob else "evaluate it on other rows"
        tell_of_training(forest, data, f"so they are predicted better than new ones; {advice}", listener)
        source = open_rows(data, forest.spec, scratch=work, memory=resources.memory, kept=keep, empty=True, **by)
        return write_predictions(
            forest,
            source,
            out,
            rule,
            proba=proba,
            keep=keep,
            resources=resources,
            listener=listener,
            overwrite=overwrite,
        )


def tell_of_training(trained: Forest | str | None, data: Any, effect: str, listener: Listener) -> None:
    """Send a notice if `data` is the path of the training table.

    trained  the forest, or the absolute path of its table
    effect   end of the message: the consequence, and what to do
    """
    if isinstance(trained, Forest):
        trained = trained.origin.data if trained.origin else None
    if isinstance(data, str | Path) and trained == str(absolute_path(data)):
        listener(Notice(f"the forest was trained on these rows, {effect}"))


def write_predictions(
    forest: Forest,
    source: Source,
    out: str | Path,
    rule: VoteRule,
    *,
    proba: bool,
    keep: Sequence[str],
    resources: Resources,
    listener: Listener,
    overwrite: bool,
) -> FilePrediction:
    """Write the predictions of the rows of `source` by a rule. Raises the same errors as `predict_file`.

    Columns of the file: `keep`, prediction, quantiles, low and high or set (with coverage), p_<class> (with `proba`).
    The metadata of Parquet has kind and version under the key "bigforest". Random draws depend on the number of the row
    in the source.
    """
    spec = forest.spec
    check_flag(proba, "proba")
    if proba:
        check_classes(spec)
    check_schema(source.schema, spec)
    made = [*prediction_names(spec, rule, False), *(prediction_names(spec, rule, True) if proba else [])]
    check_columns(keep, source.schema, rule, made)
    if objects := [name for name in keep if pl.Object in types_within(source.schema[name])]:
        raise DataError(f"column {objects[0]!r} holds objects of Python, which no file can hold; convert or drop it")
    if as_path(out).resolve() in [file.resolve() for file in source.files]:
        raise ConfigError(f"{out} is a file of the table to predict for; choose another output")
    score, local = score_of(spec, forest.config.criterion, source), replace(resources, cluster=None)
    job = _Job(forest, source, tuple(keep), proba, rule, local, score, UnseenLevels(rule.unseen))
    with (
        staged(out, PREDICTION_FILE, overwrite=overwrite) as predictions,
        source.unchanged(),
        stage("predict", source.rows, "rows", listener) as progress,
    ):
        tables = _count_written(_predict_all(job, resources), progress)
        if as_path(out).suffix.lower() in TEXT:
            _write_text(tables, predictions)
        else:
            mark = {"version": VERSION, "kind": KIND}
            write_pieces(predictions, tables, mark, compression="zstd", compression_level=1)
    job.unseen.tell(listener)
    done = score.result(source.rows)
    if done.scored and not done.weighted and (weight := spec.weight) is not None:
        by = [*([repr(weight.name)] if weight.name else []), *([api("class_weight")] if weight.classes else [])]
        alike = "the metrics count all rows alike; training and the out-of-bag report weight them by"
        listener(Notice(f"{alike} {' and '.join(by)}"))
    return done


def _write_text(tables: Iterator[pa.Table], path: Path) -> None:
    """Write tables to a text file, one after the other. The suffix of its name selects the format."""
    suffix = path.suffix.lower()
    with path.open("wb") as file:
        for number, table in enumerate(tables):
            frame = pl.DataFrame(pl.from_arrow(table))
            _check_text(frame.schema, suffix)
            if KINDS[suffix] == "NDJSON":
                text = frame.write_ndjson()
            else:
                text = frame.write_csv(include_header=number == 0, separator="\t" if suffix == ".tsv" else ",")
            file.write(text.encode())


def _check_text(schema: Mapping[str, pl.DataType], suffix: str) -> None:
    """Raise DataError for a column that this text format cannot hold."""
    for name, dtype in schema.items():
        if pl.Binary in types_within(dtype):
            raise DataError(f"column {name!r} is {dtype}, which no text can hold; write Parquet")
        if KINDS[suffix] == "CSV" and (dtype.is_nested() or dtype == pl.Duration):
            kind = "nested" if dtype.is_nested() else "a duration"
            raise DataError(f"column {name!r} is {kind}, which CSV cannot hold; write Parquet or .ndjson")


def _is_text_prediction(path: Path) -> bool:
    """Return True if the names of a text file have the column of predictions.

    Also return True for an empty file: NDJSON without rows.
    """
    with (
        contextlib.suppress(IsADirectoryError, csv.Error, ValueError, RecursionError),
        text_lines(path, "utf-8") as lines,
    ):
        first = next(lines, "")
        if first.startswith("{"):
            return PREDICTION in json.loads(first)
        rest = (line.replace("\t", ",") for line in chain([first], lines))  # names may have several lines
        return PREDICTION in next(csv.reader(rest)) or not first
    return False


def _count_written(tables: Iterator[pa.Table], progress: Stage) -> Iterator[pa.Table]:
    """Yield tables, and report the rows of a table as done when the next one is requested."""
    for table in tables:
        yield table
        progress.advance(table.num_rows)


@dataclass(frozen=True, slots=True)
class _Job:
    """Prediction of a table by a process.

    score, unseen  sums over the rows predicted so far.
    """

    forest: Forest
    source: Source
    keep: tuple[str, ...]
    proba: bool
    rule: VoteRule
    resources: Resources
    score: Score
    unseen: UnseenLevels

    @property
    def kept(self) -> dict[str, str]:
        """The columns of the source to copy, with their names in the output. From CSV, the text of cells is copied."""
        schema = self.source.schema
        return {text_name(name) if text_name(name) in schema else name: name for name in self.keep}

    def predicted(self, first: int = 0, stop: int | None = None) -> Iterator[pa.Table]:
        """Yield the kept columns and the predictions of the rows from `first` to before `stop`, batch by batch."""
        rule, loader, score = self.rule, self.forest.loader, self.score
        category = [] if rule.category is None else [rule.category]
        others = [*self.kept, *score.columns, *category]
        features = check_schema(self.source.schema, self.forest.spec)
        table = TableInput(self.forest.reader, self.source, features, rule, others)
        table.unseen = self.unseen
        passes = loader.passes(rule, table, self.resources)
        with_proba, workers = self.proba or score.active, self.resources.workers
        for batch, predictions in passes.predictions(proba=with_proba, workers=workers, first=first, stop=stop):
            score.add(batch, predictions)
            made = [
                prediction_table(predictions, self.forest.spec, rule, proba, batch)
                for proba in ((False, True) if self.proba else (False,))
            ]
            kept = batch.select(columns_named([place]).alias(name) for place, name in self.kept.items())
            kept = kept.cast({pl.Int128: pl.String, pl.UInt128: pl.String})  # types that Arrow lacks
            whole = pl.concat([kept, *made], how="horizontal")
            yield whole.to_arrow(compat_level=pl.CompatLevel.oldest())


def predict_range(job: _Job, folder: Path, begin: int, end: int) -> tuple[Path, Score, UnseenLevels]:
    """Task: write the predictions of rows `begin` to before `end` to an Arrow stream, in a new file for each attempt.

    Return the path, the score of these rows, and their unseen levels.
    """
    import pyarrow as pa

    job = replace(job, score=job.score.empty(), unseen=UnseenLevels(job.rule.unseen))
    path = folder / f"predictions-{secrets.token_hex(8)}.arrows"
    with write_atomically(path) as local, contextlib.ExitStack() as open_files:
        writer = None
        for table in job.predicted(begin, end):
            writer = writer or open_files.enter_context(pa.ipc.new_stream(str(local), table.schema))
            writer.write_table(table.combine_chunks())
    return path, job.score, job.unseen


def _predict_all(job: _Job, resources: Resources) -> Iterator[pa.Table]:
    """Yield the predictions of all rows, in order. On a cluster, workers predict ranges of a table that is in files."""
    import pyarrow as pa

    executor = resources.executor(1)  # a task uses all threads of its process
    if not executor.remote or not job.source.files or not job.source.rows:
        yield from job.predicted()
        return
    rows = job.source.rows
    # With a budget, trees may be loaded again for every range, so there are fewer ranges.
    ranges = executor.processes * (_RANGES if resources.memory is None else 1)
    step = max(-(-rows // ranges), _FEWEST_ROWS)
    with TemporaryFolder(resources.scratch) as folder:
        for path, of_range, unseen in executor.map(predict_range, row_ranges(rows, step), (job, folder)):
            with downloads([path]) as [local], pa.OSFile(str(local)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield pa.Table.from_batches([batch])
            path.unlink()
            job.score.join(of_range)
            job.unseen.join(unseen)
