"""What the options of training mean for a table. They are what changes the model: where and how fast it runs is in
execution/resources.py and never changes a bit of the forest."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, get_type_hints

from bigforest.errors import ConfigError, api, counted
from bigforest.options.declaration import check
from bigforest.options.names import base_family, check_task
from bigforest.options.rules import check_rules
from bigforest.options.train_options import OPTIONS, ROTATING, TrainOptions
from bigforest.options.values import (
    BOOSTED,
    MAX_PROJECTIONS,
    MIN_LEVEL,
    OF_NUMBERS,
    FeatureRule,
    Impurity,
    Task,
    Ties,
    as_kept,
    levels_of,
    names_of,
    sizes_of,
    weights_of,
)

# Features of a subspace by default: this many, and at most half of them (Ho 1995, section 4).
_SUBSPACE = 100

_POWER = re.compile(r"p\^([0-9]*\.?[0-9]+)(?:/([0-9]*\.?[0-9]+))?")


class TaskDefaults(NamedTuple):
    """What options of TrainConfig mean that are not given (None)."""

    impurity: Impurity
    min_leaf: int
    mtry: FeatureRule
    projections: str


TASKS: dict[Task, TaskDefaults] = {
    "classification": TaskDefaults("gini", 1, "sqrt", "p^2/3"),
    "regression": TaskDefaults("variance", 2, "half", "p^1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(TrainOptions):
    """Everything that, together with the data, determines the forest bit for bit.

    Its fields are the options of `bigforest.train` and described there. Raises ConfigError for a value that an option
    cannot have, for an option of another family, and for options that contradict each other.
    """

    # What other modules of the package ask for is not for users.
    _INTERNAL = frozenset(
        {
            *("axis_count", "rotated_count", "chooses_axes"),
            *("boosts", "criterion", "cuts", "draw_rule", "drawn_features", "drawn_projections", "draws_by_class"),
            *("in_subspaces", "leaf_rule", "left_out_share", "min_levels", "projection_rule", "settled"),
            *("subspace_size", "subspace_sizes", "tie_rule", "weighs_rows", "weighs_trees", "with_defaults"),
        }
    )

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self)} - self._INTERNAL)

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", names_of(self.categories, "categories"))
        object.__setattr__(self, "axes_from", names_of(self.axes_from, "axes_from"))
        object.__setattr__(self, "missing", names_of(self.missing, "missing", 'texts such as "-999"'))
        check(self, OPTIONS, base_family(self.family))
        self.drawn_projections(1)
        object.__setattr__(self, "class_weight", weights_of(self.class_weight))
        object.__setattr__(self, "subspace", as_kept(self.subspace, sizes_of))
        object.__setattr__(self, "min_level", as_kept(self.min_level, levels_of))
        check_rules(self)

    @classmethod
    def of(cls, **options: Any) -> TrainConfig:
        """The configuration of some options, with the defaults of their family where it has its own.

        Parameters
        ----------
        **options
            Options of `bigforest.train`.

        Returns
        -------
        TrainConfig

        Raises
        ------
        ConfigError
            When an option cannot have its value, or options contradict each other.
        """
        family = base_family(options.get("family", "axis"))
        own = {name: one.option.own[family] for name, one in OPTIONS.items() if family in one.option.own}
        words = {name: value for name, value in options.items() if isinstance(value, str)}
        if family in ROTATING and words.get("rotation", "random") != "random":
            own["bootstrap"] = False
        if words.get("sampling") in BOOSTED:
            own |= {"vote": "hard", "shrink": "off"}
        return cls(**{**own, **options})

    def settled(self, task: Task) -> TrainConfig:
        """The configuration for a target of this task, with what the task decides.

        Raises ConfigError where an option is for the other task.
        """
        if self.task not in (None, task):
            raise ConfigError(f"the target was encoded for {task}, not {self.task}; encode the table again")
        check_task(self.family, task)
        if task == "classification":
            if self.keep_targets:
                raise ConfigError(f"{api('keep_targets')} is for regression, and the target has classes; drop it")
            if self.impurity in OF_NUMBERS:
                raise ConfigError(
                    f"the impurity {self.impurity} is for regression, and the target has classes; use gini, entropy or "
                    "error, or the task regression where the target is a number"
                )
            return self._of_task(task)
        if self.boosts:
            raise ConfigError(
                f"{api('sampling')} {self.sampling!r} counts wrong classes, which a regression does not have; drop it"
            )
        if self.impurity not in (None, *OF_NUMBERS):
            raise ConfigError(
                f"the impurity {self.impurity} is for classification; use {' or '.join(OF_NUMBERS)} for regression"
            )
        if self.impurity == "poisson" and self.projects:
            raise ConfigError(
                f"the family {self.family} splits by the variance; use the family axis with the impurity poisson"
            )
        if self.vote != "soft":
            raise ConfigError(f"the vote {self.vote} is for classification; regression averages the trees")
        if self.draws_by_class or self.class_weight is not None:
            raise ConfigError(
                f"{api('sampling')} and {api('class_weight')} are by class, which a regression does not have; drop them"
            )
        if not isinstance(self.power, str):
            raise ConfigError(f"{api('power')} is of class probabilities, which a regression does not have; drop it")
        if self.mean_difference != "none":
            raise ConfigError(f"{api('mean_difference')} is of class means, which a regression does not have; drop it")
        if self.rotation == "pca-classes":
            raise ConfigError("the rotation pca-classes samples classes, which a regression does not have; use pca")
        return self._of_task(task)

    def _of_task(self, task: Task) -> TrainConfig:
        # Other defaults are chosen, see training/choose.py.
        return replace(self, task=task, impurity=replace(self, task=task).criterion)

    def with_defaults(self) -> TrainConfig:
        """The configuration, which has a task, with the defaults of what was neither given nor chosen."""
        return replace(self, min_leaf=self.leaf_rule, mtry=self.draw_rule, projections=self.projection_rule)

    def drawn_projections(self, features: int) -> int:
        """Columns of the random matrix of a node when the table has `features` features; at least 1."""
        rule = self.projection_rule
        if isinstance(rule, int):
            return rule
        found = _POWER.fullmatch(rule)
        exponent = float(found[1]) / float(found[2] or 1) if found and float(found[2] or 1) else -1.0
        if not 0.0 <= exponent <= 2.0:
            raise ConfigError(f"{api('projections')} must be {OPTIONS['projections'].wanted}, not {rule!r}")
        wanted: float = features**exponent
        near = round(wanted)  # 1000**(2/3) is not quite 100 in float64
        return min(max(1, near if abs(wanted - near) < 1e-9 * wanted else math.ceil(wanted)), MAX_PROJECTIONS)

    @property
    def criterion(self) -> Impurity:
        """The impurity, or its default."""
        return self.impurity or TASKS[self.task or "classification"].impurity

    @property
    def draw_rule(self) -> FeatureRule | int | float:
        """mtry, or its default."""
        return TASKS[self.task or "classification"].mtry if self.mtry is None else self.mtry

    @property
    def projection_rule(self) -> str | int:
        """projections, or its default."""
        return TASKS[self.task or "classification"].projections if self.projections is None else self.projections

    @property
    def leaf_rule(self) -> int:
        """min_leaf, or its default."""
        return self.min_leaf or TASKS[self.task or "classification"].min_leaf

    @property
    def projects(self) -> bool:
        """Whether nodes split on projections."""
        return base_family(self.family) not in ("axis", "tree")

    @property
    def fills_missing(self) -> bool:
        """Whether missing values are filled (grow/filled_store.py); ranks need tables without any."""
        return self.projects and not self.ranks

    @property
    def tie_rule(self) -> Ties:
        """The prediction for classes with equal votes, unless an option of prediction changes it."""
        return self.ties or ("reject" if self.in_subspaces else "lowest")

    def min_levels(self, features: int) -> tuple[int, ...]:
        """min_level of each of the features of a table, or its default. Raises ConfigError for another table's."""
        least = levels_of(MIN_LEVEL if self.min_level is None else self.min_level)
        if len(least) == 1:
            return least * features
        if len(least) != features:
            given = counted(len(least), "feature")
            raise ConfigError(
                f"{api('min_level')} is given for {given}, and the table has {features}; give one number for all"
            )
        return least

    def subspace_sizes(self, features: int) -> tuple[int, ...]:
        """Features of the subspaces when the table has `features` of them: the sizes that trees have in turn.

        Raises ConfigError where these are too few, or there are not as many different subspaces as trees.
        """
        unset = min(_SUBSPACE, -(-features // 2))
        sizes = (unset,) if self.subspace is None else sizes_of(self.subspace)
        for place, size in enumerate(sizes):
            if size > features:
                table = counted(features, "feature")
                raise ConfigError(f"the table has {table} and a subspace of them cannot have {size}")
            known = math.comb(features, size)
            if len(range(place, self.trees, len(sizes))) > known and (self.subspace_per == "tree" or size == features):
                most = known * len(sizes) + place
                other = f"another subspace, or {api('subspace_per')} node" if size < features else "or another subspace"
                raise ConfigError(
                    f"a table of {counted(features, 'feature')} has {counted(known, 'subspace')} of {size}, and no two "
                    f"trees may have the same: ask for at most {counted(most, 'tree')}, {other}"
                )
        return sizes

    def subspace_size(self, features: int, tree: int) -> int:
        """Features of the subspaces of a tree, see `subspace_sizes`."""
        sizes = self.subspace_sizes(features)
        return sizes[tree % len(sizes)]

    def rotated_count(self, features: int) -> int:
        """Features that axes are made of, when the table has `features` of them; at most, before they are chosen."""
        return len(self.axes_from) if self.axes_from and not self.chooses_axes else features

    def axis_count(self, features: int) -> int:
        """Axes of a tree's table when the table has `features` features: the rotated, and each other one of its own."""
        rotated = self.rotated_count(features)
        return (self.axes or rotated) + features - rotated

    def drawn_features(self, features: int) -> int:
        """Number of features drawn per node when the table has `features` of them; at least 1, at most all."""
        rule, root, half = self.draw_rule, math.isqrt(features), -(-features // 2)
        if isinstance(rule, str):
            wanted = {"all": features, "sqrt": root, "half": half, "log2": features.bit_length() - 1}[rule]
        else:
            wanted = int(rule * features) if isinstance(rule, float) else int(rule)
        return min(max(wanted, 1), features)

    def to_json(self) -> str:
        """The configuration as one line of JSON, as the forest keeps it."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TrainConfig:
        """The configuration that `to_json` wrote.

        Parameters
        ----------
        text : str
            One JSON object. Options that came with later versions may be missing and have their defaults then, by which
            trees grow as before.

        Returns
        -------
        TrainConfig

        Raises
        ------
        ConfigError
            When the text is not a configuration.
        """
        try:
            values = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"the configuration is not JSON: {error}") from error
        if not isinstance(values, dict) or not {field.name for field in fields(cls)}.issuperset(values):
            raise ConfigError("the configuration has entries that are no options of this bigforest")
        return cls(**values)


# For signatures: the types of the options, without what else is declared with them.
TrainConfig.__init__.__annotations__ = get_type_hints(TrainOptions)


def check_features(config: TrainConfig, names: Collection[str]) -> None:
    """Raise ConfigError where options ask for features that a table with these features does not have."""
    features, drawn_from = len(names), config.axis_count(len(names))
    if not config.chooses_axes:
        check_axes_from(config, names)
    if isinstance(config.mtry, int) and config.mtry > drawn_from:
        axes = f"a rotated table has {drawn_from} axes"
        what = f"the table has {counted(features, 'feature')}" if config.axes is None else axes
        raise ConfigError(f"{what} and a node cannot draw {config.mtry} of them; lower {api('mtry')}, or set it to all")
    rotated = config.rotated_count(features)
    if config.axis_features is not None and config.axis_features > rotated:
        what = f"the table has {features}" if rotated == features else f"axes are made from {rotated}"
        raise ConfigError(
            f"{what} features and a set of them cannot have {config.axis_features}; lower {api('axis_features')}"
        )
    if config.in_subspaces:
        config.subspace_sizes(features)


def check_axes_from(config: TrainConfig, names: Collection[str]) -> None:
    """Raise ConfigError where axes are to be made from a name that is not a feature of the table."""
    for name in config.axes_from:
        if name not in names:
            raise ConfigError(
                f"{name!r} is not a feature, so no axes can be made from it; drop it from {api('axes_from')}"
            )
