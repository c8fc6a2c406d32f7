"""Runs one stage in a process of its own and prints its peak of anonymous memory, and what was projected, in bytes.

python -m tests.measured oob STORE FOREST MEMORY    (MEMORY in bytes, or none)
python -m tests.measured predict TABLE FOREST MEMORY
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.grow.forest import ForestJob
from bigforest.oob.plan import oob_estimate
from bigforest.oob.report import write_oob
from bigforest.planning.memory import MemoryEstimate, Shape
from bigforest.predict.forest import read_forest
from bigforest.predict.groups import loaded_tree_bytes, survey
from bigforest.predict.passes import plan_passes
from bigforest.source.open import open_source
from bigforest.store.store import Store
from tests.predictions import write_predictions


def anonymous() -> int:
    """Bytes of anonymous memory of this process now. smaps_rollup would walk all pages, for milliseconds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


class Peak(threading.Thread):
    """Samples the anonymous memory every two milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = anonymous()

    def run(self) -> None:
        while True:
            time.sleep(0.002)
            self.bytes = max(self.bytes, anonymous())


def predict_estimate(
    shape: Shape,
    resources: Resources,
    nodes: Sequence[int],
    mixed: Sequence[int] | None = None,
    entries: Sequence[int] | None = None,
    held: int = 0,
) -> MemoryEstimate:
    """What predicting needs with trees of these nodes, leaves with several classes, and terms of oblique nodes.

    mixed, entries  None for as many leaves as there can be, and no terms.
    """
    given = np.asarray(nodes, np.int64)
    several = (given + 1) // 2 if mixed is None else np.asarray(mixed, np.int64)
    listed = np.zeros(given.size, np.int64) if entries is None else np.asarray(entries, np.int64)
    sizes = loaded_tree_bytes(given, several, listed, shape.classes)
    return plan_passes(shape, resources, sizes, np.arange(given.size + 1), held, 0, False)[-1]


def main() -> None:
    """Run the stage of the arguments."""
    stage, data, place = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    memory = None if sys.argv[4] == "none" else int(sys.argv[4])
    resources = Resources(threads=2, memory=memory)
    nodes = survey(place, 1).nodes.tolist()
    peak = Peak()
    with tempfile.TemporaryDirectory() as work:
        if stage == "oob":
            store = Store.open(data, verify=False)
            config = read_forest(place).config
            need = oob_estimate(store.shape, config, resources, nodes)
            (Path(work) / "trees").symlink_to(place.resolve() / "trees")
            peak.start()
            write_oob(ForestJob(store, config, Path(work), resources, silent))
        else:
            source = open_source(data, scratch=Path(work))
            forest = read_forest(place)
            shape = Shape(source.rows, (8,) * len(source.schema), 0, len(forest.classes))
            need = predict_estimate(shape, Resources(threads=2, memory=memory or 1 << 40), nodes)
            peak.start()
            write_predictions(forest, source, Path(work) / "out.parquet", resources=resources)
    print(peak.bytes, need.memory, need.smallest)


if __name__ == "__main__":
    main()
