"""One measurement of whole.py: one contestant from file to files, in a process of its own. Prints one JSON object.

    python benchmarks/whole_fits.py --contestant scikit-learn --folder FOLDER --trees 20 --threads 2 --seed 0

FOLDER holds train.parquet and test.parquet, and is written to.

Alike for all: the number of trees, features of a node (the root of all), trees grown until pure, bags of as many rows
as there are, drawn with replacement, and the threads. Categories are text: ours and YDF take it, LightGBM its own
categories, the others ordinal codes; where they take no missing values these are -1.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from columns_fits import lightgbm_forest, likeliest, ordinal, texts, ydf_columns, ydf_labels
from datasets import TARGET
from numpy.typing import NDArray

STAGES = ("start", "encode", "read", "grow", "oob", "write", "predict")
# Most leaves of a tree of LightGBM.
LEAVES = 1 << 15


class Clock:
    """Seconds of each stage, by the clock on the wall and of the processor, of all threads."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What runs in the block is of this stage, but for stages within it."""
        begin, spent = time.perf_counter(), time.process_time()
        wall, cpu = sum(self.wall.values()), sum(self.cpu.values())
        yield
        inner_wall, inner_cpu = sum(self.wall.values()) - wall, sum(self.cpu.values()) - cpu
        self.add(name, time.perf_counter() - begin - inner_wall, time.process_time() - spent - inner_cpu)

    def add(self, name: str, wall: float, cpu: float) -> None:
        """Seconds that belong to a stage."""
        self.wall[name] = self.wall.get(name, 0.0) + wall
        self.cpu[name] = self.cpu.get(name, 0.0) + cpu


def bigforest(folder: Path, options: argparse.Namespace, clock: Clock, oob: bool) -> None:
    import bigforest
    from bigforest.events import Event, StageFinished, StageStarted

    open_stages: list[Any] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage in STAGES:
            open_stages.append(clock.stage(event.stage))
            open_stages[-1].__enter__()
        if isinstance(event, StageFinished) and event.stage in STAGES:
            open_stages.pop().__exit__(None, None, None)

    with clock.stage("write"):  # what is of no other stage: checking, bookkeeping and files
        forest = bigforest.train(
            folder / "train.parquet",
            target=TARGET,
            trees=options.trees,
            threads=options.threads,
            seed=options.seed,
            out=folder / "out.forest",
            overwrite=True,
            listener=listen,
            **{"mtry": "sqrt"} | options.options,
        )
    with clock.stage("predict"):
        bigforest.predict_file(
            forest, folder / "test.parquet", folder / "found.parquet", threads=options.threads, overwrite=True
        )


def _written(folder: Path, predicted: NDArray[Any]) -> None:
    pl.DataFrame({"prediction": predicted}).write_parquet(folder / "found.parquet")


def _numeric(folder: Path, clock: Clock, learner: Any, gaps: bool) -> None:
    """Those that take a matrix of float32; gaps: they take NaN."""
    import joblib

    with clock.stage("read"):
        train = pl.read_parquet(folder / "train.parquet")
        code = ordinal(train) if texts(train) else None

        def matrix(frame: pl.DataFrame) -> NDArray[np.float32]:
            table = frame.drop(TARGET) if code is None else code(frame).drop(TARGET)
            table = table.cast(pl.Float32)
            return np.ascontiguousarray((table if gaps else table.fill_null(-1).fill_nan(-1)).to_numpy())

        values, target = matrix(train), train[TARGET].cast(pl.Int64).to_numpy()
    with clock.stage("grow"):
        learner.fit(values, target)
    with clock.stage("write"):
        joblib.dump(learner, folder / "out.joblib")
    with clock.stage("predict"):
        _written(folder, learner.predict(matrix(pl.read_parquet(folder / "test.parquet"))))


def scikit_learn(folder: Path, options: argparse.Namespace, clock: Clock, oob: bool) -> None:
    from sklearn.ensemble import RandomForestClassifier

    learner = RandomForestClassifier(options.trees, n_jobs=options.threads, random_state=options.seed, oob_score=oob)
    report = learner._set_oob_score_and_attributes

    def timed(*given: Any, **named: Any) -> None:
        with clock.stage("oob"):
            report(*given, **named)
        del learner._set_oob_score_and_attributes  # which a file could not hold

    learner._set_oob_score_and_attributes = timed
    _numeric(folder, clock, learner, gaps=True)


def sklearnex(folder: Path, options: argparse.Namespace, clock: Clock, oob: bool) -> None:
    from sklearnex.ensemble import RandomForestClassifier

    learner = RandomForestClassifier(
        options.trees, n_jobs=options.threads, random_state=options.seed, oob_score=oob, **options.options
    )
    _numeric(folder, clock, learner, gaps=False)


def snapml(folder: Path, options: argparse.Namespace, clock: Clock, oob: bool) -> None:
    from snapml import RandomForestClassifier

    learner = RandomForestClassifier(
        options.trees,
        max_features="sqrt",
        n_jobs=options.threads,
        random_state=options.seed,
        **options.options,
    )
    _numeric(folder, clock, learner, gaps=False)


