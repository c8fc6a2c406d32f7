"""Estimate the posteriors of a grown forest again, from a secondary training set (Ho 1995, section 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import arrow_array
from bigforest.common.errors import DataError
from bigforest.common.events import Listener, silent
from bigforest.forest.format.checks import Nodes
from bigforest.forest.format.schema import CALIBRATED
from bigforest.kernels.common.layout import LEAF
from bigforest.predict.forest import Forest
from bigforest.revise.revision import Revision, revise

_MOST_ROWS = 2**32 - 1


def calibrate_forest(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path,
    *,
    threads: int | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Forest:
    """Estimate the posteriors of the leaves from the rows of `data` that end in them, and write the forest `out`.

    A leaf that no row reaches is kept as it is. The whole forest is in memory.

    The calibrated forest has no out-of-bag report.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest or the path of one.
    data : table or path
        A table as for `train`, with the target, of rows the forest was not grown on.
    out : str or Path
        Folder of the forest that is made.
    threads, scratch, overwrite, listener
        As for `train`.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError
    """
    revision = Revision(CALIBRATED, "the secondary set", "calibrating", _calibrated)
    return revise(forest, data, out, revision, threads=threads, scratch=scratch, overwrite=overwrite, listener=listener)


def _calibrated(part: Nodes, table: pa.Table, counts: NDArray[np.int64]) -> pa.Table:
    """The table of a part with these counts."""
    from bigforest.kernels.predict.accumulate import add_up

    unreached = (part.feature == LEAF) & (counts.sum(axis=1) == 0)
    if unreached.any():
        counts[unreached] = part.counts[unreached]
        add_up(part.starts, part.feature, part.right, counts)
    kind = table.schema.field("counts").type
    if kind.value_type == pa.uint32() and counts.max() > _MOST_ROWS:
        raise DataError(f"more than {_MOST_ROWS} rows of the secondary set are of one class; take fewer")
    offsets = arrow_array(np.arange(0, counts.size + 1, counts.shape[1]), pa.int32())
    columns = {
        "counts": pa.ListArray.from_arrays(offsets, arrow_array(counts.ravel(), kind.value_type), type=kind),
        "weight": arrow_array(counts.sum(axis=1).astype(np.uint64)),
    }
    for name, column in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), column)
    return table
