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

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.errors import ConfigError
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
from bigforest.resources import Resources, parse_bytes
from bigforest.sample import BLOCK_ROWS, DRAWS_BYTES, Draws, Sampler, distinct_rows, most_nodes, tree_draw_bytes
from bigforest.schedule.tasks import run
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
    draws   of each tree, see sample.Sampler.draws
    """

    trees: range
    packed: Packed
    mixed: NDArray[np.float64]
    narrow: bool
    sampler: Sampler
    draws: list[Draws]


def oob_need(shape: Shape, config: TrainConfig, resources: Resources, nodes: Sequence[int] | None = None) -> Need:
    """What the report of a forest needs.

    nodes  nodes of each tree; None for as many as the bags allow. Leaves are all taken to hold several classes where
           that takes more memory, and oblique nodes to have TrainConfig.most_terms.

    `smallest` is the smallest budget that works; a smaller one gives a Need of more memory than the budget.
    """
    # With p pure leaves and m mixed ones, of two different rows at least, p + 2 m <= distinct rows of the bag.
    distinct = distinct_rows(shape.rows, config, shape.classes)
    terms = config.most_terms(shape.features)
    draw_bytes = tree_draw_bytes(shape, config)
    numbers = np.arange(config.trees + 1)
    if nodes is None:
        most = most_nodes(shape.rows, config, shape.classes)
        leaves = min(distinct // 2, most // 2 + 1)
        given = np.full(config.trees, most, np.int64)
        pure = tree_bytes(given, np.zeros(1, np.int64), _some_terms(given, terms), shape.classes)
        given = np.full(config.trees, 2 * leaves + 1, np.int64)
        mixed = tree_bytes(given, np.array([leaves]), _some_terms(given, terms), shape.classes)
        return _choose(shape, np.maximum(pure, mixed), numbers, resources, draw_bytes).need
    given = np.asarray(nodes, np.int64)
    mixed = np.minimum((given + 1) // 2, distinct // 2)
    sizes = tree_bytes(given, mixed, _some_terms(given, terms), shape.classes)
    return _choose(shape, sizes, numbers, resources, draw_bytes).need


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
    plan = _choose(store.shape, trees.sizes(), trees.first, resources, tree_draw_bytes(store.shape, config))
    if resources.memory is not None:
        check_budget("the out-of-bag report", plan.need, resources.memory)
    changes = np.zeros((2, config.trees), dtype=np.int64)
    pairs = _Pairs(len(store.spec.target.classes))
    ranges = _ranges(0, store.rows, plan.rows, 1)
    with stage("oob", config.trees * len(ranges), "trees", listener) as progress:
        load = _loader(store, config, trees, len(plan.groups), resources.workers)
        tallies = _judge(store, config, ranges, plan.groups, load, changes, resources.workers, progress)
        _write_report(store, config, directory / "oob", tallies, changes, pairs)


def _choose(
    shape: Shape, sizes: NDArray[np.int64], first: NDArray[np.int64], resources: Resources, draw_bytes: int = 0
) -> _Plan:
    """How to go over the rows with trees of so many bytes: the least time within the memory.

    sizes, first  int64 [entries] and [entries + 1], see groups.py Trees.
    draw_bytes    of a tree, see sample.py tree_draw_bytes; 0 for those of uniform bags.
    """
    step = min(_step_rows(shape.classes), shape.rows)
    draw_bytes = draw_bytes or 8 * -(-shape.rows // BLOCK_ROWS)
    together = max(1, min(max(_GROUP_TREES, _GROUP_DRAWS // shape.rows), DRAWS_BYTES // draw_bytes))
    tiles = 2 * max(CHUNK_BYTES, 256 * 8 * shape.features)  # and the values that are put into them
    voting = tiles + 3 * together * min(shape.rows, BLOCK_ROWS)
    turning = _TURNED_NODES * _TURNED_BYTES
    writing = 4 * step * (8 * shape.classes + 32)
    fixed = BASE_BYTES + turning + writing + resources.workers * max(voting, LOADING_BYTES)
    fixed += together * draw_bytes
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


def _loader(store: Store, config: TrainConfig, trees: Trees, groups: int, workers: int) -> Callable[[range], _Group]:
    """A function that loads a group of entries of `trees`; the only group there is stays loaded."""
    kept: list[_Group] = []
    sampler = Sampler.of(store, config)

    def group(entries: range) -> _Group:
        if kept:
            return kept[0]
        packed = trees.load(entries, workers)
        pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
        if packed.directions is None:
            _turn(packed, store, workers)
        mixed = packed.ballots(config.vote)
        packed = packed._replace(counts=packed.counts[:0].copy())
        narrow = max(store.spec.features[int(feature)].codes for feature in packed.used) <= _NARROW_CODES
        if narrow:
            packed = packed.narrowed()
        numbers = trees.numbers(entries)
        draws = [sampler.draws(tree) for tree in numbers]
        made = _Group(numbers, packed, mixed, packed.narrow is not None, sampler, draws)
        if groups == 1:
            kept.append(made)
        return made

    return group


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


def _judge(
    store: Store,
    config: TrainConfig,
    ranges: list[tuple[int, int]],
    groups: list[range],
    load: Callable[[range], _Group],
    changes: NDArray[np.int64],
    workers: int,
    progress: Stage,
) -> Iterator[tuple[int, _Tally]]:
    """First row and tally of every range of rows, in order; `changes` int64 [2, trees] is added to, see `_vote`."""
    classes = len(store.spec.target.classes)
    for begin, end in ranges:
        size = end - begin
        tally = _Tally(np.zeros((size, classes)), np.zeros(size, np.uint32), np.zeros(size, np.uint16))
        pieces = _ranges(begin, end, size, max(2, _PIECES * workers))
        for entries in groups:
            group = load(entries)
            here = slice(group.trees.start, group.trees.stop)

            def collect(_: int, change: NDArray[np.int64], here: slice = here) -> None:
                changes[:, here] += change

            tasks = [(store, group, tally.part(start - begin, stop - begin), start, stop) for start, stop in pieces]
            run(_vote, tasks, workers=workers, on_result=collect)
            progress.advance(len(group.trees))
            del group, tasks
        yield begin, tally


def _vote(store: Store, group: _Group, tally: _Tally, start: int, stop: int) -> NDArray[np.int64]:
    """Let the trees of a group vote on the rows from `start` to before `stop`, which lie in one block.

    tally  of these rows. Returns by how much each tree changed the number of rows that are wrong, and that have a
           vote: int64 [2, trees].
    """
    from bigforest.kernels.route import new_scratch, vote_out_of_bag

    packed = group.packed
    block, offset = divmod(start, store.block_rows)
    bags = np.empty((len(group.trees), stop - start), np.uint16)
    for own, tree in enumerate(group.trees):
        bags[own] = group.sampler.block(tree, block, group.draws[own])[offset : offset + stop - start]
    change = np.zeros((2, len(group.trees)), dtype=np.int64)
    layout = packed.layout(group.narrow)
    codes = [store.feature_codes(int(feature)) for feature in packed.used]
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
            store.target[first:last],
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
