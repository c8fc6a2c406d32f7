"""Train, evaluate and predict on one machine or on a cluster: only the line with `Client` differs.

python examples/cluster.py
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import polars as pl
from distributed import Client

import bigforest as bf

DIGITS = Path(__file__).parent / "data" / "digits.parquet"


def main() -> None:
    """Two worker processes on this machine; on a cluster, give the scheduler's address to Client instead."""
    here = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": ":0"}
    with (
        # At the end workers may log that the scheduler has closed before them; these messages are hidden.
        Client(**here, silence_logs=logging.CRITICAL),  # Client("tcp://host:8786") on a cluster
        tempfile.TemporaryDirectory() as folder,  # on a disk that all workers share
    ):
        forest = bf.train(DIGITS, out=Path(folder) / "digits.forest", trees=50)
        print(f"out-of-bag error {forest.oob.error:.3f}, by {forest.run['threads'][0]} threads")
        done = bf.predict_file(forest, DIGITS, Path(folder) / "digits.predictions.parquet")
        print(f"{done.rows} predictions, {done.accuracy:.3f} of them right")
        alone = bf.train(DIGITS, trees=50, scheduler="threads")
        same = alone.nodes.collect().equals(pl.read_parquet(Path(folder) / "digits.forest" / "trees" / "*.parquet"))
        print(f"the forest grown without the cluster is {'the same' if same else 'another'}")


if __name__ == "__main__":
    main()
