"""Re-estimate the class probabilities of a forest from a secondary training set (Ho 1995, section 5)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array
from bigforest.errors import DataError
from bigforest.events import Listener
from bigforest.forest.format import CALIBRATED
from bigforest.forest.nodes import counts_column
from bigforest.forest.parts import Nodes
from bigforest.forest.rewrite import with_columns
from bigforest.kernels.common.layout import LEAF
from bigforest.predict.forest import Forest, opened_forest
from bigforest.revise.revision import Revision, revise

# Largest count of a class in a node; and where weights are wide.
_MOST = 2**32 - 1
_MOST_WIDE = 2**61


def calibrate_forest(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    threads: int | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Forest:
    """Re-estimate the class probabilities of the leaves from the rows of `data`, and write the forest `out`.

    A leaf that no row reaches is not changed. All rows have the same weight, even if training used weights. The whole
    forest is held in memory. The calibrated forest has no out-of-bag report.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path
        A table as for `train`, with the target, of rows the forest was not trained on.
    out : str or Path
        Folder of the new forest.
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
    >>> bf.calibrate_forest(forest, table, "calibrated.forest").trees
    10
    """
    forest = opened_forest(forest)
    # A row weighs what rows of training do on average, in the steps of their weights.
    table = partial(_calibrated, unit=max(1, round(1.0 / forest.spec.weight_unit)))
    revision = Revision(CALIBRATED, "the secondary set", "calibrating", table)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _calibrated(part: Nodes, table: pa.Table, counts: NDArray[np.int64], *, unit: int) -> pa.Table:
    """Return the table of a part with these counts of rows, each of which weighs `unit`."""
    from bigforest.kernels.predict.accumulate import add_up

    kind = table.schema.field("counts").type
    most = _MOST if kind.value_type == pa.uint32() else _MOST_WIDE
    if int(counts.max()) > most // unit:
        raise DataError(f"more than {most // unit} rows of the secondary set are of one class; take fewer")
    counts *= unit
    unreached = (part.feature == LEAF) & (counts.sum(axis=1) == 0)
    if unreached.any():
        counts[unreached] = part.counts[unreached]
        add_up(part.starts, part.feature, part.right, counts)
        if int(counts.max()) > most:
            raise DataError(f"more than about {most // unit} rows of the secondary set are of one class; take fewer")
    weight = arrow_array(counts.sum(axis=1).astype(np.uint64))
    return with_columns(table, {"counts": counts_column(counts, kind), "weight": weight})
