"""Contributions of features to the predictions of rows, along the path or as Shapley values, and of pairs of features.

contributions  change of the prediction by each feature on the path of a row
shap           exact Shapley values
interactions   Shapley interaction values: main effects of features, and interactions of pairs of features

A task handles a range of rows, and iterates over all trees in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import TargetSpec
from bigforest.columns.labels import label_series
from bigforest.errors import ConfigError, counted
from bigforest.events import Notice
from bigforest.explain.job import ExplainJob, LoadedTree, SectionPlan, Sweep, TreeStock, leaf_positions, plan_sweep
from bigforest.explain.refine import Contributions
from bigforest.explain.row_table import sampled
from bigforest.explain.tables import ExplanationFolder
from bigforest.planning.sizes import row_ranges
from bigforest.storage.array_file import read_arrays, write_arrays

if TYPE_CHECKING:
    from bigforest.kernels.explain.contributions import PairScratch, Points, ShapleyScratch, TreeEdges

# The section of exact contributions.
SHAP = "shap"
# Most numbers and rows of a file. The rows of a file depend only on forest, section and classes, so that a run can be
# resumed with another budget.
_PART_CELLS = 1 << 21
_PART_ROWS = 1 << 16
# Most seconds on one thread for a file.
_PART_SECONDS = 20.0
# Nanoseconds on one thread: for a node on the path; for a node of the tree, per quadrature point and class. Measured.
_PATH_NS = 15.0
_POINT_NS = 1.0
# Nanoseconds for writing a number. Measured.
_CELL_NS = 100.0
# Estimated seconds from which on the user is told how long the work takes.
_LONG = 10


class ContributionRules(NamedTuple):
    """Rules of the contributions.

    exact    True for Shapley values, False for contributions along the path.
    chosen   codes of the explained classes; (0,) for regression.
    """

    exact: bool
    chosen: tuple[int, ...]

    def labels(self, target: TargetSpec) -> pl.Series | None:
        """Return the labels of the explained classes, in the type of the target; None for regression."""
        return label_series(target).gather(list(self.chosen)) if target.classes else None


def plan_contributions(job: ExplainJob, name: str) -> SectionPlan:
    """Plan `contributions`, or `shap`. Raises ConfigError for Shapley values of projections."""
    stock, rows = job.voting, job.described.rows
    rules = ContributionRules(name == SHAP, job.classes)
    if rules.exact:
        check_exact(stock)
    width, step = _file_shape(job, rules)
    row_ns = row_nanoseconds(stock, rules, len(job.described.used)) + _CELL_NS * (width + 8)
    return plan_sweep(name, stock, job.resources, 32 * step * (width + 8) * _sums(job), work=rows * row_ns)


def check_exact(stock: TreeStock) -> None:
    """Raise ConfigError for splits on projections, for which exact contributions are not defined."""
    if stock.trees.projects:
        raise ConfigError(
            "Shapley values need splits on one feature each, and this forest splits on projections; use "
            "contributions along the path"
        )


def _sums(job: ExplainJob) -> int:
    """Return the number of arrays of sums that a task holds at once."""
    return 1 if job.stage is None else 3


def _file_shape(job: ExplainJob, rules: ContributionRules) -> tuple[int, int]:
    """Return the number of contributions of a row, over all its classes, and the number of rows of a file."""
    width = len(job.forest.spec.features) * len(job.swept_classes)
    row_ns = row_nanoseconds(job.voting, rules, len(job.described.used))
    return width, max(1, min(_PART_ROWS, _PART_CELLS // width, int(_PART_SECONDS * 1e9 / row_ns)))


def write_contributions(job: ExplainJob, plan: SectionPlan, name: str) -> None:
    """Write `contributions` or `shap`: a row for each row of the table and each class.

    row, class   the explained row and class.
    base         the prediction without features: mean over the trees of the value of the root.
    c_<feature>  the contribution of each feature.
    prediction   the prediction: the sum of base and all contributions.

    With a boosted stage, base, contributions and predictions are on the scale of the link: refine.py `on_scores`.
    """
    table = job.table
    rules = ContributionRules(name == SHAP, job.classes)
    folder, (_, step) = job.folder.with_settings(rules), _file_shape(job, rules)
    ranges = [range(begin, end) for begin, end in row_ranges(table.rows, step)]
    folder.remove_other_files(name, [part_name(name, rows.start) for rows in ranges])
    ranges = [rows for rows in ranges if not folder.has(part_name(name, rows.start))]
    left = sum(map(len, ranges))
    if rules.exact and left:
        _tell_time(job, f"exact contributions of {counted(left, 'row')}", job.seconds(plan) * left / table.rows)
    shared = (job.sweep(plan), rules, folder, name)
    job.over_rows(name, plan, explain_rows, [(rows,) for rows in ranges], shared, table.rows - left)


def _tell_time(job: ExplainJob, work: str, seconds: float) -> None:
    """Send a notice about work that takes long."""
    if seconds >= _LONG:
        job.listener(Notice(f"{work} take about {math.ceil(seconds)} s"))


def part_name(name: str, begin: int) -> str:
    return f"{name}/part-{begin:010d}"


def row_nanoseconds(stock: TreeStock, rules: ContributionRules, columns: int) -> float:
    """Return an estimate of the time of a row on one thread; columns: number of features that trees use."""
    nodes, depth = stock.walked_nodes, stock.depths()
    if not rules.exact:
        return float((depth * (_PATH_NS + len(rules.chosen))).sum()) + 1.0
    points = (np.minimum(depth, columns) + 1) / 2
    return float((nodes * points * (1 + len(rules.chosen))).sum() * _POINT_NS / 2) + 1.0


def explain_rows(sweep: Sweep, rules: ContributionRules, folder: ExplanationFolder, name: str, rows: range) -> None:
    """Task: write the contributions to the predictions of a range of rows into a file."""
    table = _table(sweep, rules, contributions(sweep, rules, rows), rows)
    folder.write(part_name(name, rows.start), table)


def contributions(sweep: Sweep, rules: ContributionRules, rows: range) -> Contributions:
    """Return the contributions to the predictions of a range of rows."""
    from bigforest.kernels.explain.contributions import path_contributions, shapley_values

    values, begin = sweep.table.values(), np.uint64(rows.start)

    def summed(trees: Iterable[tuple[LoadedTree, NDArray[np.float64]]], classes: int) -> Contributions:
        base, votes = np.zeros(classes), np.zeros((len(rows), classes))
        sums = np.zeros((len(rows), len(sweep.table.used) + 1, classes))
        # Shapley values need only the votes of path_contributions.
        path_sums = np.zeros_like(sums) if rules.exact else sums
        for tree, answer in trees:
            base += answer[0]
            path_contributions(tree.walked, np.uint64(tree.begin), answer, values, begin, votes, path_sums)
            if rules.exact:
                edges, points = edges_and_points(tree)
                scratch = _shapley_scratch(int(edges.depth.max()) + 1, points.t.size, sums[0].size, classes)
                shapley_values(tree.walked, np.uint64(tree.begin), answer, values, begin, edges, points, scratch, sums)
        return Contributions(np.broadcast_to(base, votes.shape), votes, sums[:, :-1])

    return _prediction_contributions(sweep, rules, summed)


def _prediction_contributions(
    sweep: Sweep, rules: ContributionRules, summed: Callable[..., Contributions]
) -> Contributions:
    """Return the contributions to the predictions of the forest, with its boosted stage.

    summed  function that returns the sums of contributions over trees. Its arguments are an iterable of (tree, values
            of its nodes), and the number of classes of these values.
    """
    forest_sums = summed(sweep.trees(), len(sweep.classes))
    forest_means = Contributions._make(values / sweep.stock.tree_count for values in forest_sums)
    stage = sweep.stock.stage
    if stage is None:
        return forest_means
    added = summed(sweep.stage_trees(), stage.link.outputs)
    return stage.on_scores(forest_means, added, rules.chosen)


def _shapley_scratch(levels: int, points: int, totals: int, classes: int) -> ShapleyScratch:
    """Return scratch for a tree with paths of at most `levels` nodes; totals: numbers in the sums of a row."""
    from bigforest.kernels.explain.contributions import ShapleyScratch
    from bigforest.kernels.llvm.lanes import LANES

    size = points * LANES
    scratch = ShapleyScratch(
        node=np.zeros(levels, np.uint64),
        left=np.zeros(levels * LANES),
        met=np.zeros(levels * LANES),
        gain=np.zeros(levels * LANES),
        factors=np.zeros(4 * points),
        product=np.zeros(levels * size),
        inverse=np.zeros(levels * size),
        below=np.zeros(levels * size * classes),
        total=np.zeros(totals * LANES),
    )
    scratch.met[:LANES] = scratch.inverse[:size] = 1.0
    return scratch


def edges_and_points(tree: LoadedTree) -> tuple[TreeEdges, Points]:
    """Return the edges of a tree without projections, and quadrature points for its path with the most features."""
    from bigforest.kernels.explain.contributions import Points, TreeEdges, find_edges

    size = tree.end - tree.begin
    numbers = [np.empty(size, np.uint32) for _ in range(4)]
    edges = TreeEdges(numbers[0], numbers[1], numbers[2], np.empty(size), numbers[3])
    limits = np.uint64(tree.begin), np.uint64(tree.end)
    find_edges(tree.walked, *limits, tree.weight, np.empty(size, np.uint64), edges)
    t, weight = _quadrature(max(1, -(-int(edges.different.max()) // 2)))
    return edges, Points((t + 1.0) / 2.0, weight / 2.0)


@cache
def _quadrature(points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points and weights of Gauss-Legendre quadrature. Cached: they are slow to compute."""
    return np.polynomial.legendre.leggauss(points)


