"""Options of a prediction, checked and calibrated for one forest, as the rule that predicts rows (VoteRule)."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from bigforest.errors import ConfigError, DataError, api, counted, listed
from bigforest.forest.forest_files import ForestFiles
from bigforest.metrics.categories import ByCategory
from bigforest.metrics.conformal import ClassSets, Intervals
from bigforest.metrics.jackknife import JackknifeIntervals
from bigforest.options.values import check_flag, check_word
from bigforest.predict.certainty import Calibration, check_category
from bigforest.predict.inbag import tree_bags
from bigforest.predict.vote_rule import VOTES, VoteRule

# Values of the options of `VoteRules.make`, in the order of its test for them, if none is set.
_USUAL = (None, None, None, None, None, None, "larger", (), False)


class VoteRules:
    """Makes the rules by which a forest predicts. Calibrates on out-of-bag rows once, when a rule needs it."""

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
        """Return the rule of these options, which are those of `Forest.predict`. None means as in training.

        Raises ConfigError, and DataError for the column `coverage_by`.
        """
        options = (vote, ties, trees, coverage, reject_above, coverage_by, unseen, quantiles, jackknife)
        if all(map(operator.is_, options, _USUAL)):
            return self.usual
        check_flag(jackknife, "jackknife")
        files, shares, numbers = self._files, _shares(quantiles), tree_numbers(trees, self._files.trees)
        if shares and numbers:
            raise ConfigError(
                f"quantiles are computed from all trees together; drop {api('trees')} or {api('quantiles')}"
            )
        if shares and not files.is_regression:
            raise ConfigError(
                f"the forest predicts classes, which have no quantiles; drop {api('quantiles')}, use probabilities"
            )
        if shares and not files.has_targets:
            raise ConfigError(
                f"the training targets of the leaves are not kept with the forest: train it with {api('keep_targets')}"
            )
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
            least_share = self.calibration.least_share(_inner_share(reject_above, "reject_above"))
        trained_ties = "lowest" if vote == "stochastic" else files.config.tie_rule  # a stochastic vote has no ties
        whole = vote == files.config.vote and not numbers  # as in the out-of-bag report
        return VoteRule(
            vote,
            trained_ties if ties is None else ties,
            files.config.seed,
            unseen,
            shares,
            numbers,
            conformal,
            least_share,
            files.power.amount if whole else 1.0,
            refined=whole,
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
        return self.calibration.by_category(_column(self._files, by), coverage)


def tree_numbers(trees: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """Return the option `trees` as ascending numbers below `count`; none means all. Raises ConfigError."""
    if trees is None:
        return ()
    try:
        numbers = sorted({operator.index(tree) for tree in trees})
    except TypeError as error:
        raise ConfigError(f"{api('trees')} must be numbers of trees, such as range(50), not {trees!r}") from error
    if not numbers or numbers[0] < 0 or numbers[-1] >= count:
        raise ConfigError(f"{api('trees')} must be numbers from 0 to {count - 1}, at least one, not {trees!r}")
    return tuple(numbers)


def _inner_share(value: Any, name: str) -> float:
    """Return a number above 0 and below 1. Raises ConfigError."""
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


def _column(files: ForestFiles, by: Any) -> pl.Series:
    """Return the column of the training table that `coverage_by` names or is. Raises ConfigError and DataError."""
    column = _read_column(files, by) if isinstance(by, str) else _given_column(by)
    rows = files.spec.rows + files.spec.dropped
    if len(column) != rows:
        raise DataError(
            f"{api('coverage_by')}: column {column.name!r} has {counted(len(column), 'row')}, and the forest was "
            f"trained on {rows:,}; give that table's column"
        )
    check_category(column.name, column.dtype)
    return column


def _given_column(by: Any) -> pl.Series:
    name = getattr(by, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{api('coverage_by')} must be the name of a column, or that column of the training table as a Series with "
            f"a name, not {type(by).__name__}"
        )
    return by if isinstance(by, pl.Series) else pl.Series(name, by)


def _read_column(files: ForestFiles, name: str) -> pl.Series:
    """Read a column of the training table, where the forest says it is. Raises ConfigError and DataError."""
    from bigforest.predict.rows import open_rows
    from bigforest.storage.atomic import TemporaryFolder

    place = None if files.origin is None else files.origin.data
    if place is None:
        raise ConfigError(
            f"{api('coverage_by')}: the forest was trained on a table in memory; give its column {name!r} as a Series"
        )
    with TemporaryFolder(None) as work:
        try:
            source = open_rows(place, files.spec, scratch=work, also=[name])
        except DataError as error:
            raise DataError(
                f"{api('coverage_by')} takes a column of the table that the forest was trained on: {error}"
            ) from error
        if name not in source.schema:
            raise DataError(
                f"the table that the forest was trained on has no column {name!r}; its columns are "
                f"{listed(list(source.schema))}"
            )
        return source.column(name)
