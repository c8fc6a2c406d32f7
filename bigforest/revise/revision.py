"""Pruning and calibrating a forest with labelled rows. The whole forest is in memory.

Both count the rows of each class that reach each node (`_count_rows`). Calibration replaces the class probabilities of
the leaves by those of the rows (Ho 1995, section 5). Pruning goes bottom up: a node becomes a leaf if its majority is
right on more of the rows that reach it than the leaves below it together (Quinlan 1987, reduced error pruning).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.labels import known_codes
from bigforest.columns.types import cells
from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, stage
from bigforest.execution.resources import Resources, resources_of
from bigforest.forest.decreases import importance
from bigforest.forest.files import write_features, write_levels
from bigforest.forest.forest_files import FOREST
from bigforest.forest.format import CALIBRATED, PRUNED, RANKS
from bigforest.forest.nodes import TreeArrays, join_trees, write_part
from bigforest.forest.parts import read_span
from bigforest.forest.run_file import write_run
from bigforest.grow.cut import cut_nodes
from bigforest.kernels.common.layout import LEAF
from bigforest.options.values import check_word
from bigforest.predict.files import tell_of_training
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.predict.packed_trees import pack
from bigforest.predict.passes import default_batch
from bigforest.predict.predictor import LEAF_CELLS, find_leaves
from bigforest.predict.rows import UnseenLevels, check_schema, open_rows
from bigforest.progress import watching
from bigforest.source import Source
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.regular_files import copy_regular


class Revision(NamedTuple):
    """Changes of a revision.

    stage   its name in run.parquet; rows, use: the name of its rows, and of the operation, in messages.
    known   effect of rows that the forest was trained on.
    part    changes a part by the rows of each class that reach its nodes (int64 [nodes, classes]).
    """

    stage: str
    rows: str
    use: str
    known: str
    part: Callable[[TreeArrays, NDArray[np.int64]], TreeArrays]


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
    """Write the forest, revised by the rows of `data`, to `out`.

    Raises ConfigError, DataError for rows that cannot be predicted or have no known label, FormatError and
    OutputExistsError.
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
        tell_of_training(forest, data, f"{revision.known}; give rows that it was not trained on", listener)
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
                write_part(directory, span.trees.start, [revision.part(part, part_counts)], header)
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
    """Count the rows of each class that reach each node: for each part int64 [nodes, classes]."""
    from bigforest.kernels.predict.accumulate import add_up

    spec = forest.spec
    packed = pack([parts], spec)
    target = spec.target.name
    features = check_schema(source.schema, spec)
    columns = list(dict.fromkeys([*features.columns(packed.used), target]))
    classes = len(spec.target.classes)
    counts = np.zeros((packed.nodes, classes), np.int64)
    labelled, tally = 0, UnseenLevels()
    with stage(revision.stage, source.rows, "rows", listener) as progress:
        for batch in source.batches(columns, default_batch(len(columns), resources.limits)):
            truth = known_codes(cells(batch, target), spec.target, revision.rows)
            rows = forest.loader.reader().frame(batch, features, packed.used, tally)
            step = max(1, LEAF_CELLS // packed.roots.size)
            for first in range(0, rows.rows, step):
                piece = rows.cut(first, min(first + step, rows.rows))
                codes = truth[first : first + piece.rows]
                leaves = packed.roots + find_leaves(packed, spec, piece, resources.workers)[codes >= 0]
                place = leaves.astype(np.int64) * classes + codes[codes >= 0, None]
                np.add.at(counts.reshape(-1), place.ravel(), 1)
            labelled += int(np.count_nonzero(truth >= 0))
            progress.advance(batch.height)
    tally.tell(listener)
    if not labelled:
        raise DataError(f"no row of {revision.rows} has a {target!r}; {revision.use} needs rows with their labels")
    by_part = np.split(counts, np.cumsum([part.feature.size for part in parts])[:-1])
    for part, part_counts in zip(parts, by_part, strict=True):
        add_up(part.starts, part.feature, part.right, part_counts)
    return by_part


# Largest count of a class in a node; and where weights are wide.
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

    A leaf that no row reaches is not changed. All rows have the same weight, even if training used weights. The whole
    forest is held in memory. The calibrated forest has no out-of-bag report.

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
    # A row weighs what rows of training do on average, in the steps of their weights.
    part = partial(_calibrate_part, unit=max(1, round(1.0 / forest.spec.weight_unit)))
    revision = Revision(CALIBRATED, "the secondary set", "calibrating", "so probabilities stay too certain", part)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _calibrate_part(part: TreeArrays, counts: NDArray[np.int64], *, unit: int) -> TreeArrays:
    """Replace the counts of a part by these of rows, each of weight `unit`."""
    from bigforest.kernels.predict.accumulate import add_up

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
    return part._replace(counts=counts, weight=counts.sum(axis=1).astype(np.uint64))


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
    """Prune every tree of a forest on a tuning set, and write the forest `out`. The whole forest is held in memory.

    The pruned forest has no out-of-bag report.

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
    part = partial(_prune_part, prune_ties=on_ties == "prune")
    revision = Revision(PRUNED, "the tuning set", "pruning", "which its trees know, so little is pruned", part)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _prune_part(part: TreeArrays, counts: NDArray[np.int64], *, prune_ties: bool) -> TreeArrays:
    """Return a part without the nodes pruned by these counts, its nodes numbered again."""
    from bigforest.kernels.tree.cut import CutRules, cut_trees

    nodes = part.feature.size
    root = part.root_of
    right_child = np.where(part.feature == LEAF, 0, part.right).astype(np.uint32)
    correct = counts[np.arange(nodes), part.counts.argmax(axis=1)]
    # In a leaf, which has no children, the result is not used.
    below = correct.take(np.arange(1, nodes + 1), mode="clip") + correct[root + right_child]
    number, inner = np.empty(nodes, np.uint32), np.empty(nodes, np.bool_)
    rules = CutRules(cost=0.0, ties=prune_ties)
    decrease = (below - correct).astype(np.float64)  # of wrong rows
    cut_trees(part.starts, right_child, decrease, rules, number, inner, np.empty(0, np.int64))
    codes = np.zeros(nodes, np.uint32)  # of thresholds, which are not written
    return cut_nodes(part._replace(below=codes, above=codes), number, inner, number[root + right_child])
