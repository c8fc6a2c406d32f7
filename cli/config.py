"""The options that become a TrainConfig. Written by docs/options.py from their declarations: change these."""

# ruff: noqa: E501
# fmt: off
from .groups import Choice, number_or_word, option

# By the names of TrainConfig, panel by panel. What is not given is for the API to choose.
CONFIG: dict[str, Choice] = {
    "trees": option(int | None, None, "N", "Number of trees.  [default: 100; tree: 1]", panel="the trees"),
    "seed": option(int | None, None, "N", "The same data, options and seed give the same forest.  [default: 0]", panel="the trees"),
    "family": option(str | None, None, "axis|sparse-oblique|rotation|tree|subspace-cap|subspace-perceptron", "What a node splits on; tree is a single CART on all rows.  [default: axis]", panel="the trees"),
    "mtry": option(str | None, None, "sqrt|log2|half|all|INT|FRACTION", "Features drawn per node: by a rule, a count, or a fraction of all.  [default: sqrt, half for regression; tree, rotation: all]", panel="the trees", read=number_or_word),
    "feature_fraction": option(float | None, None, "F", "Chance of each feature to be considered in a node, instead of --mtry.", panel="the trees"),
    "splitter": option(str | None, None, "best|random", "Take the best split of each drawn feature, or a random one.  [default: best]", panel="the trees"),
    "impurity": option(str | None, None, "gini|entropy|error|variance", "What a split lowers.  [default: gini, variance for regression]", panel="the trees"),
    "max_depth": option(int | None, None, "N", "Deepest level of a leaf; the root has level 0.  [default: unlimited]", panel="the trees"),
    "min_split": option(int | None, None, "N", "Fewest bag rows of a node that is split.  [default: 2]", panel="the trees"),
    "min_leaf": option(int | None, None, "N", "Fewest bag rows of a leaf.  [default: 1, 2 for regression]", panel="the trees"),
    "max_bins": option(str | None, None, "exact|INT", "Values per feature that may be thresholds: all, or at most a number, by quantiles.  [default: exact]", panel="the trees", read=number_or_word),
    "ranks": option(bool | None, None, None, "Split on the ranks of the values in the training table instead of the values.  [default: off]", panel="the trees"),
    "constants": option(str | None, None, "redraw|count", "Whether a feature that is constant in the node uses up a draw (count) or not (redraw).  [default: redraw]", panel="the trees"),
    "vote": option(str | None, None, "soft|hard", "Average the posteriors of the leaves (soft), or count one vote per tree (hard).  [default: soft]", panel="the trees"),
    "stop_oob": option(float | None, None, "TOLERANCE", "Stop once 20 more trees lower the out-of-bag error by this share of it or less.  [default: grow all trees]", panel="the trees"),
    "bootstrap": option(bool | None, None, None, "Grow each tree on a random bag of the rows, or on all rows.  [default: on; tree, subspace-cap, subspace-perceptron: off]", panel="rows and bags"),
    "sample_fraction": option(float | None, None, "F", "Size of a bag as a fraction of the rows.  [default: 1.0]", panel="rows and bags"),
    "replace": option(bool | None, None, None, "Draw a bag with replacement.  [default: on]", panel="rows and bags"),
    "sampling": option(str | None, None, "uniform|stratified|balanced", "Draw all rows alike, each class by its share, or as many of each class as the smallest has.  [default: uniform]", panel="rows and bags"),
    "group": option(str | None, None, "COL", "Column of groups of rows, such as a patient: whole groups are in or out of a bag.", panel="rows and bags"),
    "weight": option(str | None, None, "COL", "Column of the weights of the rows.", panel="rows and bags"),
    "class_weight": option(str | None, None, "balanced|FILE", 'Weights of classes: balanced, or JSON such as {"late": 2.5}, or a file of it.  [default: 1 for all]', panel="rows and bags"),
    "task": option(str | None, None, "classification|regression", "What is learned: unless given, regression of floats, decimals, and integers of many values.  [default: by the target]", panel="columns"),
    "categories": option(list[str] | None, None, "COL", "Column of whole numbers or booleans that are names, in no order. Repeat for more.  [default: none]", panel="columns"),
    "min_level": option(int | None, None, "N", "Levels of a category with fewer bag rows in a node go to one side together there; 1: none do.  [default: 5]", panel="columns"),
    "keep_targets": option(bool | None, None, None, "Keep the training targets of every leaf of a regression, for quantiles.  [default: off]", panel="columns"),
    "projections": option(str | None, None, "INT|p^E", "sparse-oblique: columns of a node's random matrix: a count, or ceil(p^E) of p features.  [default: p^2/3]", panel="one family only", read=number_or_word),
    "projection_kind": option(str | None, None, "rerf|sporf|gaussian|very-sparse", "sparse-oblique: which cells of the matrix have a weight, and what weights.  [default: rerf]", panel="one family only"),
    "density": option(float | None, None, "F", "sparse-oblique: share of the cells that have a weight.  [default: by the kind]", panel="one family only"),
    "mean_difference": option(str | None, None, "none|consecutive|vs-largest|all", "sparse-oblique: also offer differences of the means of classes.  [default: none]", panel="one family only"),
    "mean_difference_scope": option(str | None, None, "tree|node", "sparse-oblique: means of the tree's bag, or of the node.  [default: tree]", panel="one family only"),
    "normalize": option(str | None, None, "none|zscore|minmax", "sparse-oblique: weights are for features as they are, or divided by their deviation (zscore) or range (minmax).  [default: none]", panel="one family only"),
    "axes": option(int | None, None, "N", "rotation: axes of a tree's table, of which nodes draw --mtry.  [default: as many as features]", panel="one family only"),
    "orthogonal": option(bool | None, None, None, "rotation: make random axes orthogonal.  [default: on]", panel="one family only"),
    "rotation": option(str | None, None, "random|pca", "rotation: random Gaussian axes, or principal components of disjoint sets of features.  [default: random]", panel="one family only"),
    "subspace": option(int | None, None, "N", "subspace-cap, subspace-perceptron: features of a subspace.  [default: 100, and at most half of all]", panel="one family only"),
    "subspace_per": option(str | None, None, "tree|node", "subspace-cap, subspace-perceptron: each tree has a subspace that no other has, or each node draws one.  [default: tree]", panel="one family only"),
    "steps": option(int | None, None, "N", "subspace-cap, subspace-perceptron: parts of the way between two class means, searched for the best cut.  [default: 50]", panel="one family only"),
    "max_epochs": option(int | None, None, "N", "subspace-perceptron: most passes of a perceptron over the rows of a node.  [default: 100]", panel="one family only"),
    "ties": option(str | None, None, "lowest|reject|random", "subspace-cap, subspace-perceptron: the answer where classes have equal votes: the lowest, none (reject), or a random one.  [default: reject]", panel="one family only"),
}
