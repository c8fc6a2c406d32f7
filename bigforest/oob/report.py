"""The files of the out-of-bag report.

The rows are written by tasks, a file each (forest/oob_report.py), which add up what the other files say.

The out-of-bag report: every row is predicted by the trees whose bags leave it out (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the rows that at
least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017, section 6). Ties go to the
lowest class. Rows count by their weights, as in growing.

Where the rows end is known from growing (forest/leaf_votes.py), or found here (vote.py). Votes are added in the
order of the trees, everything else is a count or a sum of integers, so the report depends neither on the ranges of rows
nor on the distribution of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, arrow_table
from bigforest.columns.labels import proba_names, stored_labels
from bigforest.errors import ConfigError
from bigforest.events import stage
from bigforest.execution.executor import Executor
from bigforest.forest.choices import Choices, Power, Shrinkage
from bigforest.forest.files import Header, write_table, write_tables
from bigforest.forest.format import (
    CURVE,
    METRICS,
    POISSON,
    SPREAD,
    confusion,
    metrics,
    number_curve,
    number_metrics,
    oob_rows,
)
from bigforest.forest.leaf_shrinking import lambdas_to_try, leaf_lambdas
from bigforest.forest.leaf_votes import FOLDER, VOTES_FOLDER, step_rows, write_votes
from bigforest.forest.oob_report import ROWS_OF_FILE, oob_rows_path
from bigforest.forest.tree_votes import read_tree_votes
from bigforest.grow.forest import ForestJob
from bigforest.metrics.classes import Area, ClassMetrics, Metrics
from bigforest.metrics.numbers import NumberSums
from bigforest.oob.accumulator import OobAccumulator, RangeTally, number_loss, read_tally, row_weights
from bigforest.oob.choice import choose_power, choose_shrinkage, no_losses, powers_to_try
from bigforest.oob.plan import max_scores
from bigforest.oob.score_files import CELLS, area_of_files, write_scores
from bigforest.oob.tally import TallyInputs, lambda_losses, tally_range
from bigforest.oob.vote import OobTrees
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import keep_freed
from bigforest.predict.predictor import deviation
from bigforest.predict.vote_rule import as_probabilities
from bigforest.storage.atomic import TemporaryFolder, remove
from bigforest.store.store import Store

# Pairs of up to this many classes are counted, those of more are sorted.
_FEW = 256


class ReportPlan(NamedTuple):
    """What the tasks that write rows share.

    directory  of the forest.
    scratch    for the scores of rows, if there are more rows than `scores`.
    scores     different scores held at a time.
    power      to which shares of classes are raised.
    """

    directory: Path
    scratch: Path
    scores: int
    power: float


def write_report(
    store: Store,
    config: TrainConfig,
    plan: ReportPlan,
    tallies: Sequence[RangeTally],
    changes: NDArray[np.int64],
    executor: Executor,
) -> None:
    """Write the files, over those of a run that was killed meanwhile.

    tallies  of all rows, in order; those in files are of the rows of one file of rows each.
    changes  int64 [3, trees], see TalliedRange.
    """
    own = [(number, _within(tallies, start)) for number, start in enumerate(range(0, store.rows, ROWS_OF_FILE))]
    report = executor.reduce(write_report_rows, own, join_sums, (store, config, plan))
    error, reached = error_curve(changes, store, config)
    curve = pa.Table.from_arrays(
        [
            arrow_array(np.arange(1, error.size + 1, dtype=np.uint32)),
            arrow_array(error, mask=reached == 0),
            arrow_array(reached.astype(np.uint64)),
        ],
        schema=report.curve,
    )
    folder, header = plan.directory / "oob", Header(store.spec, config)
    write_table(curve, folder / "curve.parquet", "oob-curve", header)
    for name, table in report.tables(store, plan, executor).items():
        write_table(table, folder / f"{name}.parquet", f"oob-{name}", header)


def _within(tallies: Sequence[RangeTally], first: int) -> list[RangeTally]:
    """The tallies of the rows of the file that begins with row `first`, parts of those that are in memory."""
    found = []
    for start, stop, tally in tallies:
        begin, end = max(start, first), min(stop, first + ROWS_OF_FILE)
        if begin < end:
            part = tally if isinstance(tally, Path) else tally.part(begin - start, end - start)
            found.append(RangeTally(begin, end, part))
    return found


def write_report_rows(
    store: Store, config: TrainConfig, plan: ReportPlan, number: int, tallies: Sequence[RangeTally]
) -> _Numbers | _Classes:
    """Task: write a file of rows; returns the sums over them."""
    spec = store.spec
    report = _Numbers(store, config) if spec.target.is_regression else _Classes(store, config, plan)
    schema = oob_rows(stored_labels(spec.target).type, report.shares)

    def tables() -> Iterator[pa.Table]:
        for first, piece in _pieces(store, tallies):
            columns = _numbered(store, piece, first, *report.add(store, piece, first))
            yield pa.Table.from_arrays(columns, schema=schema)

    write_tables(schema, tables(), oob_rows_path(plan.directory, number), "oob-rows", Header(spec, config))
    return report


def join_sums(one: Any, two: Any) -> Any:
    """The sums over the rows of both."""
    found = deepcopy(one)
    found.join(two)
    return found


def _pieces(store: Store, tallies: Sequence[RangeTally]) -> Iterator[tuple[int, OobAccumulator]]:
    """First row and tally of each row group of a file. Tallies end where row groups do."""
    step = step_rows(store.spec.target.answer_width)
    for start, stop, tally in tallies:
        if isinstance(tally, Path):
            tally = read_tally(tally, stop - start, store.spec)
        for first in range(0, stop - start, step):
            yield start + first, tally.part(first, first + step)


def error_curve(
    changes: NDArray[np.int64], store: Store, config: TrainConfig
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Error after each tree, nan while no row is out of bag, and how many rows are; arguments as in `write_report`."""
    change, reached, weight = np.cumsum(changes, axis=1)
    error = np.divide(change, weight, out=np.full(change.size, np.nan), where=reached > 0)
    if store.spec.target.is_regression:
        unit = number_loss(store, config).unit
        error = error / store.spec.weight_unit / unit / unit  # the square of the unit might overflow
    return error, reached


