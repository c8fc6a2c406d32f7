"""Spark's random forest, on two worker processes of one core each, for peers_dask.py. Needs pyspark and Java."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from datasets import TARGET

# Deepest trees that Spark can grow, and a limit of its columns' bins as of the other peers.
DEPTH, BINS = 30, 256
# Memory of a worker and of the driver, which collects the trees and keeps the rest of its heap free only with room.
WORKER_MEGABYTES, DRIVER_MEGABYTES = 3_072, 2_048


def measure(folder: Path, trees: int, seed: int) -> dict[str, float]:
    """Seconds from the files to the forest and accuracy, as peers_dask.measure."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{DRIVER_MEGABYTES}m",
        "spark.executor.memory": f"{WORKER_MEGABYTES}m",
        "spark.sql.files.maxPartitionBytes": "1g",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local-cluster[2,1,{WORKER_MEGABYTES}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        _fit(session, folder, 1, seed)
        begin = time.perf_counter()
        model = _fit(session, folder, trees, seed)
        seconds = time.perf_counter() - begin
        found = model.transform(_table(session, folder / "test.parquet"))
        right = found.filter(found["prediction"] == found[TARGET]).count()
        return {"seconds": seconds, "oob_seconds": 0.0, "accuracy": right / found.count()}
    finally:
        session.stop()


def _fit(session: Any, folder: Path, trees: int, seed: int) -> Any:
    from pyspark.ml.classification import RandomForestClassifier

    forest = RandomForestClassifier(
        featuresCol="features",
        labelCol=TARGET,
        numTrees=trees,
        maxDepth=DEPTH,
        maxBins=BINS,
        featureSubsetStrategy="sqrt",
        seed=seed,
    )
    table = _table(session, folder / "train").cache()
    try:
        return forest.fit(table)
    finally:
        table.unpersist()


def _table(session: Any, path: Path) -> Any:
    from pyspark.ml.feature import VectorAssembler

    frame = session.read.parquet(str(path))
    names = [name for name in frame.columns if name != TARGET]
    packed = VectorAssembler(inputCols=names, outputCol="features").transform(frame)
    return packed.select("features", packed[TARGET].cast("double").alias(TARGET))
