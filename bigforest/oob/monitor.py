"""The out-of-bag error of a growing forest (`--stop-oob`): add the votes of new parts, and test whether it decreases.

Votes are added in the order of the trees, as in the report (report.py), so the errors equal its curve, whichever trees
are evaluated together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.ballots import lambdas_to_try
from bigforest.forest.leaf_votes import step_rows
from bigforest.grow.forest import ForestJob
from bigforest.oob.accumulator import number_loss
from bigforest.oob.leaves import OobTrees
from bigforest.oob.report import error_curve
from bigforest.oob.tally import TallyInputs, tally_further
from bigforest.storage.atomic import TemporaryFolder

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
