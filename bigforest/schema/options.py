"""What the options of training may be: their words and limits, and which do not go together. config.py keeps them."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from bigforest.common.errors import ConfigError, shown

if TYPE_CHECKING:
    from bigforest.schema.config import TrainConfig

Impurity = Literal["gini", "entropy", "error", "variance"]
Task = Literal["classification", "regression"]
Vote = Literal["soft", "hard"]
Constants = Literal["redraw", "count"]
Splitter = Literal["best", "random"]
Sampling = Literal["uniform", "stratified", "balanced"]
Family = Literal["axis", "sparse-oblique", "rotation", "tree", "subspace-cap", "subspace-perceptron"]
ProjectionKind = Literal["rerf", "sporf", "gaussian", "very-sparse"]
MeanDifference = Literal["none", "consecutive", "vs-largest", "all"]
Scope = Literal["tree", "node"]
Normalize = Literal["none", "zscore", "minmax"]
Rotation = Literal["random", "pca"]
Ties = Literal["lowest", "reject", "random"]

# Weights of classes, pairs of the class as text and its weight in the order of the text; or "balanced".
ClassWeight = str | tuple[tuple[str, float], ...] | None

MAX_TREES = 1_000_000
MAX_BINS = 65_536
MAX_PROJECTIONS = 2**31 - 1
MAX_AXES = 65_536
MAX_STEPS = 65_536
MAX_EPOCHS = 1_000_000

SUBSPACE_FAMILIES = ("subspace-cap", "subspace-perceptron")
# The families that an option belongs to; elsewhere it must be left alone.
_FAMILIES = {
    "mtry": ("axis", "tree", "rotation"),
    "constants": ("axis", "tree", "rotation"),
    "feature_fraction": ("axis", "tree", "rotation"),
    "splitter": ("axis", "tree"),
    "min_level": ("axis", "tree"),
    "projections": ("sparse-oblique",),
    "projection_kind": ("sparse-oblique",),
    "density": ("sparse-oblique",),
    "mean_difference": ("sparse-oblique",),
    "mean_difference_scope": ("sparse-oblique",),
    "normalize": ("sparse-oblique",),
    "axes": ("rotation",),
    "orthogonal": ("rotation",),
    "rotation": ("rotation",),
    "subspace": SUBSPACE_FAMILIES,
    "subspace_per": SUBSPACE_FAMILIES,
    "steps": SUBSPACE_FAMILIES,
    "max_epochs": ("subspace-perceptron",),
    "ties": SUBSPACE_FAMILIES,
    **dict.fromkeys(("impurity", "weight", "class_weight"), ("axis", "tree", "rotation", "sparse-oblique")),
}
# What such an option may be elsewhere: its default, now or in earlier forests, and what it is once settled.
_UNSAID: dict[str, tuple[object, ...]] = {"impurity": (None, "gini"), "mtry": (None, "sqrt"), "min_level": (5, 1000)}


def check_trees(config: TrainConfig) -> None:
    """Raise ConfigError for what is said of the trees, their bags and thresholds, and of when to stop."""
    _check_int("trees", config.trees, 1, MAX_TREES)
    _check_int("seed", config.seed, 0, 2**63 - 1)
    if config.impurity is not None:
        _check_choice("impurity", config.impurity, get_args(Impurity))
    _check_choice("vote", config.vote, get_args(Vote))
    _check_choice("sampling", config.sampling, get_args(Sampling))
    _check_choice("constants", config.constants, get_args(Constants))
    _check_choice("splitter", config.splitter, get_args(Splitter))
    if config.max_depth is not None:
        _check_int("max_depth", config.max_depth, 0, 2**31 - 1)
    _check_int("min_split", config.min_split, 2, 2**63 - 1)
    _check_int("min_level", config.min_level, 1, 2**31 - 1)
    if config.min_leaf is not None:
        _check_int("min_leaf", config.min_leaf, 1, 2**62)
    _check_bool("keep_targets", config.keep_targets)
    _check_bag(config)
    _check_stop(config)
    if config.max_bins != "exact":
        if not isinstance(config.max_bins, int):
            raise ConfigError(f'max_bins must be "exact" or a whole number, not {config.max_bins!r}')
        _check_int("max_bins", config.max_bins, 2, MAX_BINS)


def _check_bag(config: TrainConfig) -> None:
    _check_bool("bootstrap", config.bootstrap)
    _check_bool("replace", config.replace)
    if not _is_number(config.sample_fraction) or not 0.0 < config.sample_fraction <= 1.0:
        raise ConfigError(f"sample_fraction must be above 0 and at most 1, not {config.sample_fraction!r}")
    if config.group is not None and not isinstance(config.group, str):
        raise ConfigError(f"group must be the name of a column, not {config.group!r}")
    if config.group is not None and config.sampling != "uniform":
        raise ConfigError(f"whole groups cannot be drawn by class; drop group or sampling {config.sampling!r}")
    described = config.sample_fraction != 1.0 or not config.replace or config.sampling != "uniform"
    described = described or config.group is not None
    if not config.bootstrap and described:
        raise ConfigError(
            "sample_fraction, replace, sampling and group describe the bag, but bootstrap is off; drop one of them"
        )


def _check_stop(config: TrainConfig) -> None:
    if config.stop_oob is None:
        return
    if not _is_number(config.stop_oob) or not 0.0 <= config.stop_oob < 1.0:
        raise ConfigError(f"stop_oob must be a share of the error, at least 0 and below 1, not {config.stop_oob!r}")
    if not config.bootstrap:
        raise ConfigError("stop_oob looks at the out-of-bag error, which is not there without bootstrap; drop it")
    if not config.replace and config.sample_fraction == 1.0:
        raise ConfigError("stop_oob looks at the out-of-bag error, and all rows are in every bag; sample fewer")


def check_column_options(config: TrainConfig) -> None:
    """Raise ConfigError for what is said of the columns, but for the weights of classes."""
    if config.task is not None:
        _check_choice("task", config.task, get_args(Task))
    if config.weight is not None and not isinstance(config.weight, str):
        raise ConfigError(f"weight must be the name of a column, not {config.weight!r}")


def names_of(categories: Any) -> tuple[str, ...]:
    """The columns that are categories, from one name or several. Raises ConfigError."""
    names = [categories] if isinstance(categories, str) else categories
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"categories must be names of columns, not {names!r}")
    return tuple(names)


def weights_of(given: Any) -> ClassWeight:
    """Weights of classes, from a mapping or pairs. Raises ConfigError."""
    if given is None or given == "balanced":
        return None if given is None else "balanced"
    try:
        pairs = sorted((label_text(label), weight) for label, weight in dict(given).items())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'class_weight must be "balanced" or a mapping of classes to weights, not {given!r}'
        ) from error
    for label, weight in pairs:
        if not _is_number(weight) or not 0.0 < weight <= sys.float_info.max:
            raise ConfigError(f"class_weight must be above 0 and finite, not {weight!r} of {label!r}")
    return tuple((label, float(weight)) for label, weight in pairs) or None


def label_text(label: object) -> str:
    """A class as text, as class_weight names it: `late`, `true`, `3`, `0.5`."""
    return label if isinstance(label, str) else json.dumps(label)


def check_family(config: TrainConfig) -> None:
    """Raise ConfigError for the options of a family, or for one of another."""
    for name, choices in (
        ("family", Family),
        ("projection_kind", ProjectionKind),
        ("mean_difference", MeanDifference),
        ("mean_difference_scope", Scope),
        ("normalize", Normalize),
        ("rotation", Rotation),
        ("subspace_per", Scope),
    ):
        _check_choice(name, getattr(config, name), get_args(choices))
    _check_bool("ranks", config.ranks)
    _check_bool("orthogonal", config.orthogonal)
    unsaid = {field.name: (field.default,) for field in fields(config)} | _UNSAID
    for name, families in _FAMILIES.items():
        if config.family not in families and getattr(config, name) not in unsaid[name]:
            raise ConfigError(f"{name} is an option of the family {' or '.join(families)}, not of {config.family}")
    for name in ("feature_fraction", "density"):
        share = getattr(config, name)
        if share is not None and (not _is_number(share) or not 0.0 < share <= 1.0):
            raise ConfigError(f"{name} must be above 0 and at most 1, not {share!r}")
    if config.density is not None and config.projection_kind == "rerf":
        raise ConfigError("rerf has as many weights as projections; drop density, or choose sporf")
    if config.mean_difference == "none" and config.mean_difference_scope != "tree":
        raise ConfigError("mean_difference_scope is of the means that mean_difference offers; choose some, or drop it")
    if config.rotation == "pca" and config.axes is not None:
        raise ConfigError("pca keeps as many axes as features; drop axes, or choose random axes")
    if config.rotation == "pca" and not config.orthogonal:
        raise ConfigError("principal components are orthogonal; drop orthogonal, or choose random axes")
    if config.feature_fraction is not None and config.mtry not in (None, "sqrt", "half", "all"):
        raise ConfigError("feature_fraction replaces mtry; drop one of them")
    if config.axes is not None:
        _check_int("axes", config.axes, 1, MAX_AXES)
    if config.family == "tree" and (config.trees != 1 or config.bootstrap):
        raise ConfigError("the family tree is a single tree on all rows: trees must be 1 and bootstrap off")
    _check_subspaces(config)


def check_features(config: TrainConfig, features: int) -> None:
    """Raise ConfigError where options ask for more features than the table has."""
    drawn_from = features if config.axes is None else config.axes
    if isinstance(config.mtry, int) and config.mtry > drawn_from:
        what = f"the table has {features} features" if config.axes is None else f"a rotated table has {drawn_from} axes"
        raise ConfigError(f"{what} and a node cannot draw {config.mtry} of them; lower mtry, or make it all")
    if config.in_subspaces:
        config.subspace_size(features)


def _check_subspaces(config: TrainConfig) -> None:
    if config.in_subspaces and config.bootstrap:
        raise ConfigError(f"the family {config.family} grows every tree on all rows: bootstrap must be off")
    if config.ties is not None:
        _check_choice("ties", config.ties, get_args(Ties))
    if config.subspace is not None:
        _check_int("subspace", config.subspace, 1, MAX_PROJECTIONS)
    _check_int("steps", config.steps, 2, MAX_STEPS)
    _check_int("max_epochs", config.max_epochs, 1, MAX_EPOCHS)


def _check_int(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} must be a whole number from {low} to {high}, not {shown(value)}")


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
