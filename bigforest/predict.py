"""Predictions for tables in memory, lazy queries and files: rows in, rows out, in order."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, Stage, silent, stage
from bigforest.forest.files import METADATA_KEY, VERSION, file_kind
from bigforest.forest.values import check_schema, frame_rows, matrix_rows
from bigforest.forest.votes import label_codes, label_type, labels, proba_names
from bigforest.output import staged
from bigforest.resources import Resources

if TYPE_CHECKING:
    from bigforest.forest.forest import Forest
    from bigforest.forest.voting import Answers, Voting
    from bigforest.source import Source

PREDICTION = "prediction"
KIND = "predictions"

# Cells read from a file at a time; with the predictions of a few classes about 200 MB at the widest type.
_BATCH_CELLS = 1 << 23
_BATCH_ROWS = 1 << 17


def predict(
    forest: Forest,
    data: Any,
    *,
    vote: str | None,
    ties: str,
    keep: Sequence[str],
    threads: int | None,
    proba: bool,
) -> Any:
    """`Forest.predict` and, with `proba`, `Forest.predict_proba`."""
    workers = Resources(threads=threads).workers
    keep = [keep] if isinstance(keep, str) else list(keep)
    if isinstance(data, pl.LazyFrame):
        return _predict_lazy(forest, data, vote, ties, keep, proba)
    if isinstance(data, np.ndarray):
        if keep:
            raise ConfigError("an array has no columns to keep; drop keep or give a table")
        voting = forest.voting(vote, ties)
        rows = matrix_rows(data, forest.spec, voting.packed.used)
        answers = voting.answer(rows, 0, proba=proba, workers=workers)
        return answers.proba if proba else labels(answers.codes, forest.spec).to_numpy()
    if isinstance(data, pl.DataFrame):
        return _predict_frame(forest, data, vote, ties, keep, proba, workers)
    package = type(data).__module__.partition(".")[0]
    if package == "pandas":
        from bigforest.source.memory import frame_from_pandas

        answer = _predict_frame(forest, frame_from_pandas(data), vote, ties, keep, proba, workers).to_pandas()
        answer.index = data.index
        return answer
    if package == "pyarrow" and hasattr(data, "schema"):
        from bigforest.source.memory import frame_from_arrow

        return _predict_frame(forest, frame_from_arrow(data), vote, ties, keep, proba, workers).to_arrow()
    raise DataError(
        f"cannot predict for a {type(data).__name__}; give a DataFrame or LazyFrame, a pandas DataFrame, "
        "a pyarrow Table or a numpy array, or use predict_file for files"
    )


def expression(forest: Forest, *, proba: bool, vote: str | None, ties: str, row: str | None) -> pl.Expr:
    """`Forest.expr`."""
    voting = forest.voting(vote, ties)
    if voting.rule.draws and row is None and not proba:
        raise ConfigError(
            "random answers are keyed by the number of the row: name a column that holds it "
            "(see with_row_index), or use Forest.predict"
        )
    spec = forest.spec
    names = [spec.features[int(place)].name for place in voting.packed.used]
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


def _predict_frame(
    forest: Forest,
    frame: pl.DataFrame,
    vote: str | None,
    ties: str,
    keep: list[str],
    proba: bool,
    workers: int,
) -> pl.DataFrame:
    voting = forest.voting(vote, ties)
    check_schema(frame.schema, forest.spec)
    _check_kept(keep, frame.columns, _names(forest.spec, proba))
    rows = frame_rows(frame, forest.spec, voting.packed.used)
    answers = voting.answer(rows, 0, proba=proba, workers=workers)
    return pl.concat([frame.select(keep), _table(answers, forest.spec, proba)], how="horizontal")


def _predict_lazy(
    forest: Forest, frame: pl.LazyFrame, vote: str | None, ties: str, keep: list[str], proba: bool
) -> pl.LazyFrame:
    schema = frame.collect_schema()
    check_schema(schema, forest.spec)
    _check_kept(keep, list(schema), _names(forest.spec, proba))
    row = None
    if forest.voting(vote, ties).rule.draws and not proba:
        row = "row"
        while row in schema:
            row += "_"
        frame = frame.with_row_index(row)
    answer = expression(forest, proba=proba, vote=vote, ties=ties, row=row)
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
    """What `predict_file` did. accuracy and log_loss are None when there are no labels, or unknown ones.

    rows      rows written.
    scored    rows that have a label.
    accuracy  share of these whose prediction is their label; a rejected row counts as wrong.
    log_loss  mean of -ln p(label), p clipped to [eps, 1 - eps] of float64 as in scikit-learn.
    """

    rows: int
    scored: int
    accuracy: float | None
    log_loss: float | None


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
    complete.

    Raises ConfigError, DataError, FormatError, and OutputExistsError when `out` exists and `overwrite` is
    off.
    """
    import pyarrow.parquet as pq

    workers = (resources or Resources()).workers
    keep = [keep] if isinstance(keep, str) else list(keep)
    voting = forest.voting(vote, ties)
    check_schema(source.schema, forest.spec)
    _check_kept(keep, list(source.schema), _names(forest.spec, proba, both=True))
    score = _Score(forest.spec, forest.spec.target.name in source.schema)
    mark = {METADATA_KEY: json.dumps({"version": VERSION, "kind": KIND})}
    with (
        staged(out, overwrite=overwrite, kind="prediction", is_ours=is_prediction) as made,
        stage("predict", source.rows, "rows", listener) as progress,
    ):
        writer = None
        try:
            for frame in _answered_batches(voting, source, keep, proba, workers, score, progress):
                table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
                writer = writer or pq.ParquetWriter(
                    made, table.schema.with_metadata(mark), compression="zstd", compression_level=1
                )
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
    return score.result(source.rows)


