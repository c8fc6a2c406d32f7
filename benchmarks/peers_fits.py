"""One measurement of peers.py: one contestant from file to files, in a process of its own. Prints a JSON object.

    python benchmarks/peers_fits.py --contestant scikit-learn --folder FOLDER --trees 20 --threads 2 --seed 0

FOLDER holds train.parquet and test.parquet, and is written to. A target of floats is predicted as a number.

Alike for all forests: the number of trees, features of a node (the root of all), trees grown until pure, bags of as
many rows as there are, drawn with replacement, and the threads. With --defaults all have the options of their makers,
except for the number of trees. Boosting always has those, with 100 rounds. Categories are text: ours, YDF, H2O and
boosting take them, the others ordinal codes; where missing values are not taken these are -1.

Processor time of all threads counts, R and the JVM of H2O included. randomForest grows on one thread.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
from columns_fits import lightgbm_forest, likeliest, ordinal, texts, ydf_columns, ydf_labels
from datasets import TARGET
from numpy.typing import NDArray
from suite_fits import Asked, fit_catboost, fit_lightgbm, fit_xgboost

# "also": the permutation importance, or quantiles of the test rows, where they are asked for.
STAGES = ("encode", "read", "grow", "oob", "refine", "write", "also", "predict")
# Most leaves of a tree of LightGBM.
LEAVES = 1 << 15
ROUNDS = 100
QUANTILES = (0.1, 0.5, 0.9)


class Clock:
    """Seconds of each stage, by the clock on the wall and of the processor, of all threads and of `other` processes."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.other: psutil.Process | None = None
        self.peak = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block as this stage, except for stages within it."""
        begin, spent = time.perf_counter(), self.spent()
        wall, cpu = sum(self.wall.values()), sum(self.cpu.values())
        yield
        inner_wall, inner_cpu = sum(self.wall.values()) - wall, sum(self.cpu.values()) - cpu
        self.add(name, time.perf_counter() - begin - inner_wall, self.spent() - spent - inner_cpu)

    def add(self, name: str, wall: float, cpu: float) -> None:
        """Add seconds to a stage."""
        self.wall[name] = self.wall.get(name, 0.0) + wall
        self.cpu[name] = self.cpu.get(name, 0.0) + cpu

    def spent(self) -> float:
        """Return the processor seconds until now."""
        other = 0.0 if self.other is None else sum(self.other.cpu_times()[:2])
        return time.process_time() + other


def _train(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "train.parquet")


def _test(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "test.parquet")


def _numbers(folder: Path) -> bool:
    return pl.read_parquet_schema(folder / "train.parquet")[TARGET].is_float()


def _written(folder: Path, predicted: NDArray[Any]) -> None:
    pl.DataFrame({"prediction": predicted}).write_parquet(folder / "found.parquet")


def bigforest(folder: Path, options: argparse.Namespace, clock: Clock, refine: str = "off") -> None:
    import bigforest
    from bigforest.events import Event, StageFinished, StageStarted

    open_stages: list[Any] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage in STAGES:
            open_stages.append(clock.stage(event.stage))
            open_stages[-1].__enter__()
        if isinstance(event, StageFinished) and event.stage in STAGES:
            open_stages.pop().__exit__(None, None, None)

    given = {"task": "regression" if _numbers(folder) else "classification"}
    given |= {} if options.defaults else {"mtry": "sqrt"}
    given |= {"keep_targets": True} if options.also == "quantiles" else {}
    with clock.stage("write"):  # what is of no other stage: checking, bookkeeping and files
        forest = bigforest.train(
            folder / "train.parquet",
            target=TARGET,
            trees=options.trees,
            threads=options.threads,
            seed=options.seed,
            out=folder / "out.forest",
            overwrite=True,
            refine=refine,
            listener=listen,
            **given,
        )
    with clock.stage("also"):
        if options.also == "importance":
            forest.explain(folder / "train.parquet", parts="permutation", threads=options.threads)
        elif options.also == "quantiles":
            forest.predict(_test(folder), quantiles=QUANTILES, threads=options.threads)
    with clock.stage("predict"):
        bigforest.predict_file(
            forest, folder / "test.parquet", folder / "found.parquet", threads=options.threads, overwrite=True
        )


def _matrices(train: pl.DataFrame, gaps: bool) -> Callable[[pl.DataFrame], NDArray[np.float32]]:
    """Convert frames to matrices of float32, with the codes of the training rows; gaps: missing values are NaN."""
    code = ordinal(train) if texts(train) else None

    def matrix(frame: pl.DataFrame) -> NDArray[np.float32]:
        table = frame.drop(TARGET) if code is None else code(frame).drop(TARGET)
        table = table.cast(pl.Float32)
        return np.ascontiguousarray((table if gaps else table.fill_null(-1).fill_nan(-1)).to_numpy())

    return matrix


def _target(frame: pl.DataFrame) -> NDArray[Any]:
    series = frame[TARGET]
    return (series if series.dtype.is_float() else series.cast(pl.Int64)).to_numpy()


def _matrix_learner(
    folder: Path, clock: Clock, learner: Any, gaps: bool, also: Callable[..., Any] | None = None
) -> None:
    """Run a learner of scikit-learn's interface; also: called with the learner and a function that makes matrices."""
    import joblib

    with clock.stage("read"):
        train = _train(folder)
        matrix = _matrices(train, gaps)
        values, target = matrix(train), _target(train)
    with clock.stage("grow"):
        learner.fit(values, target)
    with clock.stage("write"):
        joblib.dump(learner, folder / "out.joblib")
    if also is not None:
        with clock.stage("also"):
            also(learner, matrix)
    with clock.stage("predict"):
        _written(folder, learner.predict(matrix(_test(folder))))


