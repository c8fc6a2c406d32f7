"""Proximities of training rows, and missing values filled by proximity. A matrix of all pairs is never made.

proximities  nearest rows, outliers, prototypes
filling      imputed missing values

Both sections first list the rows of all leaves in files. Then they go through the trees for each row
(kernels/explain/proximities.py). Only rows with a target and a weight above 0 are kept; they are numbered by their
positions among the kept rows (RowTable.labelled_rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_series
from bigforest.errors import ConfigError, api
from bigforest.explain.job import (
    ROW_BYTES,
    ExplainJob,
    OutOfBagRows,
    SectionPlan,
    TreeStock,
    leaf_positions,
    load_trees,
    plan_groups,
)
from bigforest.explain.row_table import RowTable, sampled
from bigforest.planning.sizes import row_ranges
from bigforest.storage.array_file import MatrixFile, read_arrays, write_arrays

if TYPE_CHECKING:
    from bigforest.kernels.explain.proximities import LeafRows

# Rows of a sample, by default; and most rows of a task.
_SAMPLE = 10_000
_PIECE_ROWS = 500
# Prototypes of a class, at most.
_PROTOTYPES = 5
# Nanoseconds on one thread for sorting a row into its leaf in a tree, and for visiting a row of a leaf. Measured.
_LIST_NS = 100.0
_MEET_NS = 5.0


# Files of LeafRows of kernels/explain/proximities.py, [trees, kept rows], and their types.
_LEAF_TYPES = {"leaf": "<u4", "bag": "<u2", "members": "<u4"}


class ListedLeaves(NamedTuple):
    """Files of the rows by leaf, see LeafRows of kernels/explain/proximities.py.

    begin  int64 [trees + 1], where the leaves of each tree begin in `start`
    start  uint32, for each tree: where the rows of each leaf begin, and where the rows of its last leaf end
    """

    files: list[MatrixFile]
    begin: NDArray[np.int64]
    start: NDArray[np.uint32]


def plan_proximities(job: ExplainJob) -> SectionPlan:
    """Plan `proximities`. Raises ConfigError for new rows."""
    if job.options.new_rows:
        raise ConfigError(f"proximities are defined for training rows, out of bag; drop {api('new_rows')}")
    return plan_near(job, "proximities", job.requested(_SAMPLE))


def plan_near(job: ExplainJob, name: str, explained: int) -> SectionPlan:
    """Plan listing the rows of all leaves, and computing the proximities of `explained` rows."""
    rows, stock = job.described.rows, job.stock
    scratch = stock.tree_count * rows * sum(np.dtype(kind).itemsize for kind in _LEAF_TYPES.values())
    listing = stock.walk_nanoseconds(rows) + _LIST_NS * rows * stock.tree_count
    # The estimate assumes that all leaves of a tree have equally many bag rows.
    met = explained * job.out_of_bag_share * float((rows / ((stock.trees.nodes + 1) / 2) + 1.0).sum())
    work = listing + _MEET_NS * met + explained * rows
    return plan_groups(name, stock, job.resources, 3 * ROW_BYTES * rows, work=work, scratch=scratch)


def write_proximities(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `neighbors`, `outliers` and, for classes, `proximity-classes` and `prototypes`.

    neighbors          for each explained row the rows with the largest proximity p above 0, the nearest first (RF-GAP:
                       kernels/explain/proximities.py).
    proximity-classes  for each explained row, p summed over the rows of each class: the out-of-bag prediction without
                       shrinkage, power and boosted stage.
    outliers           scores, large for rows unlike others of their class (Breiman and Cutler). The raw score is the
                       number of rows of the class / the sum of p^2 over these rows. The score is (raw - median) / mean
                       absolute deviation from the median, both over the explained rows of the class with a finite raw
                       score. It is null for a row that no tree leaves out.
    prototypes         for each class up to _PROTOTYPES rows with the largest sum of proximities to neighbors of the
                       class. Neighbors of earlier prototypes do not count.
    """
    options, spec = job.options, job.forest.spec
    folder = job.folder.with_settings((options.rows, options.sample, options.seed, options.neighbors))
    names = ["neighbors", "outliers", *([] if job.forest.is_regression else ["proximity-classes", "prototypes"])]
    if folder.has_all(names):
        return
    oob = job.oob
    kept = oob.table.labelled_rows()
    chosen = job.chosen_positions(_SAMPLE)
    leaves = leaf_rows(job, oob, plan)
    neighbors = min(options.neighbors, kept.size)
    step = min(_PIECE_ROWS, max(1, chosen.size // (4 * job.resources.workers)))
    pieces = [(chosen[begin:end],) for begin, end in row_ranges(chosen.size, step)]
    parts = job.over_rows("proximities", plan, near_rows, pieces, (oob, leaves, neighbors, spec.target.answer_width))
    place, proximity, sums = map(np.concatenate, zip(*parts, strict=True))
    truth = oob.table.target()[kept] if oob.table.is_classification else np.zeros(kept.size, np.uint16)
    rows, classes = kept[chosen].astype(np.uint64), truth[chosen]
    tables = {
        "neighbors": _neighbor_table(rows, kept[place], proximity),
        "outliers": _outlier_table(rows, classes, sums, np.bincount(truth)),
    }
    if not job.forest.is_regression:
        labels = label_series(job.forest.spec.target).alias("class")
        tables["proximity-classes"] = _class_table(rows, sums, labels)
        near = np.where(truth[place] == classes[:, None], proximity, 0.0)
        tables["prototypes"] = _prototype_table(rows, classes, place, near, labels)
    for name in names:
        folder.write(name, tables[name])


def leaf_rows(job: ExplainJob, oob: OutOfBagRows, plan: SectionPlan) -> ListedLeaves:
    """Run tasks that list the rows of all leaves in files."""
    stock, rows = job.stock, oob.table.labelled_rows().size
    files = [MatrixFile(job.work / name, stock.tree_count, rows, kind) for name, kind in _LEAF_TYPES.items()]
    for file in files:
        file.make()
    starts: dict[int, NDArray[np.uint32]] = {}

    def collect(trees: range, group_starts: list[NDArray[np.uint32]]) -> None:
        starts.update(zip(trees, group_starts, strict=True))

    job.over_trees("leaves", plan, list_leaves, (stock, oob, files), collect)
    in_order = [starts[tree] for tree in range(stock.tree_count)]
    return ListedLeaves(
        files, np.cumsum([0, *(tree_starts.size for tree_starts in in_order)]), np.concatenate(in_order)
    )


def list_leaves(
    stock: TreeStock, oob: OutOfBagRows, files: list[MatrixFile], entries: range
) -> list[NDArray[np.uint32]]:
    """Task: write the rows of each leaf of some trees into `files`. Return for each tree where its leaves begin."""
    kept = np.ascontiguousarray(oob.table.labelled_rows())
    assert oob.bags is not None
    starts = []
    for tree in load_trees(stock, oob.table, entries):
        nodes, leaf = np.unique(leaf_positions(tree, oob.table.values(), kept), return_inverse=True)
        bag = oob.bags.bag(tree.number)
        inside = np.flatnonzero(bag)
        order = inside[np.argsort(leaf[inside], kind="stable")]
        written: list[NDArray[Any]] = [leaf, bag, order]
        for file, column in zip(files, written, strict=True):
            file.put(tree.number, column)
        starts.append(np.searchsorted(leaf[order], np.arange(nodes.size + 1)).astype(np.uint32))
    return starts


def near_rows(
    oob: OutOfBagRows, leaves: ListedLeaves, neighbors: int, width: int, rows: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.float64], NDArray[np.float64]]:
    """Task: return neighbors, proximities and sums of some kept rows, see `find_neighbors` of the kernels.

    width  number of classes; 1 for regression
    """
    from bigforest.kernels.explain.proximities import find_neighbors

    table = oob.table
    kept = table.labelled_rows()
    target = np.ascontiguousarray(table.target()[kept]) if width > 1 else np.zeros(kept.size, np.uint16)
    rows_by_leaf, scratch = leaf_scratch(oob, leaves)
    place = np.zeros((rows.size, neighbors), np.uint32)
    proximity, sums = np.zeros((rows.size, neighbors)), np.zeros((rows.size, width, 2))
    find_neighbors(np.ascontiguousarray(rows), rows_by_leaf, target, scratch, place, proximity, sums)
    return place, proximity, sums


def leaf_scratch(
    oob: OutOfBagRows, leaves: ListedLeaves
) -> tuple[LeafRows, tuple[NDArray[np.float64], NDArray[np.uint32]]]:
    """Return the rows by leaf, and room for the proximities of a row, for kernels/explain/proximities.py."""
    from bigforest.kernels.explain.proximities import LeafRows

    kept, weight = oob.table.labelled_rows(), oob.table.weight()
    kept_weight = None if weight is None else np.ascontiguousarray(weight[kept])
    rows_by_leaf = LeafRows._make([*(file.mapped() for file in leaves.files), leaves.begin, leaves.start, kept_weight])
    return rows_by_leaf, (np.zeros(kept.size), np.zeros(kept.size, np.uint32))


def _neighbor_table(
    rows: NDArray[np.uint64], neighbor: NDArray[np.uint32], proximity: NDArray[np.float64]
) -> pl.DataFrame:
    """Return the table `neighbors`; neighbor, proximity: [rows, neighbors], the largest proximity first."""
    count = proximity.shape[1]
    columns = {
        "row": np.repeat(rows, count),
        "rank": np.tile(np.arange(1, count + 1, dtype=np.uint32), rows.size),
        "neighbor": neighbor.reshape(-1).astype(np.uint64),
        "proximity": proximity.reshape(-1),
    }
    return pl.DataFrame(columns).filter(proximity.reshape(-1) > 0)


def _outlier_table(
    rows: NDArray[np.uint64], classes: NDArray[Any], sums: NDArray[np.float64], size: NDArray[np.int64]
) -> pl.DataFrame:
    """Return the table `outliers`.

    classes  class of each row
    sums     see `find_neighbors` of the kernels
    size     int64 [classes], number of kept rows of each class
    """
    squares = sums[np.arange(rows.size), classes, 1]
    with np.errstate(divide="ignore"):
        raw = np.where(sums[:, :, 1].sum(axis=1) > 0, size[classes] / squares, np.nan)  # nan for a row in all bags
    score = np.full(rows.size, np.nan)
    for k in range(size.size):
        members = (classes == k) & ~np.isnan(raw)
        # Rows without a neighbor of their class are infinitely far: they do not count in the median.
        finite = raw[members & np.isfinite(raw)]
        if finite.size:
            middle = np.median(finite)
            spread = np.abs(finite - middle).mean()
            score[members] = (
                (raw[members] - middle) / spread if spread > 0 else np.where(np.isinf(raw[members]), np.inf, 0.0)
            )
        else:
            score[members] = np.inf
    return pl.DataFrame({"row": rows, "score": score})


def _class_table(rows: NDArray[np.uint64], sums: NDArray[np.float64], labels: pl.Series) -> pl.DataFrame:
    """Return the table `proximity-classes`; sums: see `find_neighbors` of the kernels."""
    classes = len(labels)
    columns = {
        "row": np.repeat(rows, classes),
        "class": labels.gather(np.tile(np.arange(classes), rows.size)),
        "proximity": sums[:, :, 0].reshape(-1),
    }
    return pl.DataFrame(columns)


def _prototype_table(
    rows: NDArray[np.uint64],
    classes: NDArray[Any],
    place: NDArray[np.uint32],
    near: NDArray[np.float64],
    labels: pl.Series,
) -> pl.DataFrame:
    """Return the table `prototypes`.

    classes  class of each row
    place    uint32 [rows, neighbors], neighbors of each row, as positions among the kept rows
    near     float64 [rows, neighbors], proximities to neighbors of the same class; 0 for other neighbors
    """
    lines: list[tuple[int, int, int, int, float]] = []
    for k in range(len(labels)):
        inside = np.where((classes == k)[:, None], near, 0.0)
        for number in range(1, _PROTOTYPES + 1):
            total = inside.sum(axis=1)
            best = int(total.argmax()) if total.size else 0
            if not total.size or total[best] <= 0:
                break
            covered = place[best][inside[best] > 0]
            lines.append((k, number, int(rows[best]), covered.size, float(total[best])))
            inside[np.isin(place, covered)] = 0.0
            inside[best] = 0.0
    numbers = {"number": pl.UInt32, "row": pl.UInt64, "neighbors": pl.UInt32, "proximity": pl.Float64}
    table = pl.DataFrame(lines, schema={"class": pl.UInt32, **numbers}, orient="row")
    return table.with_columns(labels.gather(table["class"]))


# Cells that are scanned together for missing values.
_SCANNED_CELLS = 1 << 20
# Arrays in the file of a task, and their types.
_FILLED_TYPES = {"filled": "<f8", "mass": "<f8"}


class FillableColumns(NamedTuple):
    """Columns to fill: features with missing values that the trees use.

    columns   uint32, columns of the RowTable
    codes     int64, for each of these columns: number of codes of a category, whose code 0 is missing; 0 for a number
    """

    columns: NDArray[np.uint32]
    codes: NDArray[np.int64]


def plan_filling(job: ExplainJob) -> SectionPlan:
    """Plan `filling`. If a feature had missing values in training, assume that each row to explain lacks a value.

    Raises ConfigError for new rows.
    """
    if job.options.new_rows:
        raise ConfigError(
            f"values are filled by proximities, which are defined for training rows; drop {api('new_rows')}"
        )
    lacking = any(feature.missing for feature in job.forest.spec.features)
    return plan_near(job, "filling", job.requested(job.described.rows) if lacking else 0)


def write_filling(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `filling`: a row per missing value of the explained training rows, of features used by the trees.

    number  of numeric features: mean over the rows that have a value, weighted by their RF-GAP proximity to the row.
    level   of categories: the level with the largest sum of proximities, the first among ties.
    known   sum of the proximities to rows that have a value: 1 if all have one. If it is 0, nothing is filled.
    """
    options = job.options
    folder = job.folder.with_settings((options.rows, options.sample, options.seed))
    if folder.has("filling"):
        return
    oob = job.oob
    fillable = _fillable(job, oob.table)
    rows = _rows_with_gaps(job, oob, fillable)
    leaves = leaf_rows(job, oob, plan)
    step = min(_PIECE_ROWS, max(1, rows.size // (4 * job.resources.workers)))
    pieces = [(rows[begin:end], job.work / f"filling-{begin}") for begin, end in row_ranges(rows.size, step)]
    job.over_rows("filling", plan, write_filled_rows, pieces, (oob, leaves, fillable))
    folder.write_pieces("filling", _filling_tables(job, oob, fillable, pieces))


def _fillable(job: ExplainJob, table: RowTable) -> FillableColumns:
    """Return the columns that may have missing values. Columns that only a boosted stage uses are left out."""
    features, missing = job.forest.spec.features, set(table.missing)
    assert job.stock.trees.used is not None
    split_on = {*job.stock.trees.used.tolist()}
    columns = [
        (at, features[place].codes if features[place].kind == "category" else 0)
        for place, at in table.column_of.items()
        if place in split_on
        and (features[place].name in missing or (features[place].kind == "category" and features[place].missing))
    ]
    return FillableColumns(
        np.array([at for at, _ in columns], np.uint32), np.array([codes for _, codes in columns], np.int64)
    )


def _gaps(values: NDArray[np.float64], fillable: FillableColumns) -> NDArray[np.bool_]:
    """Return a mask of the missing values of some rows, [rows, columns that may be filled]."""
    cells = values[:, fillable.columns]
    return np.where(fillable.codes > 0, cells == 0, np.isnan(cells))


def _rows_with_gaps(job: ExplainJob, oob: OutOfBagRows, fillable: FillableColumns) -> NDArray[np.uint32]:
    """Return the positions of the kept rows that lack a value: all of them, a sample, or the requested ones."""
    table, kept = oob.table, oob.table.labelled_rows()
    rows = job.chosen_positions(kept.size) if job.options.rows else np.arange(kept.size, dtype=np.uint32)
    values, step = table.values(), max(1, _SCANNED_CELLS // (len(table.used) + 1))
    lacking = [
        rows[begin:end][_gaps(values[kept[rows[begin:end]]], fillable).any(axis=1)]
        for begin, end in row_ranges(rows.size, step)
    ]
    gap_rows = np.concatenate(lacking)
    if job.options.rows or job.options.sample is None:
        return gap_rows
    return gap_rows[sampled(gap_rows.size, job.options.sample, job.options.seed)]


def write_filled_rows(
    oob: OutOfBagRows, leaves: ListedLeaves, fillable: FillableColumns, rows: NDArray[np.uint32], path: Path
) -> None:
    """Task: write the result of `fill_missing` for some of the kept rows into a file."""
    from bigforest.kernels.explain.proximities import fill_missing

    table = oob.table
    rows_by_leaf, scratch = leaf_scratch(oob, leaves)
    filled, mass = np.full((rows.size, fillable.columns.size), np.nan), np.zeros((rows.size, fillable.columns.size))
    tally = np.zeros(max(1, int(fillable.codes.max(initial=0))))
    chosen = np.ascontiguousarray(rows)
    fill_missing(
        chosen,
        rows_by_leaf,
        scratch,
        table.labelled_rows(),
        table.values(),
        fillable.columns,
        fillable.codes,
        tally,
        filled,
        mass,
    )
    write_arrays(path, _FILLED_TYPES, filled, mass)


def _filling_tables(
    job: ExplainJob, oob: OutOfBagRows, fillable: FillableColumns, pieces: list[tuple[NDArray[np.uint32], Path]]
) -> Iterator[pl.DataFrame]:
    """Yield the table in pieces. The first piece has no rows: the table is written even if no value is missing."""
    table, spec, levels = oob.table, job.forest.spec, job.forest.levels
    kept, values = table.labelled_rows(), table.values()
    places = [table.used[column] for column in fillable.columns.tolist()]
    names = pl.Series([spec.features[place].name for place in places], dtype=pl.String)
    schema = {"row": pl.UInt64, "feature": pl.String, "number": pl.Float64, "level": pl.String, "known": pl.Float64}
    yield pl.DataFrame(schema=schema)
    for rows, path in pieces:
        filled, mass = read_arrays(path, _FILLED_TYPES)
        path.unlink()
        row, column = np.nonzero(_gaps(values[kept[rows]], fillable))
        fills, category = filled[row, column], fillable.codes[column] > 0
        texts = [  # a code is NaN if nothing is filled
            levels.of(places[at])[int(code) - 1] if is_level and code == code else None
            for at, code, is_level in zip(column.tolist(), fills.tolist(), category.tolist(), strict=True)
        ]
        yield pl.DataFrame(
            {
                "row": kept[rows[row]].astype(np.uint64),
                "feature": names.gather(column),
                "number": np.where(category, np.nan, fills),
                "level": pl.Series(texts, dtype=pl.String),
                "known": mass[row, column],
            },
            schema=schema,
        )
