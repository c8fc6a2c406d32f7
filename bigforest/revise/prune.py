"""Prune a forest on a tuning set: a subtree becomes a leaf if the leaf predicts the tuning rows better.

Each tree is pruned bottom up: a node becomes a leaf if its majority is right on more of the tuning rows that reach it
than the leaves below it together (Quinlan 1987, reduced error pruning).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, arrow_table, as_numpy
from bigforest.events import Listener
from bigforest.forest.format import KINDS, NODE_KINDS, NODES, PRUNED
from bigforest.forest.parts import Nodes
from bigforest.kernels.common.layout import LEAF
from bigforest.options.values import check_word
from bigforest.predict.forest import Forest
from bigforest.revise.revision import Revision, revise

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

    table = partial(_pruned, prune_ties=on_ties == "prune")
    revision = Revision(PRUNED, "the tuning set", "pruning", table)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _pruned(part: Nodes, table: pa.Table, counts: NDArray[np.int64], *, prune_ties: bool) -> pa.Table:
    """Return the table of a part without the nodes pruned by these counts, its nodes numbered again."""
    from bigforest.kernels.tree.cut import REMOVED, CutRules, cut_trees

    nodes = part.feature.size
    root = np.repeat(part.roots, np.diff(part.starts))
    right_child = np.where(part.feature == LEAF, 0, part.right).astype(np.uint32)
    correct = counts[np.arange(nodes), part.counts.argmax(axis=1)]
    # In a leaf, which has no children, the result is not used.
    below = correct.take(np.arange(1, nodes + 1), mode="clip") + correct[root + right_child]
    number, inner = np.empty(nodes, np.uint32), np.empty(nodes, np.bool_)
    rules = CutRules(cost=0.0, ties=prune_ties)
    decrease = (below - correct).astype(np.float64)  # of wrong rows
    cut_trees(part.starts, right_child, decrease, rules, number, inner, np.empty(0, np.int64))
    kept = number != REMOVED
    left_over = np.flatnonzero(kept)
    cut = ~inner & (right_child > 0)
    right_child = np.where(inner, number[root + right_child], 0).astype(np.uint32)
    kinds = table["kind"].chunk(0)
    kind = np.array([KINDS.index(name) for name in kinds.dictionary.to_pylist()])[as_numpy(kinds.indices)]
    columns = {
        name: table[name].chunk(0).take(arrow_array(left_over, mask=cut[left_over] if name in NODE_KINDS else None))
        for name in NODES.names
    }
    columns["node"] = arrow_array(number[kept])
    columns["left"] = arrow_array(number[kept] + np.uint32(1), mask=~inner[kept])
    columns["right"] = arrow_array(right_child[kept], mask=~inner[kept])
    codes = np.where(cut, 0, kind)[kept].astype(np.int8)
    columns["kind"] = pa.DictionaryArray.from_arrays(arrow_array(codes), arrow_array(KINDS))
    return arrow_table(columns, table.schema.remove_metadata())
