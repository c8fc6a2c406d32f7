"""Rules by which votes of trees become one prediction per row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec, TargetSpec
from bigforest.columns.labels import label_series, label_type
from bigforest.columns.types import kind_of
from bigforest.errors import ConfigError, api
from bigforest.metrics.categories import ByCategory
from bigforest.metrics.conformal import ClassSets, Intervals
from bigforest.metrics.jackknife import JackknifeIntervals
from bigforest.options.values import Ties, check_word

Vote = Literal["soft", "hard", "stochastic"]
Unseen = Literal["larger", "missing", "error"]

REJECTED = -1
VOTES, _TIES, _UNSEEN = (get_args(kind) for kind in (Vote, Ties, Unseen))


@dataclass(frozen=True, slots=True)
class VoteRule:
    """Rule of a prediction. Numbers that trees predict are averaged, whatever the vote.

    vote  "soft": the class with the largest mean of leaf posteriors (Ho 1995). "hard": the class most trees
          vote for (Breiman 2001); a tree votes for the most frequent class of the leaf, the lowest among ties.
          "stochastic": class y with the probability that "soft" gives it (Tomasi 2017, section 3).
    ties  among classes with exactly equal votes: "lowest", "reject" (no answer, Ho 1995), or "random". Equal
          means equal as float64 sums over the trees in their order, which is exact for hard votes and for
          pure leaves.
    seed  of the draws. Those of a row depend on the seed and on the number of the row, on nothing else.
    unseen  how a level of a category that did not occur in training is treated: it goes to the "larger" child of every
          node on the category, counts as "missing", or is an "error".
    quantiles  additional quantiles of a regression target: shares from 0 to 1 (Meinshausen 2006).
    trees  numbers of the trees that answer, ascending; empty for all trees.
    conformal  additional intervals or prediction sets.
    least_share  the least probability of the predicted class: a row with less is REJECTED.
    power  to which shares of the votes are raised, see kernels/predict/powers.py. It does not decide a class.
    refined  whether the boosted stage of the forest, if it has one, corrects the predictions.
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
        """The columns of the quantiles: q0.1 and so on."""
        return [f"q{share!r}" for share in self.quantiles]

    @property
    def conformal_names(self) -> list[str]:
        """The columns of intervals or sets, if there are any."""
        return [] if self.conformal is None else list(self.conformal.columns)

    @property
    def category(self) -> str | None:
        """Column of the predicted rows by which intervals or sets are calibrated; None without one."""
        return self.conformal.column if isinstance(self.conformal, ByCategory) else None

    @property
    def category_is_text(self) -> bool:
        """True if that column was text in training."""
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

        numbers [rows] are the numbers of the rows, needed if `draws`. Oracle: tests/naive/predict.py decide.
        """
        if self.vote == "stochastic":
            reached = np.cumsum(votes, axis=1)
            total = reached[:, -1]
            # The product may round up to the total, which no class would exceed.
            point = np.minimum(self._draws(numbers) * total, np.nextafter(total, 0.0))
            return _first(reached > point[:, None])
        answer = votes.argmax(axis=1)
        if self.ties == "lowest":
            return answer
        equal = votes == votes.max(axis=1, keepdims=True)
        count = equal.sum(axis=1)
        if self.ties == "reject":
            answer[count > 1] = REJECTED
            return answer
        chosen = np.floor(self._draws(numbers) * count) + 1
        return _first(np.cumsum(equal, axis=1) >= chosen[:, None])

    def _draws(self, numbers: NDArray[np.uint64] | None) -> NDArray[np.float64]:
        """Return a random number in [0, 1) for each row."""
        from bigforest.kernels.common.rng import PURPOSE_STOCHASTIC, PURPOSE_TIE, draw_rows, stream_key

        assert numbers is not None
        purpose = PURPOSE_STOCHASTIC if self.vote == "stochastic" else PURPOSE_TIE
        random = np.empty(numbers.size, dtype=np.uint64)
        with np.errstate(over="ignore"):  # without compilation, numpy warns that hashes wrap around
            key = stream_key(np.uint64(self.seed), purpose, np.uint64(0), np.uint64(0))
            draw_rows(np.uint64(key), numbers, random)
        return (random >> np.uint64(11)).astype(np.float64) * 2.0**-53


def as_probabilities(shares: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    """Raise shares of the votes [rows, classes] to a power. May change them in place."""
    if power == 1.0:
        return shares
    from bigforest.kernels.predict.powers import raise_shares

    raise_shares(shares, np.int64(round(4 * power)))
    return shares


def _first(true: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the column of the first True of each row."""
    return true.argmax(axis=1)


def labels(codes: NDArray[np.int32], spec: DataSpec) -> pl.Series:
    """Return the labels of class codes, null for REJECTED, in the type of the target."""
    if (codes == REJECTED).any():
        return _classes(spec.target).gather(pl.Series(codes).replace(REJECTED, None))
    return _classes(spec.target)[codes]


def label_array(codes: NDArray[np.int32], spec: DataSpec, rule: VoteRule) -> NDArray[Any]:
    """Return `labels` as an array; much faster than a Series for one row."""
    if rule.rejects and (codes == REJECTED).any():
        return labels(codes, spec).to_numpy()
    return _class_array(spec.target).take(codes)


@lru_cache(maxsize=16)
def _classes(target: TargetSpec) -> pl.Series:
    """Return the labels of all classes, in the type of the target."""
    return label_series(target).cast(label_type(target)).alias("prediction")


@lru_cache(maxsize=16)
def _class_array(target: TargetSpec) -> NDArray[Any]:
    return _classes(target).to_numpy()
