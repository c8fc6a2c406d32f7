"""The out-of-bag report: every row is predicted by the trees whose bags leave it out (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the rows that at
least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017, section 6). Ties go to the
lowest class. Rows count by their weights, as in growing.

Where the rows end is known from growing (forest/votes/leaf_files.py), or found here (vote.py). Votes are added in the
order of the trees, everything else is a count or a sum of integers, so the report depends neither on the ranges of rows
nor on the distribution of work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError
from bigforest.common.events import Stage, stage
from bigforest.common.memory_estimate import keep_freed
from bigforest.common.sizes import row_ranges
from bigforest.forest.format.files import Header
from bigforest.forest.format.shrinkage import Shrinkage
from bigforest.forest.load.groups import Trees, outline, survey
from bigforest.forest.load.leaf_shrinking import lambdas_to_try, leaf_lambdas
from bigforest.forest.load.load_plan import cut
from bigforest.forest.load.tree_votes import read_tree_votes
from bigforest.forest.votes.ballots import loaded_bytes
from bigforest.forest.votes.kept_votes import VOTES_FOLDER, write_votes
from bigforest.forest.votes.leaf_files import FOLDER, LeafFile
from bigforest.grow.forest import ForestJob
from bigforest.oob.accumulator import RangeTally, number_loss
from bigforest.oob.plan import OobPlan, choose_oob, max_scores, range_rows
from bigforest.oob.report import ReportPlan, write_report
from bigforest.oob.shrinkage import choose_shrinkage, no_losses
from bigforest.oob.tally import TallyInputs, lambda_losses, tally_range
from bigforest.oob.vote import known_leaves, runs_of, write_leaf_files
from bigforest.sampling.bags import Sampler
from bigforest.storage.atomic import TemporaryFolder, remove
from bigforest.store.store import Store

# Bytes of ballots that are still in a cache when their votes are added up.
_CACHED = 8 << 20
# Bytes of an array whose memory is not kept for the next file of leaves where there is no budget.
_LARGE = 16 << 20


def write_oob(job: ForestJob, lambdas: tuple[float, ...] | None = None) -> Shrinkage:
    """Write oob/rows.parquet, curve, confusion and metrics of a forest that has been grown.

    lambdas  the lambdas by which its leaves may be shrunk; None for those of the configuration (lambdas_to_try).

    Returns the shrinkage, which the report uses. If lambda is to be chosen, the leaves of rows are read twice.

    The files do not depend on the resources. Memory: what `oob_estimate` says for the nodes of the forest. The files of
    leaves are removed. Raises ConfigError without bootstrap or when the memory of `resources` is too little,
    FormatError when the trees cannot be read.
    """
    store, config, directory, resources, listener = job
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    files, missing = known_leaves(job)
    tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width) if lambdas is None else lambdas
    executor = resources.executor(1)  # a task uses all threads of its process
    counts = node_counts(files, store)
    sizes = loaded_sizes(job, counts, missing, len(tried))
    plan = choose_oob(store.shape, config, sizes, resources, len(tried))
    plan.need.check(resources.memory)
    if resources.memory is None:
        keep_freed(_LARGE)
    ranges = cut_rows(job, files, counts, plan)
    steps = config.trees * len(ranges) * (2 if len(tried) > 1 else 1) + sum(map(len, missing))
    with (
        stage("oob", steps, "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        if missing:
            find_missing(job, missing, plan, len(tried), progress)
            files, _ = known_leaves(job)
            counts = node_counts(files, store)
        in_files = executor.remote or len(ranges) > 1
        groups = cut_groups(files, counts, len(tried), plan, job)
        tally_folder = folder if in_files else None
        votes = read_tree_votes(directory, Header(store.spec, config))
        work = TallyInputs(
            store, config, groups, tried, resources.workers, tally_folder, number_loss(store, config), votes
        )
        tasks = [(*rows, None if executor.remote else progress.advance) for rows in ranges]
        shrinkage = Shrinkage(tried[0] if tried else 0.0)
        if len(tried) > 1:
            losses = no_losses(len(tried))
            for of_range in executor.map(lambda_losses, tasks, (work,)):
                losses = losses.plus(of_range)
                if executor.remote:
                    progress.advance(config.trees)
            shrinkage = choose_shrinkage(tried, losses, store, work.loss.unit)
            work = work._replace(amounts=leaf_lambdas(config, shrinkage.amount))
        tallies: list[RangeTally] = []
        changes = np.zeros((3, config.trees), np.int64)
        for tallied in executor.map(tally_range, tasks, (work,)):
            tallies += tallied.tallies
            changes += tallied.changes
            if executor.remote:
                progress.advance(config.trees)
        del work
        if not config.keep_votes:
            executor.discard([path for file in files for path in file.paths])
        scores = max_scores(store.rows, limited=resources.memory is not None)
        report_plan = ReportPlan(directory, folder, scores)
        writers = executor if resources.memory is not None else resources.executor(resources.workers)
        write_report(store, config, report_plan, tallies, changes, writers)
        if config.keep_votes:
            remove(directory / VOTES_FOLDER)  # parts of an earlier report may hold other trees
            shared = (directory, store, config)
            resources.executor(resources.workers).run(write_votes, [(file,) for file in files], lambda *_: None, shared)
    remove(directory / FOLDER)
    return shrinkage


def node_counts(files: Sequence[LeafFile], store: Store) -> NDArray[np.int64]:
    """LeafFile.nodes of each file, int64 [files, 2]."""
    return np.array([file.nodes(store.spec) for file in files], np.int64).reshape(-1, 2)


def loaded_sizes(
    job: ForestJob, counts: NDArray[np.int64], missing: Sequence[range], lambdas: int
) -> NDArray[np.int64]:
    """The least bytes that are loaded together: the ballots of a file, a tree of missing parts, or such a part.

    counts   node_counts of the files.
    lambdas  by how many leaves are shrunk.
    """
    sizes = [_ballot_bytes(counts, lambdas, job.store)]
    sizes += [entry_bytes(_trees_of(job, parts), lambdas) for parts in runs_of(missing)]
    return np.concatenate(sizes)


def find_missing(job: ForestJob, missing: Sequence[range], plan: OobPlan, lambdas: int, progress: Stage | None) -> None:
    """Write the files of leaves of these parts, replacing those of some of their trees."""
    for file in known_leaves(job)[0]:
        if any(file.trees.start < part.stop and part.start < file.trees.stop for part in missing):
            file.remove()
    executor = job.resources.executor(1)
    for parts in runs_of(missing):
        trees = _trees_of(job, parts)
        groups = cut(entry_bytes(trees, lambdas), trees.first, plan.group_bytes, plan.group_trees)
        shared = (Sampler(job.store, job.config), trees, job.directory, job.resources.workers)
        for finished in executor.map(write_leaf_files, [(entries,) for entries in groups], shared):
            if progress is not None:
                progress.advance(finished)


def _trees_of(job: ForestJob, parts: Sequence[range]) -> Trees:
    if job.resources.memory is None:
        return outline(job.directory, parts)
    return survey(job.directory, job.resources.workers, parts)


def _ballot_bytes(counts: NDArray[np.int64], lambdas: int, store: Store) -> NDArray[np.int64]:
    """Bytes of the ballots of each file while they are read and made numbers."""
    return loaded_bytes(counts[:, 0], counts[:, 1], store.spec.target.answer_width, lambdas)


def entry_bytes(trees: Trees, lambdas: int) -> NDArray[np.int64]:
    """Bytes of each entry while rows are routed through it, or while its ballots are converted."""
    mixed = trees.nodes if trees.header.spec.target.is_regression else trees.mixed
    ballots = loaded_bytes(trees.nodes, mixed, trees.header.spec.target.answer_width, lambdas)
    return np.maximum(trees.sizes(), ballots)


def cut_rows(
    job: ForestJob, files: Sequence[LeafFile], counts: NDArray[np.int64], plan: OobPlan
) -> list[tuple[int, int]]:
    """The ranges of rows whose votes are added up together; counts: node_counts of the files."""
    nodes = int(counts[:, 0].sum()) // max(sum(len(file.trees) for file in files), 1)
    return row_ranges(
        job.store.rows, range_rows(job.store.shape, job.config, plan.rows, nodes, job.resources.executor(1))
    )


def cut_groups(
    files: Sequence[LeafFile], counts: NDArray[np.int64], lambdas: int, plan: OobPlan, job: ForestJob
) -> list[list[LeafFile]]:
    """The files whose ballots are loaded together: one for each thread at least, where they fit; arguments as in
    `loaded_sizes`."""
    first = np.array([*(file.trees.start for file in files), files[-1].trees.stop], np.int64)
    sizes = _ballot_bytes(counts, lambdas, job.store)
    most = min(plan.group_bytes, max(_CACHED, job.resources.workers * int(sizes.max())))
    groups = cut(sizes, first, most, int(first[-1]))
    return [list(files[group.start : group.stop]) for group in groups]
