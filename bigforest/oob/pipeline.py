"""The out-of-bag report: every row judged by the trees that never saw it (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the rows that at
least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017, section 6). Ties go to the
lowest class. Rows count by their weights, as in growing. Bags are recomputed; the trees are read back from the
forest's own files.

How long a range of rows is and how many trees go together is chosen by training/plan.py; votes are added in the order
of the trees, everything else is a count or a sum of integers, so that it changes no bit of the report.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError
from bigforest.common.events import Listener, Stage, stage
from bigforest.execution.resources import Resources
from bigforest.forest.format.shrinkage import Shrinkage
from bigforest.forest.load.groups import outline, survey
from bigforest.forest.load.load_plan import check_load_budget
from bigforest.forest.load.vote_rule import answer_width
from bigforest.oob.accumulator import OobAccumulator, error_unit, read_tally
from bigforest.oob.plan import choose_oob, cut_ranges, range_rows, step_rows
from bigforest.oob.report import write_report
from bigforest.oob.shrinkage import LambdaLosses, choose, lambdas_to_try
from bigforest.oob.vote import JudgedRange, VoteInputs, forget_votes, judge_range
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec
from bigforest.storage.atomic import TemporaryFolder
from bigforest.store.store import Store


def write_oob(
    store: Store,
    config: TrainConfig,
    directory: Path,
    *,
    resources: Resources,
    listener: Listener,
    lambdas: tuple[float, ...] | None = None,
) -> Shrinkage:
    """Write oob/rows.parquet, curve, confusion and metrics of the forest grown into `directory`.

    lambdas  by what its leaves may be shrunk; None for what the configuration asks for (lambdas_to_try).

    Returns by what they are; the report is of leaves so shrunk. Where lambda is to be chosen, rows have votes by each,
    and the trees are gone down once: the votes wait in memory, or, where ranges of rows are judged one after the other,
    in scratch.

    The files do not depend on the resources. Memory: what `oob_estimate` says for the nodes of the forest. Raises
    ConfigError without bootstrap or when the memory of `resources` is too little, FormatError when the trees cannot
    be read.
    """
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    trees = outline(directory) if resources.memory is None else survey(directory, resources.workers)
    tried = lambdas_to_try(config, store.rows, answer_width(store.spec)) if lambdas is None else lambdas
    trees = trees._replace(lambdas=tried)
    way = choose_oob(store.shape, config, trees.sizes(), trees.first, resources, len(tried))
    if resources.memory is not None:
        check_load_budget("the out-of-bag report", way.need, resources.memory)
    unit = error_unit(store) if store.spec.target.task == "regression" else 1.0
    executor = resources.executor(1)  # a task uses all threads of its process
    ranges = cut_ranges(0, store.rows, range_rows(store.shape, way.rows, executor), 1)
    with (
        stage("oob", config.trees * len(ranges), "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        in_files = executor.remote or (len(tried) > 1 and len(ranges) > 1)
        kept = folder if in_files else None
        work = VoteInputs(secrets.token_hex(8), trees, way.groups, resources.workers, kept, unit)
        advance = None if executor.remote else progress.advance
        try:
            found = executor.map(judge_range, [(*rows, advance) for rows in ranges], (Sampler.of(store, config), work))
            judged = _told(found, progress if executor.remote else None)
            shrinkage, place = Shrinkage(tried[0] if tried else 0.0), 0
            if len(tried) > 1:
                # Lambda is known once all rows are judged.
                whole = list(judged)
                losses = reduce(LambdaLosses.plus, (own for *_, own in whole if own is not None))
                shrinkage = choose(tried, losses, store, unit)
                place, judged = tried.index(shrinkage.amount), _taken(whole)
                del whole
            changes = np.zeros((3, config.trees), np.int64)
            pieces = _pieces(judged, ranges, store.spec, changes, place, work.lambdas)
            write_report(store, config, directory / "oob", pieces, changes)
        finally:
            executor.run_on_all_workers(forget_votes, work.run)
    return shrinkage


def _told(judged: Iterator[JudgedRange], progress: Stage | None) -> Iterator[JudgedRange]:
    """What was judged, told to `progress` as it comes."""
    for found in judged:
        if progress is not None:
            progress.advance(found.changes.shape[1])
        yield found
        del found  # the caller alone has it


def _taken(whole: list[JudgedRange]) -> Iterator[JudgedRange]:
    """The entries of the list, which loses each as it is given."""
    whole.reverse()
    while whole:
        yield whole.pop()


def _pieces(
    judged: Iterator[JudgedRange],
    ranges: Sequence[tuple[int, int]],
    spec: DataSpec,
    changes: NDArray[np.int64],
    place: int,
    lambdas: int,
) -> Iterator[tuple[int, OobAccumulator]]:
    """First row and tally of every `step_rows` rows of each range, in order; adds to `changes` int64 [3, trees].

    place  of the lambda whose votes are reported, among `lambdas`.
    """
    step = step_rows(answer_width(spec))
    for begin, end in ranges:
        accumulator, change, _ = next(judged)
        changes += change[[place, -2, -1]]
        if isinstance(accumulator, Path):
            path, accumulator = accumulator, read_tally(accumulator, end - begin, spec, lambdas)
            path.unlink()
        accumulator = accumulator.by(place, lambdas)
        for start in range(0, end - begin, step):
            yield begin + start, OobAccumulator._make(array.copy() for array in accumulator.part(start, start + step))
        del accumulator  # nobody has a part of it, so that it is gone before the next range is judged
