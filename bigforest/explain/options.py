"""The options of an explanation: checked values of the arguments of `bigforest.explain_forest`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bigforest.columns.dataspec import DataSpec, TargetSpec
from bigforest.columns.labels import UNKNOWN, label_texts, requested_codes
from bigforest.errors import ConfigError, api, listed, shown
from bigforest.options.values import check_flag, check_word, is_integer, plain, several

Loss = Literal["error", "log_loss", "mse", "poisson_deviance"]

# Largest number of classes that a message lists.
_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of `bigforest.explain_forest`. `parts` are names of sections (SECTIONS of explain.py)."""

    parts: tuple[str, ...] = ()
    loss: str | None = None
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    new_rows: bool = False
    seed: int = 0
    classes: Sequence[Any] | None = None
    features: Sequence[Any] | None = None
    grid: int = 20
    individual: int = 0
    sample: int | None = None
    rows: Sequence[int] = ()
    neighbors: int = 10
    rules: int = 20

    def __post_init__(self) -> None:
        for name in ("classes", "features"):
            if getattr(self, name) is not None:
                # A pair of features may be a generator, which can be read only once.
                values = (
                    tuple(value) if isinstance(value, Iterator) else value for value in several(getattr(self, name))
                )
                object.__setattr__(self, name, tuple(values))
        if not all(map(is_integer, rows := several(self.rows))):
            raise ConfigError(f"{api('rows')} must be row numbers, not {shown(self.rows)}")
        object.__setattr__(self, "rows", tuple(map(int, rows)))
        for name in ("grid", "individual", "neighbors", "rules", "seed", "sample", "loss"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        if self.loss is not None:
            check_word(self.loss, get_args(Loss), "loss")
        check_flag(self.new_rows, "new_rows")
        if not isinstance(self.groups, Mapping):
            raise ConfigError(f"{api('groups')} must be a mapping of names to features, not {shown(self.groups)}")
        groups = {name: several(columns) for name, columns in self.groups.items()}
        object.__setattr__(self, "groups", groups)
        for name, least in (("grid", 2), ("individual", 0), ("neighbors", 1), ("rules", 0), ("seed", 0)):
            if not is_integer(getattr(self, name), least, 2**63 - 1):
                raise ConfigError(
                    f"{api(name)} must be a whole number from {least} on, not {shown(getattr(self, name))}"
                )
        if self.sample is not None and not is_integer(self.sample, 1):
            raise ConfigError(f"{api('sample')} must be a number of rows from 1 on, not {shown(self.sample)}")

    def loss_for(self, spec: DataSpec, impurity: str) -> str:
        """Return the loss of permutation importance. The default depends on target and impurity. Raises ConfigError."""
        kind, losses = "classes", ["error", "log_loss"]
        if spec.target.is_regression:
            kind, losses = "numbers", ["mse"]
            if impurity == "poisson":
                kind, losses = "numbers, with the impurity poisson,", ["poisson_deviance", "mse"]
        if self.loss is None:
            return losses[0]
        if self.loss not in losses:
            raise ConfigError(
                f"{api('loss')} {self.loss!r} does not fit the target {spec.target.name!r}: {kind} are evaluated by "
                f"{' or '.join(losses)}"
            )
        return self.loss

    def check_names(self, spec: DataSpec, class_option: str = "classes") -> None:
        """Raise ConfigError for an unknown class or feature, even if no part uses it.

        class_option  name in the error of the option that has the classes
        """
        if self.classes is not None:
            if spec.target.is_regression:
                raise ConfigError(
                    f"{api(class_option)} does not apply to this forest, which predicts the number "
                    f"{spec.target.name!r}; "
                    "drop it"
                )
            self.codes(spec.target)
        curves = [self.places(several(names), spec, api("features")) for names in self.features or ()]
        if self.features is not None and (not curves or any(curves.count(curve) > 1 for curve in curves)):
            raise ConfigError(
                f"{api('features')} must list features and pairs, each once: it is empty, or has one twice"
            )
        for name, columns in self.groups.items():
            if not isinstance(name, str) or name in spec.feature_names:
                raise ConfigError(
                    f"{api('groups')} must have names that are text and no feature's, not {shown(name)}: tables have a "
                    "row for each feature and each group"
                )
            self.places(several(columns), spec, f"the group {name!r}")

    def codes(self, target: TargetSpec) -> tuple[int, ...]:
        """Return the codes of the classes to explain. Raises ConfigError for an unknown or repeated class."""
        requested = self.classes or ()
        try:
            codes = requested_codes(requested, target)
        except TypeError:  # a label of a type that no class can have
            codes = [UNKNOWN]
        if UNKNOWN in codes or len(set(codes)) < len(codes) or not codes:
            problem = "no class was given" if not codes else "one is given twice"
            if UNKNOWN in codes:
                problem = f"{shown(requested[codes.index(UNKNOWN)])} is no class of the target"
            raise ConfigError(f"{problem}; the classes are {listed(label_texts(target), _NAMED)}")
        return tuple(codes)

    def places(self, names: Sequence[str], spec: DataSpec, option: str) -> list[int]:
        """Return the positions of features in the dataspec. Raises ConfigError for an unknown or repeated name."""
        place_of = {feature.name: place for place, feature in enumerate(spec.features)}
        wrong = [name for name in names if not isinstance(name, str) or name not in place_of]
        if wrong or not names or len(set(names)) < len(names):
            problem = f"{shown(wrong[0])} is not a feature of the forest" if wrong else "it is empty, or has one twice"
            raise ConfigError(f"{option} must list features, each once: {problem}")
        return [place_of[name] for name in names]
