"""Probabilities of one row: bigforest beside compilers and engines of trees, in microseconds of processor time.

    python benchmarks/one_row.py [--trees 100] [--rounds 15] [--calls 200]

The table is scikit-learn's breast cancer, 569 x 30. ONNX Runtime and Treelite get the forest of bigforest; scikit-learn
and YDF grow one of their own. Packages that are not installed are left out. lleaves cannot be measured beside
bigforest: its last version does not run with the llvmlite of the Numba that bigforest needs. The contestants take turns
in every round, and the best round counts. The difference is the largest from the probabilities of bigforest, over all
rows, for the engines that have its forest. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from tables import markdown

COLUMNS = {
    "contestant": ("contestant", "{}"),
    "input": ("input", "{}"),
    "us": ("one row (us)", "{:,.1f}"),
    "difference": ("largest difference", "{:.0e}"),
}
Contestant = tuple[str, str, Callable[[], Any], float | None]


def main() -> None:
    """Grow the forests, then time calls in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    data = load_breast_cancer(as_frame=True)
    with tempfile.TemporaryDirectory() as folder:
        contestants = list(_contestants(data.data, data.target.to_numpy(), given.trees, Path(folder)))
        best = [float("inf")] * len(contestants)
        for _, _, call, _ in contestants:
            call()
        for _ in range(given.rounds):
            for place, (_, _, call, _) in enumerate(contestants):
                calls = given.calls if best[place] < 1e-3 else 5  # slow ones, and all of them in the first round
                begin = time.process_time()
                for _ in range(calls):
                    call()
                best[place] = min(best[place], (time.process_time() - begin) / calls)
    rows = [
        {"contestant": name, "input": what, "us": 1e6 * seconds, "difference": difference}
        for (name, what, _, difference), seconds in zip(contestants, best, strict=True)
    ]
    print(markdown(pl.DataFrame(rows), COLUMNS))


def _contestants(X: Any, y: NDArray[Any], trees: int, folder: Path) -> Iterator[Contestant]:
    """Yield the name, the input, a call for one row, and the largest difference from bigforest of each contestant."""
    import bigforest as bf
    from bigforest.sklearn import BigForestClassifier

    whole = X.to_numpy()
    frame = pl.from_pandas(X)
    row, one, pandas_row = whole[:1].copy(), frame[:1], X[:1]
    forest = bf.train(frame.with_columns(target=y), "target", trees=trees, power="off", shrink="off", refine="off")
    wanted = forest.predict_proba(whole)
    refined = bf.train(frame.with_columns(target=y), "target", trees=trees, power="off", shrink="off", refine=20)
    estimator = BigForestClassifier(n_estimators=trees).fit(whole, y)
    yield "bigforest", "numpy", lambda: forest.predict_proba(row), None
    yield "bigforest", "Polars", lambda: forest.predict_proba(one), None
    yield "bigforest", "pandas", lambda: forest.predict_proba(pandas_row), None
    yield "bigforest", "a list with a dict", lambda: forest.predict_proba(one.to_dicts()), None
    yield "bigforest, boosted stage of 20 rounds", "numpy", lambda: refined.predict_proba(row), None
    yield "bigforest, boosted stage of 20 rounds", "Polars", lambda: refined.predict_proba(one), None
    yield "bigforest's estimator", "numpy", lambda: estimator.predict_proba(row), None
    for peer in (_onnx, _treelite, _tl2cgen):
        with suppress(ImportError):
            name, call = peer(forest, folder)
            yield name, "numpy", lambda call=call: call(row), float(np.abs(call(whole) - wanted).max())
    for other in (_sklearn, _ydf):
        with suppress(ImportError):
            name, what, call = other(whole, y, trees, folder)
            yield name, what, lambda call=call: call(row), None


def _onnx(forest: Any, folder: Path) -> tuple[str, Callable[[Any], Any]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(forest.to_onnx("float64").SerializeToString(), options, ["CPUExecutionProvider"])
    names = [session.get_outputs()[1].name]
    return f"ONNX Runtime {ort.__version__}", lambda rows: session.run(names, {"X": rows})[0]


def _treelite(forest: Any, folder: Path) -> tuple[str, Callable[[Any], Any]]:
    import treelite

    model = forest.to_treelite()
    return f"Treelite {treelite.__version__}, GTIL", lambda rows: treelite.gtil.predict(model, rows, nthread=1)[:, 0]


def _tl2cgen(forest: Any, folder: Path) -> tuple[str, Callable[[Any], Any]]:
    import tl2cgen

    path = folder / "forest.so"
    tl2cgen.export_lib(forest.to_treelite(), toolchain="gcc", libpath=path, params={})
    predictor = tl2cgen.Predictor(path, nthread=1)
    return (
        f"Treelite, compiled by tl2cgen {tl2cgen.__version__}",
        lambda rows: predictor.predict(tl2cgen.DMatrix(rows, dtype="float64"))[:, 0],
    )


def _sklearn(X: Any, y: Any, trees: int, folder: Path) -> tuple[str, str, Callable[[Any], Any]]:
    import sklearn
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(trees, random_state=0, n_jobs=1).fit(X, y)
    return f"scikit-learn {sklearn.__version__}", "numpy", model.predict_proba


def _ydf(X: Any, y: Any, trees: int, folder: Path) -> tuple[str, str, Callable[[Any], Any]]:
    import ydf

    ydf.verbose(0)
    learner = ydf.RandomForestLearner(label="y", num_trees=trees, winner_take_all=False, compute_oob_performances=False)
    model = learner.train({"x": X, "y": y})
    return f"YDF {ydf.__version__}", "mapping", lambda rows: model.predict({"x": rows})


if __name__ == "__main__":
    main()
