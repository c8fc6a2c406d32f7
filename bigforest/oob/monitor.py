"""The out-of-bag error of a forest that is growing, and whether it has settled.

Votes are added in the order of the trees, as in the report (pipeline.py), so the errors are those of its curve,
whichever trees are judged together.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.resources import Resources
from bigforest.forest.load.groups import outline, survey
from bigforest.forest.load.vote_rule import answer_width
from bigforest.oob.accumulator import error_unit
from bigforest.oob.plan import choose_oob, cut_ranges, range_rows, step_rows
from bigforest.oob.report import error_curve
from bigforest.oob.shrinkage import lambdas_to_try
from bigforest.oob.vote import VoteInputs, forget_votes, judge_further
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.storage.atomic import TemporaryFolder
from bigforest.store.store import Store

# Trees between two looks at the curve, and trees on either side of a look back.
STEP = 10
WINDOW = 20


def settled_at(error: NDArray[np.float64], tolerance: float) -> int | None:
    """How many trees there were when the error had settled (TrainConfig.stop_oob); None if it has not.

    error  float64 [trees], after each tree; nan while there is none, which never settles.
    """
    for trees in range(2 * WINDOW, error.size + 1, STEP):
        before = math.fsum(error[trees - 2 * WINDOW : trees - WINDOW])
        last = math.fsum(error[trees - WINDOW : trees])
        if before - last <= tolerance * before:
            return trees
    return None


class OobMonitor:
    """The errors of the trees in `directory` so far. A context manager: leaving it removes its files.

    Votes are kept in the scratch folder of `resources`. Memory: what `oob_estimate` says for the trees judged together.
    """

    def __init__(self, store: Store, config: TrainConfig, directory: Path, resources: Resources) -> None:
        self._sampler = Sampler.of(store, config)
        self._directory = directory
        self._resources = resources
        self._step = step_rows(answer_width(store.spec))
        self._unit = error_unit(store) if store.spec.target.task == "regression" else 1.0
        self._files: list[Path] = []
        self._changes = np.zeros((3, config.trees), np.int64)
        self._trees = 0
        # While lambda is to be chosen, trees vote as they are grown.
        tried = lambdas_to_try(config, store.rows, answer_width(store.spec))
        self._lambdas = tried if len(tried) == 1 else ()

    def __enter__(self) -> OobMonitor:
        self._folder = TemporaryFolder(self._resources.scratch)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.remove()

    def add(self, parts: Sequence[range]) -> NDArray[np.float64]:
        """Judge the trees of these parts, which follow those judged before; the error after each tree so far."""
        store, config, resources = self._sampler.store, self._sampler.config, self._resources
        whole = resources.memory is None
        trees = outline(self._directory, parts) if whole else survey(self._directory, resources.workers, parts)
        trees = trees._replace(lambdas=self._lambdas)
        way = choose_oob(store.shape, config, trees.sizes(), trees.first, resources, len(self._lambdas))
        executor = resources.executor(1)  # a task uses all threads of its process
        ranges = cut_ranges(0, store.rows, range_rows(store.shape, way.rows, executor), 1)
        work = VoteInputs(secrets.token_hex(8), trees, way.groups, resources.workers, self._folder.path, self._unit)
        tasks = [(begin, end, self._files[begin // self._step : -(-end // self._step)]) for begin, end in ranges]
        before, self._files = self._files, []
        try:
            for files, changes in executor.map(judge_further, tasks, (self._sampler, work)):
                self._files += files
                self._changes += changes
        finally:
            executor.run_on_all_workers(forget_votes, work.run)
        for file in before:
            file.unlink()
        self._trees = parts[-1].stop
        return error_curve(self._changes[:, : self._trees], store)[0]
