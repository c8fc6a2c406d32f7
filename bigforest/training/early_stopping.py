"""Growing trees until the out-of-bag error no longer decreases (TrainConfig.stop_oob).

Trees are grown in rounds, one file each, in a folder of their own, and evaluated in their order. The size of the rounds
depends on the machine, but not where growing stops: trees beyond that are dropped. The others are cut into the parts of
a forest of this many trees, which is identical to one with that option `trees`.

`OobMonitor` adds votes in the order of the trees, as the report does (oob/report.py), so the errors equal its curve,
whichever trees are evaluated together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.events import stage
from bigforest.forest.ballots import lambdas_to_try
from bigforest.forest.files import Header, write_levels
from bigforest.forest.leaf_votes import found_leaves, step_rows
from bigforest.forest.parts import recut
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import Stop
from bigforest.grow.forest import ForestJob, part_groups
from bigforest.oob.accumulator import number_loss
from bigforest.oob.leaves import OobTrees
from bigforest.oob.report import error_curve
from bigforest.oob.tally import TallyInputs, tally_further
from bigforest.options.train_config import TrainConfig
from bigforest.storage.atomic import TemporaryFolder, remove
from bigforest.training.growers import grower_of

# Trees between two checks of the curve, and trees on either side of a comparison.
STEP = 10
WINDOW = 20


def settled_at(error: NDArray[np.float64], tolerance: float) -> int | None:
    """Return the number of trees after which the error stopped decreasing (TrainConfig.stop_oob); None if it decreases.

    error  float64 [trees], after each tree; nan while there is none, which never settles
    """
    for trees in range(2 * WINDOW, error.size + 1, STEP):
        before = math.fsum(error[trees - 2 * WINDOW : trees - WINDOW])
        last = math.fsum(error[trees - WINDOW : trees])
        if before - last <= tolerance * before:
            return trees
    return None


class OobMonitor:
    """The errors of the trees of a forest so far. A context manager: leaving it removes its files.

    Votes are kept in the scratch folder. Memory: `oob_estimate` for the trees that are evaluated together.
    """

    def __init__(self, job: ForestJob) -> None:
        self._job, store, config = job, job.store, job.config
        self._step = step_rows(store.spec.target.answer_width)
        self._files: list[Path] = []
        self._changes = np.zeros((3, config.trees), np.int64)
        # If lambda is chosen later, trees vote unshrunk.
        tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width)
        self._lambdas = tried if len(tried) == 1 else ()

    def __enter__(self) -> OobMonitor:
        self._folder = TemporaryFolder(self._job.resources.scratch)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.remove()

    def add(self, parts: Sequence[range]) -> NDArray[np.float64]:
        """Evaluate the trees of parts that follow the earlier ones; return the error after each tree so far."""
        store, config, _, resources, _ = self._job
        lambdas, executor = self._lambdas, resources.executor(1)  # a task uses all threads of its process
        leaves = OobTrees(self._job, len(lambdas), parts)
        leaves.find_missing(lambda _: None, self._folder.path)
        ranges, groups = leaves.ranges(), leaves.groups()
        work = TallyInputs(
            store,
            config,
            groups,
            lambdas,
            resources.workers,
            self._folder.path,
            False,
            leaves.plan.group_bytes,
            number_loss(store, config),
        )
        tasks = [(begin, end, self._files[begin // self._step : -(-end // self._step)]) for begin, end in ranges]
        before, self._files = self._files, []
        for written, changes in executor.map(tally_further, tasks, (work,)):
            self._files += written
            self._changes += changes
        for file in before:
            file.unlink()
        return error_curve(self._changes[:, : parts[-1].stop], store, config)[0]


# Folder of the growing trees, in the folder of the forest.
_GROWING = "growing"


def grow_until_converged(
    job: ForestJob, trees: int | None, remember: Callable[[int], None]
) -> tuple[TrainConfig, Stop]:
    """Write trees/part-*.parquet: the trees up to where their error has converged, at most config.trees.

    trees     number of trees of the forest, if an earlier run has found it.
    remember  called with this number once it is found, before anything else is written.

    Returns the configuration of the forest, with this number of trees, and what decided it. The trees of an interrupted
    run are kept. Raises what `grow_forest` and `write_oob` raise.
    """
    store, config, directory, _, _ = job
    assert config.stop_oob is not None
    growing = directory / _GROWING
    parts = [range(tree, tree + 1) for tree in range(config.trees)]  # a task each, so that none is waited for long
    if trees is None:
        growing.mkdir(exist_ok=True)
        trees = _grow(job._replace(directory=growing), parts, config.stop_oob)
        remember(trees)
    final = replace(config, trees=trees, stop_oob=None)
    used = [part for part in parts if part.start < trees]
    recut(growing, part_groups(store.rows, trees), directory, Header(store.spec, final), used)
    for file in found_leaves(growing, store.rows, store.spec.target.answer_width):
        if file.trees.start < trees:
            file.move(directory)
    remove(growing)
    return final, Stop(float(config.stop_oob), config.trees)


def _grow(job: ForestJob, parts: Sequence[range], tolerance: float) -> int:
    """Grow trees until their error has converged. Return how many there were then, or all."""
    job = job._replace(store=ranked_store(job.store, job.config, job.directory))
    write_levels(job.directory, job.header())
    grower = grower_of(job)
    with stage("grow", job.config.trees, "trees", job.listener) as progress, grower, OobMonitor(job) as monitor:
        for some in _rounds(parts, max(STEP, grower.trees_per_call)):
            grower.grow(some, progress.advance)
            if job.resources.memory is not None:
                grower.rest()
            converged = settled_at(monitor.add(some), tolerance)
            if converged is not None:
                return converged
    return job.config.trees


def _rounds(parts: Sequence[range], trees: int) -> Iterator[list[range]]:
    """Yield the parts that are grown and evaluated together: at first the minimum, then at least this many trees."""
    wanted = 2 * WINDOW
    round_: list[range] = []
    for part in parts:
        round_.append(part)
        if part.stop >= wanted or part is parts[-1]:
            yield round_
            round_, wanted = [], part.stop + trees
