"""Forests that are revised by rows with labels: pruned or calibrated. All of a forest is in memory meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, stage
from bigforest.forest import ranks
from bigforest.forest.files import Header, read_table
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
from bigforest.forest.table import NODES
from bigforest.forest.trees import write_nodes
from bigforest.forest.values import chunk_rows, missing_error, tiles_for
from bigforest.forest.votes import label_codes
from bigforest.output import TemporaryFolder, staged
from bigforest.places import fetched, place_of
from bigforest.resources import Resources
from bigforest.schedule.tasks import run
from bigforest.source import Source, open_source

_BATCH_CELLS = 1 << 23
_BATCH_ROWS = 1 << 17
# Tree groups per thread, so that threads which are held up leave work to the others.
_PIECES = 4

# Takes tiles, their number of rows, True if values are missing there (else None), roots of some trees, and the classes
# of the rows (int32, -1 unknown); called with the roots of other trees at the same time.
Tiles = NDArray[Any]
Missing = bool | None
Roots = NDArray[np.uint64]
Count = Callable[[Tiles, int, Missing, Roots, NDArray[np.int32]], None]


class Revision(NamedTuple):
    """How a forest is revised.

    stage   its name in run.parquet; rows, use: what its rows are called in messages, and what for.
    tables  from the forest and the function that sends all rows through it, calling a Count, the new parts in order.
    """

    stage: str
    rows: str
    use: str
    tables: Callable[[Whole, Callable[[Count], None]], Iterable[pa.Table]]


class Whole(NamedTuple):
    """All trees of a forest: as the parts have them, and packed, with the nodes numbered through."""

    forest: Forest
    header: Header
    paths: list[Path]
    parts: list[Nodes]
    packed: Packed

    def table(self, part: int) -> pa.Table:
        """The rows of a part, columns NODES."""
        return read_table(self.paths[part], "trees", NODES, self.header.identity)[1]


def revise(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    revision: Revision,
    *,
    threads: int | None,
    scratch: str | Path | None,
    overwrite: bool,
    listener: Listener,
) -> Forest:
    """Write the forest, revised by the rows of `data`, to `out`.

    Raises ConfigError, DataError for rows that cannot be predicted or have no known label, FormatError and
    OutputExistsError.
    """
    resources = Resources(threads=threads, scratch=None if scratch is None else place_of(scratch))
    if not isinstance(forest, Forest):
        forest = read_forest(forest)
    if forest.is_regression:
        raise ConfigError(
            f"{revision.use} needs classes, and the forest predicts the number {forest.spec.target.name!r}"
        )
    with (
        staged(out, overwrite=overwrite, kind="forest", is_ours=is_forest) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        directory.mkdir()
        source = open_source(data, scratch=work)
        target = forest.spec.target.name
        if target not in source.schema:
            raise DataError(f"{revision.rows} lacks the target {target!r}; {revision.use} needs rows with their labels")
        begin = perf_counter()
        whole = _open(forest)
        _write(whole, directory, revision, lambda count: _send(whole, source, revision, count, resources, listener))
        seconds = dict(forest.run.select("stage", "seconds").iter_rows())
        seconds[revision.stage] = perf_counter() - begin
        write_run(directory, seconds, resources.workers, forest.spec, forest.config, forest.origin)
    return read_forest(out)


def _open(forest: Forest) -> Whole:
    paths = part_paths(forest.directory)
    header = check_parts(paths)
    parts = [join_nodes(list(read_span(span, header))) for span in whole_parts(paths)]
    trees = [part.roots.size for part in parts]
    check_order(paths, [part.tree for part in parts], trees)
    check_count(forest.directory, sum(trees), header)
    return Whole(forest, header, paths, parts, pack(parts, len(forest.spec.features)))


def _write(whole: Whole, directory: Path, revision: Revision, send: Callable[[Count], None]) -> None:
    """Write all files but run.parquet."""
    spec, config = whole.header.spec, whole.header.config
    for path, table in zip(whole.paths, revision.tables(whole, send), strict=True):
        write_nodes([table], directory / "trees" / path.name, spec, config)
    write_features(directory, spec, config)
    write_levels(directory, whole.forest.levels, spec, config)
    if config.ranks:
        shutil.copyfile(fetched(whole.forest.directory / ranks.FILE), directory / ranks.FILE)


def _send(
    whole: Whole, source: Source, revision: Revision, count: Count, resources: Resources, listener: Listener
) -> None:
    """Call `count` for all rows and trees."""
    spec, packed = whole.header.spec, whole.packed
    names = [spec.features[int(place)].name for place in packed.used]
    target = spec.target.name
    check_schema(source.schema, spec)
    found = 0
    with stage(revision.stage, source.rows, "rows", listener) as progress:
        for batch in source.batches([*names, target], max(1, min(_BATCH_ROWS, _BATCH_CELLS // (len(names) + 1)))):
            truth = label_codes(batch.get_column(target), spec)
            if truth is None:
                raise DataError(f"{revision.rows} has labels in {target!r} that the forest does not know")
            _send_batch(whole, batch, truth, count, resources.workers)
            found += int(np.count_nonzero(truth >= 0))
            progress.advance(batch.height)
    if not found:
        raise DataError(f"no row of {revision.rows} has a {target!r}; {revision.use} needs rows with their labels")


def _send_batch(whole: Whole, batch: pl.DataFrame, truth: NDArray[np.int32], count: Count, workers: int) -> None:
    spec, packed = whole.header.spec, whole.packed
    rows = whole.forest.reader(whole.forest.rule()).frame(batch, packed.used)
    known = whole.forest.ranks
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
        tasks = [(tiles, last - first, missing, roots, truth[first:last]) for roots in pieces]
        run(count, tasks, workers=workers, on_result=lambda *_: None)
