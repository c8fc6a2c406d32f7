"""The files of the out-of-bag report, written while the rows are judged.

For the area under the ROC curve, rows.parquet is read again where there are too many different scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.forest.format.files import open_parquet, write_table, write_tables
from bigforest.forest.format.schema import (
    CURVE,
    METRICS,
    NUMBER_CURVE,
    NUMBER_METRICS,
    SPREAD,
    confusion,
    metrics,
    oob_rows,
)
from bigforest.forest.load.predictor import deviation
from bigforest.metrics.classes import Area, ClassMetrics, Metrics, Scores
from bigforest.metrics.numbers import NumberSums
from bigforest.oob.accumulator import OobAccumulator, error_unit, row_weights, true_values, weight_share
from bigforest.sampling.bags import BLOCK_ROWS
from bigforest.schema.config import TrainConfig
from bigforest.schema.labels import proba_names, stored_labels
from bigforest.store.store import Store

# Pairs of up to this many classes are counted, those of more are sorted.
_FEW = 256


def write_report(
    store: Store,
    config: TrainConfig,
    directory: Path,
    pieces: Iterator[tuple[int, OobAccumulator]],
    changes: NDArray[np.int64],
    scores: int,
) -> None:
    """Write the files.

    pieces   first row and tally of each row group of rows.parquet.
    changes  is complete when `pieces` has ended.
    scores   different scores held at a time.
    """
    spec = store.spec
    shares = proba_names(spec.target) if spec.target.classes else [SPREAD]
    schema = oob_rows(stored_labels(spec.target).type, shares)
    judged: _Classes | _Numbers = (
        _Numbers(store) if spec.target.task == "regression" else _Classes(store, config, scores)
    )

    def tables() -> Iterator[pa.Table]:
        for first, piece in pieces:
            yield pa.Table.from_arrays(_numbered(store, piece, first, *judged.add(piece, first)), schema=schema)

    rows = directory / "rows.parquet"
    write_tables(schema, tables(), rows, "oob-rows", spec, config)
    error, reached = error_curve(changes, store)
    curve = pa.Table.from_arrays(
        [
            pa.array(np.arange(1, error.size + 1, dtype=np.uint32)),
            pa.array(error, mask=reached == 0),
            pa.array(reached.astype(np.uint64)),
        ],
        schema=judged.curve,
    )
    write_table(curve, directory / "curve.parquet", "oob-curve", spec, config)
    for name, table in judged.tables(rows).items():
        write_table(table, directory / f"{name}.parquet", f"oob-{name}", spec, config)


def error_curve(changes: NDArray[np.int64], store: Store) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Error after each tree, nan while no row is out of bag, and how many rows are; arguments as in `write_report`."""
    change, reached, heard = np.cumsum(changes, axis=1)
    error = np.divide(change, heard, out=np.full(change.size, np.nan), where=reached > 0)
    if store.spec.target.task == "regression":
        unit = error_unit(store)
        error = error / weight_share(store) / unit / unit  # the square of the unit might overflow
    return error, reached


def _numbered(
    store: Store, accumulator: OobAccumulator, first: int, truth: Any, prediction: Any, shares: Sequence[Any]
) -> list[Any]:
    """The columns of oob/rows.parquet of a tally that begins with row `first`."""
    rows = slice(first, first + accumulator.voters.size)
    known = store.row_numbers
    numbers = np.arange(rows.start, rows.stop, dtype=np.uint64) if known is None else known[rows]
    return [pa.array(numbers), truth, prediction, pa.array(accumulator.voters), *shares]


class _Numbers:
    """The report for regression."""

    curve = NUMBER_CURVE

    def __init__(self, store: Store) -> None:
        self._store = store
        total = None if store.spec.weight is None else store.spec.weight.total
        self._sums = NumberSums(store.spec.target.offset, total)

    def add(self, accumulator: OobAccumulator, first: int) -> tuple[Any, Any, Sequence[Any]]:
        """Truth, prediction and spread of the rows of a tally that begins with row `first`; adds them up."""
        truth = true_values(self._store, first, first + accumulator.voters.size)
        used = accumulator.voters > 0
        mean = accumulator.votes[:, 0] / np.maximum(accumulator.voters, 1)
        weight = row_weights(self._store, first, first + used.size)
        self._sums.add(truth[used], mean[used], None if weight is None else weight[used])
        spread = deviation(accumulator.spread, accumulator.voters)
        return pa.array(truth), pa.array(mean, mask=~used), [pa.array(spread, mask=accumulator.voters < 2)]

    def tables(self, _: Path) -> dict[str, pa.Table]:
        """The other files, by name."""
        rows = self._sums.rows
        found = asdict(self._sums.result()) if rows else dict.fromkeys(("r2", "mse", "mae"))
        return {"metrics": pa.Table.from_pylist([{"rows": rows, **found}], schema=NUMBER_METRICS)}


