"""Configuration of training: options checked against each other, and their meaning for a table.

These options determine the model. Threads, memory and workers (execution/resources.py) never change a bit of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, get_type_hints

from bigforest.errors import ConfigError, api, counted, shown
from bigforest.options.declaration import check
from bigforest.options.names import check_impurity, check_task, known_family
from bigforest.options.package_names import Impurity
from bigforest.options.train_options import OPTIONS, ROTATING, SUBSPACES, TrainOptions
from bigforest.options.values import (
    AUTO,
    BOOSTED,
    BY_CLASS,
    MAX_PROJECTIONS,
    MIN_LEVEL,
    FeatureRule,
    Task,
    Ties,
    as_kept,
    as_text,
    check_power,
    levels_of,
    names_of,
    sizes_of,
    weights_of,
)

# Default number of features of a subspace. The limit is half of all features, rounded up (Ho 1995, section 4).
_SUBSPACE = 100

# Options of floats: a whole number such as 5 is stored as 5.0.
_NUMBERS = [name for name, entry in OPTIONS.items() if entry.is_float]
_POWER = re.compile(r"p\^([0-9]*\.?[0-9]+)(?:/([0-9]*\.?[0-9]+))?")


class TaskDefaults(NamedTuple):
    """Defaults of a task for options that are None."""

    impurity: Impurity
    min_leaf: int
    mtry: FeatureRule
    projections: str


# Values that options for classification may have in a regression.
_WITHOUT_CLASSES: dict[str, tuple[Any, ...]] = {
    "sampling": ("uniform",),
    "class_weight": (None,),
    "vote": ("soft",),
    "power": ("auto", "off"),
    "mean_difference": ("none",),
}
# Options of bags and of out-of-bag rows.
_OF_BAGS = ("sample_fraction", "replace", "sampling", "group", "calibration", "keep_votes", "refine", "stop_oob")


TASKS: dict[Task, TaskDefaults] = {
    "classification": TaskDefaults("gini", 1, "sqrt", "p^2/3"),
    "regression": TaskDefaults("variance", 2, "half", "p^1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(TrainOptions):
    """Options of training, which together with the data determine the forest bit for bit.

    The fields are the options of `bigforest.train`, which describes them. Raises ConfigError for a value that an option
    cannot have, for an option of another family, and for options that contradict each other.

    Examples
    --------
    >>> import bigforest as bf
    >>> config = bf.TrainConfig.of(family="tree", max_depth=3)
    >>> config.trees, config.bootstrap, config.max_depth
    (1, False, 3)
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", names_of(self.categories, "categories"))
        object.__setattr__(self, "axes_from", names_of(self.axes_from, "axes_from"))
        object.__setattr__(self, "missing", names_of(self.missing, "missing", 'texts such as "-999"'))
        object.__setattr__(self, "subspace", as_text(self.subspace))
        object.__setattr__(self, "min_level", as_text(self.min_level))
        check(self, OPTIONS, known_family(self.family))
        for name in _NUMBERS:
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                object.__setattr__(self, name, float(getattr(self, name)))  # 5 and 5.0 are one configuration
        self.drawn_projections(1)
        object.__setattr__(self, "class_weight", weights_of(self.class_weight))
        object.__setattr__(self, "subspace", as_kept(self.subspace, sizes_of))
        object.__setattr__(self, "min_level", as_kept(self.min_level, levels_of))
        _check_rules(self)

    @classmethod
    def of(cls, **options: Any) -> TrainConfig:
        """Make a configuration from some options, with the defaults of their family.

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

        Examples
        --------
        >>> bf.TrainConfig.of(family="tree").trees
        1
        """
        family = known_family(options.get("family", "axis")).options_of
        defaults = {name: entry.by_family[family] for name, entry in OPTIONS.items() if family in entry.by_family}
        words = {name: value for name, value in options.items() if isinstance(value, str)}
        if family in ROTATING and words.get("rotation", "random") != "random":
            defaults["bootstrap"] = False
        if words.get("sampling") in BOOSTED:
            defaults |= {"vote": "hard", "shrink": "off"}
        return cls(**{**defaults, **options})

    def for_task(self, task: Task) -> TrainConfig:
        """Return the configuration for a target of this task, with task and impurity set.

        Raises ConfigError if the family or an option does not support this task.
        """
        if self.task not in (None, task):
            raise ConfigError(f"the target was encoded for {task}, not {self.task}; encode the table again")
        check_task(self.family, task)
        if self.impurity is not None:
            check_impurity(self.impurity, task)
        if task == "classification":
            if self.keep_targets:
                raise ConfigError(f"{api('keep_targets')} is for regression, and the target has classes; drop it")
            return self._of_task(task)
        for name, allowed in _WITHOUT_CLASSES.items():
            if (value := getattr(self, name)) not in allowed:
                raise ConfigError(
                    f"{api(name)} {shown(value)} is for classification, and this is a regression; drop it"
                )
        if self.impurity == "poisson" and self.projects:
            raise ConfigError(
                f"the family {self.family} splits by the variance; use the family axis with the impurity poisson"
            )
        if self.rotation == "pca-classes":
            raise ConfigError("the rotation pca-classes samples classes, which a regression does not have; use pca")
        return self._of_task(task)

    @property
    def only_task(self) -> Task | None:
        """The given task, or the only task that all options support; None if they support both tasks, or neither."""
        if self.task is not None:
            return self.task
        possible: list[Task] = []
        for task in TASKS:
            with suppress(ConfigError):
                self.for_task(task)
                possible.append(task)
        return possible[0] if len(possible) == 1 else None

    def _of_task(self, task: Task) -> TrainConfig:
        # Other defaults that depend on the task stay None: trial trees may select them (training/choose.py).
        impurity = self.impurity or TASKS[task].impurity
        return self if self.impurity and self.task == task else replace(self, task=task, impurity=impurity)

    def with_defaults(self) -> TrainConfig:
        """Return the configuration with the defaults of its task for min_leaf, mtry and projections that are None."""
        return replace(self, min_leaf=self.leaf_rule, mtry=self.draw_rule, projections=self.projection_rule)

    def drawn_projections(self, features: int) -> int:
        """Return the number of columns of a node's random matrix, at least 1, for a table of `features` features.

        Raises ConfigError for a text that is not a power of p.
        """
        rule = self.projection_rule
        if isinstance(rule, int):
            return rule
        match = _POWER.fullmatch(rule)
        exponent = float(match[1]) / float(match[2] or 1) if match and float(match[2] or 1) else -1.0
        if not 0.0 <= exponent <= 2.0:
            raise ConfigError(f"{api('projections')} must be {OPTIONS['projections'].wanted}, not {rule!r}")
        exact: float = features**exponent
        near = round(exact)  # 1000**(2/3) is not quite 100 in float64
        return min(max(1, near if abs(exact - near) < 1e-9 * exact else math.ceil(exact)), MAX_PROJECTIONS)

    @property
    def base_family(self) -> str:
        """Family of the package with the same options and defaults: the family itself if it is of the package."""
        return known_family(self.family).options_of

    @property
    def boosts(self) -> bool:
        """True if the bag of a tree depends on the errors of earlier trees."""
        return self.sampling in BOOSTED

    @property
    def weighs_trees(self) -> bool:
        """True if the votes of trees have weights."""
        return self.sampling == "adaboost"

    @property
    def weighs_rows(self) -> bool:
        """True if rows have weights, from a column or by class."""
        return self.weight is not None or self.class_weight is not None

    @property
    def draws_by_class(self) -> bool:
        """True if each class is drawn separately."""
        return self.sampling in BY_CLASS

    @property
    def cuts(self) -> bool:
        """True if trees are cut after growing: `max_leaf_nodes`, `min_impurity_decrease` or `ccp_alpha`."""
        return self.max_leaf_nodes is not None or self.min_impurity_decrease > 0.0 or self.ccp_alpha > 0.0

    @property
    def has_components(self) -> bool:
        """True if the axes of a tree are principal components."""
        return self.rotation != "random"

    @property
    def subset_features(self) -> int:
        """Number of features in each set of principal components; 3 by default (Rodriguez 2006)."""
        return 3 if self.axis_features is None else self.axis_features

    @property
    def chooses_axes(self) -> bool:
        """True if the features of axes are selected automatically."""
        return self.axes_from == (AUTO,)

    @property
    def in_subspaces(self) -> bool:
        """True if trees or nodes use a subspace of the features."""
        return self.base_family in SUBSPACES

    @property
    def criterion(self) -> Impurity:
        """Impurity, or its default."""
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
        """True if nodes split on projections."""
        return self.base_family not in ("axis", "tree")

    @property
    def fills_missing(self) -> bool:
        """True for projections of values: missing values and categories become numbers (grow/filled_store.py)."""
        return self.projects and not self.ranks

    @property
    def tie_rule(self) -> Ties:
        """Rule for classes with equal votes, unless an option of prediction changes it."""
        return self.ties or ("reject" if self.in_subspaces else "lowest")

    def min_levels(self, features: int) -> tuple[int, ...]:
        """Return min_level for each feature of a table.

        Raises ConfigError if it is given for another number of features.
        """
        least = levels_of(MIN_LEVEL if self.min_level is None else self.min_level)
        if len(least) == 1:
            return least * features
        if len(least) != features:
            count = counted(len(least), "feature")
            raise ConfigError(
                f"{api('min_level')} is given for {count}, and the table has {features}; give one number for all"
            )
        return least

    def subspace_sizes(self, features: int) -> tuple[int, ...]:
        """Return the sizes of subspaces, which trees use in turn, for a table of `features` features.

        Raises ConfigError if the table has too few features, or too few different subspaces for all trees.
        """
        unset = min(_SUBSPACE, -(-features // 2))
        sizes = (unset,) if self.subspace is None else sizes_of(self.subspace)
        for place, size in enumerate(sizes):
            if size > features:
                table = counted(features, "feature")
                raise ConfigError(
                    f"the table has {table} and a subspace of them cannot have {size}; lower {api('subspace')}"
                )
            count = math.comb(features, size)
            if len(range(place, self.trees, len(sizes))) > count and (self.subspace_per == "tree" or size == features):
                most = count * len(sizes) + place
                other = f"another {api('subspace')}"
                hint = f"{other}, or {api('subspace_per')} node" if size < features else f"or {other}"
                raise ConfigError(
                    f"a table of {counted(features, 'feature')} has {counted(count, 'subspace')} of {size}, and no two "
                    f"trees may have the same: ask for at most {counted(most, 'tree')}, {hint}"
                )
        return sizes

    def subspace_size(self, features: int, tree: int) -> int:
        """Return the size of the subspaces of tree number `tree`, see `subspace_sizes`."""
        sizes = self.subspace_sizes(features)
        return sizes[tree % len(sizes)]

    def rotated_count(self, features: int) -> int:
        """Return the number of features that axes are made from; all if `axes_from` is not set or still "auto"."""
        return len(self.axes_from) if self.axes_from and not self.chooses_axes else features

    def axis_count(self, features: int) -> int:
        """Return the number of axes of a tree: the rotated axes, and one for each feature that is not rotated."""
        rotated = self.rotated_count(features)
        return (self.axes or rotated) + features - rotated

    def drawn_features(self, features: int) -> int:
        """Return the number of features drawn per node, for a table of `features` features; at least 1, at most all."""
        rule, root, half = self.draw_rule, math.isqrt(features), -(-features // 2)
        if isinstance(rule, str):
            count = {"all": features, "sqrt": root, "half": half, "log2": features.bit_length() - 1}[rule]
        else:
            count = int(rule * features) if isinstance(rule, float) else int(rule)
        return min(max(count, 1), features)

    def to_json(self) -> str:
        """Return the configuration as one line of JSON, as forests store it.

        Examples
        --------
        >>> '"max_depth": 3' in config.to_json()
        True
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.refine == "off":  # forests without a boosted stage have the same files as before the option existed
            del values["refine"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TrainConfig:
        """Read a configuration that `to_json` wrote.

        Parameters
        ----------
        text : str
            One JSON object. Options that later versions added may be missing: their defaults grow the same trees.

        Returns
        -------
        TrainConfig

        Raises
        ------
        ConfigError
            When the text is not a configuration.

        Examples
        --------
        >>> bf.TrainConfig.from_json(config.to_json()) == config
        True
        """
        try:
            values = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"the configuration is not JSON: {error}") from error
        if not isinstance(values, dict) or not {field.name for field in fields(cls)}.issuperset(values):
            raise ConfigError("the configuration has entries that are no options of this bigforest")
        return cls(**{"refine": "off", **values})


# For signatures: the types of the options, without their declarations.
TrainConfig.__init__.__annotations__ = get_type_hints(TrainOptions)


def check_features(config: TrainConfig, names: Collection[str]) -> None:
    """Raise ConfigError for options that need more features than a table has, or name other features.

    names  names of the features of the table
    """
    features, drawn_from = len(names), config.axis_count(len(names))
    if not config.chooses_axes:
        check_axes_from(config, names)
    if isinstance(config.mtry, int) and config.mtry > drawn_from:
        axes = f"a rotated table has {drawn_from} axes"
        fact = f"the table has {counted(features, 'feature')}" if config.axes is None else axes
        raise ConfigError(f"{fact} and a node cannot draw {config.mtry} of them; lower {api('mtry')}, or set it to all")
    rotated = config.rotated_count(features)
    if config.axis_features is not None and config.axis_features > rotated:
        fact = "the table has" if rotated == features else "axes are made from"
        raise ConfigError(
            f"{fact} {counted(rotated, 'feature')} and a set of them cannot have {config.axis_features}; "
            f"lower {api('axis_features')}"
        )
    if config.in_subspaces:
        config.subspace_sizes(features)


def check_axes_from(config: TrainConfig, names: Collection[str]) -> None:
    """Raise ConfigError for a name in axes_from that is not a feature of the table."""
    for name in config.axes_from:
        if name not in names:
            raise ConfigError(
                f"{name!r} is not a feature, so no axes can be made from it; drop it from {api('axes_from')}"
            )


def _check_rules(config: TrainConfig) -> None:
    """Raise ConfigError for options that contradict each other."""
    _check_bag(config)
    _check_boosting(config)
    _check_calibration(config)
    _check_family(config)
    if not isinstance(config.power, str):
        check_power(config.power)


def _check_bag(config: TrainConfig) -> None:
    for name in () if config.bootstrap else _OF_BAGS:
        if getattr(config, name) not in (OPTIONS[name].default, "off"):
            option, bags = api(name), api("bootstrap")
            raise ConfigError(f"{option} needs bags, and {bags} is off; drop {option}, or turn {bags} on")
    if config.group is not None and config.draws_by_class:
        raise ConfigError(
            f"whole groups cannot be drawn by class; drop {api('group')} or {api('sampling')} {config.sampling!r}"
        )
    if config.sample_fraction > 1.0 and not config.replace:
        raise ConfigError(
            f"{api('sample_fraction')} {config.sample_fraction} draws rows more than once, which needs "
            f"{api('replace')}; make it at most 1, or draw with replacement"
        )
    if config.stop_oob is not None and not config.replace and config.sample_fraction == 1.0:
        raise ConfigError(f"{api('stop_oob')} uses the out-of-bag error, and all rows are in every bag; sample fewer")


def _check_calibration(config: TrainConfig) -> None:
    if config.calibration is None:
        return
    if config.boosts:
        raise ConfigError(
            f"{api('calibration')} does not support {api('sampling')} {config.sampling!r}, which draws by the errors "
            f"of all rows; drop {api('calibration')}, or use another sampling"
        )
    if config.stop_oob is not None:
        raise ConfigError(f"{api('stop_oob')} uses the rows that {api('calibration')} holds out; drop one of them")


def _check_boosting(config: TrainConfig) -> None:
    if not config.boosts:
        return
    named = f"{api('sampling')} {config.sampling!r}"
    if not config.replace:
        raise ConfigError(f"{named} draws rows by their weights, with replacement; drop {api('replace')}")
    if config.group is not None:
        raise ConfigError(
            f"{named} draws rows by their weights, and not whole groups; drop {api('group')} or {api('sampling')}"
        )
    if config.weighs_rows:
        raise ConfigError(
            f"{named} gives rows weights of its own; drop {api('weight')} and {api('class_weight')}, or drop "
            f"{api('sampling')}"
        )
    if config.vote != "hard":
        raise ConfigError(
            f"{named} evaluates trees by the classes they vote for; {api('vote')} must be 'hard', not {config.vote!r}"
        )
    biased = f"{named} makes the out-of-bag error biased, as rows that are hard are rarely out of bag"
    if config.stop_oob is not None:
        raise ConfigError(
            f"{biased}, so {api('stop_oob')} cannot use it; drop {api('stop_oob')} and set the number of trees"
        )
    if isinstance(config.refine, int):
        raise ConfigError(f"{biased}, so {api('refine')} cannot correct it; drop {api('refine')}")
    if config.shrink == "auto":
        raise ConfigError(
            f"{biased}, so {api('shrink')} cannot be chosen by it; set the amount, or drop {api('shrink')}"
        )


def _check_family(config: TrainConfig) -> None:
    if config.density is not None and config.projection_kind == "rerf":
        raise ConfigError(f"rerf has as many weights as projections; drop {api('density')}, or choose sporf")
    if config.mean_difference == "none" and config.mean_difference_scope != "tree":
        raise ConfigError(
            f"{api('mean_difference_scope')} applies to the means that {api('mean_difference')} offers; set "
            f"{api('mean_difference')}, or drop it"
        )
    if config.has_components and config.axes is not None:
        raise ConfigError(f"{config.rotation} has as many axes as features; drop {api('axes')}, or choose random axes")
    if config.chooses_axes and config.axes is not None:
        raise ConfigError(
            f"{api('axes_from')} auto has as many axes as the table has features; drop {api('axes')}, or name the "
            "features"
        )
    if len(set(config.axes_from)) < len(config.axes_from):
        raise ConfigError(f"{api('axes_from')} must be different columns, not {list(config.axes_from)!r}")
    if config.has_components and not config.orthogonal:
        raise ConfigError(f"principal components are orthogonal; drop {api('orthogonal')}, or choose random axes")
    if config.axis_features is not None and not config.has_components:
        raise ConfigError(
            f"{api('axis_features')} applies to principal components, and random axes use all features; choose the "
            f"rotation pca or pca-classes, or drop {api('axis_features')}"
        )
    if config.feature_fraction is not None and config.mtry not in (None, "sqrt", "half", "all"):
        raise ConfigError(f"{api('feature_fraction')} replaces {api('mtry')}; drop one of them")
    if config.base_family == "tree" and (config.trees != 1 or config.bootstrap):
        raise ConfigError(
            f"the family tree is a single tree on all rows; drop {api('trees')} and {api('bootstrap')}, or choose "
            "another family"
        )
    if config.in_subspaces and config.bootstrap:
        raise ConfigError(f"the family {config.family} grows every tree on all rows: {api('bootstrap')} must be off")
