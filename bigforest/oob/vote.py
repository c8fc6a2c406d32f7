"""Trees that vote on the rows that are not in their bags.

Where all nodes split on features, rows are not decoded: thresholds are turned into codes (thresholds_to_codes.py) and
compared with the codes of the store. So a pass reads the codes once from end to end, and each dictionary in ascending
order. Where some are oblique, codes are replaced by the values they were projected by in growing. Categories are
compared by codes in any case, and the code of a missing value becomes NaN, so that rows go as in prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.execution.threads import run
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.forest.load.groups import Trees
from bigforest.forest.load.router import RowRouter, chunk_rows
from bigforest.forest.load.row_batch import RowBatch
from bigforest.forest.load.vote_rule import answer_width
from bigforest.oob.accumulator import (
    OobAccumulator,
    no_votes,
    read_tally,
    row_weights,
    true_values,
    weight_share,
    write_tally,
)
from bigforest.oob.plan import PIECES, cut_ranges, step_rows
from bigforest.oob.shrinkage import LambdaLosses, losses_of
from bigforest.oob.thresholds_to_codes import turn_thresholds
from bigforest.sampling.bags import BLOCK_ROWS, Sampler
from bigforest.store.store import Store

# Codes that float32 holds exactly.
_NARROW_CODES = 1 << 24


class CodeTrees(NamedTuple):
    """Trees whose thresholds are codes, or values where some node is oblique.

    narrow  whether codes are compared as float32
    """

    trees: range
    packed: FlatTrees
    mixed: NDArray[np.float64]
    narrow: bool


class VoteInputs(NamedTuple):
    """What the tasks of a report share.

    run      names the report in every process.
    groups   of entries of `trees` that are loaded together.
    workers  threads of a process.
    folder   for tallies, where they do not stay in the process.
    unit     by what errors of numbers are multiplied before they are squared.

    The trees have the lambdas by which the votes are taken (Trees.lambdas).
    """

    run: str
    trees: Trees
    groups: list[range]
    workers: int
    folder: Path | None
    unit: float

    @property
    def lambdas(self) -> int:
        """How many votes there are of a row."""
        return max(1, len(self.trees.lambdas))


# The groups that stay loaded in this process, by report.
_loaded: dict[str, CodeTrees] = {}
_MOST_LOADED = 2


class JudgedRange(NamedTuple):
    """What the votes on a range of rows come to.

    tally    of these rows, or the file it is in.
    changes  int64 [lambdas + 2, trees], see `_vote`.
    losses   of the lambdas, where there are several; else None.
    """

    tally: OobAccumulator | Path
    changes: NDArray[np.int64]
    losses: LambdaLosses | None


def judge_range(
    sampler: Sampler, work: VoteInputs, begin: int, end: int, advance: Callable[[int], None] | None
) -> JudgedRange:
    """Task: the votes on rows `begin` to before `end`.

    advance  is told of trees that are done.
    """
    accumulator = no_votes(end - begin, sampler.store.spec, work.lambdas)
    changes = _judge(sampler, work, begin, end, accumulator, advance)
    losses = losses_of(sampler.store, begin, accumulator, work.lambdas, work.unit) if work.lambdas > 1 else None
    tally = accumulator if work.folder is None else write_tally(accumulator, work.folder)
    return JudgedRange(tally, changes, losses)


def judge_further(
    sampler: Sampler, work: VoteInputs, begin: int, end: int, before: Sequence[Path]
) -> tuple[list[Path], NDArray[np.int64]]:
    """Task: the files of the tally of these rows, one for every `step_rows`, and the changes, as in `judge_range`.

    before  the same files for the trees before these, which stay; none where there are no such trees.
    """
    assert work.folder is not None
    spec = sampler.store.spec
    step = step_rows(answer_width(spec))
    accumulator = no_votes(end - begin, spec)
    for start, path in zip(range(0, end - begin, step), before, strict=bool(before)):
        piece = accumulator.part(start, start + step)
        piece.put(read_tally(path, piece.voters.size, spec))
    changes = _judge(sampler, work, begin, end, accumulator, None)
    starts = range(0, end - begin, step)
    return [write_tally(accumulator.part(start, start + step), work.folder) for start in starts], changes


def _judge(
    sampler: Sampler,
    work: VoteInputs,
    begin: int,
    end: int,
    accumulator: OobAccumulator,
    advance: Callable[[int], None] | None,
) -> NDArray[np.int64]:
    """Add the votes of the trees on rows `begin` to before `end` to their tally; the changes, int64 [lambdas + 2,
    trees]."""
    size = end - begin
    changes = np.zeros((work.lambdas + 2, sampler.config.trees), np.int64)
    pieces = cut_ranges(begin, end, size, max(2, PIECES * work.workers))
    for entries in work.groups:
        group = load_group(sampler, work, entries)
        sampler.store.fetch(group.packed.used.tolist(), range(begin // BLOCK_ROWS, -(-end // BLOCK_ROWS)))
        here = slice(group.trees.start, group.trees.stop)

        def collect(_: int, change: NDArray[np.int64], here: slice = here) -> None:
            changes[:, here] += change

        tasks = [
            (sampler, group, accumulator.part(start - begin, stop - begin), work.unit, start, stop)
            for start, stop in pieces
        ]
        run(_vote, tasks, workers=work.workers, on_result=collect)
        if advance is not None:
            advance(len(group.trees))
        del group, tasks
    return changes


def load_group(sampler: Sampler, work: VoteInputs, entries: range) -> CodeTrees:
    """A group of entries of the trees; the only group there is stays loaded in the process until `forget`."""
    if work.run in _loaded:
        return _loaded[work.run]
    store = sampler.store
    packed = work.trees.load(entries, work.workers)
    pa.default_memory_pool().release_unused()  # Arrow keeps what it read the parts into
    if packed.directions is None:
        turn_thresholds(packed, store, work.workers)
    mixed = packed.ballots(sampler.config.vote)
    packed = packed._replace(counts=packed.counts[:0].copy())
    narrow = max(store.spec.features[int(feature)].codes for feature in packed.used) <= _NARROW_CODES
    if narrow:
        packed = packed.narrowed()
    made = CodeTrees(work.trees.numbers(entries), packed, mixed, packed.narrow is not None)
    if len(work.groups) == 1:
        while len(_loaded) >= _MOST_LOADED:
            _loaded.pop(next(iter(_loaded)))
        _loaded[work.run] = made
    return made


def forget_votes(run: str) -> None:
    """Give the memory of a report's trees back."""
    _loaded.pop(run, None)


