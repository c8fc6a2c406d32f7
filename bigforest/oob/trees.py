"""The trees that are evaluated, by the files of leaves of out-of-bag rows: those from growing, and those found here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bigforest.common.sizes import row_ranges
from bigforest.forest.load.groups import Trees, outline, survey
from bigforest.forest.load.load_plan import cut
from bigforest.forest.votes.ballots import loaded_bytes
from bigforest.forest.votes.leaf_files import LeafFile
from bigforest.grow.forest import ForestJob
from bigforest.oob.plan import choose_oob, range_rows
from bigforest.oob.vote import known_leaves, runs_of, write_leaf_files
from bigforest.sampling.bags import Sampler

# Bytes of ballots that are still in a cache when their votes are added up.
_CACHED = 8 << 20


class OobTrees:
    """Trees of a forest to evaluate.

    files    of leaves, in the order of the trees.
    missing  parts whose leaves are in no file yet.
    plan     how the trees are evaluated within the memory.
    """

    def __init__(self, job: ForestJob, lambdas: int, parts: Sequence[range] | None = None) -> None:
        """lambdas: by how many leaves are shrunk; parts: see `known_leaves`."""
        self._job, self._lambdas, self._parts = job, lambdas, parts
        self._look()
        # Loaded together at least: the ballots of a file, a tree of missing parts, or such a part.
        sizes = [self._ballots, *(entry_bytes(_trees_of(job, run), lambdas) for run in runs_of(self.missing))]
        self.plan = choose_oob(job.store.shape, job.config, np.concatenate(sizes), job.resources, lambdas)

    def find_missing(self, advance: Callable[[int], None]) -> None:
        """Write the files of leaves of the missing parts, replacing those of some of their trees; `advance` is called
        with numbers of finished trees."""
        job, missing = self._job, self.missing
        if not missing:
            return
        for file in known_leaves(job)[0]:
            if any(file.trees.start < part.stop and part.start < file.trees.stop for part in missing):
                file.remove()
        executor = job.resources.executor(1)
        for run in runs_of(missing):
            trees = _trees_of(job, run)
            groups = cut(entry_bytes(trees, self._lambdas), trees.first, self.plan.group_bytes, self.plan.group_trees)
            shared = (Sampler(job.store, job.config), trees, job.directory, job.resources.workers)
            for finished in executor.map(write_leaf_files, [(entries,) for entries in groups], shared):
                advance(finished)
        self._look()

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of rows whose votes are added up together."""
        nodes = self._nodes // max(sum(len(file.trees) for file in self.files), 1)
        store, executor = self._job.store, self._job.resources.executor(1)
        return row_ranges(store.rows, range_rows(store.shape, self._job.config, self.plan.rows, nodes, executor))

    def groups(self) -> list[list[LeafFile]]:
        """The files whose ballots are loaded together: one for each thread at least, where they fit."""
        first = np.array([*(file.trees.start for file in self.files), self.files[-1].trees.stop], np.int64)
        most = min(self.plan.group_bytes, max(_CACHED, self._job.resources.workers * int(self._ballots.max())))
        groups = cut(self._ballots, first, most, int(first[-1]))
        return [self.files[group.start : group.stop] for group in groups]

    def _look(self) -> None:
        spec = self._job.store.spec
        self.files, self.missing = known_leaves(self._job, self._parts)
        nodes, mixed = np.array([file.nodes(spec) for file in self.files], np.int64).reshape(-1, 2).T
        self._nodes = int(nodes.sum())
        self._ballots = loaded_bytes(nodes, mixed, spec.target.answer_width, self._lambdas)


def entry_bytes(trees: Trees, lambdas: int) -> NDArray[np.int64]:
    """Bytes of each entry while rows are routed through it, or while its ballots are converted."""
    mixed = trees.nodes if trees.header.spec.target.is_regression else trees.mixed
    ballots = loaded_bytes(trees.nodes, mixed, trees.header.spec.target.answer_width, lambdas)
    return np.maximum(trees.sizes(), ballots)


def _trees_of(job: ForestJob, parts: Sequence[range]) -> Trees:
    if job.resources.memory is None:
        return outline(job.directory, parts)
    return survey(job.directory, job.resources.workers, parts)
