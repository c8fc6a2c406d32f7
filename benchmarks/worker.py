"""One measurement: one contestant, one set, in a process of its own. Prints one JSON object.

`runs.py` starts it; nothing keeps you from doing so by hand:

    python benchmarks/worker.py --contestant ydf --set digits --folder FOLDER --trees 20 --threads 2 --seed 0

FOLDER holds train.parquet and test.parquet. The contestant first grows one tree on the same data and predicts
with it, so that compilation and first-use costs fall outside what is timed; all are treated alike.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import polars as pl
from datasets import TARGET, Dataset
from worker_fits import CONTESTANTS, Settings

PREDICT_REPEATS = 3


def measure(name: str, data: Dataset, settings: Settings) -> dict[str, float]:
    """Seconds, accuracy and facts of one run. Predicting is repeated and its best time is kept."""
    contestant = CONTESTANTS[name]
    inputs = contestant.prepare_test(data)
    contestant.fit(data, Settings(1, settings.threads, settings.seed)).predict(inputs)
    fitted = contestant.fit(data, settings)
    best = float("inf")
    for _ in range(PREDICT_REPEATS):
        begin = time.perf_counter()
        predicted = fitted.predict(inputs)
        best = min(best, time.perf_counter() - begin)
    truth = data.test[TARGET].cast(pl.Int64).to_numpy()
    return {
        "prepare_seconds": fitted.prepare_seconds,
        "fit_seconds": fitted.fit_seconds,
        "predict_seconds": best,
        "accuracy": float((predicted == truth).mean()),
        **fitted.facts,
    }


def main() -> None:
    """Measure one contestant on one prepared set and print the result."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--contestant", choices=list(CONTESTANTS), required=True)
    parser.add_argument("--set", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trees", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    train, test = (pl.read_parquet(options.folder / f"{part}.parquet") for part in ("train", "test"))
    settings = Settings(options.trees, options.threads, options.seed)
    print(json.dumps(measure(options.contestant, Dataset(options.set, train, test), settings)))


if __name__ == "__main__":
    main()
