"""Growing trees until the out-of-bag error no longer decreases (TrainConfig.stop_oob).

Trees are grown in batches, in their own folder and files, and evaluated in their order. The size of the batches depends
on the machine, but not where growing stops: trees beyond that are dropped. The others are cut into the parts of a
forest of this many trees, which is identical to one with that `trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bigforest.events import stage
from bigforest.forest.files import Header, write_levels
from bigforest.forest.leaf_votes import found_leaves
from bigforest.forest.origin import Stop
from bigforest.forest.ranks import ranked_store
from bigforest.forest.rewrite import recut
from bigforest.grow.forest import ForestJob, part_groups
from bigforest.oob.monitor import STEP, WINDOW, OobMonitor, settled_at
from bigforest.options.train_config import TrainConfig
from bigforest.storage.atomic import remove
from bigforest.training.weighing import grower_of

# The folder of the growing trees, in that of the forest.
_GROWING = "growing"


def grow_until_settled(
    job: ForestJob, settled: int | None, remember: Callable[[int], None]
) -> tuple[TrainConfig, Stop]:
    """Write trees/part-*.parquet: the trees up to where their error has settled, at most config.trees.

    settled   trees of the forest, where an earlier run has found it; None if it is not known yet.
    remember  is called with it once it is found, before anything else is written.

    Returns the configuration of the forest, with this many trees, and what decided it. The trees of an interrupted run
    are kept. Raises what `grow_forest` and `write_oob` raise.
    """
    store, config, directory, _, _ = job
    assert config.stop_oob is not None
    growing = directory / _GROWING
    parts = [range(tree, tree + 1) for tree in range(config.trees)]  # a task each, so that none is waited for long
    if settled is None:
        growing.mkdir(exist_ok=True)
        settled = _grow(job._replace(directory=growing), parts)
        remember(settled)
    made = replace(config, trees=settled, stop_oob=None)
    used = [part for part in parts if part.start < settled]
    recut(growing, part_groups(store.rows, settled), directory, Header(store.spec, made), used)
    for file in found_leaves(growing, store.rows, store.spec.target.answer_width):
        if file.trees.start < settled:
            file.move(directory)
    remove(growing)
    return made, Stop(float(config.stop_oob), config.trees)


def _grow(job: ForestJob, parts: Sequence[range]) -> int:
    """Grow trees until their error has settled; how many there were then, or all."""
    job = job._replace(store=ranked_store(job.store, job.config, job.directory))
    write_levels(job.directory, job.header())
    config, grower = job.config, grower_of(job)
    with stage("grow", config.trees, "trees", job.listener) as progress, grower, OobMonitor(job) as watch:
        for some in _rounds(parts, max(STEP, grower.trees_per_call)):
            grower.grow(some, progress.advance)
            if job.resources.memory is not None:
                grower.rest()
            settled = settled_at(watch.add(some), config.stop_oob or 0.0)
            if settled is not None:
                return settled
    return config.trees


def _rounds(parts: Sequence[range], trees: int) -> Iterator[list[range]]:
    """The parts that are grown and evaluated together: at first the minimum, then at least this many trees."""
    wanted = 2 * WINDOW
    round_: list[range] = []
    for part in parts:
        round_.append(part)
        if part.stop >= wanted or part is parts[-1]:
            yield round_
            round_, wanted = [], part.stop + trees
