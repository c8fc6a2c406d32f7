"""Every entry takes every kind of table, with the same answers; `REFUSED` lists the cells that are refused."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc
import pytest
import scipy.sparse
from typer.testing import CliRunner

import bigforest as bf
from bigforest.sklearn import BigForestClassifier
from cli.app import app

ROWS = 60
Table = Callable[[pl.DataFrame, Path], Any]


class Stream:
    """An object that exports an Arrow stream and nothing else, as a DuckDB relation does."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def derived(frame: pl.DataFrame) -> Any:
    """The frame in a class derived from that of pandas, as GeoDataFrame is, with an index whose name is no column."""
    import pandas as pd

    class Derived(pd.DataFrame):  # type: ignore[misc]
        @property
        def _constructor(self) -> type:
            return Derived

    return Derived(frame.to_pandas()).set_axis(pd.Index(range(100, 100 + frame.height), name="place"))


def relation(frame: pl.DataFrame) -> Any:
    """The frame as a DuckDB relation, or as another stream where DuckDB is not installed."""
    try:
        import duckdb
    except ImportError:
        return Stream(frame)
    return duckdb.from_arrow(frame.to_arrow())


def file_of(name: str, write: Callable[[pl.DataFrame, Path], Any]) -> Table:
    def make(frame: pl.DataFrame, folder: Path) -> Path:
        place = folder / name
        if not place.exists():
            write(frame, place)
        return place

    return make


def hive(frame: pl.DataFrame, place: Path) -> None:
    """Folders named by the column of text. The rows stay in their order, as it is that of the text."""
    for (key,), part in frame.group_by("txt", maintain_order=True):
        (place / f"txt={key}").mkdir(parents=True)
        part.drop("txt").write_parquet(place / f"txt={key}" / "0.parquet")


def parts(frame: pl.DataFrame, place: Path) -> None:
    """A folder whose parts have other types, as pandas writes them."""
    place.mkdir()
    frame.head(20).with_columns(pl.col("whole").cast(pl.Float64)).write_parquet(place / "0.parquet")
    frame.slice(20).with_columns(pl.col("txt").cast(pl.Categorical)).write_parquet(place / "1.parquet")


def stream_file(frame: pl.DataFrame, place: Path) -> None:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pa.ipc.new_stream(str(place), table.schema) as writer:
        writer.write_table(table)


def as_arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


FILES: dict[str, Table] = {
    "Parquet": file_of("t.parquet", lambda frame, place: frame.write_parquet(place)),
    "Parquet folder": file_of("parts", parts),
    "hive": file_of("hive", hive),
    "Arrow": file_of("t.arrow", lambda frame, place: frame.write_ipc(place)),
    "Arrow stream": file_of("stream.arrow", stream_file),
    "CSV": file_of("t.csv", lambda frame, place: frame.write_csv(place)),
    "CSV, gz": file_of("t.csv.gz", lambda frame, place: place.write_bytes(gzip.compress(frame.write_csv().encode()))),
    "NDJSON": file_of("t.ndjson", lambda frame, place: frame.write_ndjson(place)),
}
IN_MEMORY: dict[str, Table] = {
    "Polars": lambda frame, _: frame,
    "Polars, lazy": lambda frame, _: frame.lazy(),
    "pandas": lambda frame, _: frame.to_pandas(),
    "pandas, derived": lambda frame, _: derived(frame),
    "pandas, nullable": lambda frame, _: frame.to_pandas().convert_dtypes(),
    "pandas, objects": lambda frame, _: frame.to_pandas().astype(object),
    "pandas, pyarrow": lambda frame, _: frame.to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": lambda frame, _: as_arrow(frame),
    "RecordBatchReader": lambda frame, _: as_arrow(frame).to_reader(7),
    "record batches": lambda frame, _: as_arrow(frame).to_batches(7),
    "Dataset": lambda frame, _: ds.dataset(as_arrow(frame)),
    "DuckDB": lambda frame, _: relation(frame),
    "mapping": lambda frame, _: {name: frame[name].to_list() for name in frame.columns},
    "rows": lambda frame, _: frame.to_dicts(),
    "structured array": lambda frame, _: frame.to_numpy(structured=True),
}
# Without names: the features of these are x0, x1, ..., and the target is beside them.
ARRAYS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "array": lambda frame: frame.to_numpy(),
    "objects": lambda frame: frame.to_numpy().astype(object),
    "list": lambda frame: frame.to_numpy().tolist(),
    "sparse": lambda frame: scipy.sparse.csr_array(frame.to_numpy()),
    "sparse, coo": lambda frame: scipy.sparse.coo_matrix(frame.to_numpy()),
}


