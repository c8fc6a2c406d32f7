"""Dependence on one feature or two: partial dependence, individual curves, accumulated local effects.

partial dependence   by value: mean over rows of the prediction with the feature set to the value (Friedman 2001,
                     section 8.2)
individual curves    by value and row: prediction of the row with the feature set to the value (Goldstein and others
                     2015)
local effects        change of the prediction from each value to the next, mean over the rows between the two values,
                     added up over the values and centred (Apley and Zhu 2020). No row moves far, so correlated
                     features do not mislead. For two features: the second-order effect, without both main effects
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api, listed
from bigforest.explain.contributions import ContributionRules
from bigforest.explain.job import ExplainJob, LoadedTree, SectionPlan, Sweep, plan_sweep
from bigforest.explain.refine import determining_classes, probabilities
from bigforest.explain.row_table import RowTable, replace_columns, sampled, unused_values
from bigforest.metrics.numbers import quantile_grid
from bigforest.options.values import several
from bigforest.planning.sizes import row_ranges

# The section of local effects.
EFFECTS = "effects"
# Default size of the sample, in rows.
_SAMPLE = 1000
# Default number of features.
_FEATURES = 10
# Most predictions and most rows of a task. The sums of tasks are added in the order of rows, for any order of tasks.
_PIECE_CELLS = 1 << 19
_PIECE_ROWS = 256
# Most levels named for one value.
_NAMED = 6


class Curve(NamedTuple):
    """One feature, or two that are varied together.

    names   one feature or two.
    places  positions of the features in the dataspec.
    grids   ascending values of each feature, as stored in the RowTable.
    local   True if local effects are requested.
    """

    names: tuple[str, ...]
    places: tuple[int, ...]
    grids: tuple[NDArray[np.float64], ...]
    local: bool

    @property
    def points(self) -> NDArray[np.float64]:
        """All combinations of the values, float64 [points, features]; the first feature changes least often."""
        return np.array(list(product(*self.grids)), np.float64).reshape(-1, len(self.grids))


class CurveSums(NamedTuple):
    """Sums of one curve over some rows.

    total       float64 [points, classes], sums of predictions; for local effects, sums of changes by cell of the grid
    rows        int64 [points], number of rows added
    individual  float64 [rows, points, classes], curves of the first rows, as many as requested
    """

    total: NDArray[np.float64]
    rows: NDArray[np.int64]
    individual: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean prediction, or mean change, at each point, float64 [points, classes]; 0 without rows."""
        return self.total / np.maximum(self.rows, 1)[:, None]


def plan_dependence(job: ExplainJob, name: str) -> SectionPlan:
    """Plan `dependence` or `effects`, with the largest grid that each feature can have."""
    local = name == EFFECTS
    stock, chosen, classes = job.voting, _requested_features(job, local), _answer_width(job)
    rows = min(job.options.sample or _SAMPLE, job.described.rows)
    points = [math.prod(_most_values(job, feature, rows) for feature in features) for features in chosen]
    cells = 4 * _piece_rows(max(points, default=1), classes) * max(points, default=1) * classes * len(chosen)
    evaluated = sum(2 ** len(features) for features in chosen) if local else sum(points)
    # A row with several values of a feature is routed once until a split separates the values.
    work = stock.walk_nanoseconds(rows) * (len(chosen) + evaluated / 4) + rows * evaluated * stock.tree_count * classes
    return plan_sweep(name, stock, job.resources, 8 * max(1, cells), work=work)


def _answer_width(job: ExplainJob) -> int:
    """Return the number of values computed at a point: one per class, plus the scores of a boosted stage."""
    return len(_swept_classes(job)) + (0 if job.stage is None else job.stage.link.outputs)


def _swept_classes(job: ExplainJob) -> tuple[int, ...]:
    """Return the classes whose shares of votes are computed. A power makes probabilities depend on all classes."""
    if job.power != 1.0:
        return determining_classes(job.forest.spec.target.answer_width)
    return job.swept_classes


