"""The out-of-bag report: every row is predicted by the trees whose bags leave it out (Breiman 2001, section 3.1).

A tree votes on the rows that are not in its bag. Rows are identified by their numbers, not by their values. The error
is the share of wrongly predicted rows among the rows that at least one tree leaves out (Tomasi 2017, section 6); for
regression, the mean loss of these rows. Ties go to the lowest class. Rows count by their weights, as in growing.
`write_oob`:

1. Find the leaves of out-of-bag rows that were not written while the trees grew (leaves.py).
2. Choose lambda, unless it is given, by the losses of the votes with each lambda (tally.py, choice.py).
3. For each range of rows that fits in memory (plan.py), add up the votes of all trees, in their order (tally.py).
4. Choose the power of the shares of classes, unless it is given, by the losses of these votes.
5. Grow the boosted stage on these predictions, unless it is off (refine.py).
6. Write the rows, one file of 262,144 rows per task (`write_report_rows`). The tasks return sums, which are joined.
7. Write the small files from the sums: curve, metrics and, for classes, the confusion matrix.

Votes are added in the order of the trees. All other statistics are counts and sums of integers. The report therefore
does not depend on the ranges of rows and the distribution of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, arrow_table
from bigforest.columns.labels import stored_labels
from bigforest.errors import ConfigError, listed
from bigforest.events import Listener, Notice, stage
from bigforest.execution.executor import Executor
from bigforest.forest.ballots import lambdas_to_try, leaf_lambdas
from bigforest.forest.files import Header, read_tree_votes, write_tables
from bigforest.forest.format import METRICS, VOTES, oob_formats
from bigforest.forest.leaf_votes import FOLDER, LeafFile, write_votes
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.oob_report import ROWS_OF_FILE, oob_rows_path
from bigforest.forest.run_file import Choices, Power, Rounds, Shrinkage
from bigforest.grow.forest import ForestJob, divide_into_parts
from bigforest.grow.refine import in_sample, stage_bags
from bigforest.metrics.classes import Area, ClassMetrics, Metrics, curves_of
from bigforest.metrics.numbers import NumberSums
from bigforest.oob.accumulator import OobAccumulator, RangeTally, number_loss, read_tally, row_weights
from bigforest.oob.choice import ChoiceLosses, choose, no_losses, powers_to_try
from bigforest.oob.leaves import OobTrees
from bigforest.oob.plan import max_scores
from bigforest.oob.refine import SampledRows, grow_refinement, refines, row_tiles, with_code_thresholds
from bigforest.oob.score_files import CELLS, area_of_files, write_scores
from bigforest.oob.tally import TallyInputs, lambda_losses, tally_range
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import keep_freed
from bigforest.predict.predictor import deviation
from bigforest.predict.refine import BoostedStage
from bigforest.predict.vote_rule import as_probabilities
from bigforest.storage.atomic import TemporaryFolder, remove, remove_files
from bigforest.store.store import Store

# Pairs of true and predicted class are counted in a table for up to this many classes, and by sorting for more.
_FEW = 256
# Without a budget, freed memory is kept for the next file of leaves, except for arrays of at least this many bytes.
_LARGE = 16 << 20

Result = TypeVar("Result")


class ReportInputs(NamedTuple):
    """Data shared by the tasks that write rows.

    directory  directory of the forest
    scratch    folder for the files of scores that do not fit in memory
    scores     most distinct scores in memory at a time
    power      power to which shares of classes are raised
    boosted    trees of the boosted stage, converted by `with_code_thresholds`; None without a stage
    """

    store: Store
    config: TrainConfig
    directory: Path
    scratch: Path
    scores: int
    power: float
    boosted: TreeArrays | None = None


class OobVotes(NamedTuple):
    """The votes on all rows, and the choices that follow from them.

    tallies  the votes, in the order of the rows
    changes  int64 [3, trees], changes of the error by each tree, see TalliedRange
    """

    shrinkage: Shrinkage
    power: Power
    tallies: list[RangeTally]
    changes: NDArray[np.int64]


def write_oob(job: ForestJob, lambdas: tuple[float, ...] | None = None) -> Choices:
    """Write the report of a grown forest: oob/rows*.parquet, curve, metrics and, for classes, confusion.

    lambdas  lambdas to choose from, for a forest that is shrunk again; None for those of the configuration
             (lambdas_to_try)

    Returns the shrinkage, the power and the boosted rounds of the report, which does not depend on the resources. The
    files of leaves are read twice if lambda is chosen, and removed at the end. Memory: `oob_estimate` for the nodes of
    the forest. Raises FormatError if the trees cannot be read, and ConfigError without bootstrap, for too little memory
    and for a requested boosted stage that is impossible.
    """
    store, config, directory, resources, listener = job
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    width = store.spec.target.answer_width
    tried = lambdas_to_try(config, store.rows, width) if lambdas is None else lambdas
    # If `lambdas` are given, the forest is shrunk again, and loses its boosted stage.
    refining = lambdas is None and refines(config, store.rows, width)
    leaves = OobTrees(job, len(tried))
    leaves.plan.need.check(resources.memory)
    if resources.memory is None:
        keep_freed(_LARGE)
    with TemporaryFolder(resources.scratch) as folder:
        votes = _add_up_votes(job, leaves, tried, folder)
        if not config.keep_votes:
            remove_files([path for file in leaves.files for path in file.paths])
        scores = max_scores(store.rows, curves_of(width), limited=resources.memory is not None)
        inputs, rounds = ReportInputs(store, config, directory, folder, scores, votes.power.amount), Rounds()
        if refining:
            boosted, rounds = grow_refinement(job, _sampled_rows(inputs, votes.tallies), leaves.leaves_per_tree)
            if boosted is not None:
                inputs = inputs._replace(boosted=with_code_thresholds(store, boosted))
        with stage("oob", 1, "reports", listener) as progress:
            executor = resources.executor(1 if resources.memory is not None else resources.workers)
            tables = write_report(inputs, votes, executor)
            # With replacement, the bags of few trees may all contain the rows of a class by chance.
            if "confusion" in tables and not config.replace:
                _tell_of_classes(stored_labels(store.spec.target), tables["confusion"]["truth"], listener)
            if config.keep_votes:
                _write_votes(job, leaves.files)
            progress.advance(1)
    remove(directory / FOLDER)
    return Choices(votes.shrinkage, votes.power, rounds)


def _add_up_votes(job: ForestJob, leaves: OobTrees, tried: tuple[float, ...], folder: Path) -> OobVotes:
    """Find missing leaves, choose lambda among `tried`, add up the votes, and choose the power.

    folder  scratch folder
    """
    store, config, directory, resources, listener = job
    executor, ranges = resources.executor(1), leaves.ranges()  # a task uses all threads of its process
    steps = config.trees * len(ranges) * (2 if len(tried) > 1 else 1) + sum(map(len, leaves.missing))
    with stage("oob", steps, "trees", listener) as progress:
        leaves.find_missing(progress.advance, folder)
        inputs = TallyInputs(
            store,
            config,
            groups=leaves.groups(),
            lambdas=tried,
            workers=resources.workers,
            folder=folder,
            in_memory=len(ranges) == 1 and not executor.remote,
            most_bytes=leaves.plan.group_bytes,
            loss=number_loss(store, config),
            votes=read_tree_votes(directory, Header(store.spec, config)),
            powers=powers_to_try(config, store.spec.target.answer_width),
        )
        shrinkage = Shrinkage(tried[0] if tried else 0.0)
        if len(tried) > 1:
            losses = _over_ranges(executor, ranges, progress.advance, lambda_losses, inputs)
            total = reduce(ChoiceLosses.plus, losses, no_losses(len(tried)))
            shrinkage = choose(Shrinkage, tried, total, inputs.loss.unit)
            inputs = inputs._replace(lambdas=leaf_lambdas(config, shrinkage.amount))
        powers, tallies = inputs.powers, list[RangeTally]()
        changes, power_losses = np.zeros((3, config.trees), np.int64), no_losses(len(powers))
        for tallied in _over_ranges(executor, ranges, progress.advance, tally_range, inputs):
            tallies += tallied.tallies
            changes += tallied.changes
            power_losses = power_losses if tallied.losses is None else power_losses.plus(tallied.losses)
    power = choose(Power, powers, power_losses) if len(powers) > 1 else Power(powers[0])
    return OobVotes(shrinkage, power, tallies, changes)


def _over_ranges(
    executor: Executor,
    ranges: Sequence[tuple[int, int]],
    advance: Callable[[int], None],
    task: Callable[..., Result],
    tally_inputs: TallyInputs,
) -> Iterator[Result]:
    """Yield the result of a task of tally.py for each range of rows, in order. A cluster runs several at a time.

    ranges   first row of each range, and the row after its last one
    advance  function that is called with the number of trees whose votes were added up on a range
    """
    remote = executor.remote
    for result in executor.map(task, [(*rows, None if remote else advance) for rows in ranges], (tally_inputs,)):
        yield result
        if remote:
            advance(tally_inputs.config.trees)


def _sampled_rows(inputs: ReportInputs, tallies: Sequence[RangeTally]) -> SampledRows:
    """Return the out-of-bag rows that the boosted stage uses, and their predictions."""
    store, config = inputs.store, inputs.config
    rows, predictions = [], []
    for first, piece in _pieces(store, tallies):
        numbers = np.arange(first, first + piece.voters.size)
        used = np.flatnonzero((piece.voters > 0) & in_sample(store, config, numbers))
        rows.append(numbers[used])
        predictions.append(oob_predictions(piece, config, inputs.power)[used])
    return SampledRows(np.concatenate(rows), np.concatenate(predictions))


def _write_votes(job: ForestJob, files: Sequence[LeafFile]) -> None:
    """Write the leaves of out-of-bag rows as oob/votes/part-*.parquet.

    The votes of an earlier report are removed first: their parts may have other trees.
    """
    store, config, directory, resources, _ = job
    remove(VOTES.at(directory).parent)
    parts = [(trees,) for trees in divide_into_parts(store.rows, config.trees)]
    shared = (directory, store, config, files)
    resources.executor(resources.workers).run(write_votes, parts, shared=shared)


def oob_predictions(accumulator: OobAccumulator, config: TrainConfig, power: float) -> NDArray[np.float64]:
    """Return the out-of-bag predictions of rows by the trees alone, without a boosted stage.

    Returns float64 [rows, classes], probabilities; for regression [rows, 1], numbers. Rows without votes have zeros.
    """
    voters = np.maximum(accumulator.voters, 1)
    votes = accumulator.votes
    if not accumulator.prediction.size:  # a regression
        return votes / voters[:, None]
    total = np.where(accumulator.voters > 0, votes.sum(axis=1), 1.0) if config.weighs_trees else voters
    return as_probabilities(votes / total[:, None], power)


def write_report(inputs: ReportInputs, votes: OobVotes, executor: Executor) -> dict[str, pa.Table]:
    """Write the files of the report. Replace files of a run that was killed. Return the small tables by name."""
    store, config = inputs.store, inputs.config
    by_file = groupby(votes.tallies, lambda tally: tally.start // ROWS_OF_FILE)
    files = [(number, list(tallies)) for number, tallies in by_file]
    report = executor.reduce(write_report_rows, files, join_reports, (inputs,))
    error, reached = error_curve(votes.changes, store, config)
    formats, header = oob_formats(store.spec.target, config.criterion), Header(store.spec, config)
    schemas = {name: file_format.columns for name, file_format in formats.items()}
    curve = pa.Table.from_arrays(
        [
            arrow_array(np.arange(1, error.size + 1, dtype=np.uint32)),
            arrow_array(error, mask=reached == 0),
            arrow_array(reached.astype(np.uint64)),
        ],
        schema=schemas["curve"],
    )
    tables = {"curve": curve, **report.tables(inputs, executor, schemas)}
    for name, table in tables.items():
        write_tables([table], formats[name].at(inputs.directory), formats[name], header)
    return tables


def _tell_of_classes(labels: pa.Array, truth: pa.ChunkedArray, listener: Listener) -> None:
    """Send a notice of the classes without an out-of-bag row, unless no row is out of bag.

    truth  the classes of out-of-bag rows
    """
    present = set(truth.to_pylist())
    absent = [repr(label) for label in labels.to_pylist() if label not in present]
    if present and absent:
        classes = "class" if len(absent) == 1 else "classes"
        listener(
            Notice(
                f"all rows of {classes} {listed(absent, 5)} are in every bag, so the out-of-bag error, losses and "
                "choices are those of the other classes; with smaller bags, some of these rows would be out of bag"
            )
        )


def write_report_rows(inputs: ReportInputs, number: int, tallies: Sequence[RangeTally]) -> NumberReport | ClassReport:
    """Task: write file `number` of the rows of the report. Return the sums over these rows.

    tallies  votes on the rows, in order
    """
    store, spec, config, boosted = inputs.store, inputs.store.spec, inputs.config, inputs.boosted
    report: Any = NumberReport(inputs) if spec.target.is_regression else ClassReport(inputs)
    rows_format, row_numbers = oob_formats(spec.target, config.criterion)["rows"], store.row_numbers
    boosted_stage = None if boosted is None else BoostedStage(spec, config, boosted, boosted.used)

    def tables() -> Iterator[pa.Table]:
        for first, piece in _pieces(store, tallies):
            rows = np.arange(first, first + piece.voters.size)
            predictions = oob_predictions(piece, config, inputs.power)
            if boosted is not None and boosted_stage is not None and rows.size:
                in_bag = stage_bags(store, config, rows)
                boosted_stage.correct_out_of_bag(predictions, row_tiles(store, rows, boosted.used), in_bag)
            truth, prediction, further = report.add(store, piece, first, predictions)
            numbers = rows.astype(np.uint64) if row_numbers is None else row_numbers[rows]
            columns = [arrow_array(numbers), truth, prediction, arrow_array(piece.voters), *further]
            yield pa.Table.from_arrays(columns, schema=rows_format.columns)

    path = oob_rows_path(inputs.directory, number)
    write_tables(tables(), path, rows_format, Header(spec, config))
    return report


def join_reports(first: Any, second: Any) -> Any:
    joined = deepcopy(first)
    joined.join(second)
    return joined


def _pieces(store: Store, tallies: Sequence[RangeTally]) -> Iterator[tuple[int, OobAccumulator]]:
    """Yield the first row and the votes of each row group of the report."""
    for start, stop, tally in tallies:
        yield start, read_tally(tally, stop - start, store.spec) if isinstance(tally, Path) else tally


def error_curve(
    changes: NDArray[np.int64], store: Store, config: TrainConfig
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the error after each tree, and the number of rows that are out of bag for at least one tree so far.

    changes  see TalliedRange

    The error is nan while no row is out of bag.
    """
    change, reached, weight = np.cumsum(changes, axis=1)
    error = np.divide(change, weight, out=np.full(change.size, np.nan), where=reached > 0)
    if store.spec.target.is_regression:
        unit = number_loss(store, config).unit
        error = error / store.spec.weight_unit / unit / unit  # the square of the unit might overflow
    return error, reached


