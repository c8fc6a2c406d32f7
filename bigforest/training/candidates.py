"""Candidates: named sets of training options.

The rules of a comparison: which candidates are retired, which one wins, and the cross-fitted loss.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api, shown
from bigforest.execution.resources import options_of
from bigforest.oob.choice import in_second_half
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from bigforest.training.losses import MeasuredLoss, Rows, RowScores, measure_loss, standard_error

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
MOST_CANDIDATES = 50
# Options that all candidates have in common, as they share the table, its bags, and the number of trees.
_ENCODING = {name for name, one in OPTIONS.items() if one.option.encodes}
SHARED = frozenset({"trees", "seed", "bootstrap", "stop_oob", *_ENCODING})
# The simpler ones first: among candidates without a clear difference the first wins.
_DEFAULT: dict[str, dict[str, Any]] = {
    "default": {},
    "larger-leaves": {"min_leaf": 5},
    "entropy": {"impurity": "entropy"},
    "without-replacement": {"replace": False, "sample_fraction": 0.632},
    "all-features": {"mtry": "all"},
    "sparse-oblique": {"family": "sparse-oblique"},
    "rotation": {"family": "rotation"},
}


def default_candidates(task: str, most: int | None) -> dict[str, dict[str, Any]]:
    """Return the options of the default candidates, by name; of the first `most` if it is not None.

    The defaults; leaves of 5 rows, against noise; entropy, of classes; bags without replacement, which leave out the
    same share of the rows; all features at every node; and splits on projections, sparse and rotated.
    """
    names = [name for name, options in _DEFAULT.items() if task == "classification" or "impurity" not in options]
    if most is not None:
        check_candidate_count(most, len(names))
    return {name: dict(_DEFAULT[name]) for name in names[:most]}


def check_candidate_count(count: int, most: int = len(_DEFAULT), name: str = "candidates") -> None:
    """Raise ConfigError, which names the option, unless there are `count` default candidates."""
    if isinstance(count, bool) or not 2 <= count <= most:
        raise ConfigError(f"{api(name)} must be a number of default candidates from 2 to {most}, not {shown(count)}")


def given_candidates(
    given: Mapping[str, Mapping[str, Any]] | str | Path, base: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the options of explicit candidates by name: a mapping, or a TOML file with a table for each candidate.

    base  options that all of them have. Raises ConfigError.
    """
    tables = _read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(tables, Mapping) or not 2 <= len(tables) <= MOST_CANDIDATES:
        raise ConfigError(f"{api('candidates')} must be from 2 to {MOST_CANDIDATES} names, each with its options")
    candidates = {}
    for name, options in tables.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{shown(name)} cannot be the name of a candidate: it takes letters, digits, - and _, 40 at most"
            )
        if not isinstance(options, Mapping):
            raise ConfigError(f"the candidate {name} must have a table of options, not {shown(options)}")
        for option in options:
            if option in SHARED:
                raise ConfigError(
                    f"the candidate {name} cannot have {option}: all candidates share it; set it in options"
                )
            if option not in OPTIONS:
                raise ConfigError(f"the candidate {name} has an unknown option {shown(option)}; see bigforest.train")
        options = options_of(dict(options))
        try:
            TrainConfig.of(**{**base, **options})
        except ConfigError as error:
            raise ConfigError(f"the candidate {name}: {error}") from error
        candidates[name] = options
    if len({name.casefold() for name in candidates}) < len(candidates):
        raise ConfigError("two candidates have the same name but for upper and lower case; rename one")
    return candidates


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file of candidates; check the path") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the candidates {path} cannot be read: {error}") from error


# Trees that are grown before the candidates are compared again.
STEP = 25
# A candidate that is behind by more than this number of standard errors retires, once it has this number of trees: with
# fewer, families that need many trees would lose to those that start well.
RETIRES = 3.0
FIRST_TREES = 50
# Losses within this many standard errors are equal: then the first in the list wins.
NEAR = 1.0


class Standing(NamedTuple):
    """Loss of a candidate, its difference to the lowest loss, and the standard error of the difference."""

    loss: float
    difference: float
    error: float

    @property
    def behind(self) -> float:
        """Difference in standard errors."""
        if self.error > 0:
            return self.difference / self.error
        return math.inf if self.difference > 0 else 0.0


def rounds(trees: int) -> list[int]:
    """Return the numbers of trees after which candidates are compared: every STEP, from 100 on a quarter more."""
    sizes, at = [], 0
    while at < trees:
        at = min(trees, at + max(STEP, at // 4 // STEP * STEP))
        sizes.append(at)
    return sizes


def standings(losses: Mapping[str, MeasuredLoss], rows: Rows) -> dict[str, Standing]:
    """Return the standing of each candidate. An unknown loss (NaN) is the largest."""
    known = {name: math.inf if math.isnan(each.loss) else each.loss for name, each in losses.items()}
    best = min(known, key=known.__getitem__)
    results = {}
    for name, each in losses.items():
        error = standard_error(each.influence - losses[best].influence, rows)
        results[name] = Standing(each.loss, known[name] - known[best] if known[name] < math.inf else math.inf, error)
    return {name: Standing(s.loss, 0.0, 0.0) if name == best else s for name, s in results.items()}


def retired(results: Mapping[str, Standing], trees: int) -> list[str]:
    """Return the candidates that are too far behind."""
    if trees < FIRST_TREES:
        return []
    return [name for name, standing in results.items() if standing.behind > RETIRES]


def winner(results: Mapping[str, Standing]) -> str:
    """Return the first candidate whose loss is within NEAR standard errors of the lowest."""
    return next(name for name, standing in results.items() if standing.behind <= NEAR)


def cross_fitted(scores: Mapping[str, RowScores], rows: Rows) -> float:
    """Return the cross-fitted loss: each half of the rows is evaluated with the candidate that wins on the other half.

    The loss of the winner is a little too low, because the winner was chosen by it. Rows of one group are in one half.
    """
    count = next(iter(scores.values())).score.size
    key = np.arange(count) if rows.group is None else rows.group
    second = in_second_half(key.astype(np.uint64))
    losses, weights = [], []
    for half in (second, ~second):
        of_half = {name: measure_loss(_part(each, half), rows.chosen(half)) for name, each in scores.items()}
        chosen = winner(standings(of_half, rows.chosen(half)))
        other = ~half
        losses.append(measure_loss(_part(scores[chosen], other), rows.chosen(other)).loss)
        used = np.isfinite(scores[chosen].score[other])
        weights.append(float(used.sum() if rows.weight is None else rows.weight[other][used].sum()))
    return float(np.dot(losses, weights) / sum(weights)) if sum(weights) else math.nan


def _part(scores: RowScores, keep: NDArray[np.bool_]) -> RowScores:
    return RowScores(scores.score[keep], None if scores.second is None else scores.second[keep])