def _most_values(job: ExplainJob, name: str, rows: int) -> int:
    """Return the largest number of values on the curve of a feature, in a sample of `rows`."""
    [place] = job.options.places([name], job.forest.spec, api("features"))
    feature = job.forest.spec.features[place]
    return min(rows, feature.codes if feature.kind == "category" else job.options.grid)


def _piece_rows(points: int, classes: int) -> int:
    """Return the number of rows of a task."""
    return max(1, min(_PIECE_ROWS, _PIECE_CELLS // max(1, points * classes)))


def write_dependence(job: ExplainJob, plan: SectionPlan, name: str) -> None:
    """Write the tables of the section `name`, unless they exist.

    dependence  `dependence` on single features, `dependence-pairs` on two, `individual` with the curves of single rows
    effects     `effects` of single features, `effects-pairs` of two; of numeric features only
    """
    local = name == EFFECTS
    rules = ContributionRules(False, job.classes)
    chosen, table = _requested_features(job, local), job.table
    options = job.options
    folder = job.folder.with_settings((rules, chosen, options.grid, options.sample, options.seed, options.individual))
    single = any(len(features) == 1 for features in chosen)
    names = [name] if single else []
    names += [f"{name}-pairs"] if any(len(features) == 2 for features in chosen) else []
    names += ["individual"] if options.individual and single and not local else []
    if folder.has_all(names):
        return
    rows = sampled(table.rows, options.sample or _SAMPLE, options.seed)
    curves = [_curve(job, features, rows, local) for features in chosen]
    sums = _sums(job, plan, name, rules, curves, rows)
    labels = rules.labels(job.forest.spec.target)
    for width, suffix in ((1, ""), (2, "-pairs")):
        tables = [
            _effects(curve, each, job, labels) if local else _table(curve, job, labels, prediction=each.mean)
            for curve, each in zip(curves, sums, strict=True)
            if len(curve.places) == width
        ]
        if tables:
            folder.write(name + suffix, pl.concat(tables, how="vertical"))
    if "individual" in names:
        pieces = [
            _table(curve, job, labels, prediction=prediction).with_columns(row=pl.lit(row, pl.UInt64))
            for curve, each in zip(curves, sums, strict=True)
            if len(curve.places) == 1
            for row, prediction in zip(rows.tolist(), each.individual, strict=False)
        ]
        folder.write("individual", pl.concat(pieces))


def _requested_features(job: ExplainJob, local: bool) -> list[tuple[str, ...]]:
    """Return the requested features and pairs; without a request, the most important features. Raises ConfigError."""
    spec = job.forest.spec
    numeric = {feature.name for feature in spec.features if feature.kind == "numeric"}
    if job.options.features is None:
        order = np.argsort(-job.forest.feature_importances, kind="stable")[:_FEATURES]
        names = [spec.features[place].name for place in order.tolist()]
        important: list[tuple[str, ...]] = [(name,) for name in names if name in numeric or not local]
        if not important:
            raise ConfigError(
                f"effects need features with an order, and all of {listed(names, _NAMED)} are categories; use "
                f"dependence, or name other {api('features')}"
            )
        return important
    chosen = [several(features) for features in job.options.features]
    for features in chosen:
        if len(features) > 2:
            raise ConfigError(f"{api('features')} must be names or pairs of names, not {list(features)}")
        if local and (categories := sorted(set(features) - numeric)):
            raise ConfigError(
                f"effects need features with an order, and {categories[0]!r} is a category; use dependence"
            )
    return chosen


def _curve(job: ExplainJob, names: tuple[str, ...], rows: NDArray[np.uint32], local: bool) -> Curve:
    table = job.table
    places = tuple(job.options.places(names, job.forest.spec, api("features")))
    grids = tuple(_grid(job, table, place, rows, local) for place in places)
    return Curve(names, places, grids, local)


def _grid(job: ExplainJob, table: RowTable, place: int, rows: NDArray[np.uint32], local: bool) -> NDArray[np.float64]:
    """Return the values at which a feature is evaluated.

    number    all values in the rows; if these are too many, as many quantiles as requested, each the value of a row.
              Local effects may have fewer: equal quantiles count once
    category  all levels in the rows; levels that did not occur in training only if trees split on values of levels

    If no tree uses the feature, its local effects are 0, and one value is enough. If it is missing in all rows, the
    only value is 0.
    """
    feature, column = job.forest.spec.features[place], table.column_of.get(place)
    if column is not None:
        values = table.values()[rows, column].astype(np.float64)
    else:
        assert job.source is not None
        values = unused_values(job.forest, job.source, place, rows)
    grid = np.unique(values[~np.isnan(values)])
    if feature.kind == "category":
        return grid if feature.has_level_values else grid[grid < feature.codes]
    if grid.size > job.options.grid:
        distinct, grid = grid, quantile_grid(values[~np.isnan(values)], job.options.grid)
        if not local and grid.size < job.options.grid:  # many rows share a value: quantiles of the other values, too
            others = np.setdiff1d(distinct, grid)
            grid = np.union1d(grid, quantile_grid(others, job.options.grid - grid.size))
    if local and column is None:
        grid = grid[:1]
    return grid if grid.size else np.zeros(1)


def _sums(
    job: ExplainJob,
    plan: SectionPlan,
    name: str,
    rules: ContributionRules,
    curves: list[Curve],
    rows: NDArray[np.uint32],
) -> list[CurveSums]:
    """Return the sums of each curve over the rows."""
    step = _piece_rows(max(len(curve.points) for curve in curves), _answer_width(job))
    pieces = [(range(begin, end),) for begin, end in row_ranges(rows.size, step)]
    sweep = job.sweep(plan, _swept_classes(job))
    shared = (sweep, job.power, rules.chosen, curves, rows, job.options.individual)
    sums = job.over_rows(name, plan, vary_rows, pieces, shared)
    joined = []
    for of_curve in zip(*sums, strict=True):
        total, counted = np.zeros(of_curve[0].total.shape), np.zeros(of_curve[0].rows.shape, np.int64)
        for piece in of_curve:  # in the order of the rows
            total += piece.total
            counted += piece.rows
        joined.append(CurveSums(total, counted, np.concatenate([piece.individual for piece in of_curve])))
    return joined


def vary_rows(
    sweep: Sweep,
    power: float,
    classes: tuple[int, ...],
    curves: list[Curve],
    rows: NDArray[np.uint32],
    individual: int,
    positions: range,
) -> list[CurveSums]:
    """Task: return the sums of each curve over the rows at these positions in `rows`.

    power       power of the shares of votes
    classes     codes of the explained classes; (0,) for regression
    individual  number of first rows in `rows` whose own curves are kept
    """
    from bigforest.kernels.explain.replace import VaryScratch, vary

    chosen = np.ascontiguousarray(rows[positions.start : positions.stop])
    points = [_points_of(curve, sweep.table, chosen) for curve in curves]
    replaced = [_replaced(curve, sweep.table) for curve in curves]
    scratch = [VaryScratch(*(np.empty(each.shape[1], np.uint32) for _ in range(5))) for each in points]

    def varied(trees: Iterable[tuple[LoadedTree, NDArray[np.float64]]], width: int) -> list[NDArray[np.float64]]:
        out = [np.zeros((chosen.size, curve_points.shape[1], width)) for curve_points in points]
        for tree, answer in trees:
            for curve_rows, *arrays in zip(replaced, points, scratch, out, strict=True):
                vary(tree.walked, np.uint64(tree.begin), answer, curve_rows, chosen, *arrays)
        return out

    out = [curve_sums / sweep.stock.tree_count for curve_sums in varied(sweep.trees(), len(sweep.classes))]
    stage = sweep.stock.stage
    if stage is not None:
        added = varied(sweep.stage_trees(), stage.link.outputs)
        out = [_at_points(stage.predictions, plain, more)[..., classes] for plain, more in zip(out, added, strict=True)]
    elif power != 1.0:
        out = [_at_points(partial(probabilities, power=power), shares)[..., classes] for shares in out]
    kept = max(0, min(positions.stop, individual) - positions.start)
    return [
        _sum_rows(curve, curve_points, curve_sums, kept)
        for curve, curve_points, curve_sums in zip(curves, points, out, strict=True)
    ]


def _at_points(function: Callable[..., NDArray[np.float64]], *values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the results of a function at all points of rows, float64 [rows, points, classes].

    function  function of arrays of rows [rows, values] that returns [rows, classes]
    values    arguments of the function, but float64 [rows, points, values]
    """
    found = function(*(each.reshape(-1, each.shape[2]) for each in values))
    return found.reshape(*values[0].shape[:2], -1)


def _points_of(curve: Curve, table: RowTable, rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the points at which rows are evaluated, as positions in `curve.points`, uint32 [1, points].

    For local effects, return the corners of the cell of each row, uint32 [rows, corners].
    """
    if not curve.local:
        return np.arange(len(curve.points), dtype=np.uint32)[None]
    corners = np.zeros((rows.size, 1), np.int64)
    for place, grid in zip(curve.places, curve.grids, strict=True):
        upper = cell_of(table, place, grid, rows)
        sides = np.maximum(np.stack([upper - 1, upper], axis=1), 0)
        corners = (corners[:, :, None] * grid.size + sides[:, None, :]).reshape(rows.size, -1)
    return np.ascontiguousarray(corners.astype(np.uint32))


def cell_of(table: RowTable, place: int, grid: NDArray[np.float64], rows: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the cell of each row, int64 [rows]: the position, from 1 on, of the grid value at its upper end.

    Values outside the grid belong to the outermost cells. Missing values, and a grid of one value, have the cell 0.
    """
    column = table.column_of.get(place)
    if column is None or grid.size < 2:
        return np.zeros(rows.size, np.int64)
    values = table.values()[rows, column].astype(np.float64)
    upper = np.clip(np.searchsorted(grid, values, side="left"), 1, grid.size - 1)
    return np.where(np.isnan(values), 0, upper)


def _replaced(curve: Curve, table: RowTable) -> Any:
    """Return the rows with the points of a curve in place of their values, as Replaced of kernels/explain/step.py."""
    values, column_of = table.values(), table.column_of
    varied = [at for at, place in enumerate(curve.places) if place in column_of]
    columns = np.array([column_of[curve.places[at]] for at in varied], np.uint64)
    return replace_columns(values, curve.points.T[varied].astype(values.dtype, order="C"), columns, 0)


def _sum_rows(curve: Curve, points: NDArray[np.uint32], predictions: NDArray[np.float64], kept: int) -> CurveSums:
    """Return the sums of a curve over some rows.

    points       see `_points_of`; for local effects, the corners of a cell, from the lowest to the highest values. At a
                 missing value, lower and upper corners are the same, and the row is in no cell
    predictions  float64 [rows, points of a row, classes]
    kept         number of first rows whose own curves are kept
    """
    individual = predictions[:kept].copy()
    if not curve.local:
        return CurveSums(predictions.sum(axis=0), np.full(predictions.shape[1], len(predictions)), individual)
    size = len(curve.points)
    in_cell = points[:, 0] != points[:, -1]
    change = predictions[:, -1] - predictions[:, 0]
    if len(curve.places) == 2:
        width, lower, upper = curve.grids[1].size, points[:, 0], points[:, 3]
        in_cell = (lower // width != upper // width) & (lower % width != upper % width)
        change = (predictions[:, 3] - predictions[:, 2]) - (predictions[:, 1] - predictions[:, 0])
    total, cells = np.zeros((size, predictions.shape[2])), points[in_cell, -1]
    np.add.at(total, cells, change[in_cell])
    return CurveSums(total, np.bincount(cells, minlength=size), predictions[:0])


def _columns(curve: Curve, job: ExplainJob) -> dict[str, Any]:
    """Return the columns of feature names, values and levels of the points of a curve."""
    spec, points = job.forest.spec, curve.points
    columns: dict[str, Any] = {}
    ends = [""] if len(curve.places) == 1 else ["_a", "_b"]
    for at, (end, place, name) in enumerate(zip(ends, curve.places, curve.names, strict=True)):
        feature = spec.features[place]
        columns[f"feature{end}"] = pl.Series([name] * len(points), dtype=pl.String)
        category = feature.kind == "category"
        columns[f"value{end}"] = pl.Series([None] * len(points) if category else points[:, at], dtype=pl.Float64)
        levels: list[str | None] = [None] * len(points)
        if feature.has_level_values:
            texts = {value: _text_of(job, place, value) for value in np.unique(points[:, at]).tolist()}
            levels = [texts[value] for value in points[:, at].tolist()]
        elif category:
            names = [*([None] if feature.missing else []), *job.forest.levels.of(place).to_list()]
            levels = [names[int(code)] for code in points[:, at]]
        columns[f"level{end}"] = pl.Series(levels, dtype=pl.String)
    return columns


def _text_of(job: ExplainJob, place: int, value: float) -> str | None:
    """Return the levels that a value represents, as a text; None if it represents only the missing level."""
    feature = job.forest.spec.features[place]
    names = job.forest.levels.between(place, feature, np.nextafter(value, -np.inf), value)
    if names == [None]:
        return None
    return listed(["missing" if name is None else name for name in names], _NAMED) if names else "other"


def _table(curve: Curve, job: ExplainJob, labels: pl.Series | None, **values: NDArray[Any]) -> pl.DataFrame:
    """Return a table with one row per class and point.

    values  further columns by name, each an array [points, classes]
    """
    base = pl.DataFrame(_columns(curve, job))
    pieces = []
    for k in range(1 if labels is None else len(labels)):
        label = [] if labels is None else [labels.alias("class").new_from_index(k, base.height)]
        columns = [pl.Series(name, np.ascontiguousarray(value[:, k])) for name, value in values.items()]
        pieces.append(base.with_columns(*label, *columns))
    return pl.concat(pieces)


def _effects(curve: Curve, sums: CurveSums, job: ExplainJob, labels: pl.Series | None) -> pl.DataFrame:
    """Return the table of local effects: mean changes are added up over the values, and centred."""
    sizes = [grid.size for grid in curve.grids]
    rows = sums.rows.reshape(sizes)
    effect = sums.mean.reshape(*sizes, -1)
    for axis in range(len(sizes)):
        effect = np.cumsum(effect, axis=axis)
    effect = _centre(effect, rows) if len(sizes) == 1 else _subtract_main(effect, rows)
    counts = np.repeat(sums.rows[:, None], effect.shape[-1], axis=1)
    return _table(curve, job, labels, effect=effect.reshape(len(sums.rows), -1), rows=counts)


def _centre(effect: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Centre effects to mean 0 over the rows. Each row counts at the middle of its interval."""
    if effect.shape[0] < 2 or not rows.sum():
        return np.zeros(effect.shape)
    middle = (effect[1:] + effect[:-1]) / 2
    return effect - (rows[1:, None] * middle).sum(axis=0) / rows.sum()


def _subtract_main(effect: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Subtract the main effects of the two features, and centre to mean 0 over the rows."""
    inner = rows[1:, 1:, None]
    if not inner.size or not inner.sum():
        return np.zeros(effect.shape)

    def main(axis: int) -> NDArray[np.float64]:
        """Return the main effect of one feature, [values, classes]: mean steps over the rows, added up."""
        step = np.diff(effect, axis=axis)
        across = 1 - axis
        both = (step.take(range(1, step.shape[across]), across) + step.take(range(step.shape[across] - 1), across)) / 2
        weight = np.maximum(inner.sum(axis=across), 1)
        slope = (inner * both).sum(axis=across) / weight
        return np.concatenate([np.zeros((1, slope.shape[1])), np.cumsum(slope, axis=0)])

    remainder = effect - main(0)[:, None] - main(1)[None]
    middle = (remainder[1:, 1:] + remainder[1:, :-1] + remainder[:-1, 1:] + remainder[:-1, :-1]) / 4
    return remainder - (inner * middle).sum(axis=(0, 1)) / inner.sum()