def _table(sweep: Sweep, rules: ContributionRules, explained: Contributions, rows: range) -> pl.DataFrame:
    """Return a table with a row for each explained row and class, see `write_contributions`."""
    base, votes, by_column = explained
    classes, spec = votes.shape[1], sweep.stock.trees.header.spec
    columns: dict[str, Any] = {"row": np.repeat(np.array(rows, np.uint64), classes)}
    labels = rules.labels(spec.target)
    if labels is not None:
        columns["class"] = labels.gather(np.tile(np.arange(classes), len(rows)))
    columns["base"] = base.reshape(-1)
    column_of = sweep.table.column_of
    for place, feature in enumerate(spec.features):
        contribution = by_column[:, column_of[place]] if place in column_of else np.zeros(votes.shape)
        columns[f"c_{feature.name}"] = contribution.reshape(-1)
    columns["prediction"] = votes.reshape(-1)
    return pl.DataFrame(columns)


# Default number of rows of a sample; most rows of a task; most numbers that a task holds.
_PAIR_SAMPLE = 100
_PAIR_ROWS = 16
_PAIR_CELLS = 1 << 21
# Arrays in the file of a task, and their types.
_PAIR_TYPES = {"base": "<f8", "votes": "<f8", "found": "<f8"}
# Bytes of a task for each interaction: the sums, both orders of a pair, and the table.
_PAIR_BYTES = 64
# Nanoseconds on one thread for a pair of edges, per quadrature point and class. Measured.
_PAIR_NS = 1.0


