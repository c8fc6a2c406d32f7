"""Rules by which the votes of trees become predictions. `VoteRules` makes them from the options of a prediction."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.types import kind_of
from bigforest.errors import ConfigError, api
from bigforest.forest.forest_files import ForestFiles
from bigforest.metrics.conformal import ByCategory, ClassSets, Intervals, JackknifeIntervals
from bigforest.options.values import Ties, check_flag, check_word, is_integer, several
from bigforest.predict.certainty import Calibration
from bigforest.predict.inbag import tree_bags
from bigforest.predict.training_column import training_column

Vote = Literal["soft", "hard", "stochastic"]
Unseen = Literal["larger", "missing", "error"]

REJECTED = -1
VOTES, _TIES, _UNSEEN = (get_args(kind) for kind in (Vote, Ties, Unseen))


@dataclass(frozen=True, slots=True)
class VoteRule:
    """Rule of a prediction. Numbers that trees predict are averaged, whatever the vote.

    vote  "soft": the class with the largest mean of the class shares in leaves (Ho 1995). "hard": the class most
          trees vote for (Breiman 2001); a tree votes for the class with the largest share in the leaf, the lowest
          among ties. "stochastic": a class drawn with its mean share as probability (Tomasi 2017, section 3).
    ties  prediction if classes have equal votes: "lowest", "reject" (none, Ho 1995), or "random". Votes are float64
          sums in the order of the trees. These sums are exact for hard votes and pure leaves, if all trees have the
          same weight. With a boosted stage, the corrected probabilities are compared instead.
    seed  seed of random draws. The draws of a row depend only on the seed and on the number of the row.
    unseen  how a level of a category that did not occur in training is treated: it goes to the "larger" child of every
          node on the category, counts as "missing", or is an "error".
    quantiles  additional quantiles of a regression target: shares from 0 to 1 (Meinshausen 2006).
    trees  numbers of the trees that vote, ascending; empty for all trees.
    conformal  additional intervals or prediction sets.
    least_share  a row is REJECTED if the probability of its predicted class is lower.
    power  exponent of the shares of the votes, see kernels/predict/powers.py. Without a boosted stage it does not
           change the class.
    refined  True to correct the predictions by the boosted stage, if the forest has one.
    """

    vote: str
    ties: str
    seed: int
    unseen: str = "larger"
    quantiles: tuple[float, ...] = ()
    trees: tuple[int, ...] = ()
    conformal: Intervals | ClassSets | ByCategory | JackknifeIntervals | None = None
    least_share: float = 0.0
    power: float = 1.0
    refined: bool = False

    def __post_init__(self) -> None:
        if not all(0.0 <= share <= 1.0 for share in self.quantiles) or len(set(self.quantiles)) < len(self.quantiles):
            raise ConfigError(f"{api('quantiles')} must be different numbers from 0 to 1, not {list(self.quantiles)}")
        check_word(self.vote, VOTES, "vote")
        check_word(self.ties, _TIES, "ties")
        check_word(self.unseen, _UNSEEN, "unseen")
        if self.vote == "stochastic" and self.ties != "lowest":
            raise ConfigError(f"a stochastic vote has no ties to decide; drop {api('ties')} or choose another vote")

    @property
    def quantile_names(self) -> list[str]:
        return [f"q{share!r}" for share in self.quantiles]

    @property
    def conformal_names(self) -> list[str]:
        return [] if self.conformal is None else list(self.conformal.columns)

    @property
    def category(self) -> str | None:
        """Column of the predicted rows by which intervals or sets are calibrated; None without one."""
        return self.conformal.column if isinstance(self.conformal, ByCategory) else None

    @property
    def category_is_text(self) -> bool:
        return isinstance(self.conformal, ByCategory) and kind_of(self.conformal.dtype).family == "text"

    @property
    def by_spread(self) -> bool:
        """True if intervals are scaled by the spread of the trees."""
        return self.conformal is not None and self.conformal.by_spread

    @property
    def ballots(self) -> str:
        """Kind of the votes of leaves: "soft" or "hard"."""
        return "hard" if self.vote == "hard" else "soft"

    @property
    def rejects(self) -> bool:
        """True if a row may be REJECTED."""
        return self.ties == "reject" or self.least_share > 0.0

    @property
    def draws(self) -> bool:
        """True if predictions depend on the numbers of the rows."""
        return self.vote == "stochastic" or self.ties == "random"

    def decide(self, votes: NDArray[np.float64], numbers: NDArray[np.uint64] | None) -> NDArray[np.intp]:
        """Return the class of every row, or REJECTED, from sums of votes [rows, classes].

        numbers  uint64 [rows], numbers of the rows; needed if `draws`.

        Oracle: tests/naive/predict.py decide.
        """
        if self.vote == "stochastic":
            reached = np.cumsum(votes, axis=1)
            total = reached[:, -1]
            # The product may round up to the total, but no cumulative sum is larger than the total.
            point = np.minimum(self._draws(numbers) * total, np.nextafter(total, 0.0))
            return (reached > point[:, None]).argmax(axis=1)
        classes = votes.argmax(axis=1)
        if self.ties == "lowest":
            return classes
        equal = votes == votes.max(axis=1, keepdims=True)
        count = equal.sum(axis=1)
        if self.ties == "reject":
            classes[count > 1] = REJECTED
            return classes
        chosen = np.floor(self._draws(numbers) * count) + 1
        return (np.cumsum(equal, axis=1) >= chosen[:, None]).argmax(axis=1)

    def _draws(self, numbers: NDArray[np.uint64] | None) -> NDArray[np.float64]:
        from bigforest.kernels.common.rng import PURPOSE_STOCHASTIC, PURPOSE_TIE, draw_rows, stream_key

        assert numbers is not None
        purpose = PURPOSE_STOCHASTIC if self.vote == "stochastic" else PURPOSE_TIE
        random = draw_rows(stream_key(self.seed, purpose, 0, 0), numbers)
        return (random >> np.uint64(11)).astype(np.float64) * 2.0**-53


def as_probabilities(shares: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    """Return the probabilities for shares of the votes [rows, classes], see powers.py. May change them in place."""
    if power == 1.0:
        return shares
    from bigforest.kernels.predict.powers import raise_shares

    raise_shares(shares, np.int64(round(4 * power)))
    return shares


# Values of the options of `VoteRules.make` if none is set, in the order of its tuple `options`.
_USUAL = (None, None, None, None, None, None, "larger", (), False)


class VoteRules:
    """Maker of the rules by which a forest predicts. Calibrates on out-of-bag rows once, when a rule first needs it."""

    def __init__(self, files: ForestFiles) -> None:
        self._files = files

    @cached_property
    def usual(self) -> VoteRule:
        """The rule without options; cached, because making it would take as long as predicting one row."""
        config = self._files.config
        return VoteRule(config.vote, config.tie_rule, config.seed, power=self._files.power.amount, refined=True)

    @cached_property
    def calibration(self) -> Calibration:
        """The out-of-bag rows, for intervals, sets and rejection. Raises ConfigError and FormatError."""
        return Calibration(self._files)

    def make(
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
        """Return the rule for these options of `Forest.predict`. For vote and ties, None means as in training.

        Raises ConfigError, and DataError for the column `coverage_by`.
        """
        options = (vote, ties, trees, coverage, reject_above, coverage_by, unseen, quantiles, jackknife)
        if all(map(operator.is_, options, _USUAL)):
            return self.usual
        check_flag(jackknife, "jackknife")
        files, shares, numbers = self._files, _shares(quantiles), tree_numbers(trees, self._files.trees)
        if shares:
            _check_quantiles(files, numbers)
        if files.is_regression and (vote is not None or ties is not None):
            raise ConfigError(f"the trees of a regression forest are averaged; drop {api('vote')} and {api('ties')}")
        vote = files.config.vote if vote is None else vote
        check_word(vote, VOTES, "vote")
        conformal, least_share = None, 0.0
        if coverage is not None or reject_above is not None:
            _check_certainty(files, vote, numbers, reject_above)
        if coverage is not None:
            conformal = self._conformal(_inner_share(coverage, "coverage"), coverage_by, jackknife)
        elif coverage_by is not None or jackknife:
            raise ConfigError(
                f"{api('coverage')} is not set; drop {api('jackknife' if jackknife else 'coverage_by')} or set "
                f"{api('coverage')}"
            )
        if reject_above is not None:
            least_share = self.calibration.reject_curve().least_share(_inner_share(reject_above, "reject_above"))
        trained_ties = "lowest" if vote == "stochastic" else files.config.tie_rule  # a stochastic vote has no ties
        # Power and boosted stage are fitted to out-of-bag votes of all trees, with the vote of training.
        as_reported = vote == files.config.vote and not numbers
        return VoteRule(
            vote,
            trained_ties if ties is None else ties,
            files.config.seed,
            unseen,
            shares,
            numbers,
            conformal,
            least_share,
            files.power.amount if as_reported else 1.0,
            refined=as_reported,
        )

    def _conformal(
        self, coverage: float, by: Any, jackknife: bool
    ) -> Intervals | ClassSets | ByCategory | JackknifeIntervals:
        """Calibrate intervals or sets."""
        if jackknife:
            _check_jackknife(self._files, by)
            return self.calibration.jackknife(tree_bags(self._files, None).bag, self._files.trees, coverage)
        if by is None:
            return self.calibration.conformal(coverage)
        return self.calibration.by_category(training_column(self._files, by), coverage)


def _check_quantiles(files: ForestFiles, trees: Sequence[int]) -> None:
    """Raise ConfigError if a forest, or these trees alone, cannot predict quantiles."""
    if trees:
        raise ConfigError(f"quantiles are computed from all trees together; drop {api('trees')} or {api('quantiles')}")
    if not files.is_regression:
        raise ConfigError(
            f"the forest predicts classes, which have no quantiles; drop {api('quantiles')}, use probabilities"
        )
    if not files.has_targets:
        raise ConfigError(
            f"the training targets of the leaves are not kept with the forest: train it with {api('keep_targets')}"
        )


def tree_numbers(trees: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """Return the option `trees` as distinct ascending numbers below `count`, empty for None. Raises ConfigError."""
    return tuple(sorted(set(requested_trees(trees, count))))


def requested_trees(trees: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """Return the option `trees` as numbers below `count` in the given order, empty for None. Raises ConfigError."""
    if trees is None:
        return ()
    if not isinstance(trees, Iterable) or not all(map(is_integer, trees := list(trees))):
        raise ConfigError(f"{api('trees')} must be numbers of trees, such as range(50), not {trees!r}")
    numbers = tuple(map(int, trees))
    if not numbers or min(numbers) < 0 or max(numbers) >= count:
        raise ConfigError(f"{api('trees')} must be numbers from 0 to {count - 1}, at least one, not {trees!r}")
    return numbers


def _inner_share(value: Any, name: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = math.nan
    if not 0.0 < share < 1.0:
        raise ConfigError(f"{api(name)} must be a number above 0 and below 1, such as 0.9, not {value!r}")
    return share


def _shares(quantiles: Sequence[float]) -> tuple[float, ...]:
    try:
        return tuple(float(str(share) if isinstance(share, np.floating) else share) for share in several(quantiles))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{api('quantiles')} must be different numbers from 0 to 1, not {quantiles!r}") from error


def _check_certainty(files: ForestFiles, vote: str, trees: tuple[int, ...], reject_above: Any) -> None:
    """Raise ConfigError for options that out-of-bag rows cannot calibrate."""
    if files.config.boosts:
        raise ConfigError(
            f"{api('coverage')} and {api('reject_above')} use out-of-bag rows, whose error is biased with sampling "
            f"{files.config.sampling!r}; drop {api('coverage')} and {api('reject_above')}"
        )
    if trees:
        raise ConfigError(
            f"{api('coverage')} and {api('reject_above')} are calibrated for all trees together; drop {api('trees')}"
        )
    if vote != files.config.vote:
        raise ConfigError(
            f"{api('coverage')} and {api('reject_above')} are calibrated on out-of-bag rows, with vote "
            f"{files.config.vote}; drop {api('vote')}"
        )
    if reject_above is not None and files.is_regression:
        raise ConfigError(f"{api('reject_above')} is for classification; for regression, use the width of the interval")


def _check_jackknife(files: ForestFiles, by: Any) -> None:
    """Raise ConfigError for a forest or options without intervals by the jackknife."""
    if files.is_refined:
        raise ConfigError(
            "the jackknife does not include the boosted stage of this forest; drop "
            f"{api('jackknife')}, or train with {api('refine')} off (forest.unrefined() in Python)"
        )
    if not files.is_regression:
        raise ConfigError(f"the jackknife is for regression, and the forest predicts classes; drop {api('jackknife')}")
    if by is not None:
        raise ConfigError(f"the jackknife takes all rows together; drop {api('coverage_by')} or {api('jackknife')}")
    if files.config.bootstrap and files.config.group is not None:
        raise ConfigError(
            f"the jackknife requires exchangeable rows, and the bags have whole groups of "
            f"{files.config.group!r}; drop {api('jackknife')}"
        )