def _answered_batches(
    voting: Voting,
    source: Source,
    keep: list[str],
    proba: bool,
    workers: int,
    score: _Score,
    progress: Stage,
) -> Iterator[pl.DataFrame]:
    spec = voting.spec
    wanted = [spec.features[int(place)].name for place in voting.packed.used]
    target = [spec.target.name] if score.active else []
    columns = list(dict.fromkeys([*wanted, *keep, *target]))
    rows = max(1, min(_BATCH_ROWS, _BATCH_CELLS // len(columns)))
    done = 0
    for batch in source.batches(columns, rows):
        try:
            values = frame_rows(batch, spec, voting.packed.used)
            answers = voting.answer(values, done, proba=proba or score.active, workers=workers)
        except DataError as error:
            raise DataError(f"rows {done} to {done + batch.height - 1}: {error}") from error
        if score.active:
            score.add(batch.get_column(spec.target.name), answers)
        parts = [batch.select(keep), labels(answers.codes, spec).to_frame()]
        yield pl.concat(parts + ([_table(answers, spec, True)] if proba else []), how="horizontal")
        done += batch.height
        progress.advance(batch.height)


class _Score:
    """Accuracy and log loss, counted while batches pass; off as soon as a label is none of the classes."""

    def __init__(self, spec: DataSpec, active: bool) -> None:
        self.active = active
        self._spec = spec
        self._rows = 0
        self._right = 0
        self._losses: list[float] = []

    def add(self, truth: pl.Series, answers: Answers) -> None:
        codes = label_codes(truth, self._spec)
        if codes is None:
            self.active = False
            return
        assert answers.proba is not None
        rows: NDArray[Any] = np.flatnonzero(codes >= 0)
        epsilon = np.finfo(np.float64).eps
        given = answers.proba[rows, codes[rows]].clip(epsilon, 1 - epsilon)
        self._rows += rows.size
        self._right += int(np.count_nonzero(answers.codes[rows] == codes[rows]))
        self._losses.append(float(-np.log(given).sum()))

    def result(self, rows: int) -> FilePrediction:
        if not self.active or self._rows == 0:
            return FilePrediction(rows, 0, None, None)
        return FilePrediction(rows, self._rows, self._right / self._rows, math.fsum(self._losses) / self._rows)
