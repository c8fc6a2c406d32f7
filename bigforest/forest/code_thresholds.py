"""Replace the thresholds of trees by codes of the store, so that its rows need not be decoded.

The dictionaries may be larger than memory. So each is read once, from its first value to its last, with the nodes on
its feature in memory in ascending order of their thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import map_on_threads
from bigforest.kernels.predict.flat_tree import NodeLayout
from bigforest.store.store import Store

# Nodes that are listed together, and how many of them threads sort at a time, with the bytes of each of these.
LISTED_NODES = 1 << 23
ORDERED_NODES = 1 << 18
ORDERED_BYTES = 28
# Values of a dictionary read at a time, so that they stay in the cache.
_PIECE = 1 << 16


def replace_thresholds(wide: NodeLayout, used: NDArray[np.int64], store: Store, workers: int) -> None:
    """Replace every threshold by the largest code that goes left; if there is none, by the code before the first.

    used  features, by their places in links (kernels/predict/flat_tree.py).

    Memory: 4 bytes for each of LISTED_NODES, and ORDERED_BYTES for each of ORDERED_NODES, or for all nodes if these are
    fewer.
    """
    from bigforest.kernels.predict.pack import count_nodes, list_nodes

    nodes = wide.links.size // 2
    counts = np.zeros(used.size, np.int64)
    count_nodes(wide, counts)
    order = np.empty(min(LISTED_NODES, nodes), np.uint32)
    for places, first, last in _portions(counts, nodes, order.size):
        some = wide._replace(thresholds=wide.thresholds[2 * first : 2 * last], links=wide.links[2 * first : 2 * last])
        own = counts[places.start : places.stop]
        begins = np.cumsum(own) - own
        ends = begins.copy()
        list_nodes(some, places.start, ends, order)
        here = used[places.start : places.stop]
        tasks = [(store, here, some.thresholds, order, begins, ends, task, workers) for task in range(workers)]
        map_on_threads(_replace_of_features, tasks, workers)


def _portions(counts: NDArray[np.int64], nodes: int, room: int) -> Iterator[tuple[range, int, int]]:
    """Yield places of features, with a range of nodes; the nodes of the range on these features are at most `room`.

    counts  int64 [places], nodes on each
    nodes   in all, cut only where those on one feature are more than there is room for
    """
    begin = 0
    while begin < counts.size:
        fitting = int(np.searchsorted(np.cumsum(counts[begin:]), room, side="right"))
        places = range(begin, begin + max(fitting, 1))
        step = nodes if fitting else room
        yield from ((places, first, min(first + step, nodes)) for first in range(0, nodes, step))
        begin = places.stop


def _replace_of_features(
    store: Store,
    used: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    order: NDArray[np.uint32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: int,
    step: int,
) -> None:
    """Replace the thresholds of every `step`-th used feature from `first` on; its nodes are order[begins:ends]."""
    from bigforest.kernels.predict.pack import nodes_to_codes

    held = max(1, ORDERED_NODES // step)
    for place in range(first, used.size, step):
        lowest = int(store.spec.features[int(used[place])].missing)  # the code of missing values is before all
        low = store.low(int(used[place]))[lowest:]
        nodes = order[begins[place] : ends[place]]
        batches = [nodes[at : at + held] for at in range(0, nodes.size, held)]
        if low.size > _PIECE:
            for batch in batches:
                batch[:] = batch[thresholds[2 * batch.astype(np.int64)].argsort()]
        # Each piece begins with the last value of the one before.
        for begin in range(0, max(low.size - 1, 1), _PIECE - 1):
            values = low[begin : begin + _PIECE].copy()  # copied: a map would be read at random
            whole = begin + _PIECE >= low.size
            batches = [batch[nodes_to_codes(thresholds, batch, values, lowest + begin, whole) :] for batch in batches]
