"""Pruning and calibrating a forest with labelled rows. The whole forest is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.labels import known_codes
from bigforest.columns.types import cells
from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, stage
from bigforest.execution.arguments import resources_of
from bigforest.execution.executor import map_on_threads
from bigforest.execution.resources import Resources
from bigforest.forest import ranks
from bigforest.forest.decreases import importance
from bigforest.forest.files import read_table, write_features, write_levels, write_run
from bigforest.forest.forest_files import is_forest
from bigforest.forest.format import nodes_schema
from bigforest.forest.parts import Nodes
from bigforest.forest.rewrite import write_nodes
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.predict.packed_trees import pack
from bigforest.predict.passes import default_batch
from bigforest.predict.router import RowRouter, chunk_rows
from bigforest.predict.rows import check_schema, open_rows
from bigforest.progress import watching
from bigforest.source import Source
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.storage.regular_files import copy_regular

if TYPE_CHECKING:
    from bigforest.kernels.predict.flat_tree import RouteInputs

# Tree groups per thread, so that slow threads leave work to the others.
_PIECES = 4


class Revision(NamedTuple):
    """Changes of a revision.

    stage   its name in run.parquet; rows, use: the name of its rows, and of the operation, in messages.
    table   makes the new table from a part, its table, and the rows of each class that reach its nodes (int64 [nodes,
            classes]).
    """

    stage: str
    rows: str
    use: str
    table: Callable[[Nodes, pa.Table, NDArray[np.int64]], pa.Table]


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
        staged(out, overwrite=overwrite, kind="forest", is_ours=is_forest) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        [forest] = trees_alone([forest], revision.use, listener)
        directory.mkdir()
        source = open_rows(data, forest.spec, scratch=work)
        target = forest.spec.target.name
        if target not in source.schema:
            raise DataError(f"{revision.rows} lacks the target {target!r}; {revision.use} needs rows with their labels")
        begin = perf_counter()
        with forest.files.same_run():
            parts = forest.files.read_parts()
            counts = _counted(forest, parts, source, revision, resources, listener)
            _write(forest, parts, directory, revision, counts)
        seconds = dict(forest.run.select("stage", "seconds").iter_rows())
        seconds[revision.stage] = perf_counter() - begin
        kept = forest.choices.for_other_shares(forest.config.power)
        write_run(directory, seconds, resources.workers, forest.files.header, forest.origin, kept)
    return read_forest(out)


def _write(
    forest: Forest, parts: Sequence[Nodes], directory: Path, revision: Revision, counts: NDArray[np.int64]
) -> None:
    """Write all files but run.parquet, from the counts of all nodes."""
    spec, header = forest.spec, forest.files.header
    first = 0
    for path, part in zip(forest.part_files, parts, strict=True):
        own = counts[first : first + part.feature.size]
        first += part.feature.size
        table = read_table(path, "trees", nodes_schema(spec), forest.identity)
        write_nodes([revision.table(part, table, own)], directory / "trees" / path.name, header)
    write_features(directory, header, importance(directory, spec))
    write_levels(directory, header)
    if forest.config.ranks:
        copy_regular(forest.directory / ranks.FILE, directory / ranks.FILE)


def _counted(
    forest: Forest,
    parts: Sequence[Nodes],
    source: Source,
    revision: Revision,
    resources: Resources,
    listener: Listener,
) -> NDArray[np.int64]:
    """Count the rows of each class that reach each node, int64 [nodes, classes]."""
    from bigforest.kernels.predict.accumulate import add_up

    spec = forest.spec
    packed = pack([parts], spec)
    target = spec.target.name
    found = check_schema(source.schema, spec)
    columns = list(dict.fromkeys([*found.columns(packed.used), target]))
    counts = np.zeros((packed.nodes, len(spec.target.classes)), np.int64)
    router = RowRouter(packed, spec)
    pieces = np.array_split(packed.roots, min(packed.roots.size, _PIECES * resources.workers))
    known = 0
    with stage(revision.stage, source.rows, "rows", listener) as progress:
        for batch in source.batches(columns, default_batch(len(columns), resources.limits)):
            truth = known_codes(cells(batch, target), spec.target, revision.rows)
            rows = forest.loader.reader().frame(batch, found, packed.used)
            rows = rows if forest.ranks is None else rows.ranked(forest.ranks, packed.used)
            step = chunk_rows(rows)
            for first in range(0, rows.rows, step):
                inputs = router.inputs(rows, first, min(first + step, rows.rows))
                tasks = [(inputs, roots, truth[first : first + inputs.rows], counts) for roots in pieces]
                map_on_threads(_count_leaves, tasks, resources.workers)
            known += int(np.count_nonzero(truth >= 0))
            progress.advance(batch.height)
    if not known:
        raise DataError(f"no row of {revision.rows} has a {target!r}; {revision.use} needs rows with their labels")
    first = 0
    for part in parts:
        add_up(part.starts, part.feature, part.right, counts[first : first + part.feature.size])
        first += part.feature.size
    return counts


def _count_leaves(
    inputs: RouteInputs, roots: NDArray[np.uint64], truth: NDArray[np.int32], counts: NDArray[np.int64]
) -> None:
    """Count in some trees; runs concurrently for other trees."""
    from bigforest.kernels.predict.accumulate import LeafCounts, count_leaves
    from bigforest.kernels.predict.route import new_scratch

    count_leaves(inputs, roots, LeafCounts(truth, counts), new_scratch(inputs))
