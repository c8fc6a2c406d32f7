"""Growers for boosting and for wide weights, and growing until the error no longer decreases.

**Boosting.** Each tree grows on a bag that is drawn by the errors of the earlier trees:

1. Route all rows through the last tree. Its errors determine the weights for the next bag (`RowWeights`).
2. Write the leaves of its out-of-bag rows for the report.
3. Draw the next bag by the weights, and grow a tree on it.

Weights and bags are not stored. A resumed run routes all rows through the existing trees, which yields the same
weights. Oracle: tests/naive/boosting.py.

**Wide weights** (weights of rows with 64 bits). Trees are grown with narrower weights in a subfolder of the forest.
Then their nodes get the wide weights (oob/weigh.py), and the parts are written to the forest. An interrupted run
continues with the parts that are still in the subfolder.

**Early stopping** (TrainConfig.stop_oob). Trees are grown in rounds in a folder of their own, one file for each tree,
and evaluated in their order. The size of the rounds depends on the machine, but the number of trees at which growing
stops does not. Later trees are dropped. The other trees are divided into parts, as in a forest that is trained with
this number of `trees`. `OobMonitor` adds votes in the order of the trees, as the report does (oob/report.py), so its
errors are those of the curve of the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.events import stage
from bigforest.execution.executor import Executor
from bigforest.forest.ballots import lambdas_to_try
from bigforest.forest.files import Header, write_levels, write_tree_votes
from bigforest.forest.format import TREES
from bigforest.forest.leaf_votes import LeafWriter, LeftOut, found_leaves
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.forest.parts import check_part, is_finished, read_trees, recut
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import Stop
from bigforest.grow.forest import ForestJob, Grower, divide_into_parts, grow_trees, missing_parts, shared_of
from bigforest.grow.memory import GrowPlan
from bigforest.oob.accumulator import RangeTally, number_loss
from bigforest.oob.leaves import OobTrees, for_store, leaves_of_rows
from bigforest.oob.report import error_curve
from bigforest.oob.tally import TallyInputs, tally_range
from bigforest.oob.weigh import weigh_estimate, weigh_parts
from bigforest.options.train_config import TrainConfig
from bigforest.predict.packed_trees import pack
from bigforest.sampling.boosting import RowWeights, TreeVote
from bigforest.storage.atomic import TemporaryFolder, remove, remove_files
from bigforest.store.format import block_count, block_span

# Subfolder of the forest for parts that are not weighed yet.
_LIGHT = "light"


def grower_of(job: ForestJob, plan: GrowPlan | None = None, keep: bool = False) -> Grower:
    """Return the grower of the parts of a forest. Parameters as for `Grower`."""
    if job.config.boosts:
        return BoostingGrower(job)
    return WeighingGrower(job, plan) if job.store.spec.wide_weights else Grower(job, plan, keep)


class BoostingGrower(Grower):
    """A `Grower` that grows one tree after the other. All threads route the rows through the new tree."""

    def __init__(self, job: ForestJob) -> None:
        super().__init__(job)
        store, config, directory, _, _ = job
        for file in found_leaves(directory, store.spec):
            file.remove()  # leaves of existing trees are found again with the weights
        self._shared = shared_of(store, config)
        self._weights = RowWeights(store.rows, config)
        self._votes: list[TreeVote] = []

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        """Write all parts of the forest that do not exist, the leaves of out-of-bag rows, and the votes of trees.

        parts  all parts of the forest, in order.
        """
        store, config, directory, _, _ = self._job
        for part in parts:
            leaves = LeafWriter(store, config, directory, part.start)
            if is_finished(directory, part, self._shared.header):
                self._evaluate_part(part, leaves, advance)
            else:
                write_part(directory, part.start, self._grow_part(part, leaves, advance), self._shared.header)
            leaves.write()
        write_tree_votes(directory, self._votes, self._shared.header)

    def _grow_part(self, part: range, leaves: LeafWriter, advance: Callable[[int], None]) -> Iterator[TreeArrays]:
        store, config, _, _, _ = self._job
        for tree in part:
            self._shared.sampler.draw_boosted(tree, self._weights.weights)
            [grown] = grow_trees(store, config, range(tree, tree + 1))
            self._evaluate(tree, grown.trees, leaves)
            advance(1)
            yield grown.trees

    def _evaluate_part(self, part: range, leaves: LeafWriter, advance: Callable[[int], None]) -> None:
        """Evaluate the trees of an existing part as if they had just been grown."""
        span = check_part(TREES.part(self._job.directory, part.start), part, self._shared.header)
        for tree, nodes in zip(part, read_trees(span, self._shared.header), strict=True):
            self._shared.sampler.draw_boosted(tree, self._weights.weights)
            self._evaluate(tree, nodes, leaves)
            advance(1)

    def _evaluate(self, tree: int, nodes: TreeArrays, leaves: LeafWriter) -> None:
        """Route all rows through a tree whose bag has been drawn, and set the weights for the next tree."""
        store, sampler, workers = self._job.store, self._shared.sampler, self._job.resources.workers
        packed = for_store(pack([[nodes]], store.spec), store, workers)
        predicted = nodes.counts.argmax(axis=1)  # the most frequent class, the lowest among ties
        ends, wrong = np.empty(store.rows, np.uint32), np.empty(store.rows, np.bool_)

        def route(block: int) -> None:
            span = block_span(store.rows, block)
            block_leaves = ends[span.start : span.stop] = leaves_of_rows(store, packed, packed.roots, span)[:, 0]
            wrong[span.start : span.stop] = predicted[block_leaves] != store.labels(span.start, span.stop)

        blocks = range(block_count(store.rows))
        store.fetch(packed.used.tolist(), blocks)
        Executor(workers).gather(route, [(block,) for block in blocks])
        left_out = np.flatnonzero(sampler.bag(tree) == 0).astype(np.uint32)
        leaves.add([LeftOut(left_out, ends[left_out])], nodes)
        self._votes.append(self._weights.add(wrong))


class WeighingGrower(Grower):
    """A `Grower` for wide weights. It keeps no trees in memory, because weighing changes their nodes."""

    def __init__(self, job: ForestJob, plan: GrowPlan | None = None) -> None:
        """Prepare the subfolder. Raises ConfigError, before anything is grown, if the memory does not suffice."""
        weigh_estimate(job.store.shape, job.config, job.resources).check(job.resources.memory)
        self._weighed, light = job, job._replace(directory=job.directory / _LIGHT)
        light.directory.mkdir(exist_ok=True)
        write_levels(light.directory, light.header())
        super().__init__(light, plan)

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)
        if failure[0] is None:
            remove(self._job.directory)

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        missing = missing_parts(self._weighed, parts, advance)
        super().grow(missing, lambda _: None)
        if self._job.resources.memory is not None:
            self.free_memory()
        weigh_parts(self._weighed, self._job.directory, missing, advance)
        for part in missing:
            TREES.part(self._job.directory, part.start).unlink()


# Trees between two checks of the curve, and trees on either side of a comparison.
STEP = 10
WINDOW = 20


def converged_at(error: NDArray[np.float64], tolerance: float) -> int | None:
    """Return the number of trees after which the error stopped decreasing (TrainConfig.stop_oob); None if it has not.

    error  float64 [trees], error after each tree; NaN while no row is out of bag. With a NaN in a window, the error has
           not stopped decreasing
    """
    for trees in range(2 * WINDOW, error.size + 1, STEP):
        before = math.fsum(error[trees - 2 * WINDOW : trees - WINDOW])
        last = math.fsum(error[trees - WINDOW : trees])
        if before - last <= tolerance * before:
            return trees
    return None


class OobMonitor:
    """Monitor of the out-of-bag error of a growing forest. A context manager, which removes its files.

    Votes are kept in the scratch folder. Memory: `oob_estimate` for the trees that are evaluated together.
    """

    def __init__(self, job: ForestJob) -> None:
        self._job, store, config = job, job.store, job.config
        self._tallies: list[RangeTally] = []  # votes so far
        self._changes = np.zeros((3, config.trees), np.int64)  # of the error by each tree, see TalliedRange
        # If lambda is chosen after growing, the votes here are unshrunk.
        tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width)
        self._lambdas = tried if len(tried) == 1 else ()

    def __enter__(self) -> OobMonitor:
        self._folder = TemporaryFolder(self._job.resources.scratch)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.remove()

    def add(self, parts: Sequence[range]) -> NDArray[np.float64]:
        """Evaluate the trees of the next parts. Return the error after each tree so far."""
        store, config, _, resources, _ = self._job
        lambdas, executor = self._lambdas, resources.executor(1)  # a task uses all threads of its process
        leaves = OobTrees(self._job, len(lambdas), parts)
        leaves.find_missing(lambda _: None, self._folder.path)
        ranges, groups = leaves.ranges(), leaves.groups()
        inputs = TallyInputs(
            store,
            config,
            groups=groups,
            lambdas=lambdas,
            workers=resources.workers,
            folder=self._folder.path,
            in_memory=False,
            most_bytes=leaves.plan.group_bytes,
            loss=number_loss(store, config),
        )
        before, self._tallies = self._tallies, []
        tasks = [(*rows, None, [tally for start, _, tally in before if start in range(*rows)]) for rows in ranges]
        for tallied in executor.map(tally_range, tasks, (inputs,)):
            self._tallies += tallied.tallies
            self._changes += tallied.changes
        remove_files([tally for _, _, tally in before if isinstance(tally, Path)])
        return error_curve(self._changes[:, : parts[-1].stop], store, config)[0]


# Subfolder of the forest for growing trees.
_GROWING = "growing"


def grow_until_converged(
    job: ForestJob, trees: int | None, remember: Callable[[int], None]
) -> tuple[TrainConfig, Stop]:
    """Write trees/part-*.parquet: the trees until their error converges, at most config.trees.

    trees     number of trees after which the error converged, if an interrupted run has found it; otherwise None.
    remember  function that is called with this number as soon as it is known, before anything else is written.

    Returns the configuration of the forest, with this number of trees, and the record of early stopping. The trees of
    an interrupted run are used. Raises the errors of `grow_forest` and `write_oob`.
    """
    store, config, directory, _, _ = job
    assert config.stop_oob is not None
    growing = directory / _GROWING
    parts = [range(tree, tree + 1) for tree in range(config.trees)]  # a tree is a task, so that waits are short
    if trees is None:
        growing.mkdir(exist_ok=True)
        trees = _grow(job._replace(directory=growing), parts, config.stop_oob)
        remember(trees)
    final = replace(config, trees=trees, stop_oob=None)
    used = [part for part in parts if part.start < trees]
    recut(growing, divide_into_parts(store.rows, trees), directory, Header(store.spec, final), used)
    for file in found_leaves(growing, store.spec):
        if file.trees.start < trees:
            file.move(directory)
    remove(growing)
    return final, Stop(float(config.stop_oob), config.trees)


def _grow(job: ForestJob, parts: Sequence[range], tolerance: float) -> int:
    """Grow trees until their error converges. Return the number of trees at convergence, or of all trees."""
    job = job._replace(store=ranked_store(job.store, job.config, job.directory))
    write_levels(job.directory, job.header())
    grower = grower_of(job)
    with stage("grow", job.config.trees, "trees", job.listener) as progress, grower, OobMonitor(job) as monitor:
        for round_parts in _rounds(parts, max(STEP, grower.least_trees)):
            grower.grow(round_parts, progress.advance)
            if job.resources.memory is not None:
                grower.free_memory()
            converged = converged_at(monitor.add(round_parts), tolerance)
            if converged is not None:
                return converged
    return job.config.trees


def _rounds(parts: Sequence[range], trees: int) -> Iterator[list[range]]:
    """Yield the parts that are grown and evaluated together: first 2 * WINDOW trees, then at least `trees` each."""
    end = 2 * WINDOW
    round_: list[range] = []
    for part in parts:
        round_.append(part)
        if part.stop >= end or part is parts[-1]:
            yield round_
            round_, end = [], part.stop + trees
