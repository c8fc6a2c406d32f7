"""Options that become a TrainConfig, and options for parts of an explanation. docs/options.py writes this file from the
declarations of the options: change the declarations."""

# ruff: noqa: E501
# fmt: off
from .options import Choice, flag, number_or_word, option

# Options by field of TrainConfig, panel by panel.
CONFIG: dict[str, Choice] = {
    "trees": option(int, "N", "Number of trees.  [default: 100; tree: 1]", panel="trees"),
    "seed": option(int, "N", "Random seed. The same data, options and seed give the same forest.  [default: 0]", panel="trees"),
    "family": option(str, "axis|tree|rotation|sparse-oblique|subspace-cap|subspace-perceptron", "Family of trees: what a node splits on. tree is a single CART tree on all rows.  [default: axis]", panel="trees"),
    "mtry": option(str, "sqrt|log2|half|all|INT|FRACTION", "Number of features drawn per node: a rule, a count, or a fraction of all.  [default: sqrt or more; regression: half or all; selected by out-of-bag error; tree, rotation: all]", panel="trees", read=number_or_word),
    "feature_fraction": option(float, "F", "Probability that a feature is considered in a node. Alternative to --mtry.", panel="trees"),
    "splitter": option(str, "best|random", "Use the best split of each drawn feature, or a random one.  [default: best]", panel="trees"),
    "impurity": option(str, "gini|entropy|error|variance|poisson", "Impurity measure that splits minimise.  [default: gini, variance for regression]", panel="trees"),
    "max_depth": option(int, "N", "Maximum depth of a tree; the root has depth 0.  [default: unlimited]", panel="trees"),
    "min_split": option(int, "N", "Minimum number of bag rows in a node that is split.  [default: 2]", panel="trees"),
    "min_leaf": option(int, "N", "Minimum number of bag rows in a leaf.  [default: 1, or 2 if a class weighs more than twice another; regression: 2, or 1 if mtry defaults to all]", panel="trees"),
    "max_leaf_nodes": option(int, "N", "Maximum number of leaves of a tree, grown best-first.  [default: unlimited]", panel="trees"),
    "min_impurity_decrease": option(float, "F", "Minimum decrease of impurity by a split, weighted by the node's share of the bag.  [default: 0.0]", panel="trees"),
    "ccp_alpha": option(float, "F", "Prune subtrees whose splits decrease the impurity of the tree by at most this on average.  [default: 0.0]", panel="trees"),
    "max_bins": option(str, "exact|INT", "Candidate thresholds per feature: all values (exact), or limits of at most INT bins of about equal size.  [default: exact]", panel="trees", read=number_or_word),
    "ranks": option(bool, None, "Split on ranks in the training table instead of values.  [default: off]", panel="trees"),
    "constants": option(str, "redraw|count", "A feature that is constant in the node uses up a draw (count), or another one is drawn (redraw).  [default: redraw]", panel="trees"),
    "vote": option(str, "soft|hard", "Average the class probabilities of the leaves (soft), or count one vote per tree (hard).  [default: soft]", panel="trees"),
    "shrink": option(str, "auto|off|LAMBDA", "Shrink leaf values towards their ancestors: by out-of-bag loss (auto), or by LAMBDA, in rows.  [default: auto]", panel="trees", read=number_or_word),
    "power": option(str, "auto|off|POWER", "Power of class probabilities (scaled to sum to 1): selected by out-of-bag log loss (auto), or POWER.  [default: auto]", panel="trees", read=number_or_word),
    "refine": option(str, "auto|off|ROUNDS", "Correct the forest by small boosted trees fitted to its out-of-bag errors: if this lowers the errors (auto), or always, in ROUNDS rounds.  [default: auto]", panel="trees", read=number_or_word),
    "stop_oob": option(float, "TOLERANCE", "Stop when 20 more trees reduce the out-of-bag error by at most this fraction.  [default: grow all trees]", panel="trees"),
    "bootstrap": option(bool, None, "Grow each tree on a random sample of the rows (a bag), or on all rows.  [default: on; tree, subspace-cap, subspace-perceptron: off]", panel="rows and bags"),
    "sample_fraction": option(float, "F", "Size of a bag as a fraction of the rows.  [default: 1.0]", panel="rows and bags"),
    "replace": option(bool, None, "Draw a bag with replacement.  [default: on]", panel="rows and bags"),
    "calibration": option(float, "F", "Share of the rows held out of all bags, to calibrate prediction intervals and sets.  [default: none]", panel="rows and bags"),
    "sampling": option(str, "uniform|stratified|balanced|arc-x4|adaboost", "Draw rows uniformly, by class, or, for boosting, by the errors of earlier trees.  [default: uniform]", panel="rows and bags"),
    "group": option(str, "COL", "Column of row groups, such as patients: a whole group is in a bag or out of it.", panel="rows and bags"),
    "weight": option(str, "COL", "Column of row weights.", panel="rows and bags"),
    "class_weight": option(str, "balanced|FILE", 'Class weights: balanced, JSON such as {"late": 2.5}, or a JSON file.  [default: 1 for all]', panel="rows and bags"),
    "keep_votes": option(bool, None, "Keep the leaf of every out-of-bag row in each tree, as a table.  [default: off]", panel="rows and bags"),
    "task": option(str, "classification|regression", "Type of task.  [default: classification for text, booleans, dates and integers like class codes; otherwise regression]", panel="columns"),
    "categories": option(list[str], "COL", "Column of integers or booleans to treat as a category. Repeat for more.  [default: none]", panel="columns"),
    "missing": option(list[str], "WORD", "Text in CSV files that means a missing value, in every column. Repeat for more.  [default: none]", panel="columns"),
    "min_level": option(str, "INT|INT,INT", "Levels of a category with fewer bag rows in a node are split as one level; 1 turns this off.  [default: 5, more if the levels of a category differ little]", panel="columns", read=number_or_word),
    "keep_targets": option(bool, None, "Keep the training targets of every leaf, for quantiles (regression).  [default: off]", panel="columns"),
    "projections": option(str, "INT|p^E", "sparse-oblique: number of columns of a node's random matrix: a count, or ceil(p^E) for p features.  [default: p^2/3; regression: p^1]", panel="single families", read=number_or_word),
    "projection_kind": option(str, "rerf|sporf|gaussian|very-sparse", "sparse-oblique: distribution of the weights in the random matrix.  [default: rerf]", panel="single families"),
    "density": option(float, "F", "sparse-oblique: share of the cells of the matrix that have a weight.  [default: by the kind]", panel="single families"),
    "mean_difference": option(str, "none|consecutive|vs-largest|all", "sparse-oblique: also use differences of class means as directions.  [default: none]", panel="single families"),
    "mean_difference_scope": option(str, "tree|node", "sparse-oblique: compute class means on the tree's bag, or on the node.  [default: tree]", panel="single families"),
    "normalize": option(str, "none|zscore|minmax", "sparse-oblique: scale features before weights apply: none, by standard deviation (zscore) or range (minmax).  [default: none]", panel="single families"),
    "axes": option(int, "N", "rotation: number of axes per tree; nodes draw --mtry of them.  [default: as many as features]", panel="single families"),
    "orthogonal": option(bool, None, "rotation: make random axes orthogonal.  [default: on]", panel="single families"),
    "rotation": option(str, "random|pca|pca-classes", "rotation: random Gaussian axes, or principal components of disjoint sets of features.  [default: random]", panel="single families"),
    "axis_features": option(int, "N", "rotation: number of features in each set of principal components.  [default: 3]", panel="single families"),
    "axes_from": option(list[str], "COL|auto", "rotation: feature to build axes from, or auto to select them; every other feature is an axis of its own. Repeat for more.  [default: all features]", panel="single families"),
    "subspace": option(str, "INT|INT,INT", "subspace-cap, subspace-perceptron: number of features in a subspace; if there are several sizes, trees use them in turn.  [default: 100, but at most half of all]", panel="single families", read=number_or_word),
    "subspace_per": option(str, "tree|node", "subspace-cap, subspace-perceptron: draw a different subspace for each tree, or one for each node.  [default: tree]", panel="single families"),
    "steps": option(int, "N", "subspace-cap, subspace-perceptron: number of steps between two class means at which splits are tried.  [default: 50]", panel="single families"),
    "max_epochs": option(int, "N", "subspace-perceptron: maximum number of passes of a perceptron over the rows of a node.  [default: 100]", panel="single families"),
    "ties": option(str, "lowest|reject|random", "subspace-cap, subspace-perceptron: prediction if classes have equal votes: the lowest class, none (reject), or a random one.  [default: reject]", panel="single families"),
}
# Options on which a store depends.
STORE = ("max_bins", "group", "weight", "class_weight", "task", "categories", "missing")
# Options by part of an explanation.
PARTS: dict[str, Choice] = {
    "importance": flag("Importance of features by the decrease of impurity.", "--importance", panel="parts"),
    "unbiased": flag("Decrease of impurity on out-of-bag rows, without bias towards features of many values (MDI-oob).", "--unbiased", panel="parts"),
    "permutation": flag("Importance by permuting features among out-of-bag rows.", "--permutation", panel="parts"),
    "local": flag("Permutation importance for single rows, given or sampled.", "--local", panel="parts"),
    "strength": flag("Strength and correlation of the trees, and the bound on the error.", "--strength", panel="parts"),
    "contributions": flag("Contribution of each feature to the prediction of every row, along the path.", "--contributions", panel="parts"),
    "shap": flag("Exact Shapley values. Slow; prints an estimate of the time first.", "--shap", panel="parts"),
    "interactions": flag("Exact Shapley interactions of pairs of features, on selected rows.", "--interactions", panel="parts"),
    "dependence": flag("Partial dependence on a feature, or on two.", "--dependence", panel="parts"),
    "effects": flag("Accumulated local effects, for correlated features.", "--effects", panel="parts"),
    "proximities": flag("Proximities of training rows: nearest rows, outliers and prototypes.", "--proximities", panel="parts"),
    "filling": flag("Imputed missing values of training rows, from similar rows.", "--filling", panel="parts"),
    "trees": flag("Depth and size of trees, pairs of features on paths, rules of leaves.", "--trees", panel="parts"),
}
