"""The trees of a forest in memory: all of them, kept from one call to the next, or a group at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError
from bigforest.common.memory_estimate import Shape
from bigforest.common.sizes import parse_bytes
from bigforest.execution.resources import Resources, available_threads
from bigforest.forest.format.files import Header
from bigforest.forest.format.leaf_targets import LeafTargets, read_targets
from bigforest.forest.format.parts import check_count, check_parts, whole_parts
from bigforest.forest.format.ranks import Ranks
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.forest.load.flatten import load
from bigforest.forest.load.groups import Trees, survey
from bigforest.forest.load.leaf_shrinking import leaf_lambdas
from bigforest.forest.load.predictor import GroupLeafTargets, LeafValues, Predictor
from bigforest.forest.load.row_passes import ALL_ROWS, AnswerPasses, choose_passes, default_batch, whole_estimate
from bigforest.forest.load.tree_votes import read_tree_votes
from bigforest.forest.load.vote_rule import VoteRule
from bigforest.metrics.jackknife import JackknifeIntervals, whole_values


def _sum(votes: NDArray[np.float64]) -> float:
    """The sum of all votes, rounded once."""
    return math.fsum(votes.tolist())


class Loader:
    """Reads, checks and packs the trees in the parts of a forest. May be used from several threads.

    shrinkage  the lambda by which leaves are shrunk; 0 for none.
    """

    def __init__(self, directory: Path, parts: Sequence[Path], header: Header, shrinkage: float) -> None:
        self._lambdas = leaf_lambdas(header.config, shrinkage)
        self._directory = directory
        self._parts = list(parts)
        self._header = header
        self._spec = header.spec
        self._lock = threading.Lock()
        self._packed: FlatTrees | None = None
        self._trees: Trees | None = None
        self._targets: LeafTargets | None = None
        self._means: NDArray[np.float64] | None = None
        self._votes: NDArray[np.float64] | None = None
        self._last: Predictor | None = None  # of a plain rule, as the next call will likely ask for it again

    def whole(self) -> FlatTrees:
        """All trees, read once by whichever thread comes first. Raises FormatError."""
        with self._lock:
            if self._packed is None:
                header = check_parts(self._parts)
                packed = load(whole_parts(self._parts), header, 0, available_threads(), lambdas=self._lambdas)
                check_count(self._directory, packed.roots.size, header)
                self._packed = packed.with_narrow()
            return self._packed

    def tree_votes(self) -> NDArray[np.float64] | None:
        """The weight of each tree's vote, float64 [trees]; None if all votes have the same weight.

        Raises FormatError.
        """
        with self._lock:
            if self._votes is None:
                self._votes = read_tree_votes(self._directory, self._header)
            return self._votes

    def take(self, packed: FlatTrees) -> None:
        """Keep all trees, which are in memory, as if they had been read."""
        with self._lock:
            self._packed, self._last = packed.with_narrow(), None

    def targets(self, rule: VoteRule, resources: Resources) -> LeafTargets | None:
        """The targets in the leaves, where a rule asks for quantiles; kept where memory is not limited.

        Raises FormatError.
        """
        if not rule.quantiles:
            return None
        if resources.memory is not None:
            return read_targets(self._directory, self._header, resources.scratch, mapped=True)
        with self._lock:
            if self._targets is None:
                self._targets = read_targets(self._directory, self._header, None, mapped=False)
            return self._targets

    def predictor(
        self, rule: VoteRule, ranks: Ranks | None, memory: int | str | None, threads: int | None
    ) -> Predictor:
        """All trees, ready to answer rows; see `Forest.voting`."""
        last, plain = self._last, rule.conformal is None and not rule.quantiles
        if memory is None and plain and last is not None and last.rule == rule:
            return last
        resources = Resources(threads=threads, memory=None if memory is None else parse_bytes(memory))
        targets = self.targets(rule, resources)
        if memory is not None:
            workers = resources.workers
            held = 0 if targets is None else targets.nbytes
            held += rule.conformal.nbytes if isinstance(rule.conformal, JackknifeIntervals) else 0
            whole_estimate(self._survey(workers), workers, held).check(resources.memory)
        packed = self.whole()
        group_leaf_targets = None
        if targets is not None:
            mean, step = self._leaf_means(packed), self._spec.target.step
            group_leaf_targets = GroupLeafTargets.of(targets, range(packed.roots.size), packed, mean, step)
        grown = self._leaf_means(packed) - self._spec.target.offset if rule.by_spread else None
        votes = self.tree_votes()
        mixed = packed.ballots(rule.ballots) if votes is None else packed.weighted_ballots(rule.ballots, votes)
        if rule.trees:
            packed = packed._replace(roots=packed.roots[list(rule.trees)])
            votes = None if votes is None else votes[list(rule.trees)]
        total = None if votes is None else _sum(votes)
        by_jackknife = isinstance(rule.conformal, JackknifeIntervals)
        values = LeafValues(*whole_values(packed.counts[:, 0])) if by_jackknife else None
        made = Predictor(packed, mixed, rule, self._spec, None, ranks, group_leaf_targets, total, grown, values)
        if memory is None and plain:
            with self._lock:
                self._last = made if self._packed is not None else None
        return made

    def passes(
        self,
        rule: VoteRule,
        ranks: Ranks | None,
        shape: Callable[[NDArray[np.int64]], Shape],
        resources: Resources,
        held: int,
        narrow: Callable[[], bool],
    ) -> AnswerPasses:
        """How to answer a table; see `Forest.passes`."""
        if resources.memory is None:
            predictor = self.predictor(rule, ranks, None, None)
            used = predictor.packed.used
            return AnswerPasses(
                used, [range(1)], ALL_ROWS, default_batch(used.size, resources.limits), lambda _: predictor
            )
        if rule.trees:
            raise ConfigError("predicting with some trees needs the whole forest in memory; drop memory or trees")
        if isinstance(rule.conformal, JackknifeIntervals):
            raise ConfigError("the jackknife takes all trees at once; drop memory or jackknife")
        with self._lock:
            self._packed = self._last = None  # other calls may still use it, but it does not stay
        trees = self._survey(resources.workers)
        held += 0 if ranks is None else ranks.nbytes
        targets = self.targets(rule, resources)
        held += 0 if targets is None else targets.held
        if (targets is not None or rule.by_spread) and self._lambdas:
            trees = trees._replace(lambdas=(0.0, *self._lambdas))  # targets and spread are of leaves as grown
        all_narrow, votes = narrow(), self.tree_votes()
        kept: dict[range, Predictor] = {}

        def load_group(entries: range) -> Predictor:
            if entries not in kept:
                kept.clear()
                packed = trees.load(entries, resources.workers)
                pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
                own = None
                grown = packed.counts[:, 0] - self._spec.target.offset if rule.by_spread else None
                if targets is not None:
                    numbers, step = trees.numbers(entries), self._spec.target.step
                    own = GroupLeafTargets.of(targets, numbers, packed, packed.counts[:, 0], step)
                packed = packed.by(1, 2) if len(trees.lambdas) == 2 else packed
                packed = packed.narrowed() if all_narrow else packed
                if votes is None:
                    mixed = packed.ballots(rule.ballots)
                else:
                    own_votes = votes[slice(*trees.first[[entries.start, entries.stop]].tolist())]
                    mixed = packed.weighted_ballots(rule.ballots, own_votes)
                packed = packed._replace(counts=packed.counts[:0].copy())
                count, whole = trees.header.config.trees, None if votes is None else _sum(votes)
                kept[entries] = Predictor(packed, mixed, rule, self._spec, count, ranks, own, whole, grown)
            return kept[entries]

        assert trees.used is not None
        wanted = len(rule.quantiles), rule.by_spread
        return choose_passes(shape(trees.used), resources, trees, held, load_group, *wanted)

    def _leaf_means(self, packed: FlatTrees) -> NDArray[np.float64]:
        """The means of all leaves as they are grown, float64 [leaves]; read once where leaves are shrunk."""
        if not self._lambdas:
            return packed.counts[:, 0]
        with self._lock:
            if self._means is None:
                grown = load(whole_parts(self._parts), self._header, 0, available_threads())
                self._means = grown.counts[:, 0]
            return self._means

    def _survey(self, workers: int) -> Trees:
        """Where the trees are and what they take, found once."""
        with self._lock:
            if self._trees is None:
                self._trees = survey(self._directory, workers)._replace(lambdas=self._lambdas)
            return self._trees
