"""What leaves cast by each lambda, from the little that is kept of them, against the nodes of the trees."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigforest.forest.ballots import (
    Ballots,
    LeafShrinking,
    ballots_of,
    join_ballots,
    shrunk_leaves,
)
from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import NO_BALLOT
from tests.forest.test_shrinkage import AMOUNTS, check_formula, trees


def ballots_of_tree(tree: TreeArrays, wide: bool) -> Ballots:
    return ballots_of(tree._replace(counts=tree.counts.astype(np.uint64)) if wide else tree, wide)


@given(trees(), st.lists(AMOUNTS, min_size=1, max_size=3), st.booleans())
def test_shrunk_leaves__are_those_of_the_nodes_to_the_last_bit(
    grown: list[TreeArrays], amounts: list[float], wide: bool
) -> None:
    width = max(1, grown[0].counts.shape[1])
    joined = join_ballots([ballots_of_tree(tree, wide) for tree in grown], width)
    shrunk = shrunk_leaves(joined, np.array(amounts))
    assert shrunk is not None
    shrinking = LeafShrinking(np.array(amounts), width)
    rows = [shrinking.values(tree) for tree in grown]
    np.testing.assert_array_equal(shrunk.value, np.concatenate(rows))
    check_formula(shrunk.value, grown, amounts)


@given(trees(), st.data())
def test_shrunk_leaves__of_what_are_no_trees_are_refused(grown: list[TreeArrays], data: st.DataObject) -> None:
    whole = ballots_of_tree(grown[0], wide=False)
    faults = ["an inner node more", "a leaf more", "a weight less", "a value less", "beyond", "no node"]
    kind = data.draw(st.sampled_from(faults))
    broken = whole
    if kind == "an inner node more":
        broken = whole._replace(first=np.array([0, whole.ballot.size + 1]), ballot=np.append(NO_BALLOT, whole.ballot))
    elif kind == "a leaf more":
        broken = whole._replace(
            first=np.array([0, whole.ballot.size + 1]),
            ballot=np.append(whole.ballot, np.uint32(0)),
            weight=np.append(whole.weight, np.uint32(1)),
        )
    elif kind == "a weight less":
        broken = whole._replace(weight=whole.weight[1:])
    elif kind == "a value less" and grown[0].value is not None:
        broken = whole._replace(mixed=whole.mixed[1:])
    elif kind == "beyond" and grown[0].value is None:
        ballot = whole.ballot.copy()
        ballot[-1] = np.uint32(grown[0].counts.shape[1] + len(whole.mixed))
        broken = whole._replace(ballot=ballot)
    elif kind == "no node":
        broken = whole._replace(ballot=np.full(whole.ballot.size, NO_BALLOT))
    assert (shrunk_leaves(broken, np.zeros(1)) is None) == (broken is not whole)