def _numbered(
    store: Store, accumulator: OobAccumulator, first: int, truth: Any, prediction: Any, shares: Sequence[Any]
) -> list[Any]:
    """The columns of the report's rows of a tally that begins with row `first`."""
    rows = slice(first, first + accumulator.voters.size)
    known = store.row_numbers
    numbers = np.arange(rows.start, rows.stop, dtype=np.uint64) if known is None else known[rows]
    return [arrow_array(numbers), truth, prediction, arrow_array(accumulator.voters), *shares]


class _Numbers:
    """The report for regression: sums over rows, from which all but the rows follow.

    curve   columns of the curve
    shares  names of the columns of a row after the number of its trees
    """

    shares: Sequence[str] = (SPREAD,)

    def __init__(self, store: Store, config: TrainConfig) -> None:
        total = None if store.spec.weight is None else store.spec.weight.total
        self.curve, self._metrics = number_curve(config.criterion), number_metrics(config.criterion)
        self._sums = NumberSums(store.spec.target.offset, total, poisson=POISSON in self._metrics.names)

    def add(self, store: Store, accumulator: OobAccumulator, first: int) -> tuple[Any, Any, Sequence[Any]]:
        """Truth, prediction and shares, or spread, of the rows of a tally that begins with row `first`; adds them."""
        truth = store.numbers(first, first + accumulator.voters.size)
        used = accumulator.voters > 0
        mean = accumulator.votes[:, 0] / np.maximum(accumulator.voters, 1)
        weight = row_weights(store, first, first + used.size)
        self._sums.add(truth[used], mean[used], None if weight is None else weight[used])
        spread = deviation(accumulator.spread, accumulator.voters)
        return arrow_array(truth), arrow_array(mean, mask=~used), [arrow_array(spread, mask=accumulator.voters < 2)]

    def join(self, other: _Numbers) -> None:
        """Add the rows of the other."""
        self._sums.join(other._sums)

    def tables(self, store: Store, plan: ReportPlan, executor: Executor) -> dict[str, pa.Table]:
        """The other files, by name."""
        rows = self._sums.rows
        found = {"rows": rows} | (asdict(self._sums.result()) if rows else {})
        return {"metrics": arrow_table({name: [found.get(name)] for name in self._metrics.names}, self._metrics)}


