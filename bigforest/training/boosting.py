"""Growing a boosted forest: one tree after the other, each on a bag that is drawn by the errors of the earlier trees.

When a tree is grown, all rows are routed through it: its errors give the weights for the next bag (RowWeights), and the
leaves of out-of-bag rows are written for the report, as for other forests. Neither weights nor bags are kept. A run
that continues sends all rows down the trees that are there, and has the same weights again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.events import Stage, stage
from bigforest.execution.executor import map_on_threads
from bigforest.forest.ballots import Ballots, ballots_of_pieces, ballots_of_trees
from bigforest.forest.leaf_votes import LeafWriter, LeftOut, found_leaves
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.forest.parts import read_span
from bigforest.forest.rewrite import is_finished
from bigforest.forest.tree_votes import write_tree_votes
from bigforest.grow.forest import ForestJob, Grower, grow_trees, part_groups, shared_of
from bigforest.oob.leaves import for_store, leaves_of_rows
from bigforest.predict.groups import survey
from bigforest.predict.packed_trees import PackedTrees, grown_nodes, pack
from bigforest.sampling.bags import Sampler
from bigforest.sampling.boosting import RowWeights, TreeVote
from bigforest.store.format import block_count, block_span


def grow_boosted(job: ForestJob) -> None:
    """Write the parts of the forest except for those that are there, the leaves of out-of-bag rows, and
    boosting.parquet.

    All threads work on one tree at a time, to find the leaves of rows. Raises what `grow_forest` raises.
    """
    store, config, directory, resources, listener = job
    for file in found_leaves(directory, store.rows, store.spec.target.answer_width):
        file.remove()  # those of existing trees are found again with the weights
    with (
        Grower(job),
        stage("grow", config.trees, "trees", listener) as progress,
    ):
        shared = shared_of(store, config)
        boosting = _Boosting(shared.sampler, RowWeights(store.rows, config), [], resources.workers, progress)
        for part in part_groups(store.rows, config.trees):
            leaves = LeafWriter(store, config, directory, part.start)
            if is_finished(directory, part, shared.header):
                boosting.follow(directory, part, leaves)
            else:
                write_part(directory, part.start, boosting.grow(part, leaves), shared.header)
            leaves.write()
    write_tree_votes(directory, boosting.votes, shared.header)


class _Boosting(NamedTuple):
    """The state of growing.

    weights  by which the bag of the next tree is drawn
    votes    of the trees so far
    """

    sampler: Sampler
    weights: RowWeights
    votes: list[TreeVote]
    workers: int
    progress: Stage

    def grow(self, part: range, leaves: LeafWriter) -> Iterator[TreeArrays]:
        """Grow the trees of a part, one after the other."""
        store, config = self.sampler.store, self.sampler.config
        for tree in part:
            self.sampler.weigh(tree, self.weights.weights)
            [grown] = grow_trees(store, config, range(tree, tree + 1))
            packed = pack([list(grown_nodes(tree, [grown.trees]))], store.spec)
            ballots = ballots_of_trees(grown.trees, store.spec.wide_weights)
            self._evaluate(tree, for_store(packed, store, self.workers), ballots, leaves)
            yield grown.trees

    def follow(self, directory: Path, part: range, leaves: LeafWriter) -> None:
        """Evaluate the trees of an existing part, as if they had just been grown."""
        store, trees = self.sampler.store, survey(directory, self.workers, [part])
        for place, tree in enumerate(part):
            self.sampler.weigh(tree, self.weights.weights)
            entry = range(place, place + 1)
            packed = trees.load(entry, self.workers)
            [span] = trees.spans(entry)
            ballots = ballots_of_pieces(read_span(span, trees.header), store.spec.wide_weights)
            self._evaluate(tree, for_store(packed, store, self.workers), ballots, leaves)

    def _evaluate(self, tree: int, packed: PackedTrees, ballots: Ballots, leaves: LeafWriter) -> None:
        """Route all rows through a tree whose bag has been drawn; sets the weights for the next tree."""
        store = self.sampler.store
        answers = _answers(ballots, len(store.spec.target.classes))
        ends, wrong = np.empty(store.rows, np.uint32), np.empty(store.rows, np.bool_)

        def route(block: int) -> None:
            span = block_span(store.rows, block)
            own = ends[span.start : span.stop] = leaves_of_rows(store, packed, packed.roots, span)[:, 0]
            wrong[span.start : span.stop] = answers[own] != store.labels(span.start, span.stop)

        blocks = range(block_count(store.rows))
        store.fetch(packed.used.tolist(), blocks)
        map_on_threads(route, [(block,) for block in blocks], self.workers)
        left_out = np.flatnonzero(self.sampler.bag(tree) == 0).astype(np.uint32)
        leaves.put([LeftOut(left_out, ends[left_out])], ballots)
        self.votes.append(self.weights.add(wrong))
        self.progress.advance(1)


def _answers(ballots: Ballots, classes: int) -> NDArray[np.uint16]:
    """The class that each leaf of a tree predicts, the most frequent one, the lowest among ties; uint16 [nodes]."""
    answers = ballots.ballot.astype(np.int64)
    mixed = np.flatnonzero((answers >= classes) & (answers < classes + len(ballots.mixed)))
    answers[mixed] = ballots.mixed.argmax(axis=1)[answers[mixed] - classes] if mixed.size else 0
    return answers.astype(np.uint16)  # not used for inner nodes
