"""`ExplainJob`: the inputs of all sections of an explanation, and methods that run the tasks of a section."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_codes
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.events import Listener, stage
from bigforest.execution.resources import Resources
from bigforest.explain.boosted_stage import WalkedStage
from bigforest.explain.options import ExplainOptions
from bigforest.explain.row_table import RowTable, describe_rows, sampled, write_row_table
from bigforest.explain.tables import ExplanationFolder
from bigforest.explain.tree_groups import (
    LoadedTree,
    SectionPlan,
    Sweep,
    TreeStock,
    forget_trees,
    leaf_positions,
    load_trees,
)
from bigforest.forest.format import CALIBRATED
from bigforest.forest.oob_report import oob_row_batches
from bigforest.forest.refinement import Link
from bigforest.planning.memory import BASE_BYTES
from bigforest.predict.forest import Forest, read_forest
from bigforest.predict.groups import LOADING_BYTES
from bigforest.predict.inbag import BagInputs, TreeBags, group_codes
from bigforest.source import Source

# Rows that are routed at a time to compare a table with training.
_CHECKED_ROWS = 1 << 16
_ADVICE = f"give the table the forest was grown on; {api('explain_forest')} takes other rows with {api('new_rows')}"


class OutOfBagRows(NamedTuple):
    """Rows with their targets, and the bags of the trees.

    bags  None if all rows are out of bag of all trees.
    """

    table: RowTable
    bags: TreeBags | None

    def out_of_bag(self, tree: int) -> NDArray[np.uint32]:
        """Return the numbers of the out-of-bag rows of the tree, ascending."""
        labelled = self.table.labelled_rows()
        return labelled if self.bags is None else np.ascontiguousarray(labelled[self.bags.bag(tree) == 0])


@dataclass(frozen=True)
class ExplainJob:
    """One call of `explain_forest`. Inputs of sections are made when the first section uses them."""

    forest: Forest
    source: Source | None
    options: ExplainOptions
    resources: Resources
    listener: Listener
    folder: ExplanationFolder
    work: Path

    @cached_property
    def stock(self) -> TreeStock:
        """The trees as grown; leaves predict shares of classes."""
        forest = self.forest
        if self.resources.cluster is not None and forest.is_temporary:
            forest.write(self.work / "forest")
            forest = read_forest(self.work / "forest")
        votes = self.forest.files.tree_votes
        factors = None if votes is None else votes * (votes.size / math.fsum(votes.tolist()))
        workers = self.resources.workers
        if self.resources.memory is not None:  # each part names its smallest budget
            workers = min(workers, max(1, (self.resources.memory - BASE_BYTES) // LOADING_BYTES))
        trees = forest.loader.survey(workers)
        if self.stage is not None:
            assert trees.used is not None
            trees = trees._replace(used=np.union1d(trees.used, self.stage.trees.used))
        return TreeStock(trees, True, factors)

    @cached_property
    def stage(self) -> WalkedStage | None:
        forest = self.forest
        if not forest.files.is_refined:
            return None
        link = Link(forest.spec, forest.config)
        return WalkedStage(forest.files.read_refinement(), link, forest.power.amount, forest.spec)

    @property
    def shrunk(self) -> TreeStock:
        """The trees with shrunk leaves, which predict shares of classes."""
        amount = self.forest.shrinkage.amount
        return self.stock._replace(trees=self.stock.trees._replace(lambdas=(amount,))) if amount else self.stock

    @property
    def voting(self) -> TreeStock:
        """The trees with the leaves that the forest predicts by, and its boosted stage."""
        soft = self.forest.is_regression or self.forest.config.vote != "hard"
        return self.shrunk._replace(soft=soft, stage=self.stage)

    @cached_property
    def described(self) -> RowTable:
        if self.source is None:
            raise ConfigError(f"this needs rows: set {api('data')} to a table with the features of the forest")
        used = self.stock.trees.used
        assert used is not None
        return describe_rows(self.forest, self.source, used, self.work)

    @cached_property
    def table(self) -> RowTable:
        """The rows, read when this is first requested. Raises as `described`, and DataError."""
        described = self.described
        assert self.source is not None
        return write_row_table(self.forest, self.source, described, self.listener)

    @property
    def out_of_bag_share(self) -> float:
        config = self.forest.config
        if self.options.new_rows or not config.bootstrap:
            return 1.0
        return config.left_out_share

    def requested(self, most: int) -> int:
        """Return an upper bound of the number of rows to explain: the requested rows, or a sample of at most `most`.

        Raises ConfigError for a requested row that the table does not have.
        """
        requested, rows = set(self.options.rows), self.described.rows
        if strange := sorted(row for row in requested if not 0 <= row < rows):
            last = rows - 1
            raise ConfigError(f"{api('rows')} must be numbers of rows of the table, from 0 to {last}, not {strange[0]}")
        return min(len(requested) or self.options.sample or most, rows)

    @cached_property
    def oob(self) -> OutOfBagRows:
        table, target = self.table, self.forest.spec.target.name
        assert self.source is not None
        if not table.labelled:
            raise DataError(f"the table lacks the target {target!r}, on which trees are evaluated; add it")
        weight = self.forest.spec.weight
        if weight is not None and weight.name is not None and weight.name not in self.source.schema:
            raise DataError(f"the table lacks the weights {weight.name!r} of the rows; add the column")
        if not table.labelled_rows().size:
            raise DataError(f"no row of the table has a {target!r}; there is nothing to evaluate on")
        if self.options.new_rows:
            return OutOfBagRows(table, None)
        if not self.forest.config.bootstrap:
            raise ConfigError(
                f"the forest was grown without bootstrap, so no row is out of bag; {api('explain_forest')} takes other "
                f"rows with {api('new_rows')}"
            )
        _check_training(self.forest, table)
        spec, config = self.forest.spec, self.forest.config
        labelled = table.labelled_rows()
        groups = self.source.column(config.group) if config.group in self.source.schema else None
        codes = group_codes(spec, config, groups, labelled.astype(np.uint64))
        classes = table.target()[labelled] if table.classes else np.empty(0, np.uint16)
        bags = TreeBags.of(self.forest.files, BagInputs(spec, classes, codes))
        tree = load_trees(self.stock, table, range(1))[0]
        # A tree on bins projects bins, not values. Calibrated leaves have the counts of other rows.
        binned = tree.walked.directions is not None and isinstance(config.max_bins, int)
        if not binned and CALIBRATED not in self.forest.files.stages:
            _check_leaves(tree, table, bags)
        return OutOfBagRows(table, bags)

    def chosen_positions(self, most: int) -> NDArray[np.uint32]:
        """Return the requested rows, or a sample of at most `most` rows, as positions among the rows with a target.

        Raises ConfigError for a requested row without a target.
        """
        labelled = self.oob.table.labelled_rows()
        if not self.options.rows:
            return sampled(labelled.size, self.options.sample or most, self.options.seed)
        requested = np.array(sorted(set(self.options.rows)), np.int64)
        places = np.minimum(np.searchsorted(labelled, requested), labelled.size - 1)
        strange = requested[labelled[places] != requested]
        if strange.size:
            raise ConfigError(
                f"{api('rows')} must be numbers of rows with a target in the table; {strange[0]} is not one"
            )
        return places.astype(np.uint32)

    def seconds(self, plan: SectionPlan) -> float:
        return plan.nanoseconds * 1e-9 / self.resources.executor().size

    def over_trees(
        self,
        name: str,
        plan: SectionPlan,
        function: Callable[..., Any],
        shared: tuple[Any, ...],
        collect: Callable[[range, Any], None] = lambda *_: None,
    ) -> None:
        """Run a task for each group of trees of a plan. Call `collect` with the numbers of its trees and its result."""
        groups, stock = plan.groups, self.stock
        with stage(name, stock.tree_count, "trees", self.listener) as progress:

            def finished(index: int, result: Any) -> None:
                numbers = stock.trees.numbers(groups[index])
                collect(numbers, result)
                progress.advance(len(numbers))

            self.resources.executor(plan.at_once).run(function, [(group,) for group in groups], finished, shared)

    def swept_classes(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the classes whose values are summed over the trees to explain the chosen classes.

        With a boosted stage these are all classes that determine a prediction.
        """
        return chosen if self.stage is None else self.stage.classes

    def sweep(self, plan: SectionPlan, chosen: tuple[int, ...]) -> Sweep:
        """Return all trees, with the values that explain these classes."""
        return Sweep(self.voting, self.table, plan.groups, self.swept_classes(chosen))

    def over_rows(
        self,
        name: str,
        plan: SectionPlan,
        function: Callable[..., Any],
        pieces: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
        done: int = 0,
    ) -> list[Any]:
        """Run a task for each piece of the rows. Return the results in the order of the pieces.

        pieces  arguments of each task; the length of the first argument is the number of rows
        done    rows that an earlier run has finished

        Trees that tasks keep loaded are freed at the end.
        """
        rows = [len(piece[0]) for piece in pieces]
        with stage(name, done + sum(rows), "rows", self.listener) as progress:
            progress.advance(done)
            try:
                executor = self.resources.executor(plan.at_once)
                return executor.gather(function, pieces, lambda index: progress.advance(rows[index]), shared)
            finally:
                self.resources.executor(1).run_on_all_workers(forget_trees, str(self.work))


