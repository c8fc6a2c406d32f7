"""The files of the out-of-bag report, written while the rows are judged.

For the area under the ROC curve, rows.parquet is read again where there are too many different scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.files import open_parquet, write_table, write_tables
from bigforest.forest.table import CURVE, METRICS, confusion, metrics, oob_rows
from bigforest.forest.votes import proba_names, stored_labels
from bigforest.metrics import Area, ClassMetrics, Metrics, Scores
from bigforest.oob.plan import most_scores
from bigforest.oob.tally import Tally
from bigforest.sample import BLOCK_ROWS
from bigforest.store.store import Store


def write_report(
    store: Store,
    config: TrainConfig,
    directory: Path,
    pieces: Iterator[tuple[int, Tally]],
    changes: NDArray[np.int64],
) -> None:
    """Write the four files.

    pieces   first row and tally of each row group of rows.parquet.
    changes  is complete when `pieces` has ended.
    """
    spec = store.spec
    known = stored_labels(spec)
    schema = oob_rows(known.type, proba_names(spec))
    pairs = _Pairs(len(known))
    found = Metrics(len(known), most_scores(store.rows))

    def tables() -> Iterator[pa.Table]:
        for first, piece in pieces:
            truth = store.target[first : first + piece.voters.size]
            used = piece.voters > 0
            pairs.add(truth[used], piece.prediction[used])
            table = _rows(store, piece, known, schema, first)
            proba = np.column_stack([column.to_numpy()[used] for column in table.columns[-len(known) :]])
            found.add(truth[used], piece.prediction[used], proba)
            yield table

    write_tables(schema, tables(), directory / "rows.parquet", "oob-rows", spec, config)
    wrong, reached = np.cumsum(changes, axis=1)
    error = np.divide(wrong, reached, out=np.full(wrong.size, np.nan), where=reached > 0)
    curve = {
        "trees": np.arange(1, wrong.size + 1, dtype=np.uint32),
        "error": pa.array(error, mask=reached == 0),
        "rows": reached.astype(np.uint64),
    }
    write_table(pa.table(curve, schema=CURVE), directory / "curve.parquet", "oob-curve", spec, config)
    write_table(pairs.table(known), directory / "confusion.parquet", "oob-confusion", spec, config)
    area = _area(found.scores, directory / "rows.parquet", store) if found.scores is not None else None
    table = _metrics_table(found.result_with(area) if found.rows else [], known)
    write_table(table, directory / "metrics.parquet", "oob-metrics", spec, config)


def _rows(store: Store, tally: Tally, known: pa.Array, schema: pa.Schema, first: int) -> pa.Table:
    """The rows of a tally, which begins with row `first`, as they are in oob/rows.parquet."""
    size = tally.voters.size
    piece = slice(first, first + size)
    unused = tally.voters == 0
    numbers = store.row_numbers
    shares = tally.votes / np.maximum(tally.voters, 1)[:, None]
    return pa.Table.from_arrays(
        [
            pa.array(np.arange(first, first + size, dtype=np.uint64) if numbers is None else numbers[piece]),
            known.take(pa.array(store.target[piece])),
            known.take(pa.array(tally.prediction, mask=unused)),
            pa.array(tally.voters),
            *(pa.array(shares[:, k], mask=unused) for k in range(shares.shape[1])),
        ],
        schema=schema,
    )


class _Pairs:
    """How many rows there are of each pair of true and predicted class."""

    def __init__(self, classes: int) -> None:
        self._classes = np.uint64(classes)
        self._found = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.uint64)

    def add(self, truth: NDArray[np.uint16], prediction: NDArray[np.uint16]) -> None:
        """Count rows."""
        pairs, rows = np.unique(truth.astype(np.uint64) * self._classes + prediction, return_counts=True)
        found, place = np.unique(np.concatenate([self._found, pairs]), return_inverse=True)
        total = np.zeros(found.size, np.uint64)
        np.add.at(total, place, np.concatenate([self._rows, rows.astype(np.uint64)]))
        self._found, self._rows = found, total

    def table(self, known: pa.Array) -> pa.Table:
        """The pairs that occur, ascending, with the labels `known` of the classes."""
        columns = {
            "truth": known.take(pa.array(self._found // self._classes)),
            "prediction": known.take(pa.array(self._found % self._classes)),
            "rows": self._rows,
        }
        return pa.table(columns, schema=confusion(known.type))


def _area(scores: Scores, path: Path, store: Store) -> float | None:
    """The area under the ROC curve: of the scores held and, where there are more, of those in rows.parquet."""
    area = Area().add(scores)
    while scores.limit is not None:
        scores = Scores(most_scores(store.rows), above=float(scores.values[-1]))
        first = 0
        with open_parquet(path) as file:
            name = file.schema_arrow.names[-1]
            for batch in file.iter_batches(BLOCK_ROWS, columns=[name], use_threads=False):
                shares = batch.column(0)
                truth = store.target[first : first + len(shares)]
                used = pc.is_valid(shares).to_numpy(zero_copy_only=False)
                scores.add(shares.to_numpy(zero_copy_only=False)[used], truth[used] == 1)
                first += len(shares)
        area.add(scores)
    return area.value


def _metrics_table(found: list[ClassMetrics], known: pa.Array) -> pa.Table:
    """One row per class and one for all, as in oob/metrics.parquet; without rows nothing but their number."""
    codes = [*range(len(known)), None]
    columns: dict[str, Any] = {"class": known.take(pa.array(codes, pa.int64()))}
    for name in ("rows", "predicted"):
        columns[name] = [getattr(one, name) for one in found] or [0] * len(codes)
    for name in METRICS:
        columns[name] = [getattr(one, name) for one in found] or [None] * len(codes)
    return pa.table(columns, schema=metrics(known.type))
