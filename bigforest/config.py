"""What changes the model. Where and how fast it runs is in resources.py and never changes a bit of the forest."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from bigforest.errors import ConfigError

Impurity = Literal["gini", "entropy", "error"]
Vote = Literal["soft", "hard"]
Constants = Literal["redraw", "count"]
Sampling = Literal["uniform", "stratified", "balanced"]

MAX_TREES = 1_000_000
MAX_BINS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that, together with the data, decides the forest bit for bit.

    trees            number of trees.
    seed             any integer from 0 to 2**63 - 1.
    mtry             features drawn per node: "sqrt", "log2", "all", a count, or a fraction of the features in (0, 1).
    impurity         "gini", "entropy" or "error" (Tomasi 2017, section 3).
    max_depth        deepest level a leaf may have, the root being 0; None is unlimited.
    min_split        a node with fewer bag rows than this is a leaf.
    min_leaf         no child has fewer bag rows than this.
    bootstrap        False grows every tree on all rows; there is then no out-of-bag estimate.
    sample_fraction  size of a bag as a fraction of the rows, in (0, 1].
    replace          whether a bag is drawn with replacement.
    sampling         "uniform": all rows alike; "stratified": each class keeps its share; "balanced": every class has as
                     many draws as the smallest has rows, times sample_fraction.
    max_bins         "exact": every distinct value may be a threshold; a number caps them per feature by quantiles.
    vote             how trees are combined out of bag and by default in prediction: "soft" averages the leaf
                     posteriors, "hard" counts one vote per tree.
    constants        "redraw": a feature that is constant in the node does not use up a draw; "count": it does.
    """

    trees: int = 100
    seed: int = 0
    mtry: str | int | float = "sqrt"
    impurity: Impurity = "gini"
    max_depth: int | None = None
    min_split: int = 2
    min_leaf: int = 1
    bootstrap: bool = True
    sample_fraction: float = 1.0
    replace: bool = True
    sampling: Sampling = "uniform"
    max_bins: str | int = "exact"
    vote: Vote = "soft"
    constants: Constants = "redraw"

    def __post_init__(self) -> None:
        _check_int("trees", self.trees, 1, MAX_TREES)
        _check_int("seed", self.seed, 0, 2**63 - 1)
        _check_choice("impurity", self.impurity, get_args(Impurity))
        _check_choice("vote", self.vote, get_args(Vote))
        _check_choice("sampling", self.sampling, get_args(Sampling))
        _check_choice("constants", self.constants, get_args(Constants))
        if self.max_depth is not None:
            _check_int("max_depth", self.max_depth, 0, 2**31 - 1)
        _check_int("min_split", self.min_split, 2, 2**63 - 1)
        _check_int("min_leaf", self.min_leaf, 1, 2**62)
        _check_bool("bootstrap", self.bootstrap)
        _check_bool("replace", self.replace)
        if not _is_number(self.sample_fraction) or not 0.0 < self.sample_fraction <= 1.0:
            raise ConfigError(f"sample_fraction must be above 0 and at most 1, not {self.sample_fraction!r}")
        described = self.sample_fraction != 1.0 or not self.replace or self.sampling != "uniform"
        if not self.bootstrap and described:
            raise ConfigError(
                "sample_fraction, replace and sampling describe the bag, but bootstrap is off; drop one of them"
            )
        if self.max_bins != "exact":
            if not isinstance(self.max_bins, int):
                raise ConfigError(f'max_bins must be "exact" or a whole number, not {self.max_bins!r}')
            _check_int("max_bins", self.max_bins, 2, MAX_BINS)
        self.drawn_features(1)

    def drawn_features(self, features: int) -> int:
        """Number of features drawn per node when the table has `features` of them; at least 1, at most all."""
        rule = self.mtry
        if rule == "all":
            wanted = features
        elif rule == "sqrt":
            wanted = math.isqrt(features)
        elif rule == "log2":
            wanted = int(math.log2(features))
        elif isinstance(rule, int) and not isinstance(rule, bool) and rule >= 1:
            wanted = rule
        elif isinstance(rule, float) and 0.0 < rule < 1.0:
            wanted = int(rule * features)
        else:
            raise ConfigError(
                f'mtry must be "sqrt", "log2", "all", a count of at least 1 or a fraction between 0 and 1, not {rule!r}'
            )
        return min(max(wanted, 1), features)

    def to_json(self) -> str:
        """The configuration as one line of JSON, as the forest keeps it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TrainConfig:
        """Inverse of `to_json`; raises ConfigError when the text is not a configuration."""
        try:
            values: dict[str, Any] = json.loads(text)
            known = {field.name for field in fields(cls)}
            if not isinstance(values, dict) or set(values) != known:
                raise ConfigError("the configuration has missing or unknown entries")
        except json.JSONDecodeError as error:
            raise ConfigError(f"the configuration is not JSON: {error}") from error
        return cls(**values)


def _check_int(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} must be a whole number from {low} to {high}, not {value!r}")


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
