"""The options that become a TrainConfig, said once for every command that takes some of them."""

from __future__ import annotations

from .groups import Choice, count_or_word, number_or_word, option

# By the names of TrainConfig, with its defaults; the order is that of --help.
CONFIG: dict[str, Choice] = {
    "trees": option(int, 100, "N", "Number of trees."),
    "seed": option(int, 0, "N", "The same data, options and seed give the same forest."),
    "mtry": option(
        str | None,
        None,
        "sqrt|log2|half|all|INT|FRACTION",
        "Features drawn per node: sqrt unless given, half for regression.",
        read=number_or_word,
    ),
    "impurity": option(
        str | None, None, "gini|entropy|error", "What a split lowers: gini unless given, of a regression variance."
    ),
    "max_depth": option(int | None, None, "N", "Deepest level, the root being 0; unlimited unless given."),
    "min_split": option(int, 2, "N", "Fewest bag rows of a node that is split."),
    "min_leaf": option(int | None, None, "N", "Fewest bag rows of a leaf: 1 unless given, 2 for regression."),
    "min_level": option(
        int,
        5,
        "N",
        "Levels of a category with fewer bag rows in a node stay together there, except its largest few; 1: none do.",
    ),
    "max_bins": option(
        str,
        "exact",
        "exact|INT",
        "Values per feature that may be thresholds: all, or at most INT, by quantiles.",
        read=count_or_word,
    ),
    "task": option(
        str | None, None, "classification|regression", "What is learned; a target of floats is regression unless given."
    ),
    "categories": option(
        list[str],
        (),
        "COL",
        "Column of whole numbers or booleans that are names, in no order; repeat for more. Text is so anyway.",
    ),
    "weight": option(str | None, None, "COL", "Column of the weights of the rows."),
    "class_weight": option(
        str | None, None, "balanced|FILE", 'Weights of classes: all alike, or of a JSON file such as {"late": 2.5}.'
    ),
    "keep_targets": option(
        bool, False, None, "Keep the targets in each leaf of a regression, for predict --quantiles.", "--keep-targets"
    ),
    "shrink": option(
        str,
        "off",
        "auto|off|LAMBDA",
        "Move the values of leaves towards those of the nodes above: by so many rows, or as out-of-bag rows choose.",
        read=number_or_word,
    ),
    "vote": option(str, "soft", "soft|hard", "Average the leaf posteriors, or count one vote per tree."),
    "constants": option(str, "redraw", "redraw|count", "Whether a feature constant in the node uses up a draw."),
    "splitter": option(str, "best", "best|random", "Take the best split of each drawn feature, or a random one."),
    "bootstrap": option(bool, True, None, "Grow each tree on a random bag of rows, or on all rows."),
    "stop_oob": option(
        float | None,
        None,
        "TOLERANCE",
        "Stop once 20 more trees lower the out-of-bag error by this share of it or less.",
    ),
    "sample_fraction": option(float, 1.0, "F", "Size of a bag as a fraction of the rows."),
    "replace": option(bool, True, None, "Draw a bag with replacement."),
    "sampling": option(
        str,
        "uniform",
        "uniform|stratified|balanced",
        "Draw all rows alike, each class by its share, or as many of each class as the smallest has.",
    ),
    "group": option(
        str | None, None, "COL", "Column of groups of rows, such as a patient: whole groups are in or out of a bag."
    ),
    "family": option(
        str,
        "axis",
        "axis|sparse-oblique|rotation|tree|subspace-cap|subspace-perceptron",
        "What a node splits on; tree is a single CART without bootstrap.",
    ),
    "feature_fraction": option(
        float | None, None, "F", "Chance of each feature to be considered in a node, instead of --mtry."
    ),
    "ranks": option(bool, False, None, "Split on ranks of values in the training table.", "--ranks"),
    "projections": option(
        str,
        "p^2/3",
        "INT|p^E",
        "sparse-oblique: columns of a node's random matrix of p features.",
        read=count_or_word,
    ),
    "projection_kind": option(
        str,
        "rerf",
        "rerf|sporf|gaussian|very-sparse",
        "sparse-oblique: which cells have a weight, and what weights.",
    ),
    "density": option(float | None, None, "F", "sparse-oblique: share of the cells that have a weight."),
    "mean_difference": option(
        str,
        "none",
        "none|consecutive|vs-largest|all",
        "sparse-oblique: also offer differences of the means of classes.",
    ),
    "mean_difference_scope": option(
        str, "tree", "tree|node", "sparse-oblique: means of the tree's bag or of the node."
    ),
    "normalize": option(str, "none", "none|zscore|minmax", "sparse-oblique: what weights are relative to."),
    "axes": option(int | None, None, "N", "rotation: axes of a tree's table; as many as features unless given."),
    "orthogonal": option(bool, True, None, "rotation: make random axes orthogonal."),
    "rotation": option(
        str, "random", "random|pca", "rotation: Gaussian axes, or principal components of disjoint sets of features."
    ),
    "subspace": option(
        int | None, None, "N", "subspace: features of a subspace; 100 unless given, and at most half of all."
    ),
    "subspace_per": option(
        str, "tree", "tree|node", "subspace: each tree has a subspace that no other has, or each node draws one."
    ),
    "steps": option(int, 50, "N", "subspace: parts of the way between two class means, searched for the best cut."),
    "max_epochs": option(int, 100, "N", "subspace-perceptron: most passes over the rows of a node."),
    "ties": option(
        str | None,
        None,
        "reject|lowest|random",
        "subspace: the answer where classes have equal votes; none (reject) unless given.",
    ),
}
