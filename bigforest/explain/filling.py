"""Missing values of training rows, filled by proximity-weighted rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api
from bigforest.events import stage
from bigforest.explain.job import ExplainJob, OutOfBagRows
from bigforest.explain.proximity import ListedLeaves, leaf_rows, leaf_scratch, plan_near
from bigforest.explain.row_table import RowTable, sampled
from bigforest.explain.tree_groups import PartPlan
from bigforest.planning.sizes import row_ranges
from bigforest.storage.array_file import read_arrays, write_arrays

# Rows of a task, and cells that are scanned together for missing values.
_PIECE_ROWS = 500
_PIECE_CELLS = 1 << 20
_PIECE_TYPES = {"filled": "<f8", "mass": "<f8"}


class Filled(NamedTuple):
    """Columns to fill: features used by the trees, of which some rows lack the value.

    columns   uint32, of the RowTable
    codes     int64, of a category, whose code 0 is missing; 0 for a number
    """

    columns: NDArray[np.uint32]
    codes: NDArray[np.int64]


def plan_filling(job: ExplainJob) -> PartPlan:
    """The plan of `filling`, assuming that all requested rows lack a value, if any did in training."""
    lacking = any(feature.missing for feature in job.forest.spec.features)
    return plan_near(job, "filling", job.requested(job.described.rows) if lacking else 0)


def write_filling(job: ExplainJob, plan: PartPlan) -> None:
    """`filling`: a row per missing value of a training row, of features used by the trees.

    number  of numbers: the mean over the rows that have the value, weighted by their RF-GAP proximity to the row.
    level   of categories: the level of the largest sum of proximities, the first among ties.
    known   sum of the proximities to rows that have the value: 1 if all have it. If it is 0, nothing is
            filled.
    """
    options = job.options
    if options.new_rows:
        raise ConfigError(
            f"values are filled by proximities, which are defined for training rows; drop {api('new_rows')}"
        )
    settings = repr((options.rows, options.sample, options.seed))
    if job.folder.has("filling", settings):
        return
    oob = job.oob
    what = _fillable(job, oob.table)
    rows = _rows_with_gaps(job, oob, what)
    leaves = leaf_rows(job, oob, plan)
    step = min(_PIECE_ROWS, max(1, rows.size // (4 * job.resources.workers)))
    pieces = [(rows[begin:end], job.work / f"filling-{begin}") for begin, end in row_ranges(rows.size, step)]
    with stage("filling", rows.size, "rows", job.listener) as progress:
        shared = (oob, leaves, what)
        job.resources.executor().run(write_filled_rows, pieces, lambda _, done: progress.advance(done), shared)
    job.folder.write_pieces("filling", _tables(job, oob, what, pieces), settings)


def _fillable(job: ExplainJob, table: RowTable) -> Filled:
    features, missing = job.forest.spec.features, set(table.missing)
    found = [
        (at, features[place].codes if features[place].kind == "category" else 0)
        for at, place in enumerate(table.used)
        if features[place].name in missing or (features[place].kind == "category" and features[place].missing)
    ]
    return Filled(np.array([at for at, _ in found], np.uint32), np.array([codes for _, codes in found], np.int64))


def _gaps(values: NDArray[np.float64], what: Filled) -> NDArray[np.bool_]:
    """Which of the values of some rows are missing, [rows, columns that may be filled]."""
    own = values[:, what.columns]
    return np.where(what.codes > 0, own == 0, np.isnan(own))


def _rows_with_gaps(job: ExplainJob, oob: OutOfBagRows, what: Filled) -> NDArray[np.uint32]:
    """The kept rows that lack a value, by position: among the rows requested, else a sample, else all."""
    table, kept = oob.table, oob.table.labelled_rows()
    rows = job.chosen(kept.size) if job.options.rows else np.arange(kept.size, dtype=np.uint32)
    values, step = table.values(), max(1, _PIECE_CELLS // (len(table.used) + 1))
    lacking = [
        rows[begin:end][_gaps(values[kept[rows[begin:end]]], what).any(axis=1)]
        for begin, end in row_ranges(rows.size, step)
    ]
    found = np.concatenate(lacking)
    if job.options.rows or job.options.sample is None:
        return found
    return found[sampled(found.size, job.options.sample, job.options.seed)]


def write_filled_rows(
    oob: OutOfBagRows, leaves: ListedLeaves, what: Filled, rows: NDArray[np.uint32], path: Path
) -> int:
    """Task: write what `fill_missing` gives for some of the kept rows into a file; how many rows there are."""
    from bigforest.kernels.explain.proximities import fill_missing

    table = oob.table
    known, scratch = leaf_scratch(oob, leaves)
    filled, mass = np.full((rows.size, what.columns.size), np.nan), np.zeros((rows.size, what.columns.size))
    tally = np.zeros(max(1, int(what.codes.max(initial=0))))
    chosen = np.ascontiguousarray(rows)
    fill_missing(
        chosen, known, scratch, table.labelled_rows(), table.values(), what.columns, what.codes, tally, filled, mass
    )
    write_arrays(path, _PIECE_TYPES, filled, mass)
    return rows.size


def _tables(
    job: ExplainJob, oob: OutOfBagRows, what: Filled, pieces: list[tuple[NDArray[np.uint32], Path]]
) -> Iterator[pl.DataFrame]:
    """The table piece by piece; the first has no rows."""
    table, spec, levels = oob.table, job.forest.spec, job.forest.levels
    kept, values = table.labelled_rows(), table.values()
    places = [table.used[column] for column in what.columns.tolist()]
    names = pl.Series([spec.features[place].name for place in places], dtype=pl.String)
    schema = {"row": pl.UInt64, "feature": pl.String, "number": pl.Float64, "level": pl.String, "known": pl.Float64}
    yield pl.DataFrame(schema=schema)
    for rows, path in pieces:
        filled, mass = read_arrays(path, _PIECE_TYPES)
        path.unlink()
        row, column = np.nonzero(_gaps(values[kept[rows]], what))
        own, category = filled[row, column], what.codes[column] > 0
        texts = [
            levels.of(places[at])[int(code) - 1] if is_level and code == code else None
            for at, code, is_level in zip(column.tolist(), own.tolist(), category.tolist(), strict=True)
        ]
        yield pl.DataFrame(
            {
                "row": kept[rows[row]].astype(np.uint64),
                "feature": names.gather(column),
                "number": pl.Series(np.where(category, np.nan, own)).fill_nan(None),
                "level": pl.Series(texts, dtype=pl.String),
                "known": mass[row, column],
            },
            schema=schema,
        )