class Case(NamedTuple):
    """A table with names, a forest of it, and the folder of both.

    new     returns a path in the folder that does not exist.
    models  estimators fitted on the frame and on an array.
    """

    frame: pl.DataFrame
    forest: bf.Forest
    folder: Path
    new: Callable[[], Path]
    models: list[Any]

    def model(self, arrays: bool) -> Any:
        if not self.models:
            X, y = self.frame.drop("y"), self.frame["y"].to_numpy()
            given = [X, X.to_numpy()] if all(dtype.is_numeric() for dtype in X.dtypes) else [X]
            self.models.extend(BigForestClassifier(n_estimators=2, random_state=1).fit(one, y) for one in given)
        return self.models[arrays]


def case_of(frame: pl.DataFrame, folder: Path) -> Case:
    frame.write_parquet(folder / "training.parquet")
    forest = bf.train(folder / "training.parquet", "y", trees=4, seed=1, out=folder / "forest")
    number = itertools.count()
    return Case(frame, forest, folder, lambda: folder / f"out{next(number)}", [])


def probabilities(forest: bf.Forest, case: Case) -> list[float]:
    return column(forest.predict_proba(case.frame), "p_1")


def column(answer: Any, name: str) -> list[Any]:
    """A column of predictions of any kind, or an array of them."""
    if isinstance(answer, np.ndarray):
        return list(answer[:, 1] if answer.ndim > 1 else answer)
    answer = answer.collect() if isinstance(answer, pl.LazyFrame) else answer
    return pl.Series(answer[name].to_pylist() if isinstance(answer, pa.Table) else answer[name]).to_list()


def train(data: Any, case: Case) -> Any:
    return probabilities(bf.train(data, "y", trees=2, seed=1), case)


def plan_training(data: Any, case: Case) -> Any:
    return bf.plan_training(data, "y", trees=2).rows


def encode_store(data: Any, case: Case) -> Any:
    spec = bf.encode_store(data, case.new(), target="y").spec
    return [(feature.name, feature.kind, feature.codes) for feature in spec.features], spec.target.classes


def compare(data: Any, case: Case) -> Any:
    candidates = {"one": {}, "two": {"mtry": 1}}
    return bf.compare(data, "y", candidates=candidates, options={"trees": 1, "seed": 1}).candidates["loss"].to_list()


def predict(data: Any, case: Case) -> Any:
    return column(case.forest.predict(data), "prediction")


def predict_proba(data: Any, case: Case) -> Any:
    return column(case.forest.predict_proba(data), "p_1")


def coverage_by(data: Any, case: Case) -> Any:
    return [
        list(one) for one in column(case.forest.predict(data, coverage=0.8, coverage_by=case.frame.columns[2]), "set")
    ]


def score(data: Any, case: Case) -> Any:
    return case.forest.score(data)


def apply(data: Any, case: Case) -> Any:
    return case.forest.apply(data).tolist()


def to_matrix(data: Any, case: Case) -> Any:
    return case.forest.to_matrix(data).tolist()


def predict_file(data: Any, case: Case) -> Any:
    out = case.new().with_suffix(".parquet")
    done = bf.predict_file(case.forest, data, out, proba=True)
    return pl.read_parquet(out).to_dicts(), done.accuracy, done.log_loss


def validate(data: Any, case: Case) -> Any:
    return bf.validate_forest(case.forest, data).to_dicts()


def explain(data: Any, case: Case) -> Any:
    return case.forest.explain(data, parts="permutation", new_rows=True, threads=1)["permutation"].to_dicts()


def calibrate(data: Any, case: Case) -> Any:
    return probabilities(bf.calibrate_forest(case.forest, data, case.new()), case)


def prune(data: Any, case: Case) -> Any:
    return probabilities(bf.prune_forest(case.forest, data, case.new()), case)


def estimator_fit(data: Any, case: Case) -> Any:
    model = BigForestClassifier(n_estimators=2, random_state=1).fit(data, case.frame["y"].to_numpy())
    features = case.frame.drop("y")
    return model.predict_proba(features if hasattr(model, "feature_names_in_") else features.to_numpy()).tolist()


def estimator_predict(data: Any, case: Case) -> Any:
    arrays = case.frame.columns[0] == "x0" and not isinstance(data, pl.DataFrame)
    return case.model(arrays).predict_proba(data).tolist()


def frame_namespace(data: Any, case: Case) -> Any:
    return probabilities(data.bigforest.train("y", trees=2, seed=1), case)


