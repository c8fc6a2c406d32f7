"""Forests made from forests: merging, and pruning and calibrating with labelled rows.

A merged forest has the trees of all forests, in the order of the forests, renumbered. Its run.parquet keeps the origin
of each tree (forest/run_file.py). Its configuration has the number of all trees, and the seed of the first forest,
which is used for random draws in prediction only. There is no out-of-bag report: the bags follow from several seeds,
and votes cannot be recovered exactly from the reports of the forests.

Pruning and calibrating count the rows of each class that reach each node (`_count_rows`); the whole forest is in
memory. Calibration replaces the class counts of the leaves that rows reach by the counts of these rows (Ho 1995,
section 5), and computes the decreases of impurity of all nodes from the new counts. Pruning goes bottom up: a node
becomes a leaf if its majority class is right on more of the rows that reach it than the leaves below it together, or,
if requested, on as many (Quinlan 1987, reduced error pruning). All three drop the boosted stage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import known_codes
from bigforest.columns.types import cells
from bigforest.errors import ConfigError, DataError, api, damaged_forest
from bigforest.events import Listener, Notice, stage
from bigforest.execution.resources import Resources, resources_of
from bigforest.forest.decreases import importance
from bigforest.forest.files import write_features, write_levels
from bigforest.forest.forest_files import FOREST
from bigforest.forest.format import CALIBRATED, PRUNED, RANKS
from bigforest.forest.leaf_targets import copy_targets
from bigforest.forest.leaf_votes import copy_votes
from bigforest.forest.nodes import TreeArrays, join_trees, write_part
from bigforest.forest.parts import copy_parts, read_span
from bigforest.forest.ranks import write_ranks
from bigforest.forest.run_file import Choices, MergedForest, Origin, Power, Shrinkage, write_run
from bigforest.grow.criteria import criterion_of
from bigforest.grow.cut import cut_whole
from bigforest.kernels.common.layout import LEAF
from bigforest.options.values import MAX_TREES, check_word
from bigforest.predict.files import tell_of_training
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.predict.inputs import TableInput, default_batch
from bigforest.predict.packed_trees import pack
from bigforest.predict.predictor import LEAF_CELLS, find_leaves
from bigforest.predict.rows import check_schema, open_rows
from bigforest.progress import watching
from bigforest.source.source import Source
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.regular_files import copy_regular

# Options in which forests that are merged may differ. They do not change a tree, or how trees vote.
_MAY_DIFFER = ("trees", "seed", "refine", "keep_votes", "keep_targets")


def merge(
    paths: Sequence[Forest | str | Path], out: str | Path, *, overwrite: bool = False, listener: Listener | None = None
) -> Forest:
    """Merge forests into the forest `out`, with trees in the order of the forests.

    The forests must have the same dataspec and the same options except for trees, seed, refine, keep_votes and
    keep_targets. The merged forest has votes or targets if all forests have them. If the forests are shrunk by
    different lambdas, it is shrunk by the mean of the lambdas, weighted by the numbers of trees. The same holds for the
    powers, whose mean is rounded to quarters. One row group of nodes is in memory at a time.

    Parameters
    ----------
    paths : sequence of Forest, str or Path
        The forests, at least two.
    out : str or Path
        Folder of the new forest.
    overwrite : bool, default=False
        Replace an existing forest.
    listener : callable, optional
        Called with notices: boosted stages, and votes or targets that only some forests have, are left out.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        If there are fewer than two forests, or if they do not match, have trees in common or were grown with boosting.
    FormatError
        For a damaged forest.
    OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> rows = {"size": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "a", "b", "b"]}
    >>> parts = [bf.train(rows, "kind", trees=5, seed=seed, out=f"{seed}.forest") for seed in (1, 2)]
    >>> bf.merge(parts, "both.forest").trees
    10
    """
    sources = [] if isinstance(paths, str | Path) or not isinstance(paths, Iterable) else list(paths)
    if len(sources) < 2:
        raise ConfigError("merging needs at least two forests; give more paths")
    begin = time.perf_counter()
    forests = list(map(opened_forest, sources))
    first = forests[0]
    if first.config.boosts:
        raise ConfigError(
            f"{first.directory} was grown with sampling {first.config.sampling!r}: each tree follows from those before "
            "it, so it cannot be merged; train one forest with more trees"
        )
    with watching(listener) as listener:
        forests = trees_alone(forests, "merging", listener)
        first = forests[0]
        for other in forests[1:]:
            _check_alike(first, other)
        votes = _all_have("keep_votes", [forest.has_votes for forest in forests], listener)
        targets = _all_have("keep_targets", [forest.config.keep_targets for forest in forests], listener)
    total = sum(forest.trees for forest in forests)
    config = replace(first.config, trees=total, keep_votes=votes, keep_targets=targets)
    merged, origin = replace(first.files.header, config=config), _merged_origin(forests)
    with staged(out, FOREST, overwrite=overwrite) as directory, ExitStack() as reading:
        for forest in forests:
            reading.enter_context(forest.files.same_run())
        directory.mkdir()
        written = 0
        for forest in forests:
            copy_parts(forest.directory, written, directory, merged)
            written += forest.trees
        write_features(directory, merged, importance(directory, merged))
        write_levels(directory, merged)
        if first.ranks is not None:
            write_ranks(directory, first.ranks.knots(), merged)
        headers = [(forest.directory, forest.files.header) for forest in forests]
        if config.keep_targets:
            copy_targets(headers, directory, merged)
        if config.keep_votes:
            copy_votes(headers, directory, merged)
        # If one of the forests was pruned or calibrated, run.parquet of the merged forest says so.
        revised = [stage for forest in forests for stage in forest.files.stages if stage in (PRUNED, CALIBRATED)]
        seconds = {**dict.fromkeys(revised, 0.0), "merge": time.perf_counter() - begin}
        # Mean lambda, and mean power rounded to quarters, weighted by trees: near the best values the loss is flat.
        trees = [forest.trees for forest in forests]
        lambdas, powers = ([getattr(forest, name).amount for forest in forests] for name in ("shrinkage", "power"))
        choices = Choices(Shrinkage(_mean(lambdas, trees)), Power(round(4 * _mean(powers, trees)) / 4))
        write_run(directory, seconds, 1, merged, origin, choices)
    return read_forest(out)


def _all_have(option: str, forests: Sequence[bool], listener: Listener) -> bool:
    """Return True if all forests have the files of an option. Send a notice if only some have them.

    forests  True for each forest with the files
    """
    if any(forests) and not all(forests):
        listener(Notice(f"only some of the forests have the files of {api(option)}, so the merged forest has none"))
    return all(forests)


def _check_alike(first: Forest, other: Forest) -> None:
    """Raise ConfigError if two forests cannot be merged."""
    where = f"{first.directory} and {other.directory}"
    if first.spec != other.spec:
        difference = _difference(first.spec, other.spec)
        raise ConfigError(f"{where} do not match: {difference}; leave one out")
    ours, theirs = asdict(first.config), asdict(other.config)
    for name in ours:
        # The dataspecs have the weights of all classes; the option may leave out classes of weight 1.
        if name not in (*_MAY_DIFFER, "class_weight") and ours[name] != theirs[name]:
            raise ConfigError(
                f"{where} were grown with different options: {api(name)} {ours[name]!r} and {theirs[name]!r}; "
                f"only {', '.join(map(api, _MAY_DIFFER))} may differ"
            )
    if first.ranks is not None and other.ranks is not None and not first.ranks.equal(other.ranks):
        raise ConfigError(f"{where} were grown on different tables: the ranks of values differ; leave one out")
    if not first.levels.equal(other.levels):
        raise ConfigError(f"{where} were grown on different tables: the levels of categories differ; leave one out")


def _difference(first: DataSpec, other: DataSpec) -> str:
    """Return the first difference between two dataspecs, in words."""
    if first.target.name != other.target.name:
        return f"the targets are {first.target.name!r} and {other.target.name!r}"
    if first.target != other.target:
        return f"the target {first.target.name!r} has another type, or other classes or numbers"
    if first.rows != other.rows:
        return f"they have {first.rows} and {other.rows} rows"
    if first.dropped != other.dropped:
        return f"{first.dropped} and {other.dropped} of their rows were not used"
    names = [set(spec.feature_names) for spec in (first, other)]
    if odd := sorted(names[0] ^ names[1]):
        return f"the feature {odd[0]!r} is not in both"
    pairs = zip(first.features, other.features, strict=True)
    if odd_name := next((ours.name for ours, theirs in pairs if ours != theirs), None):
        return f"the feature {odd_name!r} has another place, type or number of values"
    if first.missing_words != other.missing_words:
        words = " and ".join(", ".join(map(repr, spec.missing_words)) or "none" for spec in (first, other))
        return f"the words of {api('missing')} are {words}"
    if first.separator != other.separator:
        return f"the separators of their CSV files are {first.separator!r} and {other.separator!r}"
    return f"the {'weights' if first.weight != other.weight else 'groups'} of rows differ"


def _mean(amounts: Sequence[float], trees: Sequence[int]) -> float:
    if len(set(amounts)) == 1:
        return amounts[0]
    return math.fsum(amount * (count / sum(trees)) for amount, count in zip(amounts, trees, strict=True))


def _merged_origin(forests: Sequence[Forest]) -> Origin:
    """Return the origin of the trees of the merged forest.

    Raises ConfigError if a tree would occur twice, for too many trees, and for a forest without a recorded table.
    """
    pieces: list[MergedForest] = []
    for forest in forests:
        before = sum(piece.trees for piece in pieces)
        origin = forest.origin
        if origin is None:
            raise ConfigError(f"{forest.directory} does not record its training table; train it again to merge it")
        alone = MergedForest(str(forest.directory.resolve()), forest.config.seed, 0, forest.trees, origin.fingerprint)
        merged = origin.merged or (alone,)
        if sum(piece.trees for piece in merged) != forest.trees:
            raise damaged_forest(f"{forest.directory}: the origin does not cover all trees")
        pieces += [replace(piece, first_tree=piece.first_tree + before) for piece in merged]
    for first, second in combinations(pieces, 2):
        if (first.seed, first.fingerprint) == (second.seed, second.fingerprint):
            alike = min(first.trees, second.trees)
            trees = "tree is" if alike == 1 else f"{alike} trees are"
            raise ConfigError(
                f"{first.forest} and {second.forest} were grown with the same seed {first.seed} on the same table, so "
                f"their first {trees} the same; train one of them with another seed"
            )
    if sum(piece.trees for piece in pieces) > MAX_TREES:
        raise ConfigError(f"together the forests have more than {MAX_TREES} trees; merge fewer")
    tables = {piece.fingerprint for piece in pieces}
    return Origin(None, (), tables.pop() if len(tables) == 1 else "", tuple(pieces))


class Revision(NamedTuple):
    """Changes of a revision.

    stage        name in run.parquet.
    rows         name of the table of labelled rows, in messages.
    use          name of the operation, in messages.
    effect       effect on the result if the forest was trained on the same rows, for a notice.
    revise_part  function that changes a part of the forest by the number of rows of each class that reach its nodes,
                 int64 [nodes, classes].
    """

    stage: str
    rows: str
    use: str
    effect: str
    revise_part: Callable[[TreeArrays, NDArray[np.int64]], TreeArrays]


def revise(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    revision: Revision,
    *,
    threads: int | None,
    scratch: str | Path | None,
    overwrite: bool,
    listener: Listener | None,
) -> Forest:
    """Revise a forest by the rows of `data`, and write it to `out`, without its boosted stage.

    Raises ConfigError for regression or boosting, DataError for rows that cannot be predicted, for an unknown label, or
    if no row has a label, FormatError and OutputExistsError.
    """
    resources = resources_of(threads, scratch, None)
    forest = opened_forest(forest)
    if forest.config.boosts:
        raise ConfigError(
            f"the forest was grown with sampling {forest.config.sampling!r}: each tree follows from those before it, "
            f"and {revision.use} changes trees; train with another sampling"
        )
    if forest.is_regression:
        raise ConfigError(
            f"{revision.use} needs classes, and this is a regression forest for {forest.spec.target.name!r}"
        )
    with (
        watching(listener) as listener,
        staged(out, FOREST, overwrite=overwrite) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        tell_of_training(forest, data, f"{revision.effect}; give rows that it was not trained on", listener)
        [forest] = trees_alone([forest], revision.use, listener)
        directory.mkdir()
        source = open_rows(data, forest.spec, scratch=work)
        target = forest.spec.target.name
        if target not in source.schema:
            raise DataError(f"{revision.rows} lacks the target {target!r}; {revision.use} needs rows with their labels")
        begin = perf_counter()
        with forest.files.same_run():
            header, spans = forest.files.header, forest.files.parts
            parts = [join_trees(list(read_span(span, header))) for span in spans]
            counts = _count_rows(forest, parts, source, revision, resources, listener)
            for span, part, part_counts in zip(spans, parts, counts, strict=True):
                write_part(directory, span.trees.start, [revision.revise_part(part, part_counts)], header)
            write_features(directory, header, importance(directory, header))
            write_levels(directory, header)
            if forest.config.ranks:
                copy_regular(RANKS.at(forest.directory), RANKS.at(directory))
        seconds = dict(forest.run.select("stage", "seconds").iter_rows())
        seconds[revision.stage] = perf_counter() - begin
        kept = forest.choices.for_other_shares()
        write_run(directory, seconds, resources.workers, header, forest.origin, kept)
    return read_forest(out)


def _count_rows(
    forest: Forest,
    parts: Sequence[TreeArrays],
    source: Source,
    revision: Revision,
    resources: Resources,
    listener: Listener,
) -> list[NDArray[np.int64]]:
    """Count the rows of each class that reach each node, int64 [nodes, classes] for each part. Rows without a label do
    not count. Raises DataError if none has one."""
    from bigforest.kernels.predict.accumulate import add_up

    spec = forest.spec
    packed = pack([parts], spec)
    target = spec.target.name
    features = check_schema(source.schema, spec)
    table = TableInput(forest.reader, source, features, forest.rules.usual, [target])
    classes = len(spec.target.classes)
    counts = np.zeros((packed.nodes, classes), np.int64)
    labelled, size = 0, default_batch(packed.used.size, resources.limits)
    with stage(revision.stage, source.rows, "rows", listener) as progress:
        for batch in table.batches(0, source.rows, size, packed.used):
            truth = known_codes(cells(batch, target), spec, revision.rows)
            rows = table.read(batch, packed.used)
            step = max(1, LEAF_CELLS // packed.roots.size)
            for first in range(0, rows.rows, step):
                piece = rows.cut(first, min(first + step, rows.rows))
                codes = truth[first : first + piece.rows]
                leaves = packed.roots + find_leaves(packed, spec, piece, resources.workers)[codes >= 0]
                place = leaves.astype(np.int64) * classes + codes[codes >= 0, None]
                np.add.at(counts.reshape(-1), place.ravel(), 1)
            labelled += int(np.count_nonzero(truth >= 0))
            progress.advance(batch.height)
    table.unseen.tell(listener)
    if not labelled:
        raise DataError(f"no row of {revision.rows} has a {target!r}; {revision.use} needs rows with their labels")
    by_part = np.split(counts, np.cumsum([part.feature.size for part in parts])[:-1])
    for part, part_counts in zip(parts, by_part, strict=True):
        add_up(part.starts, part.feature, part.right, part_counts)
    return by_part


# Largest count of a class in a node, without and with wide weights.
_MOST = 2**32 - 1
_MOST_WIDE = 2**61


def calibrate_forest(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    threads: int | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Forest:
    """Re-estimate the class probabilities of the leaves from the rows of `data`, and write the forest `out`.

    A leaf that no row reaches is not changed. All rows have the same weight, even if training used weights. Rows
    without a label are ignored. Decreases of impurity, and with them importances, are those of the new counts. The
    whole forest is held in memory. The calibrated forest has no out-of-bag report and no boosted stage.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path
        A table as for `train`, with the target, of rows the forest was not trained on.
    out : str or Path
        Folder of the new forest.
    threads, scratch, overwrite, listener
        As for `train`.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.calibrate_forest(forest, table, "calibrated.forest").trees
    10
    """
    forest = opened_forest(forest)
    # Each row weighs as much as a training row on average, in the unit of the counts.
    unit = max(1, round(1.0 / forest.spec.weight_unit))
    revise_part = partial(_calibrate_part, unit=unit, impurity=criterion_of(forest.config).impurity)
    effect = "so probabilities stay too certain"
    revision = Revision(CALIBRATED, "the secondary set", "calibrating", effect, revise_part)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _calibrate_part(part: TreeArrays, counts: NDArray[np.int64], *, unit: int, impurity: Any) -> TreeArrays:
    """Replace the class counts of a part by `counts` rows, each of weight `unit`.

    impurity  see Criterion.impurity; the decreases of the nodes are computed from the new counts

    Leaves without rows keep their counts.
    """
    from bigforest.kernels.predict.accumulate import add_up
    from bigforest.kernels.tree.finalize import describe_classes

    most = _MOST if part.counts.dtype == np.uint32 else _MOST_WIDE
    if int(counts.max()) > most // unit:
        raise DataError(f"more than {most // unit} rows of the secondary set are of one class; take fewer")
    counts *= unit
    unreached = (part.feature == LEAF) & (counts.sum(axis=1) == 0)
    if unreached.any():
        counts[unreached] = part.counts[unreached]
        add_up(part.starts, part.feature, part.right, counts)
        if int(counts.max()) > most:
            raise DataError(f"more than about {most // unit} rows of the secondary set are of one class; take fewer")
    weight, value, gain = np.empty(len(counts), np.uint64), np.empty(len(counts)), np.empty(len(counts))
    describe_classes(part.starts, part.feature, part.right, counts, impurity, weight, value, gain)
    return part._replace(counts=counts, weight=weight, gain=gain)


ON_TIES = ("keep", "prune")


def prune_forest(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    on_ties: str = "keep",
    threads: int | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Forest:
    """Prune every tree of a classification forest on a tuning set, and write the forest `out`.

    Rows without a label are ignored. The whole forest is held in memory. The pruned forest has no out-of-bag report and
    no boosted stage.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path
        A table as for `train`, with the target; preferably of rows the forest was not trained on.
    out : str or Path
        Folder of the new forest.
    on_ties : str, default="keep"
        What to do with a subtree that is correct on as many tuning rows as the leaf that would replace it: "keep" or
        "prune".
    threads, scratch, overwrite, listener
        As for `train`.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.prune_forest(forest, table, "pruned.forest").trees
    10
    """
    check_word(on_ties, ON_TIES, "on_ties")
    revise_part = partial(_prune_part, prune_ties=on_ties == "prune")
    effect = "which its trees know, so little is pruned"
    revision = Revision(PRUNED, "the tuning set", "pruning", effect, revise_part)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _prune_part(part: TreeArrays, counts: NDArray[np.int64], *, prune_ties: bool) -> TreeArrays:
    """Prune a part by `counts` of rows of each class, int64 [nodes, classes], and number its nodes again."""
    from bigforest.kernels.tree.cut import CutRules

    nodes = part.feature.size
    right = np.where(part.feature == LEAF, 0, part.right).astype(np.uint32)
    correct = counts[np.arange(nodes), part.counts.argmax(axis=1)]
    # Entries of leaves, which have no children, are not used.
    below = correct.take(np.arange(1, nodes + 1), mode="clip") + correct[part.root_of + right]
    decrease = (below - correct).astype(np.float64)  # decrease of the number of wrong rows by the split
    rules = CutRules(cost=0.0, ties=prune_ties)
    return cut_whole(part._replace(right=right), rules, decrease)
