"""Shapley interaction values: contributions of pairs of features to the predictions of selected rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.events import Notice, stage
from bigforest.explain.contributions import Contributed, check_exact, chosen_classes, edges_and_points
from bigforest.explain.importance import leaf_positions
from bigforest.explain.job import ExplainJob
from bigforest.explain.row_table import sampled
from bigforest.explain.tree_groups import PartPlan, Sweep, TreeStock, plan_sweep
from bigforest.planning.sizes import row_ranges
from bigforest.storage.array_file import read_arrays, write_arrays

if TYPE_CHECKING:
    from bigforest.kernels.explain.interactions import PairScratch

# Default number of rows of a sample; rows of a task, and numbers that it holds.
_SAMPLE = 100
_PIECE_ROWS = 16
_PIECE_CELLS = 1 << 21
_PIECE_TYPES = {"base": "<f8", "votes": "<f8", "found": "<f8"}
# Copies of these numbers that a task holds, in bytes: the sums, both orders of a pair, and the table.
_CELL_BYTES = 64
# Nanoseconds on one thread of a pair of edges for each point and class. Measured.
_PAIR_NS = 1.0


def plan_interactions(job: ExplainJob) -> PartPlan:
    """The plan of `interactions`. Raises ConfigError for projections."""
    stock, columns, rows = job.voting, len(job.described.used), job.requested(_SAMPLE)
    check_exact(stock)
    how = Contributed(True, chosen_classes(job))
    cells, step = _piece(job, how)
    work, own, scratch = rows * pair_nanoseconds(stock, how, columns), _CELL_BYTES * step * cells, 8 * rows * cells
    return plan_sweep("interactions", stock, job.resources, own, work=work, scratch=scratch)


def _piece(job: ExplainJob, how: Contributed) -> tuple[int, int]:
    """Numbers of a row, and rows of a task."""
    cells = (len(job.described.used) + 1) ** 2 * len(how.chosen)
    return cells, max(1, min(_PIECE_ROWS, _PIECE_CELLS // cells))


def write_interactions(job: ExplainJob, plan: PartPlan) -> None:
    """`interactions` and `interaction-pairs`. Raises ConfigError for rows that are not there.

    interactions  a row per row, class and pair of features on a common path: `interaction` of the pair, both halves of
                  Lundberg's symmetric matrix; of a feature with itself its main effect (its Shapley value minus half of
                  its pairs). base + all interactions of a row and class add up to the prediction.
    interaction-pairs  the mean over the rows of |interaction|, by class and pair.
    """
    table = job.table
    how, rows = Contributed(True, chosen_classes(job)), chosen_rows(job, table.rows)
    settings = repr((how, job.options.rows, job.options.sample, job.options.seed))
    if job.folder.has_all(["interactions", "interaction-pairs"], settings):
        return
    _, step = _piece(job, how)
    job.listener(Notice(f"interactions in {counted(rows.size, 'row')} take about {math.ceil(job.seconds(plan))} s"))
    pieces = [(rows[begin:end], job.work / f"interactions-{begin}") for begin, end in row_ranges(rows.size, step)]
    with stage("interactions", rows.size, "rows", job.listener) as progress, job.sweeping(plan.at_once) as executor:
        shared = (Sweep(job.voting, table, plan.groups, how.chosen),)
        executor.run(explain_pairs, pieces, lambda _, done: progress.advance(done), shared)
    size = len(table.used)
    total = np.zeros((size, size, len(how.chosen)))
    job.folder.write_pieces("interactions", _tables(job, how, pieces, total), settings)
    job.folder.write("interaction-pairs", _pair_table(job, how, total / max(1, rows.size)), settings)


def chosen_rows(job: ExplainJob, rows: int) -> NDArray[np.uint32]:
    """Numbers of the rows requested, ascending; else of a sample. Raises ConfigError and DataError."""
    if not rows:
        raise DataError("the table has no rows; there is nothing to explain")
    if not job.options.rows:
        return sampled(rows, job.options.sample or _SAMPLE, job.options.seed)
    wanted = sorted(set(job.options.rows))
    strange = [row for row in wanted if not 0 <= row < rows]
    if strange:
        raise ConfigError(f"{api('rows')} must be numbers of rows of the table, from 0 to {rows - 1}, not {strange[0]}")
    return np.array(wanted, np.uint32)


def pair_nanoseconds(stock: TreeStock, how: Contributed, columns: int) -> float:
    """Estimated time of a row on one thread."""
    nodes, depth = stock.trees.nodes.astype(np.float64), stock.depths()
    points = (np.minimum(depth, columns) + 1) / 2
    return float((nodes * depth * points).sum() * len(how.chosen) * _PAIR_NS) + 1.0


def explain_pairs(sweep: Sweep, rows: NDArray[np.uint32], path: Path) -> int:
    """Task: write base, interactions and predictions of some rows into a file; how many rows there are."""
    write_arrays(path, _PIECE_TYPES, *pair_values(sweep, rows))
    return rows.size


def pair_values(
    sweep: Sweep, rows: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Base, float64 [classes], predictions [rows, classes] and interactions [rows, columns, columns, classes].

    Interactions are set for i <= j; main effects are at i = j.
    """
    from bigforest.kernels.explain.interactions import interactions

    values, classes, columns = sweep.table.values(), len(sweep.classes), len(sweep.table.used) + 1
    base, votes = np.zeros(classes), np.zeros((rows.size, classes))
    found = np.zeros((rows.size, columns, columns, classes))
    for tree, answer in sweep.trees():
        base += answer[0]
        votes += answer[leaf_positions(tree, values, rows).astype(np.int64) - tree.begin]
        edges, points = edges_and_points(tree)
        scratch = _scratch(int(edges.depth.max()) + 1, points.t.size, classes)
        interactions(tree.walked, np.uint64(tree.begin), answer, values, rows, edges, points, scratch, found)
    trees = sweep.stock.tree_count
    found = found[:, :-1, :-1] / trees
    whole = found + found.transpose(0, 2, 1, 3)
    places = np.arange(columns - 1)
    alone = found[:, places, places].copy()
    whole[:, places, places] = 0.0
    whole[:, places, places] = alone - whole.sum(axis=2) / 2.0
    return base / trees, votes / trees, whole * (places[:, None] <= places)[None, :, :, None]


