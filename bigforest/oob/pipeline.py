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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError
from bigforest.common.events import Listener, Stage, stage
from bigforest.execution.resources import Resources
from bigforest.forest.load.groups import outline, survey
from bigforest.forest.load.vote_rule import answer_width
from bigforest.oob.accumulator import OobAccumulator, error_unit, read_tally
from bigforest.oob.plan import choose_oob, cut_ranges, range_rows, step_rows
from bigforest.oob.report import write_report
from bigforest.oob.vote import VoteInputs, forget_votes, judge_range
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec
from bigforest.storage.atomic import TemporaryFolder
from bigforest.store.store import Store


def write_oob(store: Store, config: TrainConfig, directory: Path, *, resources: Resources, listener: Listener) -> None:
    """Write oob/rows.parquet, curve, confusion and metrics of the forest grown into `directory`.

    The files do not depend on the resources. Memory: what `oob_estimate` says for the nodes of the forest. Raises
    ConfigError without bootstrap or when the memory of `resources` is too little, FormatError when the trees cannot
    be read.
    """
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    trees = outline(directory) if resources.memory is None else survey(directory, resources.workers)
    way = choose_oob(store.shape, config, trees.sizes(), trees.first, resources)
    way.need.check(resources.memory, "the out-of-bag report")
    changes = np.zeros((3, config.trees), dtype=np.int64)
    unit = error_unit(store) if store.spec.target.task == "regression" else 1.0
    executor = resources.executor(1)  # a task uses all threads of its process
    ranges = cut_ranges(0, store.rows, range_rows(store.shape, way.rows, executor), 1)
    with (
        stage("oob", config.trees * len(ranges), "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        work = VoteInputs(
            secrets.token_hex(8), trees, way.groups, resources.workers, folder if executor.remote else None, unit
        )
        advance = None if executor.remote else progress.advance
        try:
            judged = executor.map(judge_range, [(*rows, advance) for rows in ranges], (Sampler.of(store, config), work))
            pieces = _pieces(judged, ranges, store.spec, changes, progress if executor.remote else None)
            write_report(store, config, directory / "oob", pieces, changes)
        finally:
            executor.run_on_all_workers(forget_votes, work.run)


def _pieces(
    judged: Iterator[tuple[OobAccumulator | Path, NDArray[np.int64]]],
    ranges: Sequence[tuple[int, int]],
    spec: DataSpec,
    changes: NDArray[np.int64],
    progress: Stage | None,
) -> Iterator[tuple[int, OobAccumulator]]:
    """First row and tally of every `step_rows` rows of each range, in order; adds to `changes` int64 [3, trees]."""
    step = step_rows(answer_width(spec))
    for begin, end in ranges:
        accumulator, change = next(judged)
        changes += change
        if progress is not None:
            progress.advance(change.shape[1])
        if isinstance(accumulator, Path):
            path, accumulator = accumulator, read_tally(accumulator, end - begin, spec)
            path.unlink()
        for start in range(0, end - begin, step):
            yield begin + start, OobAccumulator._make(array.copy() for array in accumulator.part(start, start + step))
        del accumulator  # nobody has a part of it, so that it is gone before the next range is judged
