"""boosting.parquet: errors and votes of the trees of a boosted forest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_table, as_numpy
from bigforest.errors import damaged_forest
from bigforest.forest.files import Header, read_table, write_table
from bigforest.forest.format import BOOSTING
from bigforest.sampling.boosting import TreeVote

FILE = "boosting.parquet"
KIND = "boosting"
# Votes are logarithms of ratios of numbers of rows.
_LARGEST_VOTE = 64.0


def write_tree_votes(directory: Path, votes: Sequence[TreeVote], header: Header) -> None:
    """Write boosting.parquet of the forest in `directory`."""
    columns = {
        "tree": np.arange(len(votes), dtype=np.uint32),
        "error": np.array([one.error for one in votes]),
        "vote": np.array([one.vote for one in votes]),
    }
    write_table(arrow_table(columns, BOOSTING), directory / FILE, KIND, header)


def read_boosting(directory: Path, header: Header) -> pa.Table:
    """Read and check boosting.parquet. Raises FormatError."""
    path = directory / FILE
    table = read_table(path, KIND, BOOSTING, header.identity)
    tree, error, vote = (as_numpy(table[name]) for name in BOOSTING.names)
    sound = (
        np.array_equal(tree, np.arange(header.config.trees))
        and ((error >= 0.0) & (error <= 1.0)).all()
        and ((vote > 0.0) & (vote <= _LARGEST_VOTE)).all()
        and (header.config.weighs_trees or (vote == 1.0).all())
    )
    if not sound:
        raise damaged_forest(f"{path} does not have an error and a vote for each tree, in order")
    return table


def read_tree_votes(directory: Path, header: Header) -> NDArray[np.float64] | None:
    """Return the weight of each tree's vote, float64 [trees]; None if all votes have the same weight.

    Raises FormatError.
    """
    if not header.config.weighs_trees:
        return None
    return as_numpy(read_boosting(directory, header)["vote"])