def _scratch(levels: int, points: int, classes: int) -> PairScratch:
    from bigforest.kernels.explain.interactions import PairScratch

    return PairScratch(
        node=np.zeros(levels, np.uint64),
        left=np.zeros(levels, np.uint8),
        met=np.zeros(levels, np.uint8),
        share=np.zeros(levels),
        product=np.zeros((levels, points)),
        inverse=np.zeros((levels, points)),
        below=np.zeros((levels, classes, points)),
        change=np.zeros((levels, points)),
        charge=np.zeros(points),
    )


def _tables(
    job: ExplainJob, how: Contributed, pieces: list[tuple[NDArray[np.uint32], Path]], total: NDArray[np.float64]
) -> Iterator[pl.DataFrame]:
    """The table piece by piece; sizes of interactions are added to `total`."""
    for rows, path in pieces:
        base, votes, found = read_arrays(path, _PIECE_TYPES)
        path.unlink()
        total += np.abs(found).sum(axis=0)
        row, first, second, label = (axis.astype(np.uint32) for axis in np.nonzero(found))
        order = np.lexsort((second, first, label, row))
        row, first, second, label = row[order], first[order], second[order], label[order]
        columns: dict[str, Any] = {"row": rows[row].astype(np.uint64)}
        columns |= _names(job, how, first, second, label)
        columns["interaction"] = found[row, first, second, label]
        columns["base"], columns["prediction"] = base[label], votes[row, label]
        yield pl.DataFrame(columns)


def _names(
    job: ExplainJob, how: Contributed, first: NDArray[Any], second: NDArray[Any], label: NDArray[Any]
) -> dict[str, pl.Series]:
    """The columns class, feature and other."""
    features = job.forest.spec.features
    names = pl.Series([features[place].name for place in job.table.used], dtype=pl.String)
    classes = how.labels(job.forest.spec.target)
    labels = {} if classes is None else {"class": classes.gather(label)}
    return labels | {"feature": names.gather(first), "other": names.gather(second)}


def _pair_table(job: ExplainJob, how: Contributed, mean: NDArray[np.float64]) -> pl.DataFrame:
    first, second, label = (axis.astype(np.uint32) for axis in np.nonzero(mean))
    table = pl.DataFrame({**_names(job, how, first, second, label), "interaction": mean[first, second, label]})
    return table.sort("interaction", descending=True, maintain_order=True)
