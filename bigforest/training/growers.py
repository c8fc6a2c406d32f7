"""Growers for forests whose trees depend on more than their bags, and growing until the error no longer decreases.

**Boosting.** Each tree grows on a bag that is drawn by the errors of the earlier trees:

1. Route all rows through the tree that was grown last. Its errors give the weights for the next bag (`RowWeights`).
2. Write the leaves of its out-of-bag rows for the report.
3. Draw the next bag by the weights, and grow a tree on it.

Neither weights nor bags are kept. A resumed run routes all rows through the existing trees and gets the same weights.
Oracle: tests/naive/boosting.py.

**Wide weights.** Trees are grown with narrower weights in a subfolder of the forest, then weighed (oob/weigh.py). Parts
in the forest itself have been weighed, so an interrupted run continues with the parts of the subfolder.

**Early stopping** (TrainConfig.stop_oob). Trees are grown in rounds, one file each, in a folder of their own, and
evaluated in their order. The size of the rounds depends on the machine, but not where growing stops: trees beyond that
are dropped. The others are cut into the parts of a forest of this many trees, which is identical to one with that
option `trees`. `OobMonitor` adds votes in the order of the trees, as the report does (oob/report.py), so the errors
equal its curve, whichever trees are evaluated together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.events import stage
from bigforest.execution.executor import map_on_threads
from bigforest.forest.ballots import Ballots, ballots_of_trees, lambdas_to_try
from bigforest.forest.files import Header, write_levels, write_tree_votes
from bigforest.forest.leaf_votes import LeafWriter, LeftOut, found_leaves, step_rows
from bigforest.forest.nodes import TreeArrays, join_trees, part_path, write_part
from bigforest.forest.parts import is_finished, read_span, recut
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import Stop
from bigforest.grow.forest import ForestJob, Grower, grow_trees, missing_parts, part_groups, shared_of
from bigforest.grow.memory import GrowPlan
from bigforest.oob.accumulator import number_loss
from bigforest.oob.leaves import OobTrees, for_store, leaves_of_rows
from bigforest.oob.report import error_curve
from bigforest.oob.tally import TallyInputs, tally_further
from bigforest.oob.weigh import weigh_estimate, weigh_parts
from bigforest.options.train_config import TrainConfig
from bigforest.predict.groups import survey
from bigforest.predict.packed_trees import PackedTrees, pack
from bigforest.sampling.boosting import RowWeights, TreeVote
from bigforest.storage.atomic import TemporaryFolder, remove
from bigforest.store.format import block_count, block_span

# Folder of the parts that are still to be weighed, in the folder of the forest.
_LIGHT = "light"


def grower_of(job: ForestJob, plan: GrowPlan | None = None, keep: bool = False) -> Grower:
    """Return the grower of the parts of a forest. Parameters as for `Grower`."""
    if job.config.boosts:
        return BoostingGrower(job)
    return WeighingGrower(job, plan) if job.store.spec.wide_weights else Grower(job, plan, keep)


class BoostingGrower(Grower):
    """A `Grower` of one tree after the other. All threads work on one tree at a time, to find the leaves of rows."""

    def __init__(self, job: ForestJob) -> None:
        super().__init__(job)
        store, config, directory, _, _ = job
        for file in found_leaves(directory, store.rows, store.spec.target.answer_width):
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
                self._follow(part, leaves, advance)
            else:
                write_part(directory, part.start, self._grow_part(part, leaves, advance), self._shared.header)
            leaves.write()
        write_tree_votes(directory, self._votes, self._shared.header)

    def _grow_part(self, part: range, leaves: LeafWriter, advance: Callable[[int], None]) -> Iterator[TreeArrays]:
        """Grow the trees of a part, one after the other."""
        store, config, _, resources, _ = self._job
        for tree in part:
            self._shared.sampler.draw_boosted(tree, self._weights.weights)
            [grown] = grow_trees(store, config, range(tree, tree + 1))
            packed = pack([[grown.trees]], store.spec)
            ballots = ballots_of_trees(grown.trees, store.spec.wide_weights)
            self._evaluate(tree, for_store(packed, store, resources.workers), ballots, leaves)
            advance(1)
            yield grown.trees

    def _follow(self, part: range, leaves: LeafWriter, advance: Callable[[int], None]) -> None:
        """Evaluate the trees of an existing part as if they had just been grown."""
        store, _, directory, resources, _ = self._job
        trees = survey(directory, resources.workers, [part])
        for place, tree in enumerate(part):
            self._shared.sampler.draw_boosted(tree, self._weights.weights)
            entry = range(place, place + 1)
            packed = trees.load(entry, resources.workers)
            [span] = trees.spans(entry)
            ballots = ballots_of_trees(join_trees([*read_span(span, trees.header)]), store.spec.wide_weights)
            self._evaluate(tree, for_store(packed, store, resources.workers), ballots, leaves)
            advance(1)

    def _evaluate(self, tree: int, packed: PackedTrees, ballots: Ballots, leaves: LeafWriter) -> None:
        """Route all rows through a tree whose bag has been drawn, and set the weights for the next tree."""
        store, sampler = self._job.store, self._shared.sampler
        answers = _leaf_classes(ballots, len(store.spec.target.classes))
        ends, wrong = np.empty(store.rows, np.uint32), np.empty(store.rows, np.bool_)

        def route(block: int) -> None:
            span = block_span(store.rows, block)
            block_leaves = ends[span.start : span.stop] = leaves_of_rows(store, packed, packed.roots, span)[:, 0]
            wrong[span.start : span.stop] = answers[block_leaves] != store.labels(span.start, span.stop)

        blocks = range(block_count(store.rows))
        store.fetch(packed.used.tolist(), blocks)
        map_on_threads(route, [(block,) for block in blocks], self._job.resources.workers)
        left_out = np.flatnonzero(sampler.bag(tree) == 0).astype(np.uint32)
        leaves.put([LeftOut(left_out, ends[left_out])], ballots)
        self._votes.append(self._weights.add(wrong))


def _leaf_classes(ballots: Ballots, classes: int) -> NDArray[np.uint16]:
    """Return the class that each leaf of a tree predicts: the most frequent one, the lowest among ties.

    uint16 [nodes]; the entries of inner nodes have no meaning.
    """
    answers = ballots.ballot.astype(np.int64)
    mixed = np.flatnonzero((answers >= classes) & (answers < classes + len(ballots.mixed)))
    answers[mixed] = ballots.mixed.argmax(axis=1)[answers[mixed] - classes] if mixed.size else 0
    return answers.astype(np.uint16)


class WeighingGrower(Grower):
    """A `Grower` whose parts are weighed. It keeps no trees in memory, because weighing changes their nodes."""

    def __init__(self, job: ForestJob, plan: GrowPlan | None = None) -> None:
        """Raises ConfigError when the memory is too little, before anything is grown."""
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
            self.rest()
        weigh_parts(self._weighed, self._job.directory, missing, advance)
        for part in missing:
            part_path(self._job.directory, part.start).unlink()


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
        for round_parts in _rounds(parts, max(STEP, grower.trees_per_call)):
            grower.grow(round_parts, progress.advance)
            if job.resources.memory is not None:
                grower.rest()
            converged = settled_at(monitor.add(round_parts), tolerance)
            if converged is not None:
                return converged
    return job.config.trees


def _rounds(parts: Sequence[range], trees: int) -> Iterator[list[range]]:
    """Yield the parts that are grown and evaluated together: at first the minimum, then at least this many trees."""
    end = 2 * WINDOW
    round_: list[range] = []
    for part in parts:
        round_.append(part)
        if part.stop >= end or part is parts[-1]:
            yield round_
            round_, end = [], part.stop + trees