def command_line(data: Any, case: Case) -> Any:
    out = case.new()
    told = []
    for words in (
        ["train", data, "--target", "y", "--trees", "2", "--seed", "1", "--out", f"{out}.forest"],
        ["predict", f"{out}.forest", data, "--out", f"{out}.parquet"],
    ):
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert done.exit_code == 0, done.output
        told.append(json.loads(done.stdout))
    return told[0]["oob"], told[1]["accuracy"], pl.read_parquet(f"{out}.parquet").to_dicts()


Entry = Callable[[Any, Case], Any]
# With the target as a column, or beside an array.
LABELLED: tuple[Entry, ...] = (
    train, plan_training, encode_store, compare, predict_file, score, validate, calibrate, prune, explain,
)  # fmt: skip
# Without it.
UNLABELLED: tuple[Entry, ...] = (
    predict, predict_proba, coverage_by, apply, to_matrix, estimator_fit, estimator_predict,
)  # fmt: skip

PATH = "is a path; use predict_file for files, or give a table in memory"
# By entry: the kinds that it refuses, and in which words.
REFUSED: dict[str, tuple[Iterable[str], str]] = {
    entry.__name__: (FILES, PATH)
    for entry in (predict, predict_proba, coverage_by, score, apply, to_matrix, estimator_fit, estimator_predict)
}
REFUSED_ARRAYS = {"coverage_by": (ARRAYS, "an array has no column for coverage to go by")}


def check(entry: Entry, kind: str, data: Any, case: Case, expected: Any, refused: Any = REFUSED) -> None:
    """Compare an answer with that of the frame, unless the cell is refused."""
    kinds, words = refused.get(entry.__name__, ((), ""))
    if kind in kinds:
        with pytest.raises(bf.BigForestError, match=words):
            entry(data, case)
    else:
        assert entry(data, case) == expected, kind


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Case:
    x = [float(k * 37 % ROWS) for k in range(ROWS)]
    frame = pl.DataFrame(
        {
            "num": x,
            "whole": [k * 7 % 5 for k in range(ROWS)],
            "txt": ["abc"[k // 20] for k in range(ROWS)],
            "y": [int(one + 9 * (k // 20) > 40) for k, one in enumerate(x)],
        }
    )
    return case_of(frame, tmp_path_factory.mktemp("mixed"))


NAMED = (*LABELLED, *UNLABELLED, frame_namespace, command_line)
# Entries that take longest are tried with half of the kinds, the first or the second of each two, and with what can be
# read once only; with the other half in a thorough run.
HALF = {compare: 0, calibrate: 1, prune: 0, explain: 1}
SLOW = [pytest.param(entry, 1 - half, marks=pytest.mark.slow) for entry, half in HALF.items()]


@pytest.mark.parametrize(
    ("entry", "half"),
    [*((entry, HALF.get(entry)) for entry in NAMED), *SLOW],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_every_table__of_columns_with_names(entry: Entry, half: int | None, mixed: Case) -> None:
    labelled = entry not in UNLABELLED
    frame, folder = mixed.frame if labelled else mixed.frame.drop("y"), mixed.folder / f"labelled {labelled}"
    folder.mkdir(exist_ok=True)
    kinds = FILES if entry is command_line else FILES | IN_MEMORY
    kinds = {name: kinds[name] for name in ("Polars", "Polars, lazy")} if entry is frame_namespace else kinds
    expected = entry(kinds["Parquet" if entry is command_line else "Polars"](frame, folder), mixed)
    for number, (kind, make) in enumerate(kinds.items()):
        if half in (None, number % 2) or kind == "RecordBatchReader":
            check(entry, kind, make(frame, folder), mixed, expected)


@pytest.fixture(scope="module")
def plain(mixed: Case, tmp_path_factory: pytest.TempPathFactory) -> Case:
    frame = mixed.frame.select(
        x0="num", x1=pl.col("whole").cast(pl.Float64), x2=pl.col("num").cast(pl.Int64) % 3, y="y"
    )
    return case_of(frame, tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("entry", (*LABELLED, *UNLABELLED), ids=lambda entry: entry.__name__)
def test_every_table__of_numbers_without_names(entry: Entry, plain: Case) -> None:
    """An array has the answers of a frame whose columns are called x0, x1, ...; its target is beside it."""
    labelled = entry not in UNLABELLED
    expected = None if entry is coverage_by else entry(plain.frame if labelled else plain.frame.drop("y"), plain)
    for kind, make in ARRAYS.items():
        X = make(plain.frame.drop("y"))
        check(entry, kind, (X, plain.frame["y"].to_list()) if labelled else X, plain, expected, REFUSED_ARRAYS)