def _vote(
    sampler: Sampler, group: CodeTrees, accumulator: OobAccumulator, unit: float, start: int, stop: int
) -> NDArray[np.int64]:
    """Let the trees of a group vote on the rows from `start` to before `stop`, which lie in one block.

    accumulator  of these rows.

    Returns by how much each tree changed the weight of the rows that are wrong, or the sum of squared errors by weight
    (error_unit), by each lambda; then the number of rows that have a vote, and their weight: int64 [lambdas + 2,
    trees].
    """
    from bigforest.kernels.predict.accumulate import (
        ClassVotes,
        NumberVotes,
        OobVotes,
        Votes,
        average_out_of_bag,
        vote_out_of_bag,
    )

    store, packed = sampler.store, group.packed
    block, offset = divmod(start, store.block_rows)
    bags = np.empty((len(group.trees), stop - start), np.uint16)
    for own, tree in enumerate(group.trees):
        bags[own] = sampler.block(tree, block)[offset : offset + stop - start]
    regression = store.spec.target.task == "regression"
    lambdas = (accumulator.votes if regression else accumulator.prediction).shape[1]
    change = np.zeros((lambdas + 2, len(group.trees)), dtype=np.int64)

    def vote(way: Any, scratch: Any, here: slice) -> None:
        first, last = start + here.start, start + here.stop
        cast, weight = Votes(group.mixed, accumulator.votes[here]), row_weights(store, first, last)
        bag = OobVotes(cast, bags[:, here], accumulator.voters[here], change[-2], change[-1], weight)
        if regression:
            numbers = NumberVotes(bag, true_values(store, first, last), unit, weight_share(store), change[:-2])
            average_out_of_bag(way, packed.roots, numbers, scratch)
        else:
            classes = ClassVotes(bag, store.labels(first, last), accumulator.prediction[here], change[:-2])
            vote_out_of_bag(way, packed.roots, classes, scratch)

    send_rows(store, group, start, stop, vote)
    return change


def leaves_in(sampler: Sampler, group: CodeTrees, own: int, start: int, stop: int) -> NDArray[np.uint32]:
    """The leaves of the tree in place `own` of a group in which rows `start` to before `stop`, of one block, end.

    Leaves are numbered within the group, in the order of the nodes. For trees that predict numbers.
    """
    from bigforest.kernels.predict.accumulate import LeafNumbers, Votes, note_leaves

    found, votes = np.empty((stop - start, 1), np.uint32), np.zeros((stop - start, 1))

    def note(way: Any, scratch: Any, here: slice) -> None:
        leaves = LeafNumbers(Votes(group.mixed, votes[here]), np.uint32(0), np.uint64(0), found[here])
        note_leaves(way, group.packed.roots[own : own + 1], leaves, scratch)

    send_rows(sampler.store, group, start, stop, note)
    return found[:, 0]


def send_rows(store: Store, group: CodeTrees, start: int, stop: int, use: Callable[[Any, Any, slice], None]) -> None:
    """Hand some rows at a time of those from `start` to before `stop`, of one block, to a kernel of
    kernels/predict/accumulate.py.

    use  takes what it does: way, scratch, and which of these rows they are.
    """
    from bigforest.kernels.predict.route import new_scratch

    router = RowRouter(group.packed)
    step = min(chunk_rows(_columns(store, group, start, start)), stop - start)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        way = router.way(_columns(store, group, first, last), 0, last - first)
        assert way is not None  # oblique nodes are grown on tables without missing values
        use(way, new_scratch(way), slice(first - start, last - start))


def _columns(store: Store, group: CodeTrees, first: int, last: int) -> RowBatch:
    """The rows from `first` to before `last` as the trees of a group look at them."""
    columns: list[NDArray[Any]] = []
    block = first // store.block_rows
    blocks = range(block, block + 1)
    for place in group.packed.used.tolist():
        feature = store.spec.features[place]
        cells = store.feature_codes(place, blocks)[first:last]
        if feature.kind == "category":
            columns.append(cells)
        elif group.packed.directions is not None:
            columns.append(store.low(place)[cells])
        elif feature.missing:
            columns.append(np.where(cells == 0, np.nan, cells).astype(np.float32 if group.narrow else np.float64))
        else:
            columns.append(cells)
    return RowBatch.of(columns)
