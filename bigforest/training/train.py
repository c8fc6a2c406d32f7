"""`bigforest.train` and `bigforest.plan_training`: from a table and options to a forest, or to a plan.

`bigforest.shrink_forest` shrinks a finished forest, with an explicit lambda or with that of the lowest out-of-bag loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

import bigforest  # whose Plan is loaded when it is named
from bigforest.encode.encode import column_arguments
from bigforest.errors import ConfigError, DataError, api
from bigforest.events import Listener
from bigforest.execution.connect import open_resources
from bigforest.execution.resources import resources_of
from bigforest.forest.ballots import lambdas_to_try
from bigforest.forest.forest_files import FOREST
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import write_run
from bigforest.grow.forest import ForestJob
from bigforest.oob.report import write_oob
from bigforest.options.signatures import explicit_options, given, with_options_of
from bigforest.options.values import check_amount
from bigforest.predict.export_file import SUFFIXES, format_of
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.progress import watching
from bigforest.source import separated
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.paths import as_path, is_folder
from bigforest.training.plan import open_table, resolve
from bigforest.training.run import StageTimer, train_forest
from bigforest.training.run import resume as resume_run
from bigforest.training.run_folder import Run, output_of


@explicit_options
def train(
    data: Any = None,
    target: str | ArrayLike | None = None,
    *,
    # Options, written by docs/options.py.
    trees: int = 100,
    seed: int = 0,
    family: Literal["axis", "tree", "rotation", "sparse-oblique", "subspace-cap", "subspace-perceptron"] = "axis",
    mtry: Literal["sqrt", "log2", "half", "all"] | int | float | None = None,
    feature_fraction: float | None = None,
    splitter: Literal["best", "random"] = "best",
    impurity: Literal["gini", "entropy", "error", "variance", "poisson"] | None = None,
    max_depth: int | None = None,
    min_split: int = 2,
    min_leaf: int | None = None,
    max_leaf_nodes: int | None = None,
    min_impurity_decrease: float = 0.0,
    ccp_alpha: float = 0.0,
    max_bins: Literal["exact"] | int = "exact",
    ranks: bool = False,
    constants: Literal["redraw", "count"] = "redraw",
    vote: Literal["soft", "hard"] = "soft",
    shrink: Literal["auto", "off"] | float = "auto",
    power: Literal["auto", "off"] | float = "auto",
    refine: Literal["auto", "off"] | int = "auto",
    stop_oob: float | None = None,
    bootstrap: bool = True,
    sample_fraction: float = 1.0,
    replace: bool = True,
    calibration: float | None = None,
    sampling: Literal["uniform", "stratified", "balanced", "arc-x4", "adaboost"] = "uniform",
    group: str | ArrayLike | None = None,
    weight: str | ArrayLike | None = None,
    class_weight: Mapping[Any, float] | str | Path | None = None,
    task: Literal["classification", "regression"] | None = None,
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    min_level: str | int | None = None,
    keep_targets: bool = False,
    keep_votes: bool = False,
    projections: str | int | None = None,
    projection_kind: Literal["rerf", "sporf", "gaussian", "very-sparse"] = "rerf",
    density: float | None = None,
    mean_difference: Literal["none", "consecutive", "vs-largest", "all"] = "none",
    mean_difference_scope: Literal["tree", "node"] = "tree",
    normalize: Literal["none", "zscore", "minmax"] = "none",
    axes: int | None = None,
    orthogonal: bool = True,
    rotation: Literal["random", "pca", "pca-classes"] = "random",
    axis_features: int | None = None,
    axes_from: str | Sequence[str] = (),
    subspace: str | int | None = None,
    subspace_per: Literal["tree", "node"] = "tree",
    steps: int = 50,
    max_epochs: int = 100,
    ties: Literal["lowest", "reject", "random"] | None = None,
    # End of the options.
    exclude: Sequence[str] = (),
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: str | Path | None = None,
    validate: Any = None,
    tune: int | str | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    scheduler: Any = None,
    listener: Listener | None = None,
) -> Forest:
    """Train a forest on a table.

    The options, which are the fields of `TrainConfig`, and the table determine the forest. The arguments that say where
    and how fast it is trained do not change a bit of it.

    Parameters
    ----------
    data : path, table or store
        A path, glob or folder (Parquet, Arrow, CSV, NDJSON), a Polars, pandas or pyarrow table, a numpy array or a list
        of rows, a mapping of columns, or a store made by `encode_store`. A scipy sparse matrix is streamed to
        `scratch`; this needs memory for one copy of it as CSR and 64 MB. A pair (X, y) is the same as `data` and
        `target`.
    target : str or array-like, optional
        The target column, or its values, of shape [rows] or [rows, 1]. None for the first of the columns target, label,
        class and y that exists.
    exclude : sequence of str, default=()
        Columns to ignore.
    out : path, optional
        Folder to write the forest to. None for a temporary folder, which exists as long as the Forest object;
        `Forest.write` makes a permanent copy. An interrupted run leaves the folder `out`.unfinished, which `resume`
        continues.
    overwrite : bool, default=False
        Replace an existing forest at `out`.
    resume : path, optional
        The `out` of an interrupted run, to continue it; the result is the same as without the interruption. Or a
        finished forest, to add trees up to the number `trees`. Other arguments must be the same as before, except those
        that say how to run, and `trees` for a finished forest. Pass `data` again if it was a table in memory or has
        moved.
    validate : path or table, optional
        Another table with the target. `forest.validation` is the error on its rows by number of trees, under the
        forest's own rules for votes and ties. Pass it again with `resume`.
    tune : int or str, optional
        First compare this number of configurations, or as many as fit in a time such as "10m", and train the one with
        the lowest out-of-bag loss: see `compare`. The given options apply to all of them. `forest.tuning` is the table
        of the candidates.
    memory : str or int, optional
        Memory budget of the whole process, such as "4GB" (10**9 bytes each) or a number of bytes. None for no limit.
    threads : int, optional
        Worker threads. None for all processors.
    scratch : path, optional
        Folder for the presorted table and temporary files. None for a folder next to `out` if it is given, otherwise
        the system's temporary folder.
    scheduler : Client, str or None, default=None
        Where to run. None for the active `distributed.Client`, or the threads of this process if there is none; a
        Client; the address of a scheduler, tcp:// or tls://; or "threads". On a cluster, `threads` and `memory` apply
        to each worker, and the table, `out` and `scratch` must be on disks that all workers share.
    listener : callable, optional
        Function that is called with every event of the run (`bigforest.events`). By default, work that takes
        more than two seconds shows progress bars on a terminal and in a notebook; elsewhere each stage is logged by the
        logger "bigforest" at level INFO. The compilation of kernels, once per machine, is logged as a warning.
    trees : int, default=100
        Number of trees. With `stop_oob`, the maximum. Default for tree: 1.
    seed : int, default=0
        Random seed. The same data, options and seed give the same forest.
    family : {"axis", "tree", "rotation", "sparse-oblique", "subspace-cap", "subspace-perceptron"}, default="axis"
        Family of trees: what a node splits on. tree is a single CART tree on all rows. "axis": one of `mtry` features
        drawn in the node (Breiman 2001). "tree": any feature; one tree, no bootstrap (Breiman et al. 1984, CART).
        "rotation": one coordinate of the table, standardised and rotated for every tree (Rodriguez et al. 2006).
        "sparse-oblique": one of about `projections` random sums of features, drawn in the node (Tomita et al., Randomer
        forests). "subspace-cap": the best of several points between the two class means farthest apart, in a random
        subspace; no bootstrap (Ho 1995). "subspace-perceptron": a perceptron trained to separate the classes near one
        of these means from those near the other, likewise (Ho 1995). All but axis and tree put numbers in place of
        categories and missing values.
    mtry : {"sqrt", "log2", "half", "all"}, int, float or None, default=None
        Number of features drawn per node: a rule, a count, or a fraction of all. "sqrt" and "log2" are rounded down,
        "half" is rounded up. An integer is a count and a float a fraction: 1 is one feature, 1.0 is all. A count above
        the number of features is refused. The default is sqrt. It is four times as many or half, at most all, if these
        have a clearly lower out-of-bag error in small forests, also for the time they take. With boosting it is always
        sqrt. The default for regression is half, with `min_leaf` 2. It is all, with `min_leaf` 1, if these have a lower
        out-of-bag error in small forests on at least 20 rows. None means sqrt or more; regression: half or all;
        selected by out-of-bag error. Default for tree and rotation: "all". Only for the families axis, tree and
        rotation.
    feature_fraction : float or None, default=None
        Probability that a feature is considered in a node. Alternative to `mtry`. If no feature is drawn, the draw is
        repeated. A very small fraction draws one feature. Only for the families axis, tree and rotation.
    splitter : {"best", "random"}, default="best"
        Use the best split of each drawn feature, or a random one. "random" gives extremely randomised trees (Geurts
        2006). Only for the families axis and tree.
    impurity : {"gini", "entropy", "error", "variance", "poisson"} or None, default=None
        Impurity measure that splits minimise. "gini": 1 minus the sum of the squared shares of the classes. "entropy":
        entropy of the classes, in bits. "error": share of rows outside the most frequent class (Tomasi 2017, section
        3). "variance": variance, for regression. "poisson": half the Poisson deviance, for regression on counts and
        other targets that are not negative; a split that leaves a sum of 0 on a side is not made, and the family must
        be axis or tree. None means gini, variance for regression. Only for the families axis, tree, rotation and
        sparse-oblique.
    max_depth : int or None, default=None
        Maximum depth of a tree; the root has depth 0. None means unlimited.
    min_split : int, default=2
        Minimum number of bag rows in a node that is split. With weights, the part above 2 is in units of the mean row
        weight.
    min_leaf : int or None, default=None
        Minimum number of bag rows in a leaf. With weights, the part above 1 is in units of the mean row weight. None
        means 1, or 2 if a class weighs more than twice another; regression: 2, or 1 if mtry defaults to all.
    max_leaf_nodes : int or None, default=None
        Maximum number of leaves of a tree, grown best-first. Leaves are split in the order of the decrease of impurity,
        weighted by their rows. The tree is grown whole and then cut, so training takes no less time. None means
        unlimited.
    min_impurity_decrease : float, default=0.0
        Minimum decrease of impurity by a split, times the node's share of the bag. The tree is grown whole and then
        cut, so training takes no less time.
    ccp_alpha : float, default=0.0
        Prune subtrees whose splits decrease the impurity of the tree by at most this on average. Minimal
        cost-complexity pruning of each tree on its bag (Breiman et al. 1984), after the two options above. A decrease
        is multiplied by the share of the bag in its node. 0 prunes nothing.
    max_bins : {"exact"} or int, default="exact"
        Candidate thresholds per feature: all values, or at most INT bins by quantiles.
    ranks : bool, default=False
        Split on ranks in the training table instead of values. Equal values get their mean rank.
    constants : {"redraw", "count"}, default="redraw"
        Whether a feature that is constant in the node uses up a draw (count) or not (redraw). Only for the families
        axis, tree and rotation.
    vote : {"soft", "hard"}, default="soft"
        Average the class probabilities of the leaves (soft), or count one vote per tree (hard). Used in the out-of-bag
        report, and by default in prediction. Always hard with `sampling` arc-x4 and adaboost.
    shrink : {"auto", "off"} or float, default="auto"
        Shrink leaf values towards their ancestors: by out-of-bag loss (auto), or with LAMBDA rows. Hierarchical
        shrinkage (Agarwal et al. 2022): a step below a node of n rows is multiplied by n / (n + lambda). "auto" selects
        lambda from 0, 0.1, 1, 3, 10 and 50 by the out-of-bag log loss (mean squared error for regression, Poisson
        deviance with that impurity). It uses 0 unless the loss decreases by more than the standard error of the
        difference. It also uses 0 without out-of-bag rows, with hard votes, with more than 64 classes, or if rows times
        classes exceed 4,194,304. With `sampling` arc-x4 and adaboost leaves are shrunk only by a given lambda.
    power : {"auto", "off"} or float, default="auto"
        Raise class probabilities to a power, scaled to sum to 1: by out-of-bag log loss (auto), or to POWER. Means over
        trees are often too cautious: the predicted class is right more often than its probability says. "auto" selects
        the power from 1 to 9 that has the lowest out-of-bag log loss. It uses 1 unless the loss decreases by more than
        two standard errors of the difference, or without out-of-bag rows. POWER is a whole number of quarters.
        Predicted classes do not change, nor do a class without votes and the answers of single trees. With `sampling`
        arc-x4 and adaboost only a given power is used.
    refine : {"auto", "off"} or int, default="auto"
        Correct the forest by small boosted trees fitted to its out-of-bag errors, if these decrease (auto), or in any
        case by ROUNDS trees. The stage begins with the out-of-bag prediction of each row, on the scale of a link: the
        number itself, its logarithm (impurity poisson), log odds or log probabilities. Six sequences of trees, each on
        two thirds of the rows, are boosted (Friedman 2001), and their mean is added to the forest. "auto" selects the
        number of rounds, and all or half of the mean, by the rows that a sequence does not use, and keeps the stage if
        their loss clearly decreases; it keeps none for tables of fewer than 600 rows, without out-of-bag rows, with
        `sampling` arc-x4 and adaboost, with a single class, or with more than 256. Quantiles, proximities and votes
        remain those of the forest without the stage.
    stop_oob : float or None, default=None
        Stop when 20 more trees reduce the out-of-bag error by at most this fraction. After every 10 trees, from 40 on,
        the mean of the error curve over its last 20 points is compared with the mean over the 20 points before. `trees`
        is the maximum. None means grow all trees.
    bootstrap : bool, default=True
        Grow each tree on a random sample of the rows (a bag), or on all rows. Without it there is no out-of-bag report.
        Off by default with `rotation` "pca" and "pca-classes". Default for tree, subspace-cap and subspace-perceptron:
        False.
    sample_fraction : float, default=1.0
        Size of a bag as a fraction of the rows. Above 1 a bag has more draws than the table has rows, and fewer rows
        are out of it: 22% with 1.5.
    replace : bool, default=True
        Draw a bag with replacement.
    calibration : float or None, default=None
        Share of the rows held out of all bags, to calibrate prediction intervals and sets. The rows held out do not
        depend on the seed. With `group`, whole groups are held out. None means none.
    sampling : {"uniform", "stratified", "balanced", "arc-x4", "adaboost"}, default="uniform"
        Draw rows uniformly, by class, or, for boosting, by the errors of earlier trees. "stratified": each class has
        its share of the draws. "balanced": each class has as many draws as the smallest class has rows, times
        `sample_fraction`. "arc-x4": a row that m earlier trees predict wrongly has the weight 1 + m^4 (Breiman 1998).
        "adaboost": the rows that the last tree predicts wrongly get half of the total weight, and the vote of a tree
        with weighted error e has the weight log((1 - e) / e) (Freund and Schapire 1997). With these two, trees grow one
        after the other, and the out-of-bag error is biased.
    group : str or ArrayLike or None, default=None
        Column of row groups, such as patients: a whole group is in a bag or out of it. It is not a feature. Bags are
        drawn from the groups. In Python also an array, one value per row.
    weight : str or ArrayLike or None, default=None
        Column of row weights. It is not a feature. Rows of weight 0 are left out. In Python also an array, one number
        per row. Only for the families axis, tree, rotation and sparse-oblique.
    class_weight : Mapping[Any, float] or str or Path or None, default=None
        Class weights: balanced, JSON such as {"late": 2.5}, or a JSON file. The weight of a row is multiplied by that
        of its class, which is 1 for classes that are not named. "balanced" is rows / (classes * rows of the class):
        with `sampling` "stratified" in every bag, otherwise in the table. In Python also a mapping of classes to
        weights. None means 1 for all. Only for the families axis, tree, rotation and sparse-oblique.
    task : {"classification", "regression"} or None, default=None
        Type of task. Default: classification for text, booleans and few numbered integers, else regression. None means
        by the target.
    categories : str or Sequence[str], default=()
        Column of integers or booleans to treat as a category. Text columns are always categories. Empty means none.
    missing : str or Sequence[str], default=()
        Text in CSV files that means a missing value, in every column. An empty cell is missing anyway, and among
        numbers also NA and the like. The forest reads CSV files to predict for in the same way. Empty means none.
    min_level : str, int or None, default=None
        Levels of a category with fewer bag rows in a node are split as one level; 1 turns this off. The largest levels
        of a node are always split separately: as many as the number of its rows has binary digits, 10 for 1,000. The
        default is half the ratio of the variance of the target within the levels of a category to that between them, at
        least 5 and at most 1,000. A forest keeps it for each feature. Where trees split on projections, levels of fewer
        rows in the table have one number together. None means 5 or more, by how much the levels of a category differ.
    keep_targets : bool, default=False
        Keep the training targets of every leaf, for quantiles (regression).
    keep_votes : bool, default=False
        Keep the leaf of every out-of-bag row in each tree, as a table.
    projections : str, int or None, default=None
        Number of columns of a node's random matrix: a count, or ceil(p^E) for p features. None means p^2/3; regression:
        p^1. Only for the family sparse-oblique.
    projection_kind : {"rerf", "sporf", "gaussian", "very-sparse"}, default="rerf"
        Distribution of the weights in the random matrix. "rerf": as many weights of +-1 as columns, anywhere. "sporf":
        +-1 in a fraction `density` of all cells. "gaussian": normal weights. "very-sparse": +-1 with probability
        `density` in each cell (Li 2006). Only for the family sparse-oblique.
    density : float or None, default=None
        Share of the cells of the matrix that have a weight. Default for p features: 1 / p (sporf), 1 (gaussian) or
        p^-0.5 (very-sparse). None means by the kind. Only for the family sparse-oblique.
    mean_difference : {"none", "consecutive", "vs-largest", "all"}, default="none"
        Also use differences of class means as directions. For consecutive classes, for the largest class and each other
        class, or for all pairs. Each is used with probability min(1, `projections` / p) in each node. Only for the
        family sparse-oblique.
    mean_difference_scope : {"tree", "node"}, default="tree"
        Compute class means on the tree's bag, or on the node. Only for the family sparse-oblique.
    normalize : {"none", "zscore", "minmax"}, default="none"
        Scale features before weights apply: none, by standard deviation (zscore) or range (minmax). Only for the family
        sparse-oblique.
    axes : int or None, default=None
        Number of axes per tree; nodes draw `mtry` of them. None means as many as features. Only for the family
        rotation.
    orthogonal : bool, default=True
        Make random axes orthogonal. Only for the family rotation.
    rotation : {"random", "pca", "pca-classes"}, default="random"
        Random Gaussian axes, or principal components of disjoint sets of features. The components of each set are
        computed on a sample of the rows (Rodriguez 2006). "pca" samples three quarters of all rows. "pca-classes"
        samples three quarters of the rows in the tree's bag that belong to a random subset of the classes, drawn for
        each set. Only for the family rotation.
    axis_features : int or None, default=None
        Number of features in each set of principal components. The last set of a tree may be smaller. With 1, the
        features stay as they are. None means 3. Only for the family rotation.
    axes_from : str or Sequence[str], default=()
        Feature to build axes from, or auto to select them; every other feature is an axis of its own. Irrelevant
        columns degrade every axis that contains them. auto ranks the features by the out-of-bag gain of their splits.
        It uses the leading ones for which small forests have the lowest out-of-bag error, or all features. Empty means
        all features. Only for the family rotation.
    subspace : str, int or None, default=None
        Number of features in a subspace; if there are several sizes, trees use them in turn. None means 100, but at
        most half of all. Only for the families subspace-cap and subspace-perceptron.
    subspace_per : {"tree", "node"}, default="tree"
        Draw a different subspace for each tree, or one for each node. With node, a node uses all features if those of
        its subspace cannot split it. Only for the families subspace-cap and subspace-perceptron.
    steps : int, default=50
        Number of steps between two class means at which splits are tried. Only for the families subspace-cap and
        subspace-perceptron.
    max_epochs : int, default=100
        Maximum number of passes of a perceptron over the rows of a node. Only for the family subspace-perceptron.
    ties : {"lowest", "reject", "random"} or None, default=None
        Prediction if classes have equal votes: the lowest class, none (reject), or a random one. Can be changed in
        prediction. None means reject. Only for the families subspace-cap and subspace-perceptron.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        For an unusable option.
    DataError
        For an unusable table.
    FormatError
        For a damaged store or run.
    OutputExistsError, BusyError
        When `out` is there already, or another run writes it.
    DiskFullError, StorageError
        When a disk is full, or an object store refuses.
    ClusterError
        For a cluster that cannot be used or was lost.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> forest.predict({"length": [1.0, 4.0], "width": [1.0, 3.0]})["prediction"].to_list()
    ['a', 'b']
    >>> forest.oob.error
    0.0
    """
    arguments = column_arguments(data, target, exclude, given(locals()), resumes=resume is not None)
    if resume is not None and (out is not None or overwrite):
        raise ConfigError(
            f"{api('resume')} writes to {resume} and needs neither {api('out')} nor {api('overwrite')}; drop them"
        )
    if data is None and resume is None:
        raise ConfigError(f"no table to train on; give {api('data')}, or the forest to resume")
    if tune is not None and (resume is not None or validate is not None):
        raise ConfigError(
            f"{api('tune')} compares new forests, so there is nothing to resume or validate; drop one of them"
        )
    output = None if out is None else as_path(out)
    if output is not None and output.suffix.lower() in SUFFIXES.values():
        raise ConfigError(
            f"{output} is named as a file for {format_of(None, output)}, and training writes the folder of a forest; "
            f"set {api('out')} to {output.stem}.forest, and export that"
        )
    if resume is not None:
        output = output_of(resume)
    resources = resources_of(threads, scratch, memory)
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, output, listener) as resources,
    ):
        if tune is not None:
            from bigforest.training.compare import tuned_forest

            return tuned_forest(arguments, tune, output, resources, listener, overwrite=overwrite)
        if resume is not None:
            return resume_run(output_of(resume), arguments, resources, listener, validate=validate)
        return train_forest(Run.of(arguments), output, resources, listener, validate=validate, overwrite=overwrite)


@with_options_of(train)
def plan_training(
    data: Any,
    target: str | ArrayLike | None = None,
    *,
    exclude: Sequence[str] = (),
    out: str | Path | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    **options: Any,
) -> bigforest.Plan:
    """Estimate what `train` with the same arguments needs, and whether it fits: see `Plan`.

    Reads only metadata if possible. The target is read if nothing else bounds the number of classes. Tables other than
    Parquet, stores and tables in memory are streamed once to `scratch`.

    Parameters
    ----------
    data : path or table
        The table, as for `train`.
    target : str or ArrayLike
        The target column, or one value per row.
    **options
        As for `train`.

    Returns
    -------
    Plan

    Raises
    ------
    ConfigError, DataError

    Examples
    --------
    >>> import bigforest as bf
    >>> plan = bf.plan_training({"size": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "a", "b", "b"]}, "kind", trees=10)
    >>> plan.rows, plan.features, plan.fits
    (4, 1, True)
    """
    run = Run.of(column_arguments(data, target, exclude, options))
    resources = resources_of(threads, scratch, memory)
    home = Path.cwd() if out is None else as_path(out).resolve().parent
    if not is_folder(home):
        raise ConfigError(f"the folder {home} of the output does not exist; create it first")
    with TemporaryFolder(resources.scratch) as work:
        return resolve(run, open_table(run, work, verify=False), resources).summary(home)


def shrink_forest(
    forest: Forest | str | Path,
    out: str | Path,
    *,
    amount: float | None = None,
    data: Any = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Forest:
    """Shrink the leaves of a forest by another lambda (Agarwal et al. 2022), and write it to `out`.

    The trees do not change, byte for byte. `Forest.shrink` does the same without writing, and explains lambda.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    out : str or Path
        Folder of the new forest.
    amount : float or None, default=None
        Lambda, in rows; the new forest then has no out-of-bag report. None to select the lambda with the lowest
        out-of-bag log loss (mean squared error for regression, or Poisson deviance), as `train` does with
        shrink="auto"; the table is then read again, and a new report is made.
    data : table or path, default=None
        The training table, or a store of it. None if it is still in the same place.
    threads, scratch, memory, overwrite, listener
        As for `train`.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        For a forest without out-of-bag rows.
    DataError
        For another table.
    FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.shrink_forest(forest, "shrunk.forest", amount=5.0).shrinkage.amount
    5.0
    """
    if amount is not None:
        check_amount(amount)
    [forest] = trees_alone([opened_forest(forest)], "shrinking", listener)
    if amount is not None:
        forest.shrink(amount).write(out, overwrite)
        return read_forest(out)
    resources = resources_of(threads, scratch, memory)
    lambdas = _lambdas(forest)
    origin = forest.origin
    assert origin is not None
    if data is None and origin.data is None:
        raise ConfigError(
            f"the forest was grown on a table in memory; give it again as {api('data')}, or set {api('amount')}"
        )
    data = separated(origin.data if data is None else data, forest.spec.separator)
    run = Run(data, forest.spec.target.name, origin.exclude, forest.config, origin.fingerprint)
    with (
        watching(listener) as listener,
        staged(out, FOREST, overwrite=overwrite) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        timer = StageTimer(listener)
        resources = replace(resources, scratch=work)
        plan = resolve(run, open_table(run, work, memory=resources.memory), resources)
        store = plan.for_store(plan.make_store(work / "table.store", timer)).store
        if store.fingerprint != origin.fingerprint:
            raise DataError(
                "the table is not the one that the forest was grown on: columns or values differ; give that one"
            )
        forest.shrink(0.0).write(directory)
        store = ranked_store(store, forest.config, directory)
        report = write_oob(ForestJob(store, forest.config, directory, resources, timer), lambdas)
        seconds = dict(forest.run.select("stage", "seconds").iter_rows()) | {"oob": timer.seconds["oob"]}
        write_run(directory, seconds, resources.workers, forest.files.header, origin, report)
    return read_forest(out)


def _lambdas(forest: Forest) -> tuple[float, ...]:
    """Return the lambdas to choose from. Raises ConfigError if none can be chosen."""
    advice = f"set {api('amount')}"
    if not forest.config.bootstrap:
        raise ConfigError(f"the forest was grown without bootstrap, so no row is out of bag to choose by; {advice}")
    if forest.config.boosts:
        raise ConfigError(
            f"with sampling {forest.config.sampling!r} the out-of-bag error is biased, so nothing is chosen by it; "
            f"{advice}"
        )
    if forest.origin is None or forest.origin.merged or forest.revised in ("pruned", "calibrated"):
        raise ConfigError(
            f"the forest was {forest.revised or 'merged'}, so its out-of-bag rows are not known; {advice}"
        )
    config = replace(forest.config, shrink="auto")
    lambdas = lambdas_to_try(config, forest.spec.rows, forest.spec.target.answer_width)
    if not lambdas:
        problem = "votes are hard" if forest.config.vote == "hard" else "the table has too many rows and classes"
        raise ConfigError(f"lambda cannot be chosen where {problem}; {advice}")
    return lambdas