class _Classes:
    """The report for classes, as `_Numbers`; where two have more rows than scores may be held, these go into files."""

    curve = CURVE

    def __init__(self, store: Store, config: TrainConfig, plan: ReportPlan) -> None:
        self.shares: Sequence[str] = proba_names(store.spec.target)
        self._weighted, self._power = config.weighs_trees, plan.power
        weight, classes = store.spec.weight, len(store.spec.target.classes)
        self._pairs = np.zeros((3, 0), np.int64)
        self._metrics = Metrics(classes, plan.scores, None if weight is None else weight.total)
        self._scratch = plan.scratch
        self._files: list[Path] = []
        self._cells = np.zeros(CELLS, np.int64)
        if store.rows > plan.scores:
            self._metrics.scores = None

    def add(self, store: Store, accumulator: OobAccumulator, first: int) -> tuple[Any, Any, Sequence[Any]]:
        known = stored_labels(store.spec.target)
        truth = store.labels(first, first + accumulator.voters.size)
        used = accumulator.voters > 0
        shares = self._shares(accumulator, used)
        weight = row_weights(store, first, first + used.size)
        weight = None if weight is None else weight[used]
        prediction = accumulator.prediction
        true, said, given = truth[used], prediction[used], np.compress(used, shares, axis=1)
        self._pairs = _added(self._pairs, _pairs_of(true, said, weight, len(shares)))
        self._metrics.add(true, said, given.T, weight)
        if len(shares) == 2 and self._metrics.scores is None:
            self._files.append(self._scratch / f"scores-{first}.bin")
            self._cells += write_scores(self._files[-1], given[1], true == 1, weight)
        return (
            known.take(arrow_array(truth)),
            known.take(arrow_array(prediction, mask=~used)),
            [arrow_array(share, mask=~used) for share in shares],
        )

    def join(self, other: _Classes) -> None:
        self._files += other._files
        self._cells += other._cells
        self._pairs = _added(self._pairs, other._pairs)
        self._metrics.join(other._metrics)

    def _shares(self, accumulator: OobAccumulator, used: NDArray[np.bool_]) -> NDArray[np.float64]:
        """float64 [classes, rows], the votes divided by the sum of the weights of what voters cast, or their number,
        raised to the power."""
        votes = accumulator.votes
        total = np.where(used, votes.sum(axis=1) if self._weighted else accumulator.voters, 1.0)
        if self._power == 1.0:
            return np.divide(votes.T, total, order="C")
        return np.ascontiguousarray(as_probabilities(votes / total[:, None], self._power).T)

    def tables(self, store: Store, plan: ReportPlan, executor: Executor) -> dict[str, pa.Table]:
        found, known = self._metrics, stored_labels(store.spec.target)
        area = None if found.scores is None else Area().add(found.scores).value
        if self._cells.any():
            area = area_of_files(self._files, self._cells, plan.scores, executor)
        pair, rows, weight = self._pairs
        columns = {
            "truth": known.take(arrow_array(pair // len(known))),
            "prediction": known.take(arrow_array(pair % len(known))),
            "rows": rows.astype(np.uint64),
            "weight": weight * (1.0 if store.spec.weight is None else store.spec.weight.step),
        }
        return {
            "confusion": arrow_table(columns, confusion(known.type)),
            "metrics": _metrics_table(found.result_with(area) if found.rows else [], known),
        }


def _pairs_of(
    truth: NDArray[np.uint16], prediction: NDArray[np.uint16], weight: NDArray[np.int64] | None, classes: int
) -> NDArray[np.int64]:
    """The pairs of true and predicted class that occur, ascending: int64 [3, pairs], truth * classes + prediction, the
    number of rows and the sum of their weights."""
    pairs = truth.astype(np.int64) * classes + prediction
    found, own = (np.arange(classes**2), pairs) if classes <= _FEW else np.unique(pairs, return_inverse=True)
    rows = np.bincount(own, minlength=found.size)
    sums = rows if weight is None else np.zeros_like(rows)
    if weight is not None:
        np.add.at(sums, own, weight)
    return np.stack([found, rows, sums])[:, rows > 0]


def _added(*pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs as of `_pairs_of` in one, each once."""
    joined = np.concatenate(pairs, axis=1)
    found, own = np.unique(joined[0], return_inverse=True)
    sums = np.zeros((3, found.size), np.int64)
    sums[0] = found
    for total, added in zip(sums[1:], joined[1:], strict=True):
        np.add.at(total, own, added)
    return sums


def _metrics_table(found: list[ClassMetrics], known: pa.Array) -> pa.Table:
    """One row per class and one for all, as in oob/metrics.parquet; without rows nothing but their number."""
    codes = [*range(len(known)), None]
    columns: dict[str, Any] = {"class": known.take(arrow_array(codes, pa.int64()))}
    for name in ("rows", "predicted"):
        columns[name] = [getattr(one, name) for one in found] or [0] * len(codes)
    for name in METRICS:
        columns[name] = [getattr(one, name) for one in found] or [None] * len(codes)
    return arrow_table(columns, metrics(known.type))


# Bytes of an array whose memory is not kept for the next file of leaves where there is no budget.
_LARGE = 16 << 20


def write_oob(job: ForestJob, lambdas: tuple[float, ...] | None = None) -> Choices:
    """Write oob/rows.parquet, curve, confusion and metrics of a forest that has been grown.

    lambdas  the lambdas by which its leaves may be shrunk; None for those of the configuration (lambdas_to_try).

    Returns the shrinkage and the power, which the report uses. If lambda is to be chosen, the leaves of rows are read
    twice.

    The files do not depend on the resources. Memory: what `oob_estimate` says for the nodes of the forest. The files of
    leaves are removed. Raises ConfigError without bootstrap or when the memory of `resources` is too little,
    FormatError when the trees cannot be read.
    """
    store, config, directory, resources, listener = job
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width) if lambdas is None else lambdas
    executor = resources.executor(1)  # a task uses all threads of its process
    leaves = OobTrees(job, len(tried))
    leaves.plan.need.check(resources.memory)
    if resources.memory is None:
        keep_freed(_LARGE)
    ranges = leaves.ranges()
    steps = config.trees * len(ranges) * (2 if len(tried) > 1 else 1) + sum(map(len, leaves.missing))
    with (
        stage("oob", steps, "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        leaves.find_missing(progress.advance)
        in_files = executor.remote or len(ranges) > 1
        groups = leaves.groups()
        tally_folder = folder if in_files else None
        powers = powers_to_try(config, store.spec.target.answer_width)
        votes = read_tree_votes(directory, Header(store.spec, config))
        work = TallyInputs(
            store, config, groups, tried, resources.workers, tally_folder, number_loss(store, config), votes, powers
        )
        tasks = [(*rows, None if executor.remote else progress.advance) for rows in ranges]
        shrinkage = Shrinkage(tried[0] if tried else 0.0)
        if len(tried) > 1:
            losses = no_losses(len(tried))
            for of_range in executor.map(lambda_losses, tasks, (work,)):
                losses = losses.plus(of_range)
                if executor.remote:
                    progress.advance(config.trees)
            shrinkage = choose_shrinkage(tried, losses, store, work.loss.unit)
            work = work._replace(amounts=leaf_lambdas(config, shrinkage.amount))
        tallies: list[RangeTally] = []
        changes, power_losses = np.zeros((3, config.trees), np.int64), no_losses(len(powers))
        for tallied in executor.map(tally_range, tasks, (work,)):
            tallies += tallied.tallies
            changes += tallied.changes
            power_losses = power_losses if tallied.losses is None else power_losses.plus(tallied.losses)
            if executor.remote:
                progress.advance(config.trees)
        del work
        power = choose_power(powers, power_losses, store) if len(powers) > 1 else Power(powers[0])
        if not config.keep_votes:
            executor.discard([path for file in leaves.files for path in file.paths])
        scores = max_scores(store.rows, limited=resources.memory is not None)
        report_plan = ReportPlan(directory, folder, scores, power.amount)
        writers = executor if resources.memory is not None else resources.executor(resources.workers)
        write_report(store, config, report_plan, tallies, changes, writers)
        if config.keep_votes:
            remove(directory / VOTES_FOLDER)  # parts of an earlier report may hold other trees
            shared = (directory, store, config)
            resources.executor(resources.workers).run(
                write_votes, [(file,) for file in leaves.files], lambda *_: None, shared
            )
    remove(directory / FOLDER)
    return Choices(shrinkage, power)
