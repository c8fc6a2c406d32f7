"""The options of training, each declared once: see declaration.py. docs/options.py writes what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bigforest.schema.declaration import BAGS, COLUMNS, TREES, Option, declared_options
from bigforest.schema.options import (
    AUTO,
    BOOSTED,
    BY_CLASS,
    MAX_AXES,
    MAX_AXIS_FEATURES,
    MAX_BINS,
    MAX_EPOCHS,
    MAX_PROJECTIONS,
    MAX_STEPS,
    MAX_TREES,
    SUBSPACE_FAMILIES,
    ClassWeight,
    Constants,
    Exact,
    Family,
    FeatureRule,
    Impurity,
    MeanDifference,
    Normalize,
    ProjectionKind,
    Rotation,
    Sampling,
    Scope,
    ShrinkRule,
    Splitter,
    Task,
    Ties,
    Vote,
)
from bigforest.schema.registered import base_family, families, impurities

_DRAWING = ("axis", "tree", "rotation")  # these draw features, or axes, in each node
_BY_IMPURITY = (*_DRAWING, "sparse-oblique")
_OBLIQUE = ("sparse-oblique",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of `bigforest.train`; TrainConfig is what they mean."""

    trees: Annotated[
        int,
        Option(
            panel=TREES,
            min=1,
            max=MAX_TREES,
            own={"tree": 1},
            help="Number of trees.",
            more="With `stop_oob`, the most.",
        ),
    ] = 100
    seed: Annotated[
        int,
        Option(
            panel=TREES,
            help="Seed of all random draws: same data, options and seed, same forest.",
        ),
    ] = 0
    family: Annotated[
        Family,
        Option(
            panel=TREES,
            further=families,
            help="What a node splits on; tree is a single CART on all rows.",
            more=(
                '"axis": a feature. "sparse-oblique": a weighted sum of some features (Randomer forests). "rotation": '
                'an axis of the tree\'s own rotated table. "tree": one tree of splits on features, without bootstrap. '
                '"subspace-cap" and "subspace-perceptron": trees on all rows, each in a subspace of its own, that '
                "split on the line between two class means or by a perceptron (Ho 1995)."
            ),
        ),
    ] = "axis"
    mtry: Annotated[
        FeatureRule | int | float | None,
        Option(
            panel=TREES,
            min=1,
            max=2**31 - 1,
            within="(0, 1]",
            families=_DRAWING,
            own={"tree": "all", "rotation": "all"},
            elsewhere=("sqrt", "half"),
            metavar="sqrt|log2|half|all|INT|FRACTION",
            unset="sqrt; regression: half or all, chosen out of bag",
            help="Features drawn per node: by a rule, a count, or a fraction of all.",
            more=(
                '"sqrt" and "log2" are rounded down, "half" is rounded up. A whole number is a count and a float a '
                "fraction: 1 is one feature, 1.0 is all. A count above the number of features is refused. The "
                "default for regression is all, with `min_leaf` 1, where small trees on at least 1,000 rows are better "
                "with these out of bag; else half, with 2."
            ),
        ),
    ] = None
    feature_fraction: Annotated[
        float | None,
        Option(
            panel=TREES,
            within="(0, 1]",
            families=_DRAWING,
            help="Chance of each feature to be considered in a node, instead of `mtry`.",
            more="A draw of no feature is repeated.",
        ),
    ] = None
    splitter: Annotated[
        Splitter,
        Option(
            panel=TREES,
            families=("axis", "tree"),
            help="Take the best split of each drawn feature, or a random one.",
            more='"random" gives extremely randomised trees (Geurts 2006).',
        ),
    ] = "best"
    impurity: Annotated[
        Impurity | None,
        Option(
            panel=TREES,
            further=impurities,
            families=_BY_IMPURITY,
            elsewhere=("gini",),
            unset="gini, variance for regression",
            help="Measure that a split lowers.",
            more=(
                '"error" is the share of rows that are not of the largest class (Tomasi 2017, section 3). "variance" '
                "is for regression, the others are for classification."
            ),
        ),
    ] = None
    max_depth: Annotated[
        int | None,
        Option(panel=TREES, max=2**31 - 1, unset="unlimited", help="Deepest level of a leaf; the root has level 0."),
    ] = None
    min_split: Annotated[
        int,
        Option(
            panel=TREES,
            min=2,
            help="Fewest bag rows of a node that is split.",
            more="Of rows with weights, all beyond the first 2 count as their mean weight.",
        ),
    ] = 2
    min_leaf: Annotated[
        int | None,
        Option(
            panel=TREES,
            min=1,
            max=2**62,
            unset="1; regression: 2, or 1 where all features are chosen out of bag",
            help="Fewest bag rows of a leaf.",
            more="Of rows with weights, all beyond the first count as their mean weight.",
        ),
    ] = None
    max_bins: Annotated[
        Exact | int,
        Option(
            panel=TREES,
            min=2,
            max=MAX_BINS,
            metavar="exact|INT",
            help="Candidate thresholds per feature: at all values, or at no more than INT of them, by quantiles.",
        ),
    ] = "exact"
    ranks: Annotated[
        bool,
        Option(
            panel=TREES,
            help="Split on the ranks of the values in the training table instead of the values.",
            more="Equal values have the mean of their ranks.",
        ),
    ] = False
    constants: Annotated[
        Constants,
        Option(
            panel=TREES,
            families=_DRAWING,
            help="Whether a feature that is constant in the node uses up a draw (count) or not (redraw).",
        ),
    ] = "redraw"
    vote: Annotated[
        Vote,
        Option(
            panel=TREES,
            help="Average the posteriors of the leaves (soft), or count one vote per tree (hard).",
            more=(
                "Out of bag, and in prediction unless asked otherwise. Always hard with `sampling` arc-x4 and adaboost."
            ),
        ),
    ] = "soft"
    shrink: Annotated[
        ShrinkRule | float,
        Option(
            panel=TREES,
            metavar="auto|off|LAMBDA",
            help="Shrink leaves towards the nodes above them, by a lambda chosen out of bag or by LAMBDA rows.",
            more=(
                "Hierarchical shrinkage (Agarwal et al. 2022): a node of n rows keeps n / (n + lambda) of what sets it "
                'apart from the node above. "auto" takes the lambda with the least out-of-bag log loss, or mean '
                "squared error for regression, among 0, 0.1, 1, 3, 10 and 50, if it lowers the loss by more than the "
                "standard error of the difference; else 0, as where no row is out of bag, with hard votes, more than "
                "64 classes, or more than 4,194,304 rows times classes. Off unless given with `sampling` arc-x4 and "
                "adaboost, and never chosen there."
            ),
        ),
    ] = "auto"
    stop_oob: Annotated[
        float | None,
        Option(
            panel=TREES,
            within="[0, 1)",
            metavar="TOLERANCE",
            unset="grow all trees",
            help="Stop when 20 more trees lower the out-of-bag error by no more than this share of it.",
            more=(
                "That is: once the mean error after each of the last 20 trees is not lower by more than this share of "
                "the mean error after each of the 20 before. Looked at after every 10 trees, from 40 on."
            ),
        ),
    ] = None
    bootstrap: Annotated[
        bool,
        Option(
            panel=BAGS,
            own=dict.fromkeys(("tree", *SUBSPACE_FAMILIES), False),
            help="Grow each tree on a random bag of the rows, or on all rows.",
            more='Without it there is no out-of-bag report. Off unless given with `rotation` "pca" and "pca-classes".',
        ),
    ] = True
    sample_fraction: Annotated[
        float, Option(panel=BAGS, within="(0, 1]", help="Size of a bag as a fraction of the rows.")
    ] = 1.0
    replace: Annotated[bool, Option(panel=BAGS, help="Draw a bag with replacement.")] = True
    calibration: Annotated[
        float | None,
        Option(
            panel=BAGS,
            within="(0, 1)",
            unset="none",
            help="Share of the rows held out of all bags, on which certainty is calibrated.",
            more="Which rows these are does not depend on the seed. With `group`, whole groups are in no bag.",
        ),
    ] = None
    sampling: Annotated[
        Sampling,
        Option(
            panel=BAGS,
            help="Draw rows uniformly, by class, or, for boosting, more of those that earlier trees are wrong on.",
            more=(
                '"stratified": each class has its share of the draws. "balanced": each class has as many draws as the '
                'smallest has rows, times `sample_fraction`. "arc-x4": a row that m of the trees before are wrong on '
                'has the weight 1 + m^4 (Breiman 1998). "adaboost": rows that the last tree is wrong on have half of '
                "all weight, and a tree of the weighted error e votes with log((1 - e) / e) (Freund and Schapire "
                "1997). With these two, trees grow one after the other, and the out-of-bag error is biased."
            ),
        ),
    ] = "uniform"
    group: Annotated[
        str | None,
        Option(
            panel=BAGS,
            text="the name of a column",
            accepts="str | ArrayLike | None",
            help="Column of groups of rows, such as a patient: whole groups are in or out of a bag.",
            more="It is not a feature. Bags are drawn from the groups. In Python also an array, a value for each row.",
        ),
    ] = None
    weight: Annotated[
        str | None,
        Option(
            panel=BAGS,
            families=_BY_IMPURITY,
            text="the name of a column",
            accepts="str | ArrayLike | None",
            help="Column of the weights of the rows.",
            more="It is not a feature; rows of weight 0 are left out. In Python also an array, a number for each row.",
        ),
    ] = None
    class_weight: Annotated[
        ClassWeight,
        Option(
            panel=BAGS,
            families=_BY_IMPURITY,
            metavar="balanced|FILE",
            text="balanced, a mapping of classes to weights, or a JSON file of one",
            accepts="Mapping[Any, float] | str | Path | None",
            unset="1 for all",
            help='Weights of classes: balanced, or JSON such as {"late": 2.5}, or a file of it.',
            more=(
                "The weights of the rows of a class are multiplied by its weight, by 1 where it is not named; "
                '"balanced" is rows / (classes * rows of the class). In Python also a mapping of classes to weights.'
            ),
        ),
    ] = None
    task: Annotated[
        Task | None,
        Option(
            panel=COLUMNS,
            unset="by the target",
            help="Kind of target. Default: regression for floats, decimals, and integers of many values.",
        ),
    ] = None
    categories: Annotated[
        tuple[str, ...],
        Option(
            panel=COLUMNS,
            accepts="str | Sequence[str]",
            unset="none",
            help="Column of whole numbers or booleans to treat as a category, without order.",
            more="Columns of text always are categories.",
        ),
    ] = ()
    min_level: Annotated[
        int,
        Option(
            panel=COLUMNS,
            min=1,
            max=2**31 - 1,
            families=("axis", "tree"),
            elsewhere=(1000,),
            help="Levels of a category with fewer bag rows in a node are split as one level; 1: none are.",
            more=(
                "The heaviest levels of a node may be split off although they have fewer: as many as the number of its "
                "rows has binary digits, 10 for 1,000."
            ),
        ),
    ] = 5
    keep_targets: Annotated[
        bool,
        Option(panel=COLUMNS, help="Keep the training targets of every leaf of a regression, for quantiles."),
    ] = False
    keep_votes: Annotated[
        bool,
        Option(panel=BAGS, help="Keep the leaf of every out-of-bag row in each tree, as a table."),
    ] = False
    projections: Annotated[
        str | int,
        Option(
            min=1,
            max=MAX_PROJECTIONS,
            families=_OBLIQUE,
            metavar="INT|p^E",
            text="p^E with E from 0 to 2, such as p^0.5 or p^2/3",
            help="Columns of a node's random matrix: a count, or ceil(p^E) of p features.",
        ),
    ] = "p^2/3"
    projection_kind: Annotated[
        ProjectionKind,
        Option(
            families=_OBLIQUE,
            help="Which cells of the matrix have a weight, and what weights.",
            more=(
                '"rerf": as many weights of +-1 as columns, anywhere. "sporf": +-1 in `density` of all cells. '
                '"gaussian": normal weights. "very-sparse": +-1 with chance `density` in each cell (Li 2006).'
            ),
        ),
    ] = "rerf"
    density: Annotated[
        float | None,
        Option(
            within="(0, 1]",
            families=_OBLIQUE,
            unset="by the kind",
            help="Share of the cells that have a weight.",
            more="Unless given 1 / p (sporf), 1 (gaussian) or p^-0.5 (very-sparse) of p features.",
        ),
    ] = None
    mean_difference: Annotated[
        MeanDifference,
        Option(
            families=_OBLIQUE,
            help="Also offer differences of the means of classes.",
            more=(
                "Of consecutive classes, of the largest class and each other, or of all pairs; each with chance "
                "min(1, `projections` / p) in each node."
            ),
        ),
    ] = "none"
    mean_difference_scope: Annotated[
        Scope, Option(families=_OBLIQUE, help="Means of the tree's bag, or of the node.")
    ] = "tree"
    normalize: Annotated[
        Normalize,
        Option(
            families=_OBLIQUE,
            help="Scale of the features that weights apply to: none, standard deviation (zscore) or range (minmax).",
        ),
    ] = "none"
    axes: Annotated[
        int | None,
        Option(
            min=1,
            max=MAX_AXES,
            families=("rotation",),
            unset="as many as features",
            help="Number of axes of a tree, of which nodes draw `mtry`.",
        ),
    ] = None
    orthogonal: Annotated[bool, Option(families=("rotation",), help="Make random axes orthogonal.")] = True
    rotation: Annotated[
        Rotation,
        Option(
            families=("rotation",),
            help="Random Gaussian axes, or principal components of disjoint sets of features.",
            more=(
                'The components of each set are those of a sample of the rows (Rodriguez 2006): "pca" samples three '
                'quarters of all rows, "pca-classes" three quarters of the rows in the tree\'s bag that are of some '
                "classes, drawn for each set."
            ),
        ),
    ] = "random"
    axis_features: Annotated[
        int | None,
        Option(
            min=1,
            max=MAX_AXIS_FEATURES,
            families=("rotation",),
            unset="3",
            help="Number of features in each set with principal components of its own.",
            more="The last set of a tree may be smaller. Of 1, the features stay as they are.",
        ),
    ] = None
    axes_from: Annotated[
        tuple[str, ...],
        Option(
            families=("rotation",),
            metavar="COL|auto",
            unset="all features",
            accepts="str | Sequence[str]",
            help="Feature that axes are made from, or auto to choose them; each other feature is an axis of its own.",
            more=(
                "Columns that mean nothing spoil every axis they are part of. auto ranks the features by what splits "
                "on them gain out of bag, and takes the leading ones of which small forests err least out of bag, or "
                "all."
            ),
        ),
    ] = ()
    subspace: Annotated[
        str | int | None,
        Option(
            min=1,
            max=MAX_PROJECTIONS,
            families=SUBSPACE_FAMILIES,
            metavar="INT|INT,INT",
            text="several such numbers separated by commas, such as 50,100,200",
            unset="100, and at most half of all",
            help="Number of features in a subspace; trees take several sizes in turn.",
        ),
    ] = None
    subspace_per: Annotated[
        Scope,
        Option(
            families=SUBSPACE_FAMILIES,
            help="Draw a different subspace for each tree, or one for each node.",
            more="A node looks at all features where those of its own subspace cannot split it.",
        ),
    ] = "tree"
    steps: Annotated[
        int,
        Option(
            min=2,
            max=MAX_STEPS,
            families=SUBSPACE_FAMILIES,
            help="Steps between two class means at which cuts are tried.",
        ),
    ] = 50
    max_epochs: Annotated[
        int,
        Option(
            min=1,
            max=MAX_EPOCHS,
            families=("subspace-perceptron",),
            help="Most passes of a perceptron over the rows of a node.",
        ),
    ] = 100
    ties: Annotated[
        Ties | None,
        Option(
            families=SUBSPACE_FAMILIES,
            unset="reject",
            help="Prediction where classes have equal votes: the lowest, none (reject), or a random one.",
            more="Unless a prediction asks for another.",
        ),
    ] = None

    @property
    def boosts(self) -> bool:
        """Whether the bag of a tree depends on what the trees before are wrong on."""
        return self.sampling in BOOSTED

    @property
    def weighs_trees(self) -> bool:
        """Whether the votes of trees have weights."""
        return self.sampling == "adaboost"

    @property
    def draws_by_class(self) -> bool:
        """Whether each class is drawn by itself."""
        return self.sampling in BY_CLASS

    @property
    def has_components(self) -> bool:
        """Whether the axes of a tree are principal components."""
        return self.rotation != "random"

    @property
    def subset_features(self) -> int:
        """Features of a set that has principal components of its own: those of Rodriguez 2006 unless given."""
        return 3 if self.axis_features is None else self.axis_features

    @property
    def chooses_axes(self) -> bool:
        """Whether the features that axes are made from are to be chosen."""
        return self.axes_from == (AUTO,)

    @property
    def in_subspaces(self) -> bool:
        """Whether trees or nodes see a subspace of the features."""
        return base_family(self.family) in SUBSPACE_FAMILIES


# By name, in the order of the fields.
OPTIONS = declared_options(TrainOptions)
