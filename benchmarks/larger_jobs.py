"""The jobs of the benchmark larger.py, each done in a process of its own: python benchmarks/larger_jobs.py NAME JSON.

Prints one JSON object: what the job found out, and for each of its stages when it ended (`end`, by the clock that all
processes share), the seconds, seconds of processor, of these the system's, and bytes read and written, by the process's
own counts (/proc/self/io): `read` and `written` are what it asked the system for, `disk_read` and `disk_written` what
went to the disk or came from it. Mapped files count in `disk_read` alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from larger_table import TARGET, write_table

from bigforest.grow.forest import ForestJob

# Of all libraries, as runs.py says.
THREADS = int(os.environ["OMP_NUM_THREADS"])
# What /proc/self/io calls what we call otherwise.
_COUNTERS = {"rchar": "read", "wchar": "written", "read_bytes": "disk_read", "write_bytes": "disk_written"}


class Stages:
    """The stages of a job, one after the other."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._begin = _now()

    def end(self, name: str) -> None:
        """What happened since the last stage ended was the stage `name`."""
        end = _now()
        took = {key: end[key] - self._begin[key] for key in end}
        self.found.append({"stage": name, "end": end["seconds"]} | took)
        self._begin = end

    def listen(self, event: Any) -> None:
        """A listener of bigforest's events."""
        from bigforest.events import StageFinished

        if isinstance(event, StageFinished):
            self.end(event.stage)


def _now() -> dict[str, float]:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    counts = dict(line.split(": ") for line in lines)
    return {
        "seconds": time.monotonic(),
        "processor": time.process_time(),
        "system": os.times().system,
        **{ours: int(counts[theirs]) for theirs, ours in _COUNTERS.items()},
    }


def make(stages: Stages, table: str, rows: int) -> dict[str, Any]:
    """Write the table."""
    write_table(Path(table), rows)
    return {}


def train(stages: Stages, table: str, out: str, memory: int | None, trees: int) -> dict[str, Any]:
    """Train on a table or a kept store."""
    import pyarrow.parquet as pq

    import bigforest

    forest = bigforest.train(
        table,
        out=out,
        memory=memory,
        trees=trees,
        mtry="sqrt",
        refine="off",
        threads=THREADS,
        seed=1,
        overwrite=True,
        listener=stages.listen,
    )
    stages.end("rest")
    parts = (pq.read_metadata(path) for path in (Path(out) / "trees").iterdir())
    return {"nodes": sum(part.num_rows for part in parts), "error": forest.oob.error}


def grow(stages: Stages, table: str, out: str, memory: int | None, trees: int, family: str = "axis") -> dict[str, Any]:
    """Grow the trees of a forest from a kept store, and nothing else."""
    from bigforest.execution.resources import Resources
    from bigforest.options.train_config import TrainConfig
    from bigforest.store.store import Store
    from bigforest.training.run import grow_forest

    shutil.rmtree(out, ignore_errors=True)
    Path(out).mkdir()
    resources = Resources(threads=THREADS, memory=memory, scratch=Path(out).parent)
    store = Store.open(table, verify=False)
    stages.end("open")
    config = TrainConfig.of(trees=trees, seed=1, family=family)
    grow_forest(ForestJob(store, config, Path(out), resources, stages.listen))
    parts = sorted((Path(out) / "trees").iterdir())
    return {"digest": hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()}


def encode(stages: Stages, table: str, out: str, memory: int | None) -> dict[str, Any]:
    """Presort a table and keep it."""
    import bigforest

    bigforest.encode_store(table, out, memory=memory, threads=THREADS, overwrite=True)
    stages.end("encode")
    return {}


def read_and_sort(stages: Stages, table: str) -> dict[str, Any]:
    """Read the table once with Polars, a column at a time, and sort each column: the least that presorting could do."""
    import polars as pl

    scan = pl.scan_parquet(table)
    for name in scan.collect_schema().names():
        column = scan.select(name).collect().to_series()
        stages.end("read")
        if name != TARGET:
            column.sort()
            stages.end("sort")
    return {}


def scikit_learn(stages: Stages, table: str, trees: int) -> dict[str, Any]:
    """A forest of scikit-learn on one float32 matrix."""
    from sklearn.ensemble import RandomForestClassifier

    values, target = _matrix(table)
    stages.end("read")
    RandomForestClassifier(trees, max_features="sqrt", n_jobs=THREADS, random_state=1).fit(values, target)
    stages.end("fit")
    return {}


