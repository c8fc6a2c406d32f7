"""The options of training, each declared once: see declaration.py. docs/options.py writes what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bigforest.options.declaration import BAGS, COLUMNS, TREES, declared_options, option
from bigforest.options.names import families, impurities, known_family
from bigforest.options.package_names import FAMILIES, MEANINGS, Family, Impurity
from bigforest.options.values import (
    MAX_BINS,
    MAX_LEVEL,
    MAX_PROJECTIONS,
    MAX_ROUNDS,
    MAX_TREES,
    ClassWeight,
    Exact,
    FeatureRule,
    Scope,
    Task,
    Ties,
)

# Families with options in common.
_DRAWING = ("axis", "tree", "rotation")  # draw features or axes in each node
_OBLIQUE = ("sparse-oblique",)  # draw directions in each node
ROTATING = ("rotation",)  # rotate the table for each tree
SUBSPACES = ("subspace-cap", "subspace-perceptron")  # draw subspaces of the features
BY_IMPURITY = (*_DRAWING, *_OBLIQUE)  # compare splits by impurity; only these support weights


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of `bigforest.train`. TrainConfig adds checks of several options, and their meaning."""

    trees: int = option(
        100,
        panel=TREES,
        min=1,
        max=MAX_TREES,
        by_family={"tree": 1},
        help="Number of trees.",
        more="With `stop_oob`, the maximum.",
    )
    seed: int = option(0, panel=TREES, help="Random seed. The same data, options and seed give the same forest.")
    family: Family = option(
        "axis",
        panel=TREES,
        further=families,
        help="Family of trees: what a node splits on. tree is a single CART tree on all rows.",
        more=" ".join(f'"{name}": {known.splits_on}.' for name, known in FAMILIES.items())
        + " All but axis and tree replace categories and missing values by numbers.",
    )
    mtry: FeatureRule | int | float | None = option(
        None,
        panel=TREES,
        min=1,
        max=2**31 - 1,
        within="(0, 1]",
        families=_DRAWING,
        by_family={"tree": "all", **dict.fromkeys(ROTATING, "all")},
        elsewhere=("sqrt", "half"),
        metavar="sqrt|log2|half|all|INT|FRACTION",
        unset="sqrt or more; regression: half or all; selected by out-of-bag error",
        help="Number of features drawn per node: a rule, a count, or a fraction of all.",
        more=(
            '"sqrt" and "log2" are rounded down, "half" is rounded up. An integer is a count and a float a fraction: 1 '
            "is one feature, 1.0 is all. A count above the number of features is refused. The default is sqrt. It is "
            "four times as many features, or half of all, if small forests have a clearly lower out-of-bag error with "
            "this number. With boosting it is always sqrt. The default for regression is half, with `min_leaf` 2. It "
            "is all, with `min_leaf` 1, if small forests have a lower out-of-bag error with all, or if the table has "
            "fewer than 250 rows and more features than rows."
        ),
    )
    feature_fraction: float | None = option(
        None,
        panel=TREES,
        within="(0, 1]",
        families=_DRAWING,
        help="Probability that a feature is considered in a node. Alternative to `mtry`.",
        more="If no feature is drawn, the draw is repeated. A very small fraction draws one feature.",
    )
    splitter: Literal["best", "random"] = option(
        "best",
        panel=TREES,
        families=("axis", "tree"),
        help="Use the best split of each drawn feature, or a random one.",
        more='"random" grows extremely randomised trees (Geurts 2006).',
    )
    impurity: Impurity | None = option(
        None,
        panel=TREES,
        further=impurities,
        families=BY_IMPURITY,
        elsewhere=("gini",),
        unset="gini, variance for regression",
        help="Impurity measure that splits minimise.",
        more=" ".join(f'"{name}": {text}.' for name, text in MEANINGS.items()),
    )
    max_depth: int | None = option(
        None, panel=TREES, max=2**31 - 1, unset="unlimited", help="Maximum depth of a tree; the root has depth 0."
    )
    min_split: int = option(
        2,
        panel=TREES,
        min=2,
        help="Minimum number of bag rows in a node that is split.",
        more="With weights, a node that is split must weigh more than `min_split` - 2 rows of mean weight.",
    )
    min_leaf: int | None = option(
        None,
        panel=TREES,
        min=1,
        max=2**62,
        unset="1, or 2 if a class weighs more than twice another; regression: 2, or 1 if mtry defaults to all",
        help="Minimum number of bag rows in a leaf.",
        more="With weights, a leaf must weigh more than `min_leaf` - 1 rows of mean weight.",
    )
    max_leaf_nodes: int | None = option(
        None,
        panel=TREES,
        min=2,
        max=2**31 - 1,
        unset="unlimited",
        help="Maximum number of leaves of a tree, grown best-first.",
        more=(
            "Leaves are split in the order of the decrease of impurity, weighted by their rows. The tree is grown "
            "whole and then cut, so training takes no less time."
        ),
    )
    min_impurity_decrease: float = option(
        0.0,
        panel=TREES,
        within="[0, inf)",
        help="Minimum decrease of impurity by a split, weighted by the node's share of the bag.",
        more="The tree is grown whole and then cut, so training takes no less time.",
    )
    ccp_alpha: float = option(
        0.0,
        panel=TREES,
        within="[0, inf)",
        help="Prune subtrees whose splits decrease the impurity of the tree by at most this on average.",
        more=(
            "Minimal cost-complexity pruning of each tree on its bag (Breiman et al. 1984), after `max_leaf_nodes` and "
            "`min_impurity_decrease`. A decrease is multiplied by the share of the bag in its node. 0 prunes nothing."
        ),
    )
    max_bins: Exact | int = option(
        "exact",
        encodes=True,
        panel=TREES,
        min=2,
        max=MAX_BINS,
        metavar="exact|INT",
        help="Candidate thresholds per feature: all values (exact), or limits of at most INT bins of about equal size.",
        more="All rows of a value are in one bin.",
    )
    ranks: bool = option(
        False,
        panel=TREES,
        help="Split on ranks in the training table instead of values.",
        more="Equal values get their mean rank.",
    )
    constants: Literal["redraw", "count"] = option(
        "redraw",
        panel=TREES,
        families=_DRAWING,
        help="A feature that is constant in the node uses up a draw (count), or another one is drawn (redraw).",
    )
    vote: Literal["soft", "hard"] = option(
        "soft",
        panel=TREES,
        help="Average the class probabilities of the leaves (soft), or count one vote per tree (hard).",
        more=(
            "Used in the out-of-bag report, and by default in prediction. Always hard with `sampling` arc-x4 and "
            "adaboost."
        ),
    )
    shrink: Literal["auto", "off"] | float = option(
        "auto",
        panel=TREES,
        metavar="auto|off|LAMBDA",
        help="Shrink leaf values towards their ancestors: by out-of-bag loss (auto), or by LAMBDA, in rows.",
        more=(
            "Hierarchical shrinkage (Agarwal et al. 2022): a step below a node of n rows is multiplied by n / (n + "
            'lambda). "auto" selects lambda from 0, 0.1, 1, 3, 10 and 50 by the out-of-bag log loss (mean squared '
            "error for regression, Poisson deviance with that impurity). It uses 0 unless the loss decreases by more "
            "than the standard error of the difference. It also uses 0 without out-of-bag rows, with hard votes, with "
            "more than 64 classes, or if rows times classes exceed 4,194,304. With `sampling` arc-x4 and adaboost "
            "leaves are shrunk only by a given lambda."
        ),
    )
    power: Literal["auto", "off"] | float = option(
        "auto",
        panel=TREES,
        within="[0.25, 16]",
        metavar="auto|off|POWER",
        help="Power of class probabilities (scaled to sum to 1): selected by out-of-bag log loss (auto), or POWER.",
        more=(
            "Means over trees are often too cautious: the predicted class is right more often than its probability "
            'says. "auto" selects the power from 1 to 9 that has the lowest out-of-bag log loss. It uses 1 unless the '
            "loss decreases by more than two standard errors of the difference, or without out-of-bag rows. POWER is a "
            "multiple of 0.25. Predicted classes, probabilities of 0 and predictions of single trees do not change. "
            "With `sampling` arc-x4 and adaboost only a given power is used."
        ),
    )
    refine: Literal["auto", "off"] | int = option(
        "auto",
        panel=TREES,
        min=1,
        max=MAX_ROUNDS,
        metavar="auto|off|ROUNDS",
        help=(
            "Correct the forest by small boosted trees fitted to its out-of-bag errors: if this lowers the errors "
            "(auto), or always, in ROUNDS rounds."
        ),
        more=(
            "The stage begins with the out-of-bag prediction of each row, on the scale of a link: the number itself, "
            "its logarithm (impurity poisson), log odds or log probabilities. Six sequences of trees, each on two "
            'thirds of the rows, are boosted (Friedman 2001), and their mean is added to the forest. "auto" selects '
            "the number of rounds, and all or half of the mean, by the loss of rows that a sequence does not use. It "
            "keeps the stage if this loss clearly decreases. It grows no stage for tables of fewer than 600 rows, "
            "without out-of-bag rows, with `sampling` balanced, arc-x4 and adaboost, with a single class, or with more "
            "than 256. Quantiles, proximities and votes are computed without the stage."
        ),
    )
    stop_oob: float | None = option(
        None,
        panel=TREES,
        within="[0, 1)",
        metavar="TOLERANCE",
        unset="grow all trees",
        help="Stop when 20 more trees reduce the out-of-bag error by at most this fraction.",
        more=(
            "After every 10 trees, from 40 on, the mean of the error curve over its last 20 points is compared with "
            "the mean over the 20 points before. `trees` is the maximum."
        ),
    )
    bootstrap: bool = option(
        True,
        panel=BAGS,
        by_family=dict.fromkeys(("tree", *SUBSPACES), False),
        help="Grow each tree on a random sample of the rows (a bag), or on all rows.",
        more='Without it there is no out-of-bag report. Off by default with `rotation` "pca" and "pca-classes".',
    )
    sample_fraction: float = option(
        1.0,
        panel=BAGS,
        within="(0, 5]",
        help="Size of a bag as a fraction of the rows.",
        more="Above 1 a bag has more draws than the table has rows, and leaves out fewer rows: 22% with 1.5. "
        "A regression with more than 2 is refused if sums of its targets could overflow.",
    )
    replace: bool = option(True, panel=BAGS, help="Draw a bag with replacement.")
    calibration: float | None = option(
        None,
        panel=BAGS,
        within="(0, 1)",
        unset="none",
        help="Share of the rows held out of all bags, to calibrate prediction intervals and sets.",
        more="The rows held out do not depend on the seed. With `group`, whole groups are held out.",
    )
    sampling: Literal["uniform", "stratified", "balanced", "arc-x4", "adaboost"] = option(
        "uniform",
        panel=BAGS,
        help="Draw rows uniformly, by class, or, for boosting, by the errors of earlier trees.",
        more=(
            '"stratified": each class has its share of the draws. "balanced": each class has as many draws as the '
            'smallest class has rows, times `sample_fraction`. "arc-x4": a row that m earlier trees predict wrongly '
            'has the weight 1 + m^4 (Breiman 1998). "adaboost": the rows that the last tree predicts wrongly get half '
            "of the total weight, and the vote of a tree with weighted error e has the weight log((1 - e) / e) (Freund "
            "and Schapire 1997). With these two, trees grow one after the other, and the out-of-bag error is biased."
        ),
    )
    group: str | None = option(
        None,
        encodes=True,
        panel=BAGS,
        text="the name of a column",
        accepts="str | ArrayLike | None",
        help="Column of row groups, such as patients: a whole group is in a bag or out of it.",
        more="It is not a feature. Bags are drawn from the groups. In Python also an array, one value per row.",
    )
    weight: str | None = option(
        None,
        encodes=True,
        panel=BAGS,
        families=BY_IMPURITY,
        text="the name of a column",
        accepts="str | ArrayLike | None",
        help="Column of row weights.",
        more="It is not a feature. Rows of weight 0 are left out. In Python also an array, one number per row.",
    )
    class_weight: ClassWeight = option(
        None,
        encodes=True,
        panel=BAGS,
        families=BY_IMPURITY,
        metavar="balanced|FILE",
        text="balanced, a mapping of classes to weights, or a JSON file of one",
        accepts="Mapping[Any, float] | str | Path | None",
        unset="1 for all",
        help='Class weights: balanced, JSON such as {"late": 2.5}, or a JSON file.',
        more=(
            "The weight of a row is multiplied by the weight of its class (1 for classes that are not named). "
            '"balanced" is rows / (classes * rows of the class) in the table; with `sampling` "stratified" it also '
            "balances every bag, up to the rounding of draws. In Python also a mapping of classes to weights."
        ),
    )
    task: Task | None = option(
        None,
        encodes=True,
        panel=COLUMNS,
        unset="classification for text, booleans, dates and integers like class codes; otherwise regression",
        help="Type of task.",
    )
    categories: tuple[str, ...] = option(
        (),
        encodes=True,
        panel=COLUMNS,
        accepts="str | Sequence[str]",
        unset="none",
        help="Column of integers or booleans to treat as a category.",
        more="Text columns are always categories.",
    )
    missing: tuple[str, ...] = option(
        (),
        encodes=True,
        panel=COLUMNS,
        accepts="str | Sequence[str]",
        metavar="WORD",
        text="texts",
        unset="none",
        help="Text in CSV files that means a missing value, in every column.",
        more=(
            "An empty cell is missing anyway, and among numbers and dates also NA and the like. -999 also means "
            "-999.0. Predictions read features, targets and groups of intervals in the same way, from any table."
        ),
    )
    min_level: str | int | None = option(
        None,
        panel=COLUMNS,
        min=1,
        max=MAX_LEVEL,
        metavar="INT|INT,INT",
        text="one such number for each feature, separated by commas",
        unset="5, more if the levels of a category differ little",
        help="Levels of a category with fewer bag rows in a node are split as one level; 1 turns this off.",
        more=(
            "The largest levels of a node are always split separately: 10 levels in a node of 1,000 rows, which is the "
            "number of binary digits of 1,000. The default is half the ratio of two variances of the target, within "
            "the levels of a category and between them, at least 5 and at most 1,000. Each category has its own "
            "default. If trees split on projections, the levels with fewer rows in the table all have the same number."
        ),
    )
    keep_targets: bool = option(
        False, panel=COLUMNS, help="Keep the training targets of every leaf, for quantiles (regression)."
    )
    keep_votes: bool = option(False, panel=BAGS, help="Keep the leaf of every out-of-bag row in each tree, as a table.")
    projections: str | int | None = option(
        None,
        min=1,
        max=MAX_PROJECTIONS,
        families=_OBLIQUE,
        elsewhere=("p^2/3", "p^1"),
        metavar="INT|p^E",
        unset="p^2/3; regression: p^1",
        text="p^E with E from 0 to 2, such as p^0.5 or p^2/3",
        help="Number of columns of a node's random matrix: a count, or ceil(p^E) for p features.",
    )
    projection_kind: Literal["rerf", "sporf", "gaussian", "very-sparse"] = option(
        "rerf",
        families=_OBLIQUE,
        help="Distribution of the weights in the random matrix.",
        more=(
            '"rerf": as many weights of +-1 as columns, anywhere. "sporf": +-1 in a fraction `density` of all cells. '
            '"gaussian": normal weights. "very-sparse": +-1 with probability `density` in each cell (Li 2006).'
        ),
    )
    density: float | None = option(
        None,
        within="(0, 1]",
        families=_OBLIQUE,
        unset="by the kind",
        help="Share of the cells of the matrix that have a weight.",
        more="Default for p features: 1 / p (sporf), 1 (gaussian) or p^-0.5 (very-sparse).",
    )
    mean_difference: Literal["none", "consecutive", "vs-largest", "all"] = option(
        "none",
        families=_OBLIQUE,
        help="Also use differences of class means as directions.",
        more=(
            "For consecutive classes, for the largest class and each other class, or for all pairs. Each is used with "
            "probability min(1, `projections` / p) in each node."
        ),
    )
    mean_difference_scope: Scope = option(
        "tree", families=_OBLIQUE, help="Compute class means on the tree's bag, or on the node."
    )
    normalize: Literal["none", "zscore", "minmax"] = option(
        "none",
        families=_OBLIQUE,
        help="Scale features before weights apply: none, by standard deviation (zscore) or range (minmax).",
    )
    axes: int | None = option(
        None,
        min=1,
        max=65_536,
        families=ROTATING,
        unset="as many as features",
        help="Number of axes per tree; nodes draw `mtry` of them.",
    )
    orthogonal: bool = option(True, families=ROTATING, help="Make random axes orthogonal.")
    rotation: Literal["random", "pca", "pca-classes"] = option(
        "random",
        families=ROTATING,
        help="Random Gaussian axes, or principal components of disjoint sets of features.",
        more=(
            'The components of each set are computed on a sample of the rows (Rodriguez 2006). "pca" samples three '
            'quarters of all rows. "pca-classes" samples three quarters of the rows in the tree\'s bag that belong to '
            "a random subset of the classes, drawn for each set."
        ),
    )
    axis_features: int | None = option(
        None,
        min=1,
        max=100,
        families=ROTATING,
        unset="3",
        help="Number of features in each set of principal components.",
        more="The last set of a tree may be smaller. With 1, the features stay as they are.",
    )
    axes_from: tuple[str, ...] = option(
        (),
        families=ROTATING,
        metavar="COL|auto",
        unset="all features",
        accepts="str | Sequence[str]",
        help="Feature to build axes from, or auto to select them; every other feature is an axis of its own.",
        more=(
            "Irrelevant columns degrade every axis that contains them. auto ranks the features by the out-of-bag gain "
            "of their splits. It uses the leading features with which small forests have the lowest out-of-bag error, "
            "or all features."
        ),
    )
    subspace: str | int | None = option(
        None,
        min=1,
        max=MAX_PROJECTIONS,
        families=SUBSPACES,
        metavar="INT|INT,INT",
        text="several such numbers separated by commas, such as 50,100,200",
        unset="100, but at most half of all",
        help="Number of features in a subspace; if there are several sizes, trees use them in turn.",
    )
    subspace_per: Scope = option(
        "tree",
        families=SUBSPACES,
        help="Draw a different subspace for each tree, or one for each node.",
        more="With node, a node uses all features if the features of its subspace cannot split it.",
    )
    steps: int = option(
        50,
        min=2,
        max=65_536,
        families=SUBSPACES,
        help="Number of steps between two class means at which splits are tried.",
    )
    max_epochs: int = option(
        100,
        min=1,
        max=1_000_000,
        families=("subspace-perceptron",),
        help="Maximum number of passes of a perceptron over the rows of a node.",
    )
    ties: Ties | None = option(
        None,
        families=SUBSPACES,
        unset="reject",
        help="Prediction if classes have equal votes: the lowest class, none (reject), or a random one.",
        more="Can be changed in prediction.",
    )


# By name, in the order of the fields.
OPTIONS = declared_options(TrainOptions)


def options_in_use(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a configuration without options that are None, empty, or not of its family."""
    family = known_family(config["family"])
    used = {name: value for name, value in config.items() if value is not None and value != ()}
    return {name: value for name, value in used.items() if family.has(OPTIONS[name])}


def value_text(value: object) -> str:
    """Return the value of an option as text: `yes`, `a b` for columns, `late:2.5 early:1.0` for weights of classes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(":".join(map(str, entry)) if isinstance(entry, tuple) else str(entry) for entry in value)
    return str(value)