def _check_training(forest: Forest, table: RowTable) -> None:
    """Raise DataError if the numbers of rows, or the targets, differ from training."""
    spec = forest.spec
    labelled = table.labelled_rows()
    if labelled.size != spec.rows or table.rows - labelled.size != spec.dropped:
        counts = f"{counted(labelled.size, 'row')} with a target and {table.rows - labelled.size:,} without"
        raise DataError(f"the table has {counts}, in training there were {spec.rows:,} and {spec.dropped:,}; {_ADVICE}")
    if not forest.has_oob:
        return
    target, begin = table.target(), 0
    for batch in oob_row_batches(forest.directory, ["truth"]):
        truth = pl.Series(pl.from_arrow(batch.column("truth")))
        values = target[labelled[begin : begin + len(truth)]]
        expected = label_codes(truth, spec.target) if table.classes else truth.to_numpy()
        if expected is None or not np.array_equal(values, expected):
            raise DataError(
                f"the values of {spec.target.name!r} in rows {begin} to {begin + len(truth) - 1} are not those of "
                f"training; {_ADVICE}"
            )
        begin += len(truth)


def _check_leaves(tree: LoadedTree, table: RowTable, bags: TreeBags) -> None:
    """Raise DataError if the rows of a bag reach other leaves than in training, because values of features differ.

    Compare the number of bag rows in each leaf with the weight of the leaf. If rows have weights, check only that each
    leaf is reached.
    """
    rows, bag, values = table.labelled_rows(), bags.bag(tree.number), table.values()
    drawn = np.zeros(tree.weight.size)
    for begin in range(0, rows.size, _CHECKED_ROWS):
        stretch = slice(begin, begin + _CHECKED_ROWS)
        leaves = leaf_positions(tree, values, rows[stretch]) - np.uint32(tree.begin)
        drawn += np.bincount(leaves, bag[stretch], drawn.size)
    reached = drawn > 0
    if table.weighted:
        same = np.count_nonzero(reached) == reached.size // 2 + 1
    else:
        same = np.array_equal(drawn[reached], tree.weight[reached])
    if not same:
        raise DataError(f"the values of some features are not those of training; {_ADVICE}")