def ydf(stages: Stages, table: str, trees: int) -> dict[str, Any]:
    """A forest of YDF, from its own reader of the columns."""
    import polars as pl
    import ydf

    ydf.verbose(0)
    frame = pl.read_parquet(table)
    data = {name: frame[name].to_numpy() for name in frame.columns}
    stages.end("read")
    learner = ydf.RandomForestLearner(
        label=TARGET,
        num_trees=trees,
        num_threads=THREADS,
        max_depth=-1,
        min_examples=1,
        winner_take_all=False,
        compute_oob_performances=False,
    )
    learner.train(data)
    stages.end("fit")
    return {}


def lightgbm(stages: Stages, table: str, trees: int) -> dict[str, Any]:
    """A forest of LightGBM (boosting_type rf, 255 bins), its data fed in pieces, as it offers for large tables."""
    import lightgbm
    import numpy as np
    import pyarrow.parquet as pq

    class Groups(lightgbm.Sequence):  # type: ignore[misc]
        """Row groups of the file, which it asks for by rows."""

        def __init__(self) -> None:
            self._file = pq.ParquetFile(table)
            self._names = [name for name in self._file.schema_arrow.names if name != TARGET]
            self._size = self._file.metadata.row_group(0).num_rows
            self._held: tuple[int, Any] = (-1, None)
            self.batch_size = self._size

        def _group(self, number: int) -> Any:
            if self._held[0] != number:
                read = self._file.read_row_group(number, columns=self._names)
                self._held = (number, np.column_stack([column.to_numpy() for column in read.columns]).astype(float))
            return self._held[1]

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                begin, end, _ = index.indices(len(self))
                pieces = []
                while begin < end:
                    number, first = divmod(begin, self._size)
                    last = min(first + end - begin, self._size)
                    pieces.append(self._group(number)[first:last])
                    begin += last - first
                return np.concatenate(pieces)
            number, row = divmod(int(index), self._size)
            return self._group(number)[row]

        def __len__(self) -> int:
            return int(self._file.metadata.num_rows)

    label = pq.read_table(table, columns=[TARGET]).column(0).to_numpy()
    data = lightgbm.Dataset(Groups(), label=label, params={"feature_pre_filter": False}).construct()
    stages.end("read")
    options = {
        "objective": "binary",
        "boosting_type": "rf",
        "bagging_fraction": 0.632,
        "bagging_freq": 1,
        "feature_fraction_bynode": 5 / 30,
        "num_leaves": 131_072,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 0.0,
        "histogram_pool_size": 256,  # MB
        "num_threads": THREADS,
        "verbosity": -1,
    }
    lightgbm.train(options, data, trees)
    stages.end("fit")
    return {}


def xgboost(stages: Stages, table: str, trees: int, cache: str) -> dict[str, Any]:
    """A forest of XGBoost from external memory (256 bins, `ExtMemQuantileDMatrix`), to the depth of 20."""
    import numpy as np
    import pyarrow.parquet as pq
    import xgboost

    class Groups(xgboost.DataIter):  # type: ignore[misc]
        """Row groups of the file, one after the other."""

        def __init__(self) -> None:
            self._file = pq.ParquetFile(table)
            self._next = 0
            super().__init__(cache_prefix=cache)

        def next(self, input_data: Callable[..., Any]) -> bool:
            if self._next == self._file.num_row_groups:
                return False
            group = self._file.read_row_group(self._next)
            target = group.column(TARGET).to_numpy()
            features = group.drop_columns([TARGET])
            input_data(data=np.column_stack([column.to_numpy() for column in features.columns]), label=target)
            self._next += 1
            return True

        def reset(self) -> None:
            self._next = 0

    data = xgboost.ExtMemQuantileDMatrix(Groups(), nthread=THREADS, max_bin=256)
    stages.end("read")
    options = {
        "objective": "binary:logistic",
        "num_parallel_tree": trees,
        "learning_rate": 1.0,
        "subsample": 0.632,
        "colsample_bynode": 5 / 30,
        "max_depth": 20,
        "min_child_weight": 0,
        "lambda": 0,
        "tree_method": "hist",
        "max_cached_hist_node": 1024,  # 126 MB
        "nthread": THREADS,
    }
    xgboost.train(options, data, 1)
    stages.end("fit")
    return {}


def _matrix(table: str) -> tuple[Any, Any]:
    """Features float32 [rows, features] in C order, and the target."""
    import numpy as np
    import polars as pl

    frame = pl.read_parquet(table)
    return np.ascontiguousarray(frame.drop(TARGET).to_numpy()), frame[TARGET].to_numpy()


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    job.__name__: job for job in (make, train, grow, encode, read_and_sort, scikit_learn, ydf, lightgbm, xgboost)
}


def main() -> None:
    """Do the job of the arguments."""
    stages = Stages()
    facts = JOBS[sys.argv[1]](stages, **json.loads(sys.argv[2]))
    print(json.dumps({"stages": stages.found} | facts))


if __name__ == "__main__":
    main()