class NumberReport:
    """Sums over the rows of a regression report, from which the small files are made."""

    def __init__(self, inputs: ReportInputs) -> None:
        spec = inputs.store.spec
        total = None if spec.weight is None else spec.weight.total
        self._sums = NumberSums(spec.target.offset, total, poisson=inputs.config.criterion == "poisson")

    def add(
        self, store: Store, accumulator: OobAccumulator, first: int, predictions: NDArray[np.float64]
    ) -> tuple[Any, Any, Sequence[Any]]:
        """Add the rows of a tally that begins with row `first`.

        predictions  of these rows, in the form of `oob_predictions`, corrected by the boosted stage

        Returns columns of the report: truth, prediction, and the columns after `trees`.
        """
        truth = store.numbers(first, first + accumulator.voters.size)
        used, mean = accumulator.voters > 0, predictions[:, 0]
        weight = row_weights(store, first, first + used.size)
        self._sums.add(truth[used], mean[used], None if weight is None else weight[used])
        spread = deviation(accumulator.spread, accumulator.voters)
        return arrow_array(truth), arrow_array(mean, mask=~used), [arrow_array(spread, mask=accumulator.voters < 2)]

    def join(self, other: NumberReport) -> None:
        self._sums.join(other._sums)

    def tables(self, inputs: ReportInputs, executor: Executor, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
        """Return the small files by name, except for the curve."""
        rows = self._sums.rows
        metrics = {"rows": rows} | (asdict(self._sums.result()) if rows else {})
        schema = schemas["metrics"]
        return {"metrics": arrow_table({name: [metrics.get(name)] for name in schema.names}, schema)}


class ClassReport:
    """Sums over the rows of a classification report, from which the small files are made. Methods: see NumberReport.

    Areas under ROC curves need the scores of all rows. If they do not fit in memory, they are written to files
    (score_files.py).
    """

    def __init__(self, inputs: ReportInputs) -> None:
        weight, classes = inputs.store.spec.weight, len(inputs.store.spec.target.classes)
        self._refined = inputs.boosted is not None
        self._pairs = np.zeros((3, 0), np.int64)
        self._metrics = Metrics(classes, inputs.scores, None if weight is None else weight.total)
        self._scratch = inputs.scratch
        self._curves = curves_of(classes)
        self._files: list[list[Path]] = [[] for _ in range(self._curves)]
        self._cells = np.zeros((self._curves, CELLS), np.int64)
        if inputs.store.rows * self._curves > inputs.scores:
            self._metrics.scores = []

    def add(
        self, store: Store, accumulator: OobAccumulator, first: int, predictions: NDArray[np.float64]
    ) -> tuple[Any, Any, Sequence[Any]]:
        labels = stored_labels(store.spec.target)
        truth = store.labels(first, first + accumulator.voters.size)
        used = accumulator.voters > 0
        shares = np.ascontiguousarray(predictions.T)
        weight = row_weights(store, first, first + used.size)
        weight = None if weight is None else weight[used]
        prediction = predictions.argmax(axis=1).astype(np.uint16) if self._refined else accumulator.prediction
        true, predicted, voted_shares = truth[used], prediction[used], np.compress(used, shares, axis=1)
        self._pairs = _add_pairs(self._pairs, _pairs_of(true, predicted, weight, len(shares)))
        self._metrics.add(true, predicted, voted_shares.T, weight)
        if not self._metrics.scores:
            for curve, files in enumerate(self._files):
                code = 1 if self._curves == 1 else curve
                files.append(self._scratch / f"scores-{first}-{code}.bin")
                self._cells[curve] += write_scores(files[-1], voted_shares[code], true == code, weight)
        return (
            labels.take(arrow_array(truth)),
            labels.take(arrow_array(prediction, mask=~used)),
            [arrow_array(share, mask=~used) for share in shares],
        )

    def join(self, other: ClassReport) -> None:
        for files, others in zip(self._files, other._files, strict=True):
            files += others
        self._cells += other._cells
        self._pairs = _add_pairs(self._pairs, other._pairs)
        self._metrics.join(other._metrics)

    def tables(self, inputs: ReportInputs, executor: Executor, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
        metrics, spec = self._metrics, inputs.store.spec
        labels = stored_labels(spec.target)
        areas = [Area().add(scores).value for scores in metrics.scores]
        if self._cells.any():
            pairs = zip(self._files, self._cells, strict=True)
            areas = [area_of_files(files, cells, inputs.scores, executor) for files, cells in pairs]
        pair, rows, weight = self._pairs
        columns = {
            "truth": labels.take(arrow_array(pair // len(labels))),
            "prediction": labels.take(arrow_array(pair % len(labels))),
            "rows": rows.astype(np.uint64),
            "weight": weight * (1.0 if spec.weight is None else spec.weight.step),
        }
        return {
            "confusion": arrow_table(columns, schemas["confusion"]),
            "metrics": _metrics_table(metrics.result_with(areas) if metrics.rows else [], labels, schemas["metrics"]),
        }


def _pairs_of(
    truth: NDArray[np.uint16], prediction: NDArray[np.uint16], weight: NDArray[np.int64] | None, classes: int
) -> NDArray[np.int64]:
    """Count the pairs of true and predicted class, int64 [3, pairs].

    The rows of the result are truth * classes + prediction, ascending; number of rows; sum of their weights.
    """
    pairs = truth.astype(np.int64) * classes + prediction
    pair_codes, places = (np.arange(classes**2), pairs) if classes <= _FEW else np.unique(pairs, return_inverse=True)
    rows = np.bincount(places, minlength=pair_codes.size)
    sums = rows if weight is None else np.zeros_like(rows)
    if weight is not None:
        np.add.at(sums, places, weight)
    return np.stack([pair_codes, rows, sums])[:, rows > 0]


def _add_pairs(*pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add up pairs of true and predicted class; the pairs of the result are ascending.

    pairs  int64 [3, pairs]: truth * classes + prediction; number of rows; sum of their weights
    """
    joined = np.concatenate(pairs, axis=1)
    pair_codes, places = np.unique(joined[0], return_inverse=True)
    sums = np.zeros((3, pair_codes.size), np.int64)
    sums[0] = pair_codes
    for total, added in zip(sums[1:], joined[1:], strict=True):
        np.add.at(total, places, added)
    return sums


def _metrics_table(metrics: list[ClassMetrics], labels: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return oob/metrics.parquet: a row per class and one for all classes.

    Without metrics (no row is out of bag), `rows` and `predicted` are 0, and the other columns are null.
    """
    codes = [*range(len(labels)), None]
    columns: dict[str, Any] = {"class": labels.take(arrow_array(codes, pa.int64()))}
    for name in ("rows", "predicted"):
        columns[name] = [getattr(metric, name) for metric in metrics] or [0] * len(codes)
    for name in METRICS:
        columns[name] = [getattr(metric, name) for metric in metrics] or [None] * len(codes)
    return arrow_table(columns, schema)
