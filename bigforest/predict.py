"""Predictions for tables in memory, lazy queries and files: rows in, rows out, in order."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec, Label
from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, silent, stage
from bigforest.forest.files import METADATA_KEY, VERSION, file_kind
from bigforest.forest.passes import Passes, located
from bigforest.forest.values import Rows, check_schema, feature_leaves, frame_rows, matrix_rows
from bigforest.forest.votes import label_codes, label_type, labels, proba_names
from bigforest.forest.voting import Answers
from bigforest.memory import Shape
from bigforest.metrics import ClassMetrics, Metrics
from bigforest.output import TemporaryFolder, staged
from bigforest.places import inbox, made
from bigforest.resources import Resources
from bigforest.sizes import parse_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from bigforest.forest.forest import Forest
    from bigforest.source import Source

# Ranges of rows for each process of a cluster, and the fewest rows of one.
_RANGES = 4
_FEWEST_ROWS = 4_096

PREDICTION = "prediction"
KIND = "predictions"

# Bytes of a value in memory; those of other types are guessed.
_WIDTHS: dict[type[pl.DataType], int] = {
    **dict.fromkeys([pl.Boolean, pl.Int8, pl.UInt8], 1),
    **dict.fromkeys([pl.Int16, pl.UInt16, pl.Float16], 2),
    **dict.fromkeys([pl.Int32, pl.UInt32, pl.Float32, pl.Date, pl.Categorical, pl.Enum], 4),
    **dict.fromkeys([pl.Int64, pl.UInt64, pl.Float64, pl.Datetime, pl.Duration, pl.Time], 8),
    **dict.fromkeys([pl.Int128, pl.UInt128, pl.Decimal], 16),
}
# Types whose values are all float32.
_NARROW = {pl.Boolean, pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.Float16, pl.Float32}


def predict(
    forest: Forest,
    data: Any,
    *,
    vote: str | None,
    ties: str,
    keep: Sequence[str],
    threads: int | None,
    memory: int | str | None,
    proba: bool,
) -> Any:
    """`Forest.predict` and, with `proba`, `Forest.predict_proba`."""
    resources = Resources(threads=threads, memory=None if memory is None else parse_bytes(memory))
    keep = [keep] if isinstance(keep, str) else list(keep)
    if isinstance(data, pl.LazyFrame):
        return _predict_lazy(forest, data, vote, ties, keep, proba, resources)
    if isinstance(data, np.ndarray):
        if keep:
            raise ConfigError("an array has no columns to keep; drop keep or give a table")
        return _predict_matrix(forest, data, vote, ties, proba, resources)
    if isinstance(data, pl.DataFrame):
        return _predict_frame(forest, data, vote, ties, keep, proba, resources)
    package = type(data).__module__.partition(".")[0]
    if package == "pandas":
        from bigforest.source.memory import frame_from_pandas

        answer = _predict_frame(forest, frame_from_pandas(data), vote, ties, keep, proba, resources).to_pandas()
        answer.index = data.index
        return answer
    if package == "pyarrow" and hasattr(data, "schema"):
        from bigforest.source.memory import frame_from_arrow

        return _predict_frame(forest, frame_from_arrow(data), vote, ties, keep, proba, resources).to_arrow()
    raise DataError(
        f"cannot predict for a {type(data).__name__}; give a DataFrame or LazyFrame, a pandas DataFrame, "
        "a pyarrow Table or a numpy array, or use predict_file for files"
    )


def expression(
    forest: Forest,
    *,
    proba: bool,
    vote: str | None,
    ties: str,
    row: str | None,
    schema: Mapping[str, pl.DataType] | None = None,
) -> pl.Expr:
    """`Forest.expr`; with the schema of the query, features that were nested in training may be columns there."""
    voting = forest.voting(vote, ties)
    if voting.rule.draws and row is None and not proba:
        raise ConfigError(
            "random answers are keyed by the number of the row: name a column that holds it "
            "(see with_row_index), or use Forest.predict"
        )
    spec = forest.spec
    if schema is None:
        used = [spec.features[int(place)] for place in voting.packed.used]
        names = list(dict.fromkeys(feature.column or feature.name for feature in used))
    else:
        names = _read_columns(schema, spec, voting.packed.used)
    numbers = "row"
    while numbers in names:
        numbers += "_"
    fields = [pl.col(name) for name in names]
    if row is not None:
        fields.append(pl.col(row).alias(numbers))

    def answer(rows: pl.Series) -> pl.Series:
        frame = rows.struct.unnest()
        check_schema(frame.schema, spec, voting.packed.used)
        found = frame_rows(frame, spec, voting.packed.used)
        given = 0 if row is None else frame[numbers].cast(pl.UInt64).to_numpy()
        answers = voting.answer(found, given, proba=proba)
        return _table(answers, spec, proba).to_struct() if proba else labels(answers.codes, spec)

    dtype = pl.Struct(dict.fromkeys(proba_names(spec), pl.Float64())) if proba else label_type(spec)
    struct = pl.struct(fields).map_batches(answer, return_dtype=dtype, is_elementwise=True)
    return struct.alias("probabilities" if proba else PREDICTION)


def _predict_matrix(
    forest: Forest, matrix: NDArray[Any], vote: str | None, ties: str, proba: bool, resources: Resources
) -> Any:
    spec = forest.spec
    rows = matrix_rows(matrix, spec, np.arange(len(spec.features)))

    def shape(used: NDArray[np.int64]) -> Shape:
        return Shape(rows.rows, (8,) * used.size, 0, len(spec.target.classes))

    passes = forest.passes(vote, ties, shape, resources, matrix.nbytes, rows.narrow)

    def batches(begin: int, end: int, last: bool) -> Iterator[tuple[int, Rows, None]]:
        step = passes.batch if resources.memory is not None else max(1, end)
        for start in range(begin, end, step):
            yield start, matrix_rows(matrix[start : min(start + step, end)], spec, passes.used), None

    found = [answers for _, answers in passes.answers(rows.rows, batches, proba=proba, workers=resources.workers)]
    if proba:
        shares = [answers.proba for answers in found if answers.proba is not None]
        return np.concatenate([np.empty((0, len(spec.target.classes))), *shares]) if len(shares) != 1 else shares[0]
    codes = np.concatenate([np.empty(0, np.int32), *(answers.codes for answers in found)])
    return labels(codes, spec).to_numpy()


def _predict_frame(
    forest: Forest,
    frame: pl.DataFrame,
    vote: str | None,
    ties: str,
    keep: list[str],
    proba: bool,
    resources: Resources,
) -> pl.DataFrame:
    spec = forest.spec
    check_schema(frame.schema, spec)
    _check_kept(keep, frame.columns, _names(spec, proba))
    passes = forest.passes(
        vote,
        ties,
        lambda used: _shape(frame.schema, _read_columns(frame.schema, spec, used), frame.height, spec),
        resources,
        int(frame.estimated_size()),
        _all_narrow(frame.schema, spec),
    )

    def batches(begin: int, end: int, last: bool) -> Iterator[tuple[int, Rows, None]]:
        step = passes.batch if resources.memory is not None else max(1, end)
        for start in range(begin, end, step):
            yield start, frame_rows(frame.slice(start, min(step, end - start)), spec, passes.used), None

    made = [
        _table(answers, spec, proba)
        for _, answers in passes.answers(frame.height, batches, proba=proba, workers=resources.workers)
    ]
    if not made:
        made = [_table(Answers(np.empty(0, np.int32), np.empty((0, len(spec.target.classes)))), spec, proba)]
    return pl.concat([frame.select(keep), pl.concat(made)], how="horizontal")


def _shape(schema: Mapping[str, pl.DataType], columns: Iterable[str], rows: int, spec: DataSpec) -> Shape:
    """What reading these columns takes."""
    return Shape(rows, tuple(_width(schema[name]) for name in columns), 0, len(spec.target.classes))


def _width(dtype: Any) -> int:
    """Bytes of a value in memory."""
    if isinstance(dtype, pl.Struct):
        return sum(_width(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.Array):
        return dtype.size * _width(dtype.inner)
    return _WIDTHS.get(dtype.base_type(), 64)


def _read_columns(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int]) -> list[str]:
    """The columns that have the features `used`."""
    return list(dict.fromkeys(leaf.column for leaf in feature_leaves(schema, spec, used).values()))


def _all_narrow(schema: Mapping[str, pl.DataType], spec: DataSpec) -> bool:
    """Whether all values are float32 by their types."""
    found = feature_leaves(schema, spec, range(len(spec.features)))
    return all(leaf.dtype.base_type() in _NARROW for leaf in found.values())


def _predict_lazy(
    forest: Forest,
    frame: pl.LazyFrame,
    vote: str | None,
    ties: str,
    keep: list[str],
    proba: bool,
    resources: Resources,
) -> pl.LazyFrame:
    schema = frame.collect_schema()
    check_schema(schema, forest.spec)
    _check_kept(keep, list(schema), _names(forest.spec, proba))
    row = None
    forest.voting(vote, ties, resources.memory, resources.workers)
    if forest.rule(vote, ties).draws and not proba:
        row = "row"
        while row in schema:
            row += "_"
        frame = frame.with_row_index(row)
    answer = expression(forest, proba=proba, vote=vote, ties=ties, row=row, schema=schema)
    answered = frame.select(*keep, answer)
    return answered.unnest("probabilities") if proba else answered


def _names(spec: DataSpec, proba: bool, both: bool = False) -> list[str]:
    return [*([PREDICTION] if both or not proba else []), *(proba_names(spec) if proba else [])]


def _table(answers: Answers, spec: DataSpec, proba: bool) -> pl.DataFrame:
    if not proba:
        return labels(answers.codes, spec).to_frame()
    assert answers.proba is not None
    return pl.DataFrame({name: answers.proba[:, k] for k, name in enumerate(proba_names(spec))})


def _check_kept(keep: list[str], present: Sequence[str], made: list[str]) -> None:
    for name in keep:
        if name not in present:
            raise DataError(f"the data has no column {name!r} to keep; its columns are {', '.join(present[:20])}")
        if name in made:
            raise ConfigError(f"the kept column {name!r} has the name of a prediction column; rename or drop it")
    if len(set(keep)) < len(keep):
        raise ConfigError(f"a column is kept twice: {', '.join(keep)}")


@dataclass(frozen=True, slots=True)
class FilePrediction:
    """What `predict_file` did. accuracy and log_loss are None, and metrics empty, without labels or with unknown ones.

    rows      rows written.
    scored    rows that have a label.
    accuracy  share of these whose prediction is their label; a rejected row counts as wrong.
    log_loss  mean of -ln p(label), p clipped to [eps, 1 - eps] of float64 as in scikit-learn.
    metrics   of each class and, last, of all, as `forest.oob.metrics`. The area under the ROC curve is None when rows
              have more than 262,144 different probabilities.
    """

    rows: int
    scored: int
    accuracy: float | None
    log_loss: float | None
    metrics: tuple[dict[str, Any], ...]


def is_prediction(path: Path) -> bool:
    """Whether `path` is a file that `predict_file` wrote."""
    return file_kind(path) == KIND


def predict_file(
    forest: Forest,
    source: Source,
    out: str | Path,
    *,
    proba: bool = False,
    keep: Sequence[str] = (),
    vote: str | None = None,
    ties: str = "lowest",
    resources: Resources | None = None,
    listener: Listener = silent,
    overwrite: bool = False,
) -> FilePrediction:
    """Stream the rows of `source` into predictions in the Parquet file `out`, in order, in bounded memory.

    Columns of the file: those of `keep`, then prediction, then with `proba` p_<class>. Its metadata has,
    under the key "bigforest", the JSON object {"kind": "predictions", "version": 1}. Options as in
    `Forest.predict`; draws are keyed by the number of the row in the source. The file appears when it is
    complete. With a memory limit, trees that do not fit are loaded a group at a time (see forest/passes.py).

    Raises ConfigError, DataError, FormatError, and OutputExistsError when `out` exists and `overwrite` is
    off.
    """
    import pyarrow.parquet as pq

    resources = resources or Resources()
    spec = forest.spec
    keep = [keep] if isinstance(keep, str) else list(keep)
    check_schema(source.schema, spec)
    _check_kept(keep, list(source.schema), _names(spec, proba, both=True))
    score = _Score(spec, spec.target.name in source.schema)
    forest.rule(vote, ties)
    job = _Job(forest, source, tuple(keep), proba, vote, ties, replace(resources, cluster=None))
    mark = {METADATA_KEY: json.dumps({"version": VERSION, "kind": KIND})}
    with (
        staged(out, overwrite=overwrite, kind="prediction", is_ours=is_prediction) as answers,
        stage("predict", source.rows, "rows", listener) as progress,
    ):
        writer = None
        try:
            for answered in _everywhere(job, score, resources):
                writer = writer or pq.ParquetWriter(
                    answers, answered.schema.with_metadata(mark), compression="zstd", compression_level=1
                )
                writer.write_table(answered)
                progress.advance(answered.num_rows)
        finally:
            if writer is not None:
                writer.close()
    return score.result(source.rows)


@dataclass(frozen=True, slots=True)
class _Job:
    """The arguments of `predict_file` for one process."""

    forest: Forest
    source: Source
    keep: tuple[str, ...]
    proba: bool
    vote: str | None
    ties: str
    resources: Resources

    def answered(self, score: _Score, begin: int = 0, end: int | None = None) -> Iterator[pa.Table]:
        """The columns to keep and the answers to the rows from `begin` to before `end`, in order, batch by batch."""
        spec = self.forest.spec
        table = _Table(self.source, spec, list(self.keep), score)
        narrow = _all_narrow(self.source.schema, spec)
        passes = self.forest.passes(self.vote, self.ties, table.shape, self.resources, 0, narrow)
        end = self.source.rows if end is None else end
        for frame in table.answered(passes, self.proba, self.resources.workers, begin, end):
            yield frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def predict_range(job: _Job, folder: Path, begin: int, end: int) -> tuple[Path, Metrics | None]:
    """Task: write the answers to some rows to a file of this attempt, an Arrow stream; what they add to the metrics."""
    import pyarrow as pa

    score = _Score(job.forest.spec, job.forest.spec.target.name in job.source.schema)
    path = folder / f"answers-{secrets.token_hex(8)}.arrows"
    with made(path) as here, contextlib.ExitStack() as open_files:
        writer = None
        for table in job.answered(score, begin, end):
            writer = writer or open_files.enter_context(pa.ipc.new_stream(str(here), table.schema))
            writer.write_table(table.combine_chunks())
    return path, score.counted


def _everywhere(job: _Job, score: _Score, resources: Resources) -> Iterator[pa.Table]:
    """The answers to all rows, in order; on a cluster, where they are in files, each process answers some ranges."""
    import pyarrow as pa

    crew = resources.crew(1)  # a task uses all threads of its process
    if not crew.remote or not job.source.files:
        yield from job.answered(score)
        return
    rows = job.source.rows
    # With a budget trees may be loaded for every range.
    ranges = crew.processes * (_RANGES if resources.memory is None else 1)
    step = max(-(-rows // ranges), _FEWEST_ROWS)
    own = [(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
    with TemporaryFolder(resources.scratch) as folder:
        for path, counted in crew.map(predict_range, own, (job, folder)):
            with inbox([path]) as [here], pa.OSFile(str(here)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield pa.Table.from_batches([batch])
            path.unlink()
            score.join(counted)


class _Table:
    """A source of rows, answered batch by batch."""

    def __init__(self, source: Source, spec: DataSpec, keep: list[str], score: _Score) -> None:
        self._source = source
        self._spec = spec
        self._keep = keep
        self._score = score

    def shape(self, used: NDArray[np.int64]) -> Shape:
        """What reading the table takes for these features."""
        return _shape(self._source.schema, self._columns(used, True), self._source.rows, self._spec)

    def answered(self, passes: Passes, proba: bool, workers: int, first: int, stop: int) -> Iterator[pl.DataFrame]:
        """The columns to keep and the answers to the rows from `first` to before `stop`, in order."""

        def batches(begin: int, end: int, last: bool) -> Iterator[tuple[int, Rows, pl.DataFrame]]:
            part = replace(self._source, rows=end - begin, frame=self._source.frame.slice(begin, end - begin))
            for batch in part.batches(self._columns(passes.used, last), passes.batch):
                yield begin, self._rows(begin, batch, passes.used), batch
                begin += batch.height

        wanted = proba or self._score.active
        for batch, answers in passes.answers(stop, batches, proba=wanted, workers=workers, first=first):
            if self._score.active:
                self._score.add(batch.get_column(self._spec.target.name), answers)
            parts = [batch.select(self._keep), labels(answers.codes, self._spec).to_frame()]
            yield pl.concat(parts + ([_table(answers, self._spec, True)] if proba else []), how="horizontal")

    def _columns(self, used: NDArray[np.int64], last: bool) -> list[str]:
        """Columns to read before the last group of trees, or for it."""
        features = _read_columns(self._source.schema, self._spec, used)
        target = [self._spec.target.name] if self._score.active else []
        return list(dict.fromkeys([*features, *(self._keep + target if last else [])]))

    def _rows(self, start: int, batch: pl.DataFrame, used: NDArray[np.int64]) -> Rows:
        try:
            return frame_rows(batch, self._spec, used)
        except DataError as error:
            raise located(error, start, batch.height) from error


class _Score:
    """The metrics, counted while batches pass; off as soon as a label is none of the classes."""

    def __init__(self, spec: DataSpec, active: bool) -> None:
        self.active = active
        self._spec = spec
        self._metrics = Metrics(len(spec.target.classes))

    def add(self, truth: pl.Series, answers: Answers) -> None:
        codes = label_codes(truth, self._spec)
        if codes is None:
            self.active = False
            return
        assert answers.proba is not None
        rows: NDArray[Any] = np.flatnonzero(codes >= 0)
        self._metrics.add(codes[rows], answers.codes[rows], answers.proba[rows])

    @property
    def counted(self) -> Metrics | None:
        """What has been counted, for `join`; None when off."""
        return self._metrics if self.active else None

    def join(self, counted: Metrics | None) -> None:
        """Add what was counted elsewhere."""
        if counted is None:
            self.active = False
        else:
            self._metrics.join(counted)

    def result(self, rows: int) -> FilePrediction:
        found = self._metrics.result() if self.active else []
        if not found:
            return FilePrediction(rows, 0, None, None, ())
        scored, classes = self._metrics.rows, self._spec.target.classes
        return FilePrediction(
            rows, scored, self._metrics.right / scored, found[-1].log_loss, tuple(_facts(one, classes) for one in found)
        )


def _facts(found: ClassMetrics, classes: tuple[Label, ...]) -> dict[str, Any]:
    """The metrics by the names of the columns of `forest.oob.metrics`."""
    values = asdict(found)
    code = values.pop("code")
    return {"class": None if code is None else classes[code], **values}
