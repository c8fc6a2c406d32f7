"""A grown forest, ready for prediction."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.checks import check_flag, check_word
from bigforest.common.errors import ConfigError
from bigforest.common.memory_estimate import Shape
from bigforest.execution.resources import Resources
from bigforest.forest.calibration import Calibration
from bigforest.forest.certainty import check_certainty, conformal_of
from bigforest.forest.contents import Contents
from bigforest.forest.format.files import Header
from bigforest.forest.format.shrinkage import Shrinkage
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.forest.load.loader import Loader
from bigforest.forest.load.predictor import Predictor
from bigforest.forest.load.reader import Reader
from bigforest.forest.load.row_passes import AnswerPasses
from bigforest.forest.load.vote_rule import VOTES, VoteRule


class GrownForest(Contents):
    """A forest whose trees are ready to answer rows. May be used from several threads."""

    def __init__(
        self,
        directory: Path,
        header: Header,
        parts: Sequence[Path],
        shrinkage: Shrinkage,
        holding: object = None,
        *,
        shrunk: bool = False,
    ) -> None:
        super().__init__(directory, header, parts, shrinkage, holding, shrunk=shrunk)
        self._readers: dict[str, Reader] = {}
        self._loader = Loader(directory, self._parts, header, shrinkage.amount)

    def check(self) -> None:
        """Read and check all nodes now rather than at the first prediction. Raises FormatError."""
        self._loader.whole()

    def take(self, packed: FlatTrees) -> None:
        """Keep all trees, which are in memory, so that they need not be read for the first answer."""
        self._loader.take(packed)

    def tree_votes(self) -> NDArray[np.float64] | None:
        """The weight of each tree's vote, float64 [trees]; None if all votes have the same weight.

        Raises FormatError.
        """
        return self._loader.tree_votes()

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
            raise ConfigError("quantiles are computed from all trees together; drop trees or quantiles")
        if shares and not self.is_regression:
            raise ConfigError("the forest predicts classes, which have no quantiles; use their probabilities")
        if shares and not self.has_targets:
            raise ConfigError(
                "the training targets of the leaves are not kept with the forest: train it with keep_targets"
            )
        if self.is_regression and (vote is not None or ties is not None):
            raise ConfigError("the trees of a regression forest are averaged; drop vote and ties")
        vote = self.config.vote if vote is None else vote
        check_word(vote, VOTES, "vote")
        conformal, least_share = None, 0.0
        if coverage is not None or reject_above is not None:
            check_certainty(self, vote, some, reject_above)
        if coverage is not None:
            conformal = conformal_of(self, self.calibration, _inner_share(coverage, "coverage"), coverage_by, jackknife)
        elif coverage_by is not None or jackknife:
            raise ConfigError(
                f"coverage is not set; drop {'jackknife' if jackknife else 'coverage_by'} or set coverage"
            )
        if reject_above is not None:
            least_share = self.calibration.least_share(_inner_share(reject_above, "reject_above"))
        own = "lowest" if vote == "stochastic" else self.config.tie_rule  # such a vote has no ties to decide
        return VoteRule(
            vote, own if ties is None else ties, self.config.seed, unseen, shares, some, conformal, least_share
        )

    @cached_property
    def _usual_rule(self) -> VoteRule:
        """The rule where nothing is requested: a call for one row takes no longer than making one."""
        return VoteRule(self.config.vote, self.config.tie_rule, self.config.seed)

    @cached_property
    def calibration(self) -> Calibration:
        """What the out-of-bag rows say of the certainty of predictions. Raises ConfigError and FormatError."""
        return Calibration(self)

    def predictor(self, rule: VoteRule, memory: int | str | None = None, threads: int | None = None) -> Predictor:
        """The trees, ready to answer rows by a rule.

        Raises ConfigError where all trees together take more than `memory`, and FormatError for damaged nodes.
        """
        return self._loader.predictor(rule, self.ranks, memory, threads)

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

        shape    gives the Shape of the table as it is read for features in use (see passes.plan_passes).
        held     bytes of it that are in memory already.
        narrow   whether all its values are float32.

        Raises ConfigError, also where the memory of `resources` is too little, and FormatError for damaged nodes.
        """
        return self._loader.passes(rule, self.ranks, shape, resources, held, narrow)

    def _numbers(self, trees: Iterable[int] | None) -> tuple[int, ...]:
        """Numbers of trees, ascending; none for all. Raises ConfigError."""
        if trees is None:
            return ()
        try:
            numbers = sorted({operator.index(tree) for tree in trees})
        except TypeError as error:
            raise ConfigError(f"trees must be numbers of trees, such as range(50), not {trees!r}") from error
        if not numbers or numbers[0] < 0 or numbers[-1] >= self.trees:
            raise ConfigError(f"trees must be numbers from 0 to {self.trees - 1}, at least one, not {trees!r}")
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
        raise ConfigError(f"{name} must be a number above 0 and below 1, such as 0.9, not {value!r}")
    return share


def _shares(quantiles: Sequence[float]) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in quantiles)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"quantiles must be different numbers from 0 to 1, not {quantiles!r}") from error
