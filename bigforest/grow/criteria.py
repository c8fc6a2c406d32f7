"""Criteria, one object each: how splits of a node are compared, and the impurity of a node in the forest table.

    in memory   kernels compare splits, by `number` and `table` (kernels/scan/)
    by passes   splits are compared from counts: the floats `scores` and `bounds` drop most splits, `exact` decides

Code outside the package adds a criterion for classes as a ScoredCriterion of two compiled functions, which it passes to
`register_criterion`; README.md of grow has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import TargetSpec
from bigforest.errors import ConfigError, DataError, api
from bigforest.kernels.out_of_core.split_scores import (
    bucket_bounds,
    bucket_bounds_sums,
    integer_score,
    split_scores,
    split_scores_sums,
)
from bigforest.kernels.scan.impurity import ENTROPY, ERROR, GINI, POISSON, SCORED, VARIANCE, entropy_table
from bigforest.options.names import name_impurity
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import Task
from bigforest.store.store import Store

# Class weights, or weight and sum of targets: int64 [scored] for a node or the left side of a split, int64 [n, slots]
# for n splits or buckets. `scored` and `slots` are properties of NodeStats (out_of_core/context.py).
Sides = NDArray[np.int64]


class Criterion(ABC):
    """A rule that scores splits, and the impurity of a node.

    name     value of TrainConfig.impurity
    number   number in kernels (kernels/scan/impurity.py)
    oracle   naive function in the tests with the same scores
    meaning  description in the documentation of the option
    task     type of its targets
    """

    task: Task = "classification"

    def __init__(self, name: str, number: int, oracle: str, meaning: str = "") -> None:
        self.name = name
        self.number = number
        self.oracle = oracle
        self.meaning = meaning

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name: every process has its own tables and compiled functions."""
        return criterion_named, (self.name,)

    @property
    def table(self) -> Any:
        """Argument of kernels that score a side: a table, or a compiled function."""
        return entropy_table()

    @property
    def impurity(self) -> Any:
        """Argument of kernels that compute the impurity of a node, see impurity_of of kernels/scan/impurity.py."""
        return self.number

    def check(self, store: Store) -> None:  # noqa: B027  # most criteria accept all targets
        """Raise DataError if the criterion does not accept the targets of this store."""

    def zero(self, target: TargetSpec) -> float | None:
        """Return the number, in steps, that represents a target of zero (RegressionTarget.zero); None if not needed."""
        return None

    @abstractmethod
    def exact(self, left: Sides, total: Sides, origin: float) -> Fraction | float:
        """Return the score of a split. Scores of one node compare exactly: a larger score is a larger decrease.

        left    statistics of the left side
        total   statistics of the node
        origin  centre of the node (out_of_core/context.py) minus `zero`; used for the Poisson deviance
        """

    def scores(self, left: Sides, total: Sides, origin: float, min_leaf: int) -> NDArray[np.float64]:
        """Return the scores of splits, float64, accurate to 1e-15 of a score; -inf if a side weighs less than min_leaf,
        which is at least 1."""
        scores = np.empty(len(left))
        split_scores(self.number, left, total, min_leaf, self.table, np.empty_like(total), scores)
        return scores

    def bounds(self, before: Sides, counts: Sides, total: Sides, origin: float) -> NDArray[np.float64]:
        """Return upper bounds of the scores of the splits inside buckets, float64.

        before, counts  int64 [buckets, slots], statistics before each bucket, and in it
        """
        bounds = np.empty(len(counts))
        bucket_bounds(self.number, before, counts, total, self.table, np.empty_like(total), bounds)
        return bounds


class GiniCriterion(Criterion):
    """Gini impurity: 1 minus the sum of squares of the shares of classes."""

    def exact(self, left: Sides, total: Sides, origin: float) -> Fraction:
        sides = left.tolist(), (total - left).tolist()
        return sum((Fraction(sum(n * n for n in side), sum(side)) for side in sides), Fraction(0))


class _NumberCriterion(Criterion):
    """A criterion of regression, with statistics [weight, sum]; uses_origin: the scores depend on `origin`."""

    task = "regression"
    uses_origin = False

    def scores(self, left: Sides, total: Sides, origin: float, min_leaf: int) -> NDArray[np.float64]:
        scores = np.empty(len(left))
        split_scores_sums(left, total, origin if self.uses_origin else None, min_leaf, scores)
        return scores

    def bounds(self, before: Sides, counts: Sides, total: Sides, origin: float) -> NDArray[np.float64]:
        bounds = np.empty(len(counts))
        bucket_bounds_sums(before, counts, total, origin if self.uses_origin else None, bounds)
        return bounds