def plan_interactions(job: ExplainJob) -> SectionPlan:
    """Plan `interactions`. Raises ConfigError for projections, and for rows outside the table."""
    stock, columns, rows = job.voting, len(job.described.used), job.requested(_PAIR_SAMPLE)
    check_exact(stock)
    cells, step = _pair_piece(job)
    depth = stock.depths()
    points = (np.minimum(depth, columns) + 1) / 2
    work = rows * (float((stock.walked_nodes * depth * points).sum() * len(job.classes) * _PAIR_NS) + 1.0)
    task_bytes, scratch = _PAIR_BYTES * step * cells * _sums(job), 8 * rows * cells
    return plan_sweep("interactions", stock, job.resources, task_bytes, work=work, scratch=scratch)


def _pair_piece(job: ExplainJob) -> tuple[int, int]:
    """Return the number of interactions of a row, over all its classes, and the number of rows of a task."""
    cells = (len(job.described.used) + 1) ** 2 * len(job.swept_classes)
    return cells, max(1, min(_PAIR_ROWS, _PAIR_CELLS // cells))


def write_interactions(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `interactions` and `interaction-pairs`.

    interactions       an entry for each row, class and pair of features with an interaction other than 0.
                       `interaction` of two features is the sum of both halves of Lundberg's symmetric matrix.
                       `interaction` of a feature with itself is its main effect: its Shapley value minus half of the
                       interactions of its pairs. base and all interactions of a row and class add up to the prediction.
    interaction-pairs  mean of |interaction| over the rows, by class and pair.
    """
    table = job.table
    rules, options = ContributionRules(True, job.classes), job.options
    rows = np.array(sorted(set(options.rows)), np.uint32)
    if not options.rows:
        rows = sampled(table.rows, options.sample or _PAIR_SAMPLE, options.seed)
    folder = job.folder.with_settings((rules, options.rows, options.sample, options.seed))
    if folder.has_all(["interactions", "interaction-pairs"]):
        return
    _, step = _pair_piece(job)
    _tell_time(job, f"interactions in {counted(rows.size, 'row')}", job.seconds(plan))
    pieces = [(rows[begin:end], job.work / f"interactions-{begin}") for begin, end in row_ranges(rows.size, step)]
    job.over_rows("interactions", plan, explain_pairs, pieces, (job.sweep(plan), rules))
    size = len(table.used)
    total = np.zeros((size, size, len(rules.chosen)))
    folder.write_pieces("interactions", _interaction_tables(job, rules, pieces, total))
    folder.write("interaction-pairs", _pair_table(job, rules, total / rows.size))


def explain_pairs(sweep: Sweep, rules: ContributionRules, rows: NDArray[np.uint32], path: Path) -> None:
    """Task: write base, predictions and interactions of some rows into a file."""
    write_arrays(path, _PAIR_TYPES, *pair_values(sweep, rules, rows))


def pair_values(sweep: Sweep, rules: ContributionRules, rows: NDArray[np.uint32]) -> Contributions:
    """Return the interactions of features in the predictions of some rows.

    In `by_feature`, float64 [rows, features, features, classes], cell [row, i, j] is the interaction of features i < j,
    the main effect of feature i = j, and 0 for i > j.
    """
    from bigforest.kernels.explain.contributions import interactions

    values, columns = sweep.table.values(), len(sweep.table.used) + 1

    def summed(trees: Iterable[tuple[LoadedTree, NDArray[np.float64]]], classes: int) -> Contributions:
        base, votes = np.zeros(classes), np.zeros((rows.size, classes))
        sums = np.zeros((rows.size, columns, columns, classes))
        for tree, answer in trees:
            base += answer[0]
            votes += answer[leaf_positions(tree, values, rows).astype(np.int64) - tree.begin]
            edges, points = edges_and_points(tree)
            scratch = _pair_scratch(int(edges.depth.max()) + 1, points.t.size, classes)
            interactions(tree.walked, np.uint64(tree.begin), answer, values, rows, edges, points, scratch, sums)
        return Contributions(np.broadcast_to(base, votes.shape), votes, sums[:, :-1, :-1])

    base, votes, sums = _prediction_contributions(sweep, rules, summed)
    whole = sums + sums.transpose(0, 2, 1, 3)
    places = np.arange(columns - 1)
    shapley = sums[:, places, places]
    whole[:, places, places] = 0.0
    whole[:, places, places] = shapley - whole.sum(axis=2) / 2.0
    return Contributions(base, votes, whole * (places[:, None] <= places)[None, :, :, None])


def _pair_scratch(levels: int, points: int, classes: int) -> PairScratch:
    """Return scratch for a tree with paths of at most `levels` nodes."""
    from bigforest.kernels.explain.contributions import PairScratch

    return PairScratch(
        node=np.zeros(levels, np.uint64),
        left=np.zeros(levels, np.uint8),
        met=np.ones(levels, np.uint8),
        share=np.ones(levels),
        product=np.zeros((levels, points)),
        inverse=np.ones((levels, points)),
        below=np.zeros((levels, classes, points)),
        change=np.zeros((levels, points)),
        charge=np.zeros(points),
    )


def _interaction_tables(
    job: ExplainJob, rules: ContributionRules, pieces: list[tuple[NDArray[np.uint32], Path]], total: NDArray[np.float64]
) -> Iterator[pl.DataFrame]:
    """Yield the table piece by piece.

    total  float64 [features, features, classes], increased by the absolute values of interactions.
    """
    for rows, path in pieces:
        base, votes, pair_sums = read_arrays(path, _PAIR_TYPES)
        path.unlink()
        total += np.abs(pair_sums).sum(axis=0)
        row, first, second, label = (axis.astype(np.uint32) for axis in np.nonzero(pair_sums))
        order = np.lexsort((second, first, label, row))
        row, first, second, label = row[order], first[order], second[order], label[order]
        columns: dict[str, Any] = {"row": rows[row].astype(np.uint64)}
        columns |= _pair_names(job, rules, first, second, label)
        columns["interaction"] = pair_sums[row, first, second, label]
        columns["base"], columns["prediction"] = base[row, label], votes[row, label]
        yield pl.DataFrame(columns)


def _pair_names(
    job: ExplainJob, rules: ContributionRules, first: NDArray[Any], second: NDArray[Any], label: NDArray[Any]
) -> dict[str, pl.Series]:
    """Return the columns class (for classification), feature and other.

    first, second  columns of the RowTable
    label          positions in `rules.chosen`
    """
    features = job.forest.spec.features
    names = pl.Series([features[place].name for place in job.table.used], dtype=pl.String)
    classes = rules.labels(job.forest.spec.target)
    labels = {} if classes is None else {"class": classes.gather(label)}
    return labels | {"feature": names.gather(first), "other": names.gather(second)}


def _pair_table(job: ExplainJob, rules: ContributionRules, mean: NDArray[np.float64]) -> pl.DataFrame:
    first, second, label = (axis.astype(np.uint32) for axis in np.nonzero(mean))
    table = pl.DataFrame({**_pair_names(job, rules, first, second, label), "interaction": mean[first, second, label]})
    return table.sort("interaction", descending=True, maintain_order=True)
