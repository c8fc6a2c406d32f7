"""The out-of-bag report: every row judged by the trees that never saw it (Breiman 2001, section 3.1).

A tree votes on a row if the row, by its number and not by its values, is not in the tree's bag. T' are the
rows that at least one tree leaves out; the error is the share of them whose vote is wrong (Tomasi 2017,
section 6). Ties go to the lowest class. Bags are recomputed; the trees are read back from the forest's own
files.

Where all nodes split on features, rows are not decoded: thresholds are turned into codes (the largest code that goes
left) and compared with the codes of the store. So a pass reads the codes once from end to end, and each dictionary in
ascending order. Where some are oblique, codes are replaced by the values they were projected by in growing.

The rows are judged a range at a time, and each range by the trees a group at a time. All trees of a group go over a
block while its codes are at hand. How long a range is and how many trees go together is chosen by `_choose`; votes are
added in the order of the trees, everything else is a count or a sum of integers, so that it changes no bit of the
report. For the area under the ROC curve, rows.parquet is read again where there are too many different scores.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.errors import ConfigError, FormatError
from bigforest.events import Listener, Stage, stage
from bigforest.forest.files import open_parquet, write_table, write_tables
from bigforest.forest.groups import (
    COUNT_NS,
    LOADING_BYTES,
    LOADING_NS,
    Trees,
    choose_way,
    group_bytes,
    outline,
    survey,
    tree_bytes,
)
from bigforest.forest.packed import Packed
from bigforest.forest.passes import check_budget
from bigforest.forest.table import CURVE, METRICS, confusion, metrics, oob_rows
from bigforest.forest.values import CHUNK_BYTES, Rows, chunk_rows, tiles_for
from bigforest.forest.votes import proba_names, stored_labels
from bigforest.memory import BASE_BYTES, Need, Shape
from bigforest.metrics import MOST_SCORES, SCORE_BYTES, Area, ClassMetrics, Metrics, Scores
from bigforest.output import TemporaryFolder
from bigforest.places import inbox, made
from bigforest.resources import Resources
from bigforest.sample import BLOCK_ROWS, Sampler, distinct_rows, draws_bytes, kept_trees, most_nodes
from bigforest.schedule.crew import Crew
from bigforest.schedule.tasks import run
from bigforest.sizes import parse_bytes
from bigforest.store.store import Store

# Trees that go over the rows together when memory is not limited: their bytes, also per row of the table, which keeps
# them in proportion to what growing took.
_GROUP_BYTES = 48 << 20
_GROUP_ROW_BYTES = 16
# And their number in any case: each thread holds the bags of so many trees for a block.
_GROUP_TREES = 32
# More where the table is small: this divided by its rows.
_GROUP_DRAWS = 1 << 21

# Tasks per thread; a block is cut into several when blocks are few.
_PIECES = 4

# Bytes of votes in a row group of rows.parquet, for as many rows as a power of two.
_STEP_BYTES = 8 << 20

# Nodes whose thresholds become codes together, and bytes that each takes then.
_TURNED_NODES = 1 << 20
_TURNED_BYTES = 24
# Where a dictionary has more values than stay in the cache, thresholds are looked up in ascending order.
_CACHED_VALUES = 1 << 16
# Codes that float32 holds exactly.
_NARROW_CODES = 1 << 24

# Nanoseconds, on one thread, to bring one code of a row before a group.
_CODE_NS = 1


class _Plan(NamedTuple):
    """Trees that go together, and rows that are judged together (a multiple of `_step_rows`, or all)."""

    groups: list[range]
    rows: int
    need: Need


class _Tally(NamedTuple):
    """Votes so far; entry i is row i of the range. See kernels/route.py vote_out_of_bag."""

    votes: NDArray[np.float64]
    voters: NDArray[np.uint32]
    prediction: NDArray[np.uint16]

    def part(self, start: int, stop: int) -> _Tally:
        """Entries `start` to before `stop`."""
        return _Tally(self.votes[start:stop], self.voters[start:stop], self.prediction[start:stop])


class _Group(NamedTuple):
    """Trees whose thresholds are codes, or values where some node is oblique.

    narrow  whether codes are compared as float32
    """

    trees: range
    packed: Packed
    mixed: NDArray[np.float64]
    narrow: bool


class _Work(NamedTuple):
    """What the tasks of a report share.

    run      names the report in every process.
    groups   of entries of `trees` that are loaded together.
    workers  threads of a process.
    folder   for tallies, where they do not stay in the process.
    """

    run: str
    trees: Trees
    groups: list[range]
    workers: int
    folder: Path | None


# The groups that stay loaded in this process, by report.
_loaded: dict[str, _Group] = {}
_MOST_LOADED = 2


def oob_need(shape: Shape, config: TrainConfig, resources: Resources, nodes: Sequence[int] | None = None) -> Need:
    """What the report of a forest needs.

    nodes  nodes of each tree; None for as many as the bags allow. Leaves are all taken to hold several classes where
           that takes more memory, and oblique nodes to have TrainConfig.most_terms.

    `smallest` is the smallest budget that works; a smaller one gives a Need of more memory than the budget.
    """
    # With p pure leaves and m mixed ones, of two different rows at least, p + 2 m <= distinct rows of the bag.
    distinct = distinct_rows(shape.rows, config, shape.classes)
    terms = config.most_terms(shape.features)
    numbers = np.arange(config.trees + 1)
    if nodes is None:
        most = most_nodes(shape.rows, config, shape.classes)
        leaves = min(distinct // 2, most // 2 + 1)
        given = np.full(config.trees, most, np.int64)
        pure = tree_bytes(given, np.zeros(1, np.int64), _some_terms(given, terms), shape.classes)
        given = np.full(config.trees, 2 * leaves + 1, np.int64)
        mixed = tree_bytes(given, np.array([leaves]), _some_terms(given, terms), shape.classes)
        return _choose(shape, config, np.maximum(pure, mixed), numbers, resources).need
    given = np.asarray(nodes, np.int64)
    mixed = np.minimum((given + 1) // 2, distinct // 2)
    sizes = tree_bytes(given, mixed, _some_terms(given, terms), shape.classes)
    return _choose(shape, config, sizes, numbers, resources).need


def _some_terms(nodes: NDArray[np.int64], terms: float) -> NDArray[np.int64]:
    """Terms of trees of so many nodes whose inner nodes have `terms` each."""
    found: NDArray[np.int64] = np.ceil(nodes // 2 * terms).astype(np.int64)
    return found


def write_oob(store: Store, config: TrainConfig, directory: Path, *, resources: Resources, listener: Listener) -> None:
    """Write oob/rows.parquet, curve, confusion and metrics of the forest grown into `directory`.

    The files do not depend on the resources. Memory: what `oob_need` says for the nodes of the forest. Raises
    ConfigError without bootstrap or when the memory of `resources` is too little, FormatError when the trees cannot
    be read.
    """
    if not config.bootstrap:
        raise ConfigError("without bootstrap no row is out of bag; there is nothing to report")
    trees = outline(directory) if resources.memory is None else survey(directory, resources.workers)
    plan = _choose(store.shape, config, trees.sizes(), trees.first, resources)
    if resources.memory is not None:
        check_budget("the out-of-bag report", plan.need, resources.memory)
    changes = np.zeros((2, config.trees), dtype=np.int64)
    pairs = _Pairs(len(store.spec.target.classes))
    crew = resources.crew(1)  # a task uses all threads of its process
    ranges = _ranges(0, store.rows, _range_rows(store.shape, plan.rows, crew), 1)
    with (
        stage("oob", config.trees * len(ranges), "trees", listener) as progress,
        TemporaryFolder(resources.scratch) as folder,
    ):
        work = _Work(secrets.token_hex(8), trees, plan.groups, resources.workers, folder if crew.remote else None)
        advance = None if crew.remote else progress.advance
        try:
            judged = crew.map(judge_range, [(*rows, advance) for rows in ranges], (Sampler.of(store, config), work))
            tallies = _tallies(judged, ranges, store.shape.classes, changes, progress if crew.remote else None)
            _write_report(store, config, directory / "oob", tallies, changes, pairs)
        finally:
            crew.everywhere(_forget, work.run)


def _choose(
    shape: Shape, config: TrainConfig, sizes: NDArray[np.int64], first: NDArray[np.int64], resources: Resources
) -> _Plan:
    """How to go over the rows with trees of so many bytes: the least time within the memory.

    sizes, first  int64 [entries] and [entries + 1], see groups.py Trees.
    """
    step = min(_step_rows(shape.classes), shape.rows)
    together = min(max(_GROUP_TREES, _GROUP_DRAWS // shape.rows), kept_trees(shape, config))
    tiles = 2 * max(CHUNK_BYTES, 256 * 8 * shape.features)  # and the values that are put into them
    voting = tiles + 3 * together * min(shape.rows, BLOCK_ROWS)
    turning = _TURNED_NODES * _TURNED_BYTES
    writing = 4 * step * (8 * shape.classes + 32)
    fixed = BASE_BYTES + turning + writing + resources.workers * max(voting, LOADING_BYTES)
    fixed += kept_trees(shape, config) * draws_bytes(shape, config)
    fixed += 8 * shape.codes if config.ranks else 0
    fixed += SCORE_BYTES * _most_scores(shape.rows) if shape.classes == 2 else 0
    row = 8 * shape.classes + 6
    smallest = fixed + int(sizes.max()) + step * row
    if resources.memory is None:
        most = max(int(sizes.max()), _GROUP_BYTES, _GROUP_ROW_BYTES * shape.rows)
        room = most + shape.rows * row
    else:
        room = most = max(parse_bytes(resources.memory), smallest) - fixed
    row_ns = shape.features * _CODE_NS
    node_ns = LOADING_NS + COUNT_NS * shape.classes
    costs = {"row_bytes": row, "step": step, "row_ns": row_ns, "node_ns": node_ns}
    way = choose_way(sizes, first, shape.rows, room, **costs, most=most, trees=together)
    memory = fixed + group_bytes(sizes, way.groups) + way.rows * row
    return _Plan(way.groups, way.rows, Need("oob", memory, smallest, passes=len(way.groups)))


def _step_rows(classes: int) -> int:
    """Rows of a row group of rows.parquet; a function of the task alone, so that the file does not depend on memory."""
    rows = BLOCK_ROWS
    while rows > 256 and 8 * rows * classes > _STEP_BYTES:
        rows //= 2
    return rows


def _range_rows(shape: Shape, most: int, crew: Crew) -> int:
    """Rows of a range, at most `most`: whole row groups of the report, and some ranges for every process."""
    if not crew.remote:
        return most
    step = _step_rows(shape.classes)
    return min(most, -(-shape.rows // (_PIECES * crew.processes * step)) * step)


def _most_scores(rows: int) -> int:
    """Different scores held at a time: with more, rows.parquet is read again for each half of so many."""
    return min(max(rows // 16, 1 << 14), MOST_SCORES)


def _ranges(begin: int, end: int, most: int, pieces: int, block_rows: int = BLOCK_ROWS) -> list[tuple[int, int]]:
    """Rows `begin` to before `end` cut into ranges of `most` rows, and, with pieces > 1, within blocks."""
    if pieces == 1:
        return [(start, min(start + most, end)) for start in range(begin, end, most)]
    blocks = -(-end // block_rows) - begin // block_rows
    step = min(most, -(-block_rows // -(-pieces // blocks)))
    cuts_at = sorted({begin, *range(-(-begin // block_rows) * block_rows, end, block_rows), end})
    return [(start, min(start + step, last)) for first, last in pairwise(cuts_at) for start in range(first, last, step)]


def _load(sampler: Sampler, work: _Work, entries: range) -> _Group:
    """A group of entries of the trees; the only group there is stays loaded in the process until `_forget`."""
    if work.run in _loaded:
        return _loaded[work.run]
    store = sampler.store
    packed = work.trees.load(entries, work.workers)
    pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
    if packed.directions is None:
        _turn(packed, store, work.workers)
    mixed = packed.ballots(sampler.config.vote)
    packed = packed._replace(counts=packed.counts[:0].copy())
    narrow = max(store.spec.features[int(feature)].codes for feature in packed.used) <= _NARROW_CODES
    if narrow:
        packed = packed.narrowed()
    made = _Group(work.trees.numbers(entries), packed, mixed, packed.narrow is not None)
    if len(work.groups) == 1:
        while len(_loaded) >= _MOST_LOADED:
            _loaded.pop(next(iter(_loaded)))
        _loaded[work.run] = made
    return made


def _forget(run: str) -> None:
    _loaded.pop(run, None)


def _turn(packed: Packed, store: Store, workers: int) -> None:
    """Replace every threshold by the largest code that goes left, -1 if there is none."""
    from bigforest.kernels.packing import order_by_feature
    from bigforest.kernels.route import Layout

    wide = packed.wide
    assert wide is not None
    order = np.empty(min(_TURNED_NODES, packed.nodes), np.uint32)
    for first in range(0, packed.nodes, _TURNED_NODES):
        here = slice(2 * first, 2 * (first + _TURNED_NODES))
        some = Layout(wide.thresholds[here], wide.links[here], wide.shift, wide.ballot)
        ends = np.zeros(packed.used.size, np.int64)
        order_by_feature(some, ends, order)
        tasks = [(store, packed.used, some.thresholds, order, ends, own, workers) for own in range(workers)]
        run(_turn_features, tasks, workers=workers, on_result=lambda *_: None)


def _turn_features(
    store: Store,
    used: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    order: NDArray[np.uint32],
    ends: NDArray[np.int64],
    first: int,
    step: int,
) -> None:
    """Do it for each `step`-th feature."""
    for place in range(first, used.size, step):
        nodes = order[ends[place - 1] if place else 0 : ends[place]]
        low = store.low(int(used[place]))
        values = thresholds[2 * nodes.astype(np.int64)]
        if low.size > _CACHED_VALUES:
            ascending = values.argsort()
            nodes, values = nodes[ascending], values[ascending]
        thresholds[2 * nodes.astype(np.int64)] = low.searchsorted(values, side="right") - 1


def judge_range(
    sampler: Sampler, work: _Work, begin: int, end: int, advance: Callable[[int], None] | None
) -> tuple[_Tally | Path, NDArray[np.int64]]:
    """Task: the tally of rows `begin` to before `end`, or the file it is in, and the changes, int64 [2, trees].

    advance  is told of trees that are done.
    """
    size = end - begin
    changes = np.zeros((2, sampler.config.trees), np.int64)
    tally = _no_votes(size, len(sampler.store.spec.target.classes))
    pieces = _ranges(begin, end, size, max(2, _PIECES * work.workers))
    for entries in work.groups:
        group = _load(sampler, work, entries)
        sampler.store.fetch(
            group.packed.used.tolist(), range(begin // sampler.store.block_rows, -(-end // sampler.store.block_rows))
        )
        here = slice(group.trees.start, group.trees.stop)

        def collect(_: int, change: NDArray[np.int64], here: slice = here) -> None:
            changes[:, here] += change

        tasks = [(sampler, group, tally.part(start - begin, stop - begin), start, stop) for start, stop in pieces]
        run(_vote, tasks, workers=work.workers, on_result=collect)
        if advance is not None:
            advance(len(group.trees))
        del group, tasks
    return tally if work.folder is None else _kept(tally, work.folder), changes


def _no_votes(rows: int, classes: int) -> _Tally:
    return _Tally(np.zeros((rows, classes)), np.zeros(rows, np.uint32), np.zeros(rows, np.uint16))


def _kept(tally: _Tally, folder: Path) -> Path:
    """A file with the arrays of the tally one after the other, and their CRC-32; each attempt has one of its own."""
    path = folder / f"tally-{secrets.token_hex(8)}.bin"
    with made(path) as here, here.open("wb") as file:
        crc = 0
        for array in tally:
            crc = zlib.crc32(array.data, crc)
            file.write(array.data)
        file.write(np.array([crc], "<u4").data)
    return path


def _fetched(path: Path, rows: int, classes: int) -> _Tally:
    """Inverse of `_kept`; removes the file. Raises FormatError when it is damaged."""
    tally = _no_votes(rows, classes)
    with inbox([path]) as [here], here.open("rb", buffering=0) as file:
        crc = 0
        for array in tally:
            data = array.data.cast("B")
            while data and (count := file.readinto(data)):
                data = data[count:]
            crc = zlib.crc32(array.data, crc)
        if file.read() != np.array([crc], "<u4").tobytes():
            raise FormatError(f"{path} is damaged; do not touch the scratch folder during a run")
    path.unlink()
    return tally


def _tallies(
    judged: Iterator[tuple[_Tally | Path, NDArray[np.int64]]],
    ranges: Sequence[tuple[int, int]],
    classes: int,
    changes: NDArray[np.int64],
    progress: Stage | None,
) -> Iterator[tuple[int, _Tally]]:
    """First row and tally of every range of rows, in order; adds to `changes` int64 [2, trees]."""
    for (begin, end), (tally, change) in zip(ranges, judged, strict=True):
        changes += change
        if progress is not None:
            progress.advance(change.shape[1])
        yield begin, _fetched(tally, end - begin, classes) if isinstance(tally, Path) else tally


def _vote(sampler: Sampler, group: _Group, tally: _Tally, start: int, stop: int) -> NDArray[np.int64]:
    """Let the trees of a group vote on the rows from `start` to before `stop`, which lie in one block.

    tally  of these rows. Returns by how much each tree changed the number of rows that are wrong, and that have a
           vote: int64 [2, trees].
    """
    from bigforest.kernels.route import new_scratch, vote_out_of_bag

    store, packed = sampler.store, group.packed
    block, offset = divmod(start, store.block_rows)
    bags = np.empty((len(group.trees), stop - start), np.uint16)
    for own, tree in enumerate(group.trees):
        bags[own] = sampler.block(tree, block)[offset : offset + stop - start]
    change = np.zeros((2, len(group.trees)), dtype=np.int64)
    layout = packed.layout(group.narrow)
    codes = [store.feature_codes(int(feature), range(block, block + 1)) for feature in packed.used]
    values = None if packed.directions is None else [store.low(int(feature)) for feature in packed.used]
    kind = Rows(codes).tile_type(group.narrow)
    step = min(chunk_rows(packed.used.size, kind), stop - start)
    tiles = tiles_for(step, packed.used.size, kind)
    scratch = new_scratch()
    for first in range(start, stop, step):
        last = min(first + step, stop)
        columns = [column[first:last] for column in codes]
        if values is not None:
            columns = [low[cells] for low, cells in zip(values, columns, strict=True)]
        Rows(columns).fill(tiles, 0, last - first)
        here = slice(first - start, last - start)
        vote_out_of_bag(
            tiles,
            last - first,
            layout,
            packed.directions,
            packed.roots,
            group.mixed,
            bags[:, here],
            store.labels(first, last),
            tally.votes[here],
            tally.voters[here],
            tally.prediction[here],
            change[0],
            change[1],
            scratch,
        )
    return change


class _Pairs:
    """How many rows there are of each pair of true and predicted class."""

    def __init__(self, classes: int) -> None:
        self._classes = np.uint64(classes)
        self._found = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.uint64)

    def add(self, truth: NDArray[np.uint16], prediction: NDArray[np.uint16]) -> None:
        """Count rows."""
        pairs, rows = np.unique(truth.astype(np.uint64) * self._classes + prediction, return_counts=True)
        found, place = np.unique(np.concatenate([self._found, pairs]), return_inverse=True)
        total = np.zeros(found.size, np.uint64)
        np.add.at(total, place, np.concatenate([self._rows, rows.astype(np.uint64)]))
        self._found, self._rows = found, total

    def table(self, known: pa.Array) -> pa.Table:
        """The pairs that occur, ascending, with the labels `known` of the classes."""
        columns = {
            "truth": known.take(pa.array(self._found // self._classes)),
            "prediction": known.take(pa.array(self._found % self._classes)),
            "rows": self._rows,
        }
        return pa.table(columns, schema=confusion(known.type))


def _write_report(
    store: Store,
    config: TrainConfig,
    directory: Path,
    tallies: Iterator[tuple[int, _Tally]],
    changes: NDArray[np.int64],
    pairs: _Pairs,
) -> None:
    """Write the four files; `changes` is complete when `tallies` has ended."""
    spec = store.spec
    known = stored_labels(spec)
    schema = oob_rows(known.type, proba_names(spec))
    step = _step_rows(len(known))
    found = Metrics(len(known), _most_scores(store.rows))

    def tables() -> Iterator[pa.Table]:
        for begin, tally in tallies:
            for start in range(0, tally.voters.size, step):
                piece = tally.part(start, start + step)
                first = begin + start
                truth = store.target[first : first + piece.voters.size]
                used = piece.voters > 0
                pairs.add(truth[used], piece.prediction[used])
                table = _rows(store, piece, known, schema, first)
                proba = np.column_stack([column.to_numpy()[used] for column in table.columns[-len(known) :]])
                found.add(truth[used], piece.prediction[used], proba)
                yield table

    write_tables(schema, tables(), directory / "rows.parquet", "oob-rows", spec, config)
    wrong, reached = np.cumsum(changes, axis=1)
    error = np.divide(wrong, reached, out=np.full(wrong.size, np.nan), where=reached > 0)
    curve = {
        "trees": np.arange(1, wrong.size + 1, dtype=np.uint32),
        "error": pa.array(error, mask=reached == 0),
        "rows": reached.astype(np.uint64),
    }
    write_table(pa.table(curve, schema=CURVE), directory / "curve.parquet", "oob-curve", spec, config)
    write_table(pairs.table(known), directory / "confusion.parquet", "oob-confusion", spec, config)
    area = _area(found.scores, directory / "rows.parquet", store) if found.scores is not None else None
    table = _metrics_table(found.result_with(area) if found.rows else [], known)
    write_table(table, directory / "metrics.parquet", "oob-metrics", spec, config)


def _area(scores: Scores, path: Path, store: Store) -> float | None:
    """The area under the ROC curve: of the scores held and, where there are more, of those in rows.parquet."""
    area = Area().add(scores)
    while scores.limit is not None:
        scores = Scores(_most_scores(store.rows), above=float(scores.values[-1]))
        first = 0
        with open_parquet(path) as file:
            name = file.schema_arrow.names[-1]
            for batch in file.iter_batches(BLOCK_ROWS, columns=[name], use_threads=False):
                shares = batch.column(0)
                truth = store.target[first : first + len(shares)]
                used = pc.is_valid(shares).to_numpy(zero_copy_only=False)
                scores.add(shares.to_numpy(zero_copy_only=False)[used], truth[used] == 1)
                first += len(shares)
        area.add(scores)
    return area.value


def _metrics_table(found: list[ClassMetrics], known: pa.Array) -> pa.Table:
    """One row per class and one for all, as in oob/metrics.parquet; without rows nothing but their number."""
    codes = [*range(len(known)), None]
    columns: dict[str, Any] = {"class": known.take(pa.array(codes, pa.int64()))}
    for name in ("rows", "predicted"):
        columns[name] = [getattr(one, name) for one in found] or [0] * len(codes)
    for name in METRICS:
        columns[name] = [getattr(one, name) for one in found] or [None] * len(codes)
    return pa.table(columns, schema=metrics(known.type))


def _rows(store: Store, tally: _Tally, known: pa.Array, schema: pa.Schema, first: int) -> pa.Table:
    """The rows of a tally, which begins with row `first`, as they are in oob/rows.parquet."""
    size = tally.voters.size
    piece = slice(first, first + size)
    unused = tally.voters == 0
    numbers = store.row_numbers
    shares = tally.votes / np.maximum(tally.voters, 1)[:, None]
    return pa.Table.from_arrays(
        [
            pa.array(np.arange(first, first + size, dtype=np.uint64) if numbers is None else numbers[piece]),
            known.take(pa.array(store.target[piece])),
            known.take(pa.array(tally.prediction, mask=unused)),
            pa.array(tally.voters),
            *(pa.array(shares[:, k], mask=unused) for k in range(shares.shape[1])),
        ],
        schema=schema,
    )
