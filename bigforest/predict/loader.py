"""`TreeLoader`: load the trees of a forest, all at once or in groups, and plan the prediction of a table."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.errors import ConfigError, api
from bigforest.execution.resources import Resources, available_threads
from bigforest.forest.ballots import leaf_lambdas
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.leaf_targets import LeafTargets, read_targets
from bigforest.forest.nodes import TreeArrays
from bigforest.metrics.conformal import JackknifeIntervals, whole_values
from bigforest.predict.groups import Trees, survey
from bigforest.predict.inputs import Input, default_batch
from bigforest.predict.packed_trees import PackedTrees, load
from bigforest.predict.passes import ALL_ROWS, PredictionPasses, plan_passes, whole_estimate
from bigforest.predict.predictor import GroupLeafTargets, Predictor
from bigforest.predict.refine import BoostedStage
from bigforest.predict.vote_rule import VoteRule

Result = TypeVar("Result")


def needed_features(spec: DataSpec, *, refined: bool) -> NDArray[np.int64] | None:
    """Return the positions of the features that rows must have; None for the features that the trees use.

    refined  True with a boosted stage. It may use any feature, so rows must have all features.
    """
    return np.arange(len(spec.features)) if refined else None


class TreeLoader:
    """Loader of the trees of a forest, which makes predictors. It loads trees when they are first needed. Thread-safe.

    files  files of the forest.
    """

    def __init__(self, files: ForestFiles) -> None:
        self.files = files
        self._lambdas = leaf_lambdas(files.config, files.shrinkage.amount)
        self._needed = needed_features(files.spec, refined=files.is_refined)
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = {}  # by name, see `_once`
        self._last_predictor: Predictor | None = None  # with a plain rule: the next call probably has the same

    def check(self) -> None:
        """Read and check all nodes: see `Forest.check`."""
        self._all_trees()
        self._stage_trees()

    def take(self, packed: PackedTrees) -> None:
        """Keep `packed`, the trees of this forest, so that the first prediction does not read them."""
        with self._lock:
            self._kept["trees"], self._last_predictor = packed, None

    def predictor(self, rule: VoteRule) -> Predictor:
        """Return a predictor with a rule and the trees that it selects. All trees are loaded. Raises FormatError."""
        last, plain = self._last_predictor, rule.conformal is None and not rule.quantiles
        if plain and last is not None and (last.rule is rule or last.rule == rule):
            return last
        targets, packed, means, files = self._leaf_targets(rule, Resources()), self._all_trees(), None, self.files
        if targets is not None or rule.by_spread:  # both need the means of the leaves as grown
            means = packed.counts[:, 0]
            if self._lambdas:
                means = self._once("means", lambda: load(files.parts, files.header, available_threads()).counts[:, 0])
        made = self._predictor(rule, packed, range(files.trees), targets, means)
        if plain:
            with self._lock:
                self._last_predictor = made if "trees" in self._kept else None
        return made

    def check_memory(self, rule: VoteRule, resources: Resources) -> None:
        """Raise ConfigError if all trees together, with what the rule needs, take more than the memory budget."""
        if resources.memory is None:
            return
        targets, workers = self._leaf_targets(rule, resources), resources.workers
        held = 0 if targets is None else targets.nbytes
        held += rule.conformal.nbytes if isinstance(rule.conformal, JackknifeIntervals) else 0
        whole_estimate(self._trees(workers), workers, held).check(resources.memory)

    def passes(self, rule: VoteRule, table: Input, resources: Resources) -> PredictionPasses:
        """Plan the prediction of a table: groups of trees and ranges of rows, within the memory of `resources`.

        Raises ConfigError if the memory does not suffice, or the rule needs all trees at once; FormatError for damaged
        nodes.
        """
        if resources.memory is None:
            predictor = self.predictor(rule)
            used = predictor.packed.used
            batch = default_batch(used.size, resources.limits)
            return PredictionPasses(table, used, [range(1)], ALL_ROWS, batch, lambda _: predictor)
        if rule.trees:
            raise ConfigError(
                f"predicting with some trees needs the whole forest in memory; drop {api('memory')} or {api('trees')}"
            )
        if isinstance(rule.conformal, JackknifeIntervals):
            raise ConfigError(f"the jackknife takes all trees at once; drop {api('memory')} or {api('jackknife')}")
        with self._lock:
            self._kept.pop("trees", None)  # their memory is freed when all calls that use them have ended
            self._last_predictor = None
        trees = self._trees(resources.workers)
        held = table.held + (0 if self.files.ranks is None else self.files.ranks.nbytes)
        targets = self._leaf_targets(rule, resources)
        held += 0 if targets is None else targets.held
        if (targets is not None or rule.by_spread) and self._lambdas:
            trees = trees._replace(lambdas=(0.0, *self._lambdas))  # targets and spread need leaves as grown
        kept: dict[range, Predictor] = {}

        def load_group(entries: range) -> Predictor:
            if entries not in kept:
                kept.clear()
                with self.files.same_run():
                    packed = trees.load(entries, resources.workers)
                pa.default_memory_pool().release_unused()  # Arrow keeps the memory of its buffers
                means = packed.counts[:, 0]
                packed = packed.with_second_lambda() if len(trees.lambdas) == 2 else packed
                kept[entries] = self._predictor(rule, packed, trees.numbers(entries), targets, means)
            return kept[entries]

        assert trees.used is not None
        sizes = trees.sizes() + (8 * trees.nodes if rule.by_spread else 0)  # means of leaves as grown
        requested = len(rule.quantiles), rule.by_spread
        shape = table.shape(trees.used)
        groups, rows, batch, need = plan_passes(shape, resources, sizes, trees.first, held, *requested)
        need.check(resources.memory)
        return PredictionPasses(table, trees.used, groups, rows, batch, load_group)

    def _predictor(
        self,
        rule: VoteRule,
        packed: PackedTrees,
        trees: range,
        targets: LeafTargets | None,
        means: NDArray[np.float64] | None,
    ) -> Predictor:
        """Return a predictor of a group of trees, or of the trees that the rule selects, without counts of leaves.

        trees  numbers of the trees of the group
        means  float64 [leaves], means of the leaves as grown; needed for targets and for the spread of the trees
        """
        files, votes, chosen = self.files, self.files.tree_votes, list(rule.trees)
        group_targets = grown = None
        if targets is not None:
            assert means is not None
            group_targets = GroupLeafTargets.of(targets, trees, packed, means, files.spec.target.step, files.directory)
        if rule.by_spread:
            assert means is not None
            grown = means - files.spec.target.offset
        by_jackknife = isinstance(rule.conformal, JackknifeIntervals)
        values = whole_values(packed.counts[:, 0]) if by_jackknife else None
        leaf_votes = packed.leaf_votes(rule.ballots, None if votes is None else votes[trees.start : trees.stop])
        number = len(chosen) or files.trees
        total = float(number) if votes is None else math.fsum((votes[chosen] if chosen else votes).tolist())
        roots = packed.roots[chosen] if chosen else packed.roots
        packed = packed._replace(roots=roots, counts=packed.counts[:0].copy())
        boosted = self._stage_trees() if rule.refined else None
        stage = None if boosted is None else BoostedStage(files.spec, files.config, boosted, packed.used)
        return Predictor(
            packed,
            leaf_votes,
            rule,
            files.spec,
            number,
            total,
            routers=[],
            group_leaf_targets=group_targets,
            grown=grown,
            leaf_values=values,
            stage=stage,
        )

    def _stage_trees(self) -> TreeArrays | None:
        """Return the trees of the boosted stage, read once; None without a stage. Raises FormatError."""
        return self._once("stage", self.files.read_refinement) if self.files.is_refined else None

    def _all_trees(self) -> PackedTrees:
        """Return all trees, read once. Raises FormatError."""
        files = self.files
        return self._once(
            "trees", lambda: load(files.parts, files.header, available_threads(), self._needed, self._lambdas)
        )

    def _leaf_targets(self, rule: VoteRule, resources: Resources) -> LeafTargets | None:
        """Return the targets in the leaves if a rule has quantiles, otherwise None. Raises FormatError.

        Without a memory limit they are kept for later calls.
        """
        directory, header = self.files.directory, self.files.header
        if not rule.quantiles:
            return None
        if resources.memory is None:
            return self._once("targets", lambda: read_targets(directory, header, None, mapped=False))
        with self.files.same_run():
            return read_targets(directory, header, resources.scratch, mapped=True)

    def survey(self, workers: int) -> Trees:
        """Return the files and sizes of the trees as grown. The files are read once. Raises FormatError."""
        return self._once("survey", lambda: survey(self.files.directory, workers))

    def _trees(self, workers: int) -> Trees:
        """Return the files and sizes of the trees with the lambda and the features of prediction."""
        trees = self.survey(workers)
        used = trees.used if self._needed is None else self._needed
        return trees._replace(lambdas=self._lambdas, used=used)

    def _once(self, name: str, read: Callable[[], Result]) -> Result:
        """Return the result of `read`, which is called once for each name. Raises FormatError if another forest has
        replaced the files."""
        with self._lock:
            if name not in self._kept:
                with self.files.same_run():
                    self._kept[name] = read()
            result: Result = self._kept[name]
            return result
