"""What changes the model. Where and how fast it runs is in execution/resources.py and never changes a bit of the
forest."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from bigforest.common.errors import ConfigError, shown
from bigforest.schema.options import (
    _UNSAID,
    MAX_AXES,
    MAX_BINS,
    MAX_EPOCHS,
    MAX_PROJECTIONS,
    MAX_STEPS,
    MAX_TREES,
    SUBSPACE_FAMILIES,
    ClassWeight,
    Constants,
    Family,
    Impurity,
    MeanDifference,
    Normalize,
    ProjectionKind,
    Rotation,
    Sampling,
    Scope,
    Splitter,
    Task,
    Ties,
    Vote,
    check_lambda,
    is_number,
    names_of,
    weights_of,
)

# Features of a subspace where nothing is said: this many, and at most half of them (Ho 1995, section 4).
_SUBSPACE = 100

_POWER = re.compile(r"p\^([0-9]*\.?[0-9]+)(?:/([0-9]*\.?[0-9]+))?")
# What a family has where nothing is said.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "tree": {"trees": 1, "bootstrap": False, "mtry": "all"},
    "rotation": {"mtry": "all"},
    "subspace-cap": {"bootstrap": False},
    "subspace-perceptron": {"bootstrap": False},
}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that, together with the data, decides the forest bit for bit.

    trees            number of trees.
    seed             any integer from 0 to 2**63 - 1.
    mtry             features drawn per node: "sqrt" of them or "log2", rounded down, "half" of them, rounded up, "all",
                     a count, or a fraction of the features in (0, 1). None for "sqrt", of a regression "half".
    impurity         "gini", "entropy" or "error" (Tomasi 2017, section 3), or "variance", of a regression; None for
                     "gini", or "variance".
    max_depth        deepest level a leaf may have, the root being 0; None is unlimited.
    min_split        a node with fewer bag rows than this is a leaf.
    min_leaf         no child has fewer bag rows than this; None for 1, of a regression 2. Where rows have weights,
                     all rows beyond the least that can be asked for (1; 2 for min_split) count as their mean weight.
    min_level        levels of a category with fewer bag rows than this in a node go to one side together there, except
                     the heaviest: as many may be split off as the number of the node's rows has binary digits (10 for
                     1,000). 1 keeps none together.
    bootstrap        False grows every tree on all rows; there is then no out-of-bag estimate.
    stop_oob         grow no more trees once the out-of-bag error has settled, and at most `trees`: when the mean error
                     after each of the last 20 trees is not lower by more than this share of it than that after each of
                     the 20 before. Looked at after every 10 trees, from 40 on. None for all trees.
    sample_fraction  size of a bag as a fraction of the rows, in (0, 1].
    replace          whether a bag is drawn with replacement.
    sampling         "uniform": all rows alike; "stratified": each class keeps its share; "balanced": every class has as
                     many draws as the smallest has rows, times sample_fraction.
    group            a column: rows with one value of it are all in a bag, equally often, or all out of it. Bags are
                     then drawn from the groups.
    max_bins         "exact": every distinct value may be a threshold; a number caps them per feature by quantiles.
    task             "classification" or "regression"; None for regression where the target is a column of floats or
                     decimals.
    categories       columns of whole numbers or booleans whose values are names, in no order. Text is so anyway.
    weight           the column of the weights of the rows; rows of weight 0 are left out.
    class_weight     by what the weights of the rows of each class are multiplied: a mapping of classes, 1 for those not
                     in it; "balanced" for rows / (classes * rows of the class).
    keep_targets     keep the training targets of every leaf with a forest that predicts numbers, for quantiles.
    shrink           by what the values of leaves are moved towards those of the nodes above them (hierarchical
                     shrinkage, Agarwal 2022): a number of rows, lambda, of which a node of n rows keeps n / (n +
                     lambda) of what sets it apart from the node above; "auto" for the lambda with the least out-of-bag
                     log loss, or mean squared error of numbers (oob/shrinkage.py LAMBDAS), none where no row is out of
                     bag, with hard votes, of more than 64 classes, and of more than 4,194,304 rows times classes; "off"
                     for none.
    vote             how trees are combined out of bag and by default in prediction: "soft" averages the leaf
                     posteriors, "hard" counts one vote per tree.
    constants        "redraw": a feature that is constant in the node does not use up a draw; "count": it does.
    splitter         "best": every split of a drawn feature is looked at. "random": one, which is drawn too, as in
                     extremely randomised trees (Geurts 2006).
    family           what a node may split on. "axis": a feature. "sparse-oblique": a weighted sum of some features
                     (Randomer forests). "rotation": an axis of the tree's own rotated table. "tree": a single tree of
                     splits on features, without bootstrap (CART). "subspace-cap" and "subspace-perceptron": trees on
                     all rows, each in a subspace of its own, that split on the line between two class means or by a
                     perceptron (Ho 1995).
    feature_fraction  chance of each feature to be considered in a node, instead of mtry; a draw of none is repeated.
    ranks            split on the average-tied ranks of the training table's values, not on the values.

    Of sparse-oblique:

    projections      columns of the random matrix of a node, k: a count, or "p^E" for ceil(p**E) of p features, where E
                     may be a fraction such as 2/3.
    projection_kind  "rerf": k weights of +-1 anywhere in the matrix. "sporf": alike, `density` of all. "gaussian":
                     normal weights. "very-sparse": +-1 with chance `density` in each cell (Li 2006).
    density          share of the cells that have a weight; None for 1 / p (sporf), 1 (gaussian), p**-0.5 (very-sparse).
    mean_difference  also offer differences of class means: of "consecutive" classes, of the largest class and each
                     other, or of "all" pairs; each with chance min(1, k / p) in each node.
    mean_difference_scope  "tree": means of the tree's bag; "node": of the node.
    normalize        "zscore" or "minmax": weights are for features divided by their deviation or range.

    Of rotation:

    axes             axes of a tree's table, of which nodes draw mtry; None for as many as features.
    orthogonal       whether random axes are made orthogonal.
    rotation         "random": Gaussian directions; "pca": principal components of disjoint subsets of the features,
                     each from a sample of the rows (Rodriguez 2006).

    Of subspace-cap and subspace-perceptron:

    subspace         features of a subspace; None for 100, and at most half of all.
    subspace_per     "tree": each tree sees a subspace of its own, and no two the same. "node": each node draws one, and
                     looks at all features where those cannot split it.
    steps            parts into which the way between two class means is divided to search it for the best cut.
    max_epochs       most passes of a perceptron over the rows of a node.
    ties             what the forest answers where classes have equal votes, unless asked otherwise: "lowest", "random",
                     or None for "reject".
    """

    trees: int = 100
    seed: int = 0
    mtry: str | int | float | None = None
    impurity: Impurity | None = None
    max_depth: int | None = None
    min_split: int = 2
    min_leaf: int | None = None
    min_level: int = 5
    bootstrap: bool = True
    stop_oob: float | None = None
    sample_fraction: float = 1.0
    replace: bool = True
    sampling: Sampling = "uniform"
    group: str | None = None
    max_bins: str | int = "exact"
    task: Task | None = None
    categories: tuple[str, ...] = ()
    weight: str | None = None
    class_weight: ClassWeight = None
    keep_targets: bool = False
    shrink: str | float = "off"
    vote: Vote = "soft"
    constants: Constants = "redraw"
    splitter: Splitter = "best"
    family: Family = "axis"
    feature_fraction: float | None = None
    ranks: bool = False
    projections: str | int = "p^2/3"
    projection_kind: ProjectionKind = "rerf"
    density: float | None = None
    mean_difference: MeanDifference = "none"
    mean_difference_scope: Scope = "tree"
    normalize: Normalize = "none"
    axes: int | None = None
    orthogonal: bool = True
    rotation: Rotation = "random"
    subspace: int | None = None
    subspace_per: Scope = "tree"
    steps: int = 50
    max_epochs: int = 100
    ties: Ties | None = None

    def __post_init__(self) -> None:
        check_trees(self)
        self.drawn_features(1)
        check_column_options(self)
        object.__setattr__(self, "categories", names_of(self.categories))
        object.__setattr__(self, "class_weight", weights_of(self.class_weight))
        check_family(self)
        self.drawn_projections(1)

    @classmethod
    def of(cls, **options: Any) -> TrainConfig:
        """The configuration of these options, with the defaults of their family where it has its own."""
        family = options.get("family", "axis")
        own = _DEFAULTS.get(family, {}) if isinstance(family, str) else {}
        if family == "rotation" and options.get("rotation") == "pca":
            own = own | {"bootstrap": False}
        return cls(**{**own, **options})

    def settled(self, task: Task) -> TrainConfig:
        """The configuration for a target of this task, with what the task decides.

        Raises ConfigError where an option is for the other task.
        """
        if self.task not in (None, task):
            raise ConfigError(f"the target was encoded for {task}, not {self.task}; encode the table again")
        if task == "classification":
            if self.keep_targets:
                raise ConfigError("keep_targets is for quantiles of numbers, and the target has classes; drop it")
            if self.impurity == "variance":
                raise ConfigError("the impurity variance is for regression; use gini, entropy or error")
            return replace(
                self, task=task, impurity=self.impurity or "gini", min_leaf=self.min_leaf or 1, mtry=self.draw_rule
            )
        if self.in_subspaces:
            raise ConfigError(f"the family {self.family} tells classes apart; predict numbers by the family axis")
        if self.impurity not in (None, "variance"):
            raise ConfigError(f"the impurity {self.impurity} is for classes; numbers are predicted by variance")
        if self.vote != "soft":
            raise ConfigError(f"the vote {self.vote} is for classes; numbers that trees predict are averaged")
        if self.sampling != "uniform" or self.class_weight is not None:
            raise ConfigError("sampling and class_weight are by class, which a regression has not; drop them")
        config = replace(self, task="regression", impurity="variance", min_leaf=self.min_leaf or 2)
        return replace(config, mtry=config.draw_rule)

    def drawn_projections(self, features: int) -> int:
        """Columns of the random matrix of a node when the table has `features` features; at least 1."""
        rule = self.projections
        if isinstance(rule, int) and not isinstance(rule, bool) and 1 <= rule <= MAX_PROJECTIONS:
            return rule
        found = _POWER.fullmatch(rule) if isinstance(rule, str) else None
        exponent = float(found[1]) / float(found[2] or 1) if found and float(found[2] or 1) else -1.0
        if not 0.0 <= exponent <= 2.0:
            raise ConfigError(
                "projections must be a count of at least 1 or p^E with E from 0 to 2, such as p^0.5 or p^2/3, "
                f"not {rule!r}"
            )
        wanted: float = features**exponent
        near = round(wanted)  # 1000**(2/3) is not quite 100 in float64
        return min(max(1, near if abs(wanted - near) < 1e-9 * wanted else math.ceil(wanted)), MAX_PROJECTIONS)

    def max_terms(self, features: int) -> float:
        """Terms of an oblique node that is larger than most, when the table has `features` features; 0 if none is."""
        if self.family in ("axis", "tree"):
            return 0.0
        if self.in_subspaces:
            return self.subspace_size(features)
        if self.family == "rotation":
            return min(3.0, features) if self.rotation == "pca" else features
        share = {"rerf": 1 / features, "sporf": 1 / features, "gaussian": 1.0, "very-sparse": features**-0.5}
        terms = features * (self.density or share[self.projection_kind])
        return features if self.mean_difference != "none" else min(features, 2.0 * terms + 1.0)

    @property
    def criterion(self) -> Impurity:
        """The impurity, also where it was not said."""
        return self.impurity or ("variance" if self.task == "regression" else "gini")

    @property
    def draw_rule(self) -> str | int | float:
        """mtry, also where it was not said."""
        unsaid = "half" if self.task == "regression" else "sqrt"
        return unsaid if self.mtry is None else self.mtry

    @property
    def in_subspaces(self) -> bool:
        """Whether trees or nodes see a subspace of the features."""
        return self.family in SUBSPACE_FAMILIES

    @property
    def tie_rule(self) -> Ties:
        """What the forest answers where classes have equal votes, unless asked otherwise."""
        return self.ties or ("reject" if self.in_subspaces else "lowest")

    def subspace_size(self, features: int) -> int:
        """Features of a subspace when the table has `features` of them.

        Raises ConfigError where these are too few, or there are not as many different subspaces as trees.
        """
        size = min(_SUBSPACE, -(-features // 2)) if self.subspace is None else self.subspace
        if size > features:
            raise ConfigError(f"the table has {features} features and a subspace of them cannot have {size}")
        known = math.comb(features, size)
        if self.trees > known and (self.subspace_per == "tree" or size == features):
            raise ConfigError(
                f"a table of {features} features has {known} subspace{'s' * (known > 1)} of {size}, and no two trees "
                f"may have the same: ask for at most {known} tree{'s' * (known > 1)}, or another subspace"
            )
        return size

    def drawn_features(self, features: int) -> int:
        """Number of features drawn per node when the table has `features` of them; at least 1, at most all."""
        rule = self.draw_rule
        if rule == "all":
            wanted = features
        elif rule == "sqrt":
            wanted = math.isqrt(features)
        elif rule == "half":
            wanted = -(-features // 2)
        elif rule == "log2":
            wanted = int(math.log2(features))
        elif isinstance(rule, int) and not isinstance(rule, bool) and rule >= 1:
            wanted = rule
        elif isinstance(rule, float) and 0.0 < rule < 1.0:
            wanted = int(rule * features)
        else:
            raise ConfigError(
                'mtry must be "sqrt", "log2", "half", "all", a count of at least 1 or a fraction between 0 and 1, '
                f"not {rule!r}"
            )
        return min(max(wanted, 1), features)

    def to_json(self) -> str:
        """The configuration as one line of JSON, as the forest keeps it."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)}, sort_keys=True)

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
    if config.shrink not in ("auto", "off"):
        check_lambda("shrink", config.shrink, '"auto", "off" or ')
    _check_bag(config)
    _check_stop(config)
    if config.max_bins != "exact":
        if not isinstance(config.max_bins, int):
            raise ConfigError(f'max_bins must be "exact" or a whole number, not {config.max_bins!r}')
        _check_int("max_bins", config.max_bins, 2, MAX_BINS)


def _check_bag(config: TrainConfig) -> None:
    _check_bool("bootstrap", config.bootstrap)
    _check_bool("replace", config.replace)
    if not is_number(config.sample_fraction) or not 0.0 < config.sample_fraction <= 1.0:
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
    if not is_number(config.stop_oob) or not 0.0 <= config.stop_oob < 1.0:
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
        if share is not None and (not is_number(share) or not 0.0 < share <= 1.0):
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