def ydf(folder: Path, options: argparse.Namespace, clock: Clock, oob: bool) -> None:
    import ydf

    ydf.verbose(0)

    with clock.stage("read"):
        train = pl.read_parquet(folder / "train.parquet")
        table = ydf.create_vertical_dataset(
            ydf_columns(train) | {TARGET: train[TARGET].cast(pl.Int64).to_numpy()},
            columns=[(TARGET, ydf.Semantic.CATEGORICAL)],
            include_all_columns=True,
            label=TARGET,
        )
    learner = ydf.RandomForestLearner(
        label=TARGET,
        num_trees=options.trees,
        num_threads=options.threads,
        random_seed=options.seed + 1,
        num_candidate_attributes=max(1, math.isqrt(train.width - 1) - 1),  # it looks at one more
        max_depth=-1,
        min_examples=1,
        winner_take_all=False,
        compute_oob_performances=oob,
    )
    with clock.stage("grow"):
        model = learner.train(table)
    with clock.stage("write"):
        model.save(str(folder / "out.ydf"))
    with clock.stage("predict"):
        shares = model.predict(ydf_columns(pl.read_parquet(folder / "test.parquet")))
        _written(folder, likeliest(shares, ydf_labels(model)))


def lightgbm(folder: Path, options: argparse.Namespace, clock: Clock, oob: bool) -> None:
    import lightgbm

    with clock.stage("read"):
        train = pl.read_parquet(folder / "train.parquet")
        categories = {name: pl.Enum(train[name].drop_nulls().unique().sort()) for name in texts(train)}

        def table(frame: pl.DataFrame) -> Any:
            # A level that was not there in training is missing.
            coded = [pl.col(name).cast(levels, strict=False) for name, levels in categories.items()]
            return frame.drop(TARGET).with_columns(coded).to_pandas()

        classes = train[TARGET].unique().sort().to_numpy()
        parameters = lightgbm_forest(
            len(classes),
            math.isqrt(train.width - 1) / (train.width - 1),
            options.threads,
            num_leaves=min(LEAVES, train.height),
            min_data_in_leaf=1,
            seed=options.seed,
        )
        target = np.searchsorted(classes, train[TARGET].to_numpy())
        data = lightgbm.Dataset(table(train), target, params=parameters).construct()
    with clock.stage("grow"):
        model = lightgbm.train(parameters, data, options.trees)
    with clock.stage("write"):
        model.save_model(str(folder / "out.txt"))
    with clock.stage("predict"):
        found = model.predict(table(pl.read_parquet(folder / "test.parquet")))
        _written(folder, likeliest(found, classes))


# How each is run, its options, and whether it makes an out-of-bag report; "-" at the end: without the report that it
# would make within its fit, so that the fit alone is known.
CONTESTANTS: dict[str, tuple[Callable[[Path, argparse.Namespace, Clock, bool], None], dict[str, Any], bool]] = {
    "bigforest": (bigforest, {}, True),
    "bigforest-256": (bigforest, {"max_bins": 256}, True),
    "scikit-learn": (scikit_learn, {}, True),
    "scikit-learn-intelex": (sklearnex, {}, True),
    "scikit-learn-intelex-": (sklearnex, {}, False),
    "snapml-exact": (snapml, {}, False),
    "snapml-256": (snapml, {"use_histograms": True, "hist_nbins": 256}, False),
    "ydf": (ydf, {}, True),
    "ydf-": (ydf, {}, False),
    "lightgbm-rf": (lightgbm, {}, False),
}


def peak_memory() -> int:
    """Most bytes of this process that were resident at once. Linux only."""
    found = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) * 1024


def main() -> None:
    """Measure one contestant on the files of a folder and print the result."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--contestant", choices=list(CONTESTANTS), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trees", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--began", type=float, default=time.time(), help="when the process was started, seconds")
    parser.add_argument("--again", type=float, default=60, help="seconds of a run that is done twice, or less")
    options = parser.parse_args()
    work, options.options, oob = CONTESTANTS[options.contestant]
    clock = Clock()
    work(options.folder, options, clock, oob)
    wall, cpu, peak = time.time() - options.began, time.process_time(), peak_memory()
    again = clock
    if wall < options.again:
        gc.collect()  # else it may be done while any one of the contestants is timed
        again = Clock()
        work(options.folder, options, again, oob)
    truth = pl.read_parquet(options.folder / "test.parquet", columns=[TARGET])[TARGET]
    found = pl.read_parquet(options.folder / "found.parquet")["prediction"]
    accuracy = float((found.cast(pl.Int64) == truth.cast(pl.Int64)).mean())
    result = {"accuracy": accuracy, "wall": wall, "cpu": cpu, "peak": peak}
    result |= {f"wall_{name}": seconds for name, seconds in again.wall.items()}
    result |= {f"cpu_{name}": seconds for name, seconds in again.cpu.items()}
    result |= {"again": sum(again.wall.values()), "again_cpu": sum(again.cpu.values())}
    result |= {"wall_start": wall - result["again"], "cpu_start": cpu - result["again_cpu"]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
