"""The out-of-bag report: every row is predicted by the trees whose bags leave it out (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the rows that at
least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017, section 6). Ties go to the
lowest class. Rows count by their weights, as in growing.

Where the rows end is known from growing (forest/votes/leaf_files.py), or found here (vote.py). Votes are added in the
order of the trees, everything else is a count or a sum of integers, so the report depends neither on the ranges of rows
nor on the distribution of work.
"""

from __future__ import annotations

import numpy as np

from bigforest.common.errors import ConfigError
from bigforest.common.events import stage
from bigforest.common.memory_estimate import keep_freed
from bigforest.forest.format.choices import Choices, Power, Shrinkage
from bigforest.forest.format.files import Header
from bigforest.forest.load.leaf_shrinking import lambdas_to_try, leaf_lambdas
from bigforest.forest.load.tree_votes import read_tree_votes
from bigforest.forest.votes.kept_votes import VOTES_FOLDER, write_votes
from bigforest.forest.votes.leaf_files import FOLDER
from bigforest.grow.forest import ForestJob
from bigforest.oob.accumulator import RangeTally, number_loss
from bigforest.oob.choice import choose_power, choose_shrinkage, no_losses, powers_to_try
from bigforest.oob.plan import max_scores
from bigforest.oob.report import ReportPlan, write_report
from bigforest.oob.tally import TallyInputs, lambda_losses, tally_range
from bigforest.oob.trees import OobTrees
from bigforest.storage.atomic import TemporaryFolder, remove

# Bytes of an array whose memory is not kept for the next file of leaves where there is no budget.
_LARGE = 16 << 20


def write_oob(job: ForestJob, lambdas: tuple[float, ...] | None = None) -> Choices:
    """Write oob/rows.parquet, curve, confusion and metrics of a forest that has been grown.

    lambdas  the lambdas by which its leaves may be shrunk; None for those of the configuration (lambdas_to_try).

    Returns the shrinkage and the power, which the report uses. If lambda is to be chosen, the leaves of rows are read
    twice.

    The files do not depend on the resources. Memory: what `oob_estimate` says for the nodes of the forest. The files of
    leaves are removed. Raises ConfigError without bootstrap or when the memory of `resources` is too little,
    FormatError when the trees cannot be read.
    """
    store, config, directory, resources, listener = job
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width) if lambdas is None else lambdas
    executor = resources.executor(1)  # a task uses all threads of its process
    leaves = OobTrees(job, len(tried))
    leaves.plan.need.check(resources.memory)
    if resources.memory is None:
        keep_freed(_LARGE)
    ranges = leaves.ranges()
    steps = config.trees * len(ranges) * (2 if len(tried) > 1 else 1) + sum(map(len, leaves.missing))
    with (
        stage("oob", steps, "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        leaves.find_missing(progress.advance)
        in_files = executor.remote or len(ranges) > 1
        groups = leaves.groups()
        tally_folder = folder if in_files else None
        powers = powers_to_try(config, store.spec.target.answer_width)
        votes = read_tree_votes(directory, Header(store.spec, config))
        work = TallyInputs(
            store, config, groups, tried, resources.workers, tally_folder, number_loss(store, config), votes, powers
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
        changes, power_losses = np.zeros((3, config.trees), np.int64), no_losses(len(powers))
        for tallied in executor.map(tally_range, tasks, (work,)):
            tallies += tallied.tallies
            changes += tallied.changes
            power_losses = power_losses if tallied.losses is None else power_losses.plus(tallied.losses)
            if executor.remote:
                progress.advance(config.trees)
        del work
        power = choose_power(powers, power_losses, store) if len(powers) > 1 else Power(powers[0])
        if not config.keep_votes:
            executor.discard([path for file in leaves.files for path in file.paths])
        scores = max_scores(store.rows, limited=resources.memory is not None)
        report_plan = ReportPlan(directory, folder, scores, power.amount)
        writers = executor if resources.memory is not None else resources.executor(resources.workers)
        write_report(store, config, report_plan, tallies, changes, writers)
        if config.keep_votes:
            remove(directory / VOTES_FOLDER)  # parts of an earlier report may hold other trees
            shared = (directory, store, config)
            resources.executor(resources.workers).run(
                write_votes, [(file,) for file in leaves.files], lambda *_: None, shared
            )
    remove(directory / FOLDER)
    return Choices(shrinkage, power)
