"""A grown forest, ready for prediction: its trees in memory, all of them or a group at a time."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api
from bigforest.execution.resources import Resources, available_threads
from bigforest.forest.leaf_shrinking import leaf_lambdas
from bigforest.forest.leaf_targets import LeafTargets, read_targets
from bigforest.forest.parts import check_count
from bigforest.metrics.jackknife import JackknifeIntervals, whole_values
from bigforest.options.values import check_flag, check_word
from bigforest.planning.memory import Shape
from bigforest.planning.sizes import parse_bytes
from bigforest.predict.certainty import Calibration, check_certainty, conformal_of
from bigforest.predict.contents import Contents
from bigforest.predict.groups import Trees, survey
from bigforest.predict.packed_trees import FlatTrees, load
from bigforest.predict.passes import ALL_ROWS, AnswerPasses, default_batch, plan_passes, whole_estimate
from bigforest.predict.predictor import GroupLeafTargets, Predictor
from bigforest.predict.rows import Reader
from bigforest.predict.tree_votes import read_tree_votes
from bigforest.predict.vote_rule import VOTES, VoteRule


class GrownForest(Contents):
    """The files of a forest, and its trees, loaded when they are first needed, that predict rows by a rule.

    May be used from several threads.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._lambdas = leaf_lambdas(self.config, self.shrinkage.amount)  # by which leaves are shrunk
        self._readers: dict[str, Reader] = {}
        self._lock = threading.Lock()
        self._packed: FlatTrees | None = None
        self._surveyed: Trees | None = None
        self._targets: LeafTargets | None = None
        self._means: NDArray[np.float64] | None = None
        self._votes: NDArray[np.float64] | None = None
        self._last: Predictor | None = None  # of a plain rule, as the next call will likely ask for it again

    def check(self) -> None:
        """Read and check all nodes now rather than at the first prediction. Raises FormatError."""
        self._whole()

    def take(self, packed: FlatTrees) -> None:
        """Keep all trees, which are in memory, so that they need not be read for the first prediction."""
        with self._lock:
            self._packed, self._last = packed.with_narrow(), None

    def tree_votes(self) -> NDArray[np.float64] | None:
        """The weight of each tree's vote, float64 [trees]; None if all votes have the same weight.

        Raises FormatError.
        """
        with self._lock:
            if self._votes is None:
                self._votes = read_tree_votes(self.directory, self.header)
            return self._votes

    def rule(
        self,
        vote: str | None = None,
        ties: str | None = None,
        unseen: str = "larger",
        quantiles: Sequence[float] = (),
        trees: Iterable[int] | None = None,
        coverage: float | None = None,
        reject_above: float | None = None,
        coverage_by: Any = None,
        jackknife: bool = False,
    ) -> VoteRule:
        """The rule of an answer; None stands for what the forest was trained with. Raises ConfigError."""
        given = (vote, ties, trees, coverage, reject_above, coverage_by, unseen, quantiles, jackknife)
        if all(map(operator.is_, given, _USUAL)):
            return self._usual_rule
        check_flag(jackknife, "jackknife")
        shares, some = _shares(quantiles), self._numbers(trees)
        if shares and some:
            raise ConfigError(
                f"quantiles are computed from all trees together; drop {api('trees')} or {api('quantiles')}"
            )
        if shares and not self.is_regression:
            raise ConfigError(
                f"the forest predicts classes, which have no quantiles; drop {api('quantiles')}, use probabilities"
            )
        if shares and not self.has_targets:
            raise ConfigError(
                f"the training targets of the leaves are not kept with the forest: train it with {api('keep_targets')}"
            )
        if self.is_regression and (vote is not None or ties is not None):
            raise ConfigError(f"the trees of a regression forest are averaged; drop {api('vote')} and {api('ties')}")
        vote = self.config.vote if vote is None else vote
        check_word(vote, VOTES, "vote")
        conformal, least_share = None, 0.0
        if coverage is not None or reject_above is not None:
            check_certainty(self, vote, some, reject_above)
        if coverage is not None:
            conformal = conformal_of(self, self.calibration, _inner_share(coverage, "coverage"), coverage_by, jackknife)
        elif coverage_by is not None or jackknife:
            raise ConfigError(
                f"{api('coverage')} is not set; drop {api('jackknife' if jackknife else 'coverage_by')} or set "
                f"{api('coverage')}"
            )
        if reject_above is not None:
            least_share = self.calibration.least_share(_inner_share(reject_above, "reject_above"))
        own = "lowest" if vote == "stochastic" else self.config.tie_rule  # such a vote has no ties to decide
        return VoteRule(
            vote,
            own if ties is None else ties,
            self.config.seed,
            unseen,
            shares,
            some,
            conformal,
            least_share,
            self.power.amount if vote == self.config.vote and not some else 1.0,
        )

    @cached_property
    def _usual_rule(self) -> VoteRule:
        """The rule where nothing is requested: a call for one row takes no longer than making one."""
        return VoteRule(self.config.vote, self.config.tie_rule, self.config.seed, power=self.power.amount)

    @cached_property
    def calibration(self) -> Calibration:
        """What the out-of-bag rows say of the certainty of predictions. Raises ConfigError and FormatError."""
        return Calibration(self)

    def predictor(self, rule: VoteRule, memory: int | str | None = None, threads: int | None = None) -> Predictor:
        """The trees, ready to answer rows by a rule.

        Raises ConfigError where all trees together take more than `memory`, and FormatError for damaged nodes.
        """
        last, plain = self._last, rule.conformal is None and not rule.quantiles
        if memory is None and plain and last is not None and last.rule == rule:
            return last
        resources = Resources(threads=threads, memory=None if memory is None else parse_bytes(memory))
        targets = self._leaf_targets(rule, resources)
        if memory is not None:
            workers = resources.workers
            held = 0 if targets is None else targets.nbytes
            held += rule.conformal.nbytes if isinstance(rule.conformal, JackknifeIntervals) else 0
            whole_estimate(self._survey(workers), workers, held).check(resources.memory)
        packed = self._whole()
        group_leaf_targets = None
        if targets is not None:
            mean, step = self._leaf_means(packed), self.spec.target.step
            trees = range(packed.roots.size)
            group_leaf_targets = GroupLeafTargets.of(targets, trees, packed, mean, step, self.directory)
        grown = self._leaf_means(packed) - self.spec.target.offset if rule.by_spread else None
        by_jackknife = isinstance(rule.conformal, JackknifeIntervals)
        values = whole_values(packed.counts[:, 0]) if by_jackknife else None
        made = self._predictor(rule, packed, None, group_leaf_targets, grown, values)
        if memory is None and plain:
            with self._lock:
                self._last = made if self._packed is not None else None
        return made

    def reader(self, rule: VoteRule) -> Reader:
        """How rows are read that are answered by a rule. Raises FormatError."""
        found = self._readers.get(rule.unseen)
        if found is None:
            found = self._readers[rule.unseen] = Reader(self.spec, self.levels, rule.unseen)
        return found

    def passes(
        self,
        rule: VoteRule,
        shape: Callable[[NDArray[np.int64]], Shape],
        resources: Resources,
        held: int,
        narrow: Callable[[], bool],
    ) -> AnswerPasses:
        """How to answer a table.

        shape    gives the Shape of the table as it is read for features in use (see plan_passes).
        held     bytes of it that are in memory already.
        narrow   whether all its values are float32.

        Raises ConfigError, also where the memory of `resources` is too little, and FormatError for damaged nodes.
        """
        if resources.memory is None:
            predictor = self.predictor(rule)
            used = predictor.packed.used
            return AnswerPasses(
                used, [range(1)], ALL_ROWS, default_batch(used.size, resources.limits), lambda _: predictor
            )
        if rule.trees:
            raise ConfigError(
                f"predicting with some trees needs the whole forest in memory; drop {api('memory')} or {api('trees')}"
            )
        if isinstance(rule.conformal, JackknifeIntervals):
            raise ConfigError(f"the jackknife takes all trees at once; drop {api('memory')} or {api('jackknife')}")
        with self._lock:
            self._packed = self._last = None  # other calls may still use it, but it does not stay
        trees = self._survey(resources.workers)
        held += 0 if self.ranks is None else self.ranks.nbytes
        targets = self._leaf_targets(rule, resources)
        held += 0 if targets is None else targets.held
        if (targets is not None or rule.by_spread) and self._lambdas:
            trees = trees._replace(lambdas=(0.0, *self._lambdas))  # targets and spread are of leaves as grown
        all_narrow = narrow()
        kept: dict[range, Predictor] = {}

        def load_group(entries: range) -> Predictor:
            if entries not in kept:
                kept.clear()
                packed = trees.load(entries, resources.workers)
                pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
                own, numbers = None, trees.numbers(entries)
                grown = packed.counts[:, 0] - self.spec.target.offset if rule.by_spread else None
                if targets is not None:
                    step = self.spec.target.step
                    own = GroupLeafTargets.of(targets, numbers, packed, packed.counts[:, 0], step, self.directory)
                packed = packed.by(1, 2) if len(trees.lambdas) == 2 else packed
                packed = packed.narrowed() if all_narrow else packed
                kept[entries] = self._predictor(rule, packed, numbers, own, grown)
            return kept[entries]

        assert trees.used is not None
        sizes = trees.sizes() + (8 * trees.nodes if rule.by_spread else 0)  # what leaves predict as grown
        wanted = len(rule.quantiles), rule.by_spread
        groups, rows, batch, need = plan_passes(shape(trees.used), resources, sizes, trees.first, held, *wanted)
        need.check(resources.memory)
        return AnswerPasses(trees.used, groups, rows, batch, load_group)

    def _predictor(
        self,
        rule: VoteRule,
        packed: FlatTrees,
        trees: range | None,
        targets: GroupLeafTargets | None,
        grown: NDArray[np.float64] | None,
        values: tuple[NDArray[np.float64], float] | None = None,
    ) -> Predictor:
        """A predictor of `trees`, whose counts are not kept; if None, of all, or of those that the rule selects."""
        votes, some, total = self.tree_votes(), list(rule.trees), None
        if votes is None:
            mixed = packed.ballots(rule.ballots)
        else:
            mixed = packed.weighted_ballots(rule.ballots, votes if trees is None else votes[trees.start : trees.stop])
            total = math.fsum((votes[some] if some else votes).tolist())
        packed = packed._replace(roots=packed.roots[some]) if some else packed
        packed = packed if trees is None else packed._replace(counts=packed.counts[:0].copy())
        count = None if trees is None else self.trees
        return Predictor(packed, mixed, rule, self.spec, count, self.ranks, targets, total, grown, values)

    def _whole(self) -> FlatTrees:
        """All trees, read once by whichever thread comes first. Raises FormatError."""
        with self._lock:
            if self._packed is None:
                packed = load(self._parts, self.header, 0, available_threads(), lambdas=self._lambdas)
                check_count(self.directory, packed.roots.size, self.header)
                self._packed = packed.with_narrow()
            return self._packed

    def _leaf_targets(self, rule: VoteRule, resources: Resources) -> LeafTargets | None:
        """The targets in the leaves, where a rule asks for quantiles; kept where memory is not limited.

        Raises FormatError.
        """
        if not rule.quantiles:
            return None
        if resources.memory is not None:
            return read_targets(self.directory, self.header, resources.scratch, mapped=True)
        with self._lock:
            if self._targets is None:
                self._targets = read_targets(self.directory, self.header, None, mapped=False)
            return self._targets

    def _leaf_means(self, packed: FlatTrees) -> NDArray[np.float64]:
        """The means of all leaves as they are grown, float64 [leaves]; read once where leaves are shrunk."""
        if not self._lambdas:
            return packed.counts[:, 0]
        with self._lock:
            if self._means is None:
                grown = load(self._parts, self.header, 0, available_threads())
                self._means = grown.counts[:, 0]
            return self._means

    def _survey(self, workers: int) -> Trees:
        """Where the trees are and what they take, found once."""
        with self._lock:
            if self._surveyed is None:
                self._surveyed = survey(self.directory, workers)._replace(lambdas=self._lambdas)
            return self._surveyed

    def _numbers(self, trees: Iterable[int] | None) -> tuple[int, ...]:
        """Numbers of trees, ascending; none for all. Raises ConfigError."""
        if trees is None:
            return ()
        try:
            numbers = sorted({operator.index(tree) for tree in trees})
        except TypeError as error:
            raise ConfigError(f"{api('trees')} must be numbers of trees, such as range(50), not {trees!r}") from error
        if not numbers or numbers[0] < 0 or numbers[-1] >= self.trees:
            raise ConfigError(f"{api('trees')} must be numbers from 0 to {self.trees - 1}, at least one, not {trees!r}")
        return tuple(numbers)


# The options of `GrownForest.rule` where none is given, in the order in which it looks at them.
_USUAL = (None, None, None, None, None, None, "larger", (), False)


def _inner_share(value: Any, name: str) -> float:
    """A number above 0 and below 1. Raises ConfigError."""
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = math.nan
    if not 0.0 < share < 1.0:
        raise ConfigError(f"{api(name)} must be a number above 0 and below 1, such as 0.9, not {value!r}")
    return share


def _shares(quantiles: Sequence[float]) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in quantiles)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{api('quantiles')} must be different numbers from 0 to 1, not {quantiles!r}") from error
