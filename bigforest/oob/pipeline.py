"""The out-of-bag report: every row judged by the trees that never saw it (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the rows that at
least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017, section 6). Ties go to the
lowest class. Rows count by their weights, as in growing.

Where the rows end is known from growing (forest/votes/leaf_files.py), or found here (vote.py). Votes are added in the
order of the trees, everything else is a count or a sum of integers, so that neither the ranges of rows nor who did what
changes a bit of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError
from bigforest.common.events import Listener, Stage, stage
from bigforest.execution.resources import Resources
from bigforest.forest.load.groups import Trees, outline, survey
from bigforest.forest.load.load_plan import cut
from bigforest.forest.load.vote_rule import answer_width
from bigforest.forest.votes.kept_votes import write_votes
from bigforest.forest.votes.leaf_files import FOLDER, LeafFile, step_rows
from bigforest.oob.accumulator import OobAccumulator, error_unit, read_tally
from bigforest.oob.plan import OobPlan, choose_oob, cut_ranges, range_rows
from bigforest.oob.report import write_report
from bigforest.oob.tally import TallyInputs, tally_range
from bigforest.oob.vote import find_leaves, known_leaves, runs_of
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec
from bigforest.storage.atomic import TemporaryFolder, remove
from bigforest.store.store import Store


def write_oob(store: Store, config: TrainConfig, directory: Path, *, resources: Resources, listener: Listener) -> None:
    """Write oob/rows.parquet, curve, confusion and metrics of the forest grown into `directory`.

    The files do not depend on the resources. Memory: what `oob_estimate` says for the nodes of the forest. The files of
    leaves are removed. Raises ConfigError without bootstrap or when the memory of `resources` is too little,
    FormatError when the trees cannot be read.
    """
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    files, missing = known_leaves(directory, store, config)
    changes = np.zeros((3, config.trees), dtype=np.int64)
    executor = resources.executor(1)  # a task uses all threads of its process
    way = choose_oob(store.shape, config, loaded_sizes(directory, files, missing, resources), resources)
    way.need.check(resources.memory, "the out-of-bag report")
    ranges = cut_ranges(store.rows, range_rows(store.shape, way.rows, executor))
    steps = config.trees * len(ranges) + sum(map(len, missing))
    with (
        stage("oob", steps, "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        if missing:
            find_missing(store, config, directory, missing, resources, way, progress)
            files, _ = known_leaves(directory, store, config)
        work = TallyInputs(
            group_files(files, way), resources.workers, folder if executor.remote else None, unit_of(store)
        )
        advance = None if executor.remote else progress.advance
        judged = executor.map(tally_range, [(*rows, advance) for rows in ranges], (store, config, work))
        pieces = _pieces(judged, ranges, store.spec, changes, progress if executor.remote else None)
        write_report(store, config, directory / "oob", pieces, changes)
        if config.keep_votes:
            several = resources.executor(resources.workers)
            several.run(write_votes, [(file,) for file in files], lambda *_: None, (directory, store, config))
    remove(directory / FOLDER)


def loaded_sizes(
    directory: Path, files: Sequence[LeafFile], missing: Sequence[range], resources: Resources
) -> NDArray[np.int64]:
    """Bytes of what is loaded together at least: the ballots of a file, a tree of missing parts, or such a part."""
    sizes = [np.array([_loaded_bytes(file) for file in files], np.int64)]
    sizes += [_trees_of(directory, parts, resources).sizes() for parts in runs_of(missing)]
    return np.concatenate(sizes)


def find_missing(
    store: Store,
    config: TrainConfig,
    directory: Path,
    missing: Sequence[range],
    resources: Resources,
    way: OobPlan,
    progress: Stage | None,
) -> None:
    """Write the files of leaves of these parts in the place of those that there are of some of their trees."""
    for file in known_leaves(directory, store, config)[0]:
        if any(file.trees.start < part.stop and part.start < file.trees.stop for part in missing):
            file.remove()
    executor = resources.executor(1)
    for parts in runs_of(missing):
        trees = _trees_of(directory, parts, resources)
        groups = cut(trees.sizes(), trees.first, way.group_bytes, way.group_trees)
        shared = (Sampler.of(store, config), trees, directory, resources.workers)
        for found in executor.map(find_leaves, [(entries,) for entries in groups], shared):
            if progress is not None:
                progress.advance(found)


def _trees_of(directory: Path, parts: Sequence[range], resources: Resources) -> Trees:
    if resources.memory is None:
        return outline(directory, parts)
    return survey(directory, resources.workers, parts)


def _loaded_bytes(file: LeafFile) -> int:
    """Bytes of the ballots of a file while they are read and made numbers."""
    return 3 * file.ballot_bytes


def group_files(files: Sequence[LeafFile], way: OobPlan) -> list[list[LeafFile]]:
    """The files of which the ballots are loaded together."""
    sizes = np.array([_loaded_bytes(file) for file in files], np.int64)
    first = np.array([*(file.trees.start for file in files), files[-1].trees.stop], np.int64)
    return [list(files[own.start : own.stop]) for own in cut(sizes, first, way.group_bytes, int(first[-1]))]


def unit_of(store: Store) -> float:
    """By what errors of numbers are multiplied before they are squared; 1 of classes."""
    return error_unit(store) if store.spec.target.task == "regression" else 1.0


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