class VarianceCriterion(_NumberCriterion):
    """Variance of regression targets."""

    def exact(self, left: Sides, total: Sides, origin: float) -> Fraction:
        sides = left.tolist(), (total - left).tolist()
        return sum((Fraction(of_side**2, weight) for weight, of_side in sides), Fraction(0))


class PoissonCriterion(_NumberCriterion):
    """Half the Poisson deviance of regression targets that are not negative."""

    uses_origin = True

    def check(self, store: Store) -> None:
        target, zero = store.spec.target, self.zero(store.spec.target)
        least, most = int(store.target.min()), int(store.target.max())
        if least < zero or most <= zero:
            wrong = f"has the value {target.values(least)!r}" if least < zero else "is 0 in all rows"
            raise DataError(
                f"target {target.name!r} {wrong}, and the Poisson deviance needs numbers of at least 0, some of them "
                f"above 0; choose another {api('impurity')} or metric, or convert the target"
            )

    def zero(self, target: TargetSpec) -> float:
        return -target.offset / target.step

    def exact(self, left: Sides, total: Sides, origin: float) -> float:
        return float(self.scores(left[np.newaxis], total, origin, 1)[0])


class ScoredCriterion(Criterion):
    """A criterion of classes whose scores are sums of an integer for each side.

    score  function of (counts int64 [classes], weight int64) that returns the integer of a side. It is at most 0, and
           adding rows does not raise it
    value  function of (counts [classes], weight float64) that returns the impurity of a node, float64

    Both are compiled by `helper` or `inlined` of kernels/compiler/jit.py; None if kernels know the criterion by number.
    """

    def __init__(
        self,
        name: str,
        oracle: str,
        score: Callable[..., Any] | None = None,
        value: Callable[..., Any] | None = None,
        number: int = SCORED,
        meaning: str = "",
    ) -> None:
        super().__init__(name, number, oracle, meaning)
        self._score = score
        self._value = value

    @property
    def table(self) -> Any:
        return super().table if self._score is None else self._score

    @property
    def impurity(self) -> Any:
        return super().impurity if self._value is None else self._value

    def exact(self, left: Sides, total: Sides, origin: float) -> int:
        return int(integer_score(self.number, left, total, np.empty_like(total), self.table))


PACKAGE_CRITERIA = (
    GiniCriterion(
        "gini", GINI, "tests/naive/split.py gini_score", "1 minus the sum of the squared shares of the classes"
    ),
    ScoredCriterion(
        "entropy", "tests/naive/split.py entropy_score", number=ENTROPY, meaning="entropy of the classes, in bits"
    ),
    ScoredCriterion(
        "error",
        "tests/naive/split.py error_score",
        number=ERROR,
        meaning="share of rows outside the most frequent class (Tomasi 2017, section 3); most splits do not "
        "change it, so trees of many rows are thousands of levels deep, and growing takes far longer",
    ),
    VarianceCriterion("variance", VARIANCE, "tests/naive/split.py variance_score", "variance, for regression"),
    PoissonCriterion(
        "poisson",
        POISSON,
        "tests/naive/split.py poisson_score",
        "half the Poisson deviance, for regression on counts and other targets that are not negative; a split that "
        "leaves a sum of 0 on a side is not made, and the family must be axis or tree",
    ),
)
_CRITERIA: dict[str, Criterion] = {criterion.name: criterion for criterion in PACKAGE_CRITERIA}


def register_criterion(criterion: ScoredCriterion) -> None:
    """Let TrainConfig.impurity name this criterion in this process. Raise ConfigError for a name in use.

    Forests store only the name. A process must register the criterion before it opens or extends such a forest.
    """
    name_impurity(criterion.name)
    _CRITERIA[criterion.name] = criterion


def criterion_named(name: str) -> Criterion:
    """Return the criterion of this name. Raise ConfigError if it is not known in this process."""
    if name not in _CRITERIA:
        raise ConfigError(f"the impurity {name} is not known; run the code that registers it in this process")
    return _CRITERIA[name]


def criterion_of(config: TrainConfig) -> Criterion:
    return criterion_named(config.criterion)
