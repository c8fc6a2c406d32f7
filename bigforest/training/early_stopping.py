"""Growing trees until the out-of-bag error no longer decreases (TrainConfig.stop_oob).

Trees are grown in rounds, one file each, in a folder of their own, and evaluated in their order. The size of the rounds
depends on the machine, but not where growing stops: trees beyond that are dropped. The others are cut into the parts of
a forest of this many trees, which is identical to one with that option `trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bigforest.events import stage
from bigforest.forest.files import Header, write_levels
from bigforest.forest.leaf_votes import found_leaves
from bigforest.forest.parts import recut
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import Stop
from bigforest.grow.forest import ForestJob, part_groups
from bigforest.oob.monitor import STEP, WINDOW, OobMonitor, settled_at
from bigforest.options.train_config import TrainConfig
from bigforest.storage.atomic import remove
from bigforest.training.growers import grower_of

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