class _Classes:
    """The report for classes."""

    curve = CURVE

    def __init__(self, store: Store, config: TrainConfig, scores: int) -> None:
        self._store = store
        self._most = scores
        self._weighted = config.weighs_trees
        self._known = stored_labels(store.spec.target)
        weight = store.spec.weight
        self._pairs = _Pairs(len(self._known), 1.0 if weight is None else weight.step)
        total = None if weight is None else weight.total
        self._metrics = Metrics(len(self._known), scores, total)

    def add(self, accumulator: OobAccumulator, first: int) -> tuple[Any, Any, Sequence[Any]]:
        """Truth, prediction and shares of the rows of a tally that begins with row `first`; counts them."""
        truth = self._store.labels(first, first + accumulator.voters.size)
        used = accumulator.voters > 0
        shares = self._shares(accumulator, used)
        weight = row_weights(self._store, first, first + used.size)
        weight = None if weight is None else weight[used]
        prediction = accumulator.prediction[:, 0]
        self._pairs.add(truth[used], prediction[used], weight)
        self._metrics.add(truth[used], prediction[used], shares[used], weight)
        return (
            self._known.take(pa.array(truth)),
            self._known.take(pa.array(prediction, mask=~used)),
            [pa.array(shares[:, k], mask=~used) for k in range(shares.shape[1])],
        )

    def _shares(self, accumulator: OobAccumulator, used: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The votes divided by the sum of the weights of the voters' votes, or their number."""
        votes = accumulator.votes
        if not self._weighted:
            found: NDArray[np.float64] = votes / np.maximum(accumulator.voters, 1)[:, None]
            return found
        return votes / np.where(used, votes.sum(axis=1), 1.0)[:, None]

    def tables(self, rows: Path) -> dict[str, pa.Table]:
        """The other files, by name; `rows` is the one of rows."""
        found = self._metrics
        area = _area(found.scores, self._most, rows, self._store) if found.scores is not None else None
        table = _metrics_table(found.result_with(area) if found.rows else [], self._known)
        return {"confusion": self._pairs.table(self._known), "metrics": table}


class _Pairs:
    """The number and weight of the rows of each pair of true and predicted class.

    step  factor of the weights.
    """

    def __init__(self, classes: int, step: float) -> None:
        self._classes = np.uint64(classes)
        self._step = step
        self._found = np.empty(0, np.uint64)
        self._sums = np.empty((2, 0), np.int64)  # rows, weights

    def add(self, truth: NDArray[np.uint16], prediction: NDArray[np.uint16], weight: NDArray[np.int64] | None) -> None:
        """Count rows."""
        pairs = truth.astype(np.uint64) * self._classes + prediction
        found = np.union1d(self._found, pairs if self._classes > _FEW else _present(pairs, int(self._classes)))
        total = np.zeros((2, found.size), np.int64)
        total[:, np.searchsorted(found, self._found)] = self._sums
        own = np.searchsorted(found, pairs)
        rows = np.bincount(own, minlength=found.size)
        total[0] += rows
        if weight is None:
            total[1] += rows
        else:
            np.add.at(total[1], own, weight)
        self._found, self._sums = found, total

    def table(self, known: pa.Array) -> pa.Table:
        """The pairs that occur, ascending, with the labels `known` of the classes."""
        columns = {
            "truth": known.take(pa.array(self._found // self._classes)),
            "prediction": known.take(pa.array(self._found % self._classes)),
            "rows": self._sums[0].astype(np.uint64),
            "weight": self._sums[1] * self._step,
        }
        return pa.table(columns, schema=confusion(known.type))


def _present(pairs: NDArray[np.uint64], classes: int) -> NDArray[np.uint64]:
    """The different pairs of few classes, ascending."""
    return np.flatnonzero(np.bincount(pairs.astype(np.intp), minlength=classes * classes)).astype(np.uint64)


def _area(scores: Scores, most: int, path: Path, store: Store) -> float | None:
    """The area under the ROC curve: of the scores held and, where there are more, of those in rows.parquet."""
    area = Area().add(scores)
    while scores.limit is not None:
        scores = Scores(most, above=float(scores.values[-1]))
        first = 0
        with open_parquet(path) as file:
            name = file.schema_arrow.names[-1]
            for batch in file.iter_batches(BLOCK_ROWS, columns=[name], use_threads=False):
                shares = batch.column(0)
                truth = store.labels(first, first + len(shares))
                used = pc.is_valid(shares).to_numpy(zero_copy_only=False)
                weight = row_weights(store, first, first + len(shares))
                own = None if weight is None else weight[used]
                scores.add(shares.to_numpy(zero_copy_only=False)[used], truth[used] == 1, own)
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