def scikit_learn(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.inspection import permutation_importance

    kind = RandomForestRegressor if _numbers(folder) else RandomForestClassifier
    learner = kind(options.trees, n_jobs=options.threads, random_state=options.seed)

    def importance(model: Any, matrix: Callable[[pl.DataFrame], Any]) -> None:
        test = _test(folder)
        permutation_importance(model, matrix(test), _target(test), random_state=options.seed)

    _matrix_learner(folder, clock, learner, gaps=True, also=importance if options.also == "importance" else None)


def sklearnex(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    from sklearnex.ensemble import RandomForestClassifier

    learner = RandomForestClassifier(options.trees, n_jobs=options.threads, random_state=options.seed)
    _matrix_learner(folder, clock, learner, gaps=False)


def snapml(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    from snapml import RandomForestClassifier

    alike = {} if options.defaults else {"max_features": "sqrt"}
    learner = RandomForestClassifier(options.trees, n_jobs=options.threads, random_state=options.seed, **alike)
    _matrix_learner(folder, clock, learner, gaps=False)


def quantile_forest(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    from quantile_forest import RandomForestQuantileRegressor

    def quantiles(model: Any, matrix: Callable[[pl.DataFrame], Any]) -> None:
        model.predict(matrix(_test(folder)), quantiles=list(QUANTILES))

    learner = RandomForestQuantileRegressor(options.trees, n_jobs=options.threads, random_state=options.seed)
    _matrix_learner(folder, clock, learner, gaps=False, also=quantiles if options.also else None)


def ydf(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    import ydf

    ydf.verbose(0)

    with clock.stage("read"):
        train = _train(folder)
        table = ydf.create_vertical_dataset(
            ydf_columns(train) | {TARGET: _target(train)},
            columns=[(TARGET, ydf.Semantic.CATEGORICAL)],
            include_all_columns=True,
            label=TARGET,
        )
    alike = {
        "num_candidate_attributes": max(1, math.isqrt(train.width - 1) - 1),  # it looks at one more
        "max_depth": -1,
        "min_examples": 1,
        "winner_take_all": False,
    }
    learner = ydf.RandomForestLearner(
        label=TARGET,
        num_trees=options.trees,
        num_threads=options.threads,
        random_seed=options.seed + 1,
        compute_oob_performances=False,
        **{} if options.defaults else alike,
    )
    with clock.stage("grow"):
        model = learner.train(table)
    with clock.stage("write"):
        model.save(str(folder / "out.ydf"))
    with clock.stage("predict"):
        shares = model.predict(ydf_columns(_test(folder)))
        _written(folder, likeliest(shares, ydf_labels(model)))


def lightgbm_rf(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    import lightgbm

    with clock.stage("read"):
        train = _train(folder)
        categories = {name: pl.Enum(train[name].drop_nulls().unique().sort()) for name in texts(train)}

        def table(frame: pl.DataFrame) -> Any:
            # A level that was not there in training is missing.
            coded = [pl.col(name).cast(levels, strict=False) for name, levels in categories.items()]
            return frame.drop(TARGET).with_columns(coded).to_pandas()

        classes = train[TARGET].unique().sort().to_numpy()
        share = math.isqrt(train.width - 1) / (train.width - 1)
        alike = {} if options.defaults else {"num_leaves": min(LEAVES, train.height), "min_data_in_leaf": 1}
        parameters = lightgbm_forest(len(classes), share, options.threads, seed=options.seed, **alike)
        target = np.searchsorted(classes, train[TARGET].to_numpy())
        data = lightgbm.Dataset(table(train), target, params=parameters).construct()
    with clock.stage("grow"):
        model = lightgbm.train(parameters, data, options.trees)
    with clock.stage("write"):
        model.save_model(str(folder / "out.txt"))
    with clock.stage("predict"):
        _written(folder, likeliest(model.predict(table(_test(folder))), classes))


def xgboost_rf(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    import xgboost

    train = _train(folder)
    features = train.width - 1
    alike = {
        "max_depth": 0,
        "min_child_weight": 0.0,
        "reg_lambda": 1e-10,
        "subsample": 0.632,
        "colsample_bynode": max(1, math.isqrt(features)) / features,
    }
    learner = xgboost.XGBRFClassifier(
        n_estimators=options.trees,
        n_jobs=options.threads,
        random_state=options.seed,
        **{} if options.defaults else alike,
    )
    _ranked_learner(folder, clock, learner)


def _ranked_learner(folder: Path, clock: Clock, learner: Any) -> None:
    """Run a learner of scikit-learn's interface that takes classes from 0 upwards."""
    with clock.stage("read"):
        train = _train(folder)
        matrix = _matrices(train, gaps=True)
        classes, target = np.unique(_target(train), return_inverse=True)
        values = matrix(train)
    with clock.stage("grow"):
        learner.fit(values, target)
    with clock.stage("write"):
        learner.save_model(folder / "out.json")
    with clock.stage("predict"):
        _written(folder, classes[learner.predict(matrix(_test(folder)))])


def boosted(folder: Path, options: argparse.Namespace, clock: Clock, fit: Callable[..., Any]) -> None:
    with clock.stage("read"):
        train = _train(folder)
    classes = np.unique(_target(train))
    with clock.stage("grow"):
        predict = fit(train, Asked(ROUNDS, options.threads, options.seed, classes.tolist()))
    with clock.stage("predict"):
        _written(folder, likeliest(predict(_test(folder)), classes))


def in_r(folder: Path, options: argparse.Namespace, clock: Clock, package: str) -> None:
    """Run peers.R, which reads matrices of float64 that are written here uncounted and counts its own stages."""
    train, test = _train(folder), _test(folder)
    matrix = _matrices(train, gaps=False)
    np.asarray(matrix(train), np.float64).tofile(folder / "train.bin")
    np.asarray(matrix(test), np.float64).tofile(folder / "test.bin")
    _target(train).astype(np.float64).tofile(folder / "target.bin")
    told = [
        folder,
        package,
        train.height,
        test.height,
        train.width - 1,
        options.trees,
        options.threads,
        options.seed + 1,
    ]
    told += ["regression" if _numbers(folder) else "classification", "defaults" if options.defaults else "alike"]
    told += [options.also or "none"]
    command = ["Rscript", "--vanilla", str(Path(__file__).with_name("peers.R")), *map(str, told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for stage, found in json.loads(done.stdout.splitlines()[-1]).items():
        if stage == "peak":
            clock.peak = int(found)
        else:
            clock.add(stage, *found)
    _written(folder, np.fromfile(folder / "found.bin", np.float64))


def h2o(folder: Path, options: argparse.Namespace, clock: Clock) -> None:
    import h2o
    from h2o.estimators import H2ORandomForestEstimator

    h2o.init(nthreads=options.threads, max_mem_size="6g", log_level="FATA", verbose=False)
    h2o.no_progress()
    server = next(child for child in psutil.Process().children() if child.name() == "java")
    clock.other = server
    with clock.stage("read"):
        train = h2o.import_file(str(folder / "train.parquet"))
        train[TARGET] = train[TARGET].asfactor()
    alike = {} if options.defaults else {"max_depth": 0, "min_rows": 1, "sample_rate": 0.632}
    learner = H2ORandomForestEstimator(ntrees=options.trees, seed=options.seed + 1, **alike)
    with clock.stage("grow"):
        learner.train(y=TARGET, training_frame=train)
    with clock.stage("write"):
        h2o.save_model(learner, str(folder), force=True)
    with clock.stage("predict"):
        found = learner.predict(h2o.import_file(str(folder / "test.parquet"))).as_data_frame()
        # Of two classes its own prediction is that of the best F1, so the larger share is taken.
        labels = np.array([int(name.removeprefix("p")) for name in found.columns[1:]])
        _written(folder, likeliest(found.iloc[:, 1:].to_numpy(), labels))
    clock.peak = peak_memory(server.pid)
    h2o.remove_all()


# An out-of-bag report is within the fit of bigforest, ranger, randomForest and H2O, and of no other.
CONTESTANTS: dict[str, Callable[[Path, argparse.Namespace, Clock], None]] = {
    "bigforest": bigforest,  # without the boosted stage: forests are compared
    "bigforest-stage": partial(bigforest, refine="auto"),
    "scikit-learn": scikit_learn,
    "scikit-learn-intelex": sklearnex,
    "snapml": snapml,
    "ydf": ydf,
    "ranger": partial(in_r, package="ranger"),
    "randomForest": partial(in_r, package="randomForest"),
    "quantile-forest": quantile_forest,
    "h2o": h2o,
    "lightgbm-rf": lightgbm_rf,
    "xgboost-rf": xgboost_rf,
    "lightgbm": partial(boosted, fit=fit_lightgbm),
    "xgboost": partial(boosted, fit=fit_xgboost),
    "catboost": partial(boosted, fit=partial(fit_catboost, iterations=ROUNDS)),
}


def peak_memory(process: int | str = "self") -> int:
    """Return the most bytes of a process that were resident at once. Linux only."""
    found = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) * 1024


def score(folder: Path) -> float:
    """Return the accuracy, or R2, of the predictions of the test rows."""
    truth = pl.read_parquet(folder / "test.parquet", columns=[TARGET])[TARGET]
    found = pl.read_parquet(folder / "found.parquet")["prediction"]
    if truth.dtype.is_float():
        return 1.0 - float(((found - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
    return float((found.cast(pl.Float64).cast(pl.Int64) == truth.cast(pl.Int64)).mean())


def main() -> None:
    """Measure one contestant on the files of each folder and print the results, a line each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--contestant", choices=list(CONTESTANTS), required=True)
    parser.add_argument("--folder", type=Path, required=True, action="append", help="repeat for several data sets")
    parser.add_argument("--trees", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--defaults", type=int, default=0, help="1: the options of the makers")
    parser.add_argument("--also", choices=["importance", "quantiles"])
    parser.add_argument(
        "--again", type=float, default=60, help="processor seconds of a run that is done twice, or less"
    )
    options = parser.parse_args()
    for folder in options.folder:
        print(json.dumps(measured(folder, options)), flush=True)


def measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the score, the memory and the seconds of each stage on the files of a folder."""
    work, clock = CONTESTANTS[options.contestant], Clock()
    work(folder, options, clock)
    peak = clock.peak or peak_memory()
    plain = options.contestant in ("ranger", "randomForest")  # where nothing is compiled at first use
    if sum(clock.cpu.values()) < options.again and not plain:
        gc.collect()  # else it may be done while any one of the contestants is timed
        clock = Clock()
        work(folder, options, clock)
    result: dict[str, Any] = {"score": score(folder), "peak": peak}
    result |= {f"wall_{name}": seconds for name, seconds in clock.wall.items()}
    return result | {f"cpu_{name}": seconds for name, seconds in clock.cpu.items()}


if __name__ == "__main__":
    main()
