"""Prune a grown forest by a tuning set: a subtree becomes a leaf where that answers the tuning rows better.

Every tree is pruned for itself, from below: a node becomes a leaf if its majority is right on more of the tuning rows
that reach it than the leaves below it are together (Quinlan 1987, reduced error pruning).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, silent, stage
from bigforest.forest import ranks
from bigforest.forest.files import read_table
from bigforest.forest.forest import Forest, is_forest, read_forest
from bigforest.forest.levels import write_levels
from bigforest.forest.packed import Packed, pack
from bigforest.forest.parts import (
    Nodes,
    check_count,
    check_order,
    check_parts,
    join_nodes,
    part_paths,
    read_span,
    whole_parts,
)
from bigforest.forest.schema import check_schema
from bigforest.forest.summary import write_features, write_run
from bigforest.forest.table import KINDS, NODES, PRUNED
from bigforest.forest.trees import write_nodes
from bigforest.forest.values import chunk_rows, missing_error, tiles_for
from bigforest.forest.votes import label_codes
from bigforest.output import TemporaryFolder, staged
from bigforest.places import fetched, place_of
from bigforest.resources import Resources
from bigforest.schedule.tasks import run
from bigforest.source import Source, open_source

ON_TIES = ("keep", "prune")

# The columns of NODES that are null in leaves.
_OF_SPLITS = {"left", "right", "feature", "threshold", "default_left", "levels", "terms", "gain"}

_BATCH_CELLS = 1 << 23
_BATCH_ROWS = 1 << 17
# Tree groups per thread, so that threads which are held up leave work to the others.
_PIECES = 4


def prune_forest(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    on_ties: str = "keep",
    threads: int | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Forest:
    """Prune every tree of a forest by a tuning set, into the forest `out`.

    forest     a Forest or the path of one.
    data       a table as for `train`, with the target; best of rows the forest was not grown on.
    on_ties    a subtree that is right on as many tuning rows as the leaf in its place: "keep" it, or "prune" it.

    The other arguments are those of `train`. The pruned forest has no out-of-bag report. Raises ConfigError,
    DataError, FormatError and OutputExistsError.
    """
    resources = Resources(threads=threads, scratch=None if scratch is None else place_of(scratch))
    if not isinstance(forest, Forest):
        forest = read_forest(forest)
    with (
        staged(out, overwrite=overwrite, kind="forest", is_ours=is_forest) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        directory.mkdir()
        source = open_source(data, scratch=work)
        write_pruned(forest, source, directory, on_ties=on_ties, resources=resources, listener=listener)
    return read_forest(out)


def write_pruned(
    forest: Forest, source: Source, directory: Path, *, on_ties: str, resources: Resources, listener: Listener
) -> None:
    """Write the forest pruned by the rows of `source` into `directory`; all of it is in memory meanwhile.

    Raises ConfigError, DataError for rows that cannot be predicted or have no known label, FormatError.
    """
    if on_ties not in ON_TIES:
        raise ConfigError(f"on_ties must be {' or '.join(ON_TIES)}, not {on_ties!r}")
    target = forest.spec.target.name
    if target not in source.schema:
        raise DataError(f"the tuning set lacks the target {target!r}; pruning needs rows with their labels")
    begin = perf_counter()
    paths = part_paths(forest.directory)
    header = check_parts(paths)
    parts = [join_nodes(list(read_span(span, header))) for span in whole_parts(paths)]
    trees = [part.roots.size for part in parts]
    check_order(paths, [part.tree for part in parts], trees)
    check_count(forest.directory, sum(trees), header)
    right = _count(forest, source, parts, resources, listener)
    first = 0
    for path, part in zip(paths, parts, strict=True):
        own = right[first : first + part.feature.size]
        first += part.feature.size
        table = read_table(path, "trees", NODES, header.identity)[1]
        pruned = _pruned(table, part, own, on_ties == "prune")
        write_nodes([pruned], directory / "trees" / path.name, header.spec, header.config)
    write_features(directory, header.spec, header.config)
    if header.config.ranks:
        shutil.copyfile(fetched(forest.directory / ranks.FILE), directory / ranks.FILE)
    write_levels(directory, forest.levels, header.spec, header.config)
    seconds = dict(forest.run.select("stage", "seconds").iter_rows())
    seconds[PRUNED] = perf_counter() - begin
    write_run(directory, seconds, resources.workers, header.spec, header.config, forest.origin)


def _count(
    forest: Forest, source: Source, parts: list[Nodes], resources: Resources, listener: Listener
) -> NDArray[np.int64]:
    """For every node the tuning rows that reach it and are of its majority."""
    packed = pack(parts, len(forest.spec.features))
    majority = np.concatenate([part.counts.argmax(axis=1).astype(np.uint16) for part in parts])
    right = np.zeros(majority.size, np.int64)
    names = [forest.spec.features[int(place)].name for place in packed.used]
    target = forest.spec.target.name
    check_schema(source.schema, forest.spec)
    found = 0
    with stage(PRUNED, source.rows, "rows", listener) as progress:
        for batch in source.batches([*names, target], max(1, min(_BATCH_ROWS, _BATCH_CELLS // (len(names) + 1)))):
            found += _count_batch(forest, batch, packed, majority, right, resources.workers)
            progress.advance(batch.height)
    if not found:
        raise DataError(f"no row of the tuning set has a {target!r}; pruning needs rows with their labels")
    return right


def _count_batch(
    forest: Forest,
    batch: pl.DataFrame,
    packed: Packed,
    majority: NDArray[np.uint16],
    right: NDArray[np.int64],
    workers: int,
) -> int:
    """Add the rows of a batch to `right`; returns how many of them have a label."""
    from bigforest.kernels.prune import count_right
    from bigforest.kernels.route import TILE

    spec = forest.spec
    truth = label_codes(batch.get_column(spec.target.name), spec)
    if truth is None:
        raise DataError(f"the tuning set has labels in {spec.target.name!r} that the forest does not know")
    rows = forest.reader(forest.rule(None)).frame(batch, packed.used)
    known = forest.ranks
    if known is not None:
        rows = rows.ranked(known, packed.used)
    kind = rows.tile_type(narrow=False)
    step = min(chunk_rows(rows.features, kind), rows.rows)
    tiles = tiles_for(step, rows.features, kind)
    pieces = np.array_split(packed.roots, min(packed.roots.size, _PIECES * workers))
    for first in range(0, rows.rows, step):
        last = min(first + step, rows.rows)
        missing = None if rows.fill(tiles, first, last) else True
        if missing and packed.directions is not None:
            raise missing_error(rows, [spec.features[int(place)].name for place in packed.used])

        def count(roots: NDArray[np.uint64], first: int = first, last: int = last, missing: Any = missing) -> None:
            place = np.empty(TILE, np.uint32)
            own = truth[first:last]
            seen = (packed.wide, packed.directions, packed.sets, missing)
            count_right(tiles, last - first, *seen, roots, majority, own, right, place)

        run(count, [(piece,) for piece in pieces], workers=workers, on_result=lambda *_: None)
    return int(np.count_nonzero(truth >= 0))


def _pruned(table: pa.Table, part: Nodes, right: NDArray[np.int64], prune_ties: bool) -> pa.Table:
    """The table of a part without what is pruned, its nodes numbered anew."""
    from bigforest.kernels.prune import cut_trees

    nodes = part.feature.size
    cut, kept = np.empty(nodes, np.bool_), np.empty(nodes, np.bool_)
    size, best = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    starts = np.append(part.roots, nodes)
    cut_trees(starts, part.feature, part.right, right, prune_ties, cut, kept, size, best)
    left_over = np.flatnonzero(kept)
    before: NDArray[np.int64] = np.cumsum(kept) - kept
    root = np.repeat(part.roots, np.diff(starts))
    number: NDArray[np.uint32] = (before - before[root]).astype(np.uint32)
    leaf = cut | table["left"].chunk(0).is_null().to_numpy(zero_copy_only=False)
    right_child = np.where(leaf, 0, number[np.where(leaf, 0, root + part.right)]).astype(np.uint32)
    kinds = table["kind"].chunk(0)
    kind = np.array([KINDS.index(name) for name in kinds.dictionary.to_pylist()])[kinds.indices.to_numpy()]
    columns = {
        name: table[name].chunk(0).take(pa.array(left_over, mask=cut[left_over] if name in _OF_SPLITS else None))
        for name in NODES.names
    }
    columns["node"] = pa.array(number[kept])
    columns["left"] = pa.array(number[kept] + np.uint32(1), mask=leaf[kept])
    columns["right"] = pa.array(right_child[kept], mask=leaf[kept])
    codes = np.where(cut, 0, kind)[kept].astype(np.int8)
    columns["kind"] = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(KINDS))
    return pa.Table.from_arrays([columns[name] for name in NODES.names], schema=NODES)
