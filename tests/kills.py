"""Kills commands at random moments, runs them again, and compares what they make with what an undisturbed run makes.

    python -m tests.kills --kills 200 --workers 20 --seed 1 --folder DIR

Every kill is of a forked child, by SIGKILL, after a random time or before a random rename, fsync or removal; only those
count that hit a child before it had ended. Afterwards the same is done once more to its end (a training is resumed):
the output has to be that of an undisturbed run, byte for byte but for timings, and nothing else may be left, neither
beside it nor in the temporary folder. `--workers` kills workers of a cluster besides, while training or prediction goes
on.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

# Loaded once, before any fork.
import numpy as np

import bigforest
import bigforest.grow.forest
import bigforest.revise.calibrate
import bigforest.revise.merge
import bigforest.revise.prune
import bigforest.revise.validate
import bigforest.training.run
import bigforest.training.train
from bigforest.events import StageAdvanced
from tests.killing import die_at_call

_CALLS = ("rename", "replace", "fsync", "unlink", "rmdir", "mkdir")
_MOST_CALLS = 60
TREES = 8
TIMED = ("run.parquet", "candidates.parquet", "race.json")


def _tables(home: Path) -> None:
    """The tables and forests that the cases read."""
    import polars as pl

    draw = np.random.default_rng(5)
    rows = 6_000
    columns = {f"x{i}": draw.normal(size=rows).round(3) for i in range(5)}
    late = columns["x0"] + columns["x1"] + draw.normal(size=rows) > 0
    table = pl.DataFrame({**columns, "y": np.where(late, "late", "fine")})
    table.head(4_000).write_parquet(home / "table.parquet")
    table.tail(2_000).write_parquet(home / "test.parquet")
    pl.concat([table] * 40).write_parquet(home / "large.parquet")
    weight = 10.0 ** (pl.int_range(pl.len()) % 10 - 4.5)
    table.head(4_000).with_columns(w=weight, z=pl.col("x0") * 3).write_parquet(home / "weighted.parquet")
    bigforest.train(home / "table.parquet", "y", out=home / "a.forest", trees=TREES, threads=2)
    bigforest.train(home / "table.parquet", "y", out=home / "b.forest", trees=TREES, threads=2, seed=9)
    bigforest.train(home / "table.parquet", "y", out=home / "t.forest", family="tree", threads=2)
    plan = bigforest.plan_training(home / "table.parquet", "y", trees=TREES)
    (home / "memory").write_text(str(plan.smallest))


def _train(home: Path, out: Path, memory: str | None = None) -> None:
    _train_or_resume(home / "table.parquet", out, {"threads": 2, "memory": memory}, {"target": "y"})


def _train_or_resume(table: Path, out: Path, resources: dict[str, Any], options: dict[str, Any]) -> None:
    if _begun(out):
        bigforest.train(resume=out, **resources)
    else:
        bigforest.train(table, out=out, trees=TREES, overwrite=True, **resources, **options)


def _begun(out: Path) -> bool:
    return (out.with_name(out.name + ".unfinished") / "forest").is_dir()


def _passes(home: Path, out: Path) -> None:
    _train(home, out, (home / "memory").read_text())


def _weighted(home: Path, out: Path) -> None:
    """Weights that are wide, so that parts are weighed, and targets that are kept."""
    options = {"target": "z", "task": "regression", "weight": "w", "exclude": ["y"], "keep_targets": True}
    _train_or_resume(home / "weighted.parquet", out, {"threads": 2}, options)


def _settled(home: Path, out: Path) -> None:
    """Trees until the out-of-bag error has settled, and the error on other rows."""
    if _begun(out):
        bigforest.train(resume=out, threads=2, validate=home / "test.parquet")
    else:
        options = {"trees": 30, "stop_oob": 0.5, "validate": home / "test.parquet", "overwrite": True}
        bigforest.train(home / "table.parquet", "y", out=out, threads=2, **options)


def _moved(home: Path, out: Path) -> None:
    """Begun with its work beside the forest, and gone on with elsewhere."""

    def stop(event: object) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            raise KeyboardInterrupt

    if not _begun(out):
        with suppress(KeyboardInterrupt):
            bigforest.train(home / "table.parquet", "y", out=out, trees=TREES, threads=2, overwrite=True, listener=stop)
    bigforest.train(resume=out, threads=2, scratch=tempfile.gettempdir())


def _encode(home: Path, out: Path) -> None:
    bigforest.encode_store(home / "table.parquet", out, target="y", threads=2, overwrite=True)


def _predict(home: Path, out: Path) -> None:
    bigforest.predict_file(home / "a.forest", home / "test.parquet", out, proba=True, threads=2, overwrite=True)


def _merge(home: Path, out: Path) -> None:
    bigforest.merge([home / "a.forest", home / "b.forest"], out, overwrite=True)


def _calibrate(home: Path, out: Path) -> None:
    bigforest.calibrate_forest(home / "a.forest", home / "test.parquet", out, threads=2, overwrite=True)


def _prune(home: Path, out: Path) -> None:
    bigforest.prune_forest(home / "t.forest", home / "test.parquet", out, threads=2, overwrite=True)


def _validate(home: Path, out: Path) -> None:
    bigforest.validate_forest(home / "a.forest", home / "test.parquet", out=out, threads=2, overwrite=True)


def _arcs(home: Path, out: Path) -> None:
    """Trees whose bags follow from the trees before."""
    options = {"target": "y", "sampling": "arc-x4", "shrink": "off", "max_depth": 4}
    _train_or_resume(home / "table.parquet", out, {"threads": 2}, options)


def _shrink(home: Path, out: Path) -> None:
    bigforest.shrink_forest(home / "a.forest", out, data=home / "table.parquet", threads=2, overwrite=True)


def _explain(home: Path, out: Path) -> None:
    parts = ["importance", "unbiased", "permutation", "trees"]
    bigforest.explain_forest(home / "a.forest", home / "table.parquet", out, parts=parts, threads=2)


def _compare(home: Path, out: Path) -> None:
    """Goes on where it was interrupted."""
    options = {"trees": 50, "max_depth": 5}
    bigforest.compare(home / "table.parquet", "y", candidates=2, out=out, options=options, threads=2)


CASES: dict[str, Callable[[Path, Path], object]] = {
    "train": _train,
    "passes": _passes,
    "weighted": _weighted,
    "settled": _settled,
    "moved": _moved,
    "encode": _encode,
    "predict": _predict,
    "merge": _merge,
    "calibrate": _calibrate,
    "prune": _prune,
    "validate": _validate,
    "arcs": _arcs,
    "shrink": _shrink,
    "explain": _explain,
    "compare": _compare,
}


def content(out: Path) -> dict[str, bytes]:
    """What is in an output, but for files with timings."""
    if out.is_file():
        return {"": out.read_bytes()}
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name not in TIMED]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def _rows(out: Path) -> dict[str, bytes]:
    """The rows of a file of predictions, whose row groups depend on the number of workers that there are."""
    import polars as pl

    return {
        name: column.cast(pl.String).str.join("\n").item().encode()
        for name, column in pl.read_parquet(out).to_dict().items()
    }


class Kills:
    """Kills cases in a folder, with what they make of themselves as a standard."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.home, self.place, self.scratch = (folder / name for name in ("home", "place", "scratch"))
        for made in (self.home, self.place, self.scratch):
            made.mkdir()
        self._draw = random.Random(seed)
        self._expected: dict[str, dict[str, bytes]] = {}
        self._seconds: dict[str, float] = {}
        assert self._child(lambda: _tables(self.home)) == 0

    def kill(self, case: str) -> bool:
        """Kill a case once, do it again to its end and check; whether it was killed before it had ended."""
        out = self.place / f"out.{case}"
        if any(path != out for path in self.place.iterdir()):
            self._clear()
        if case not in self._expected:
            for _ in range(2):  # the first compiles
                self._clear()
                begun = time.perf_counter()
                assert self._child(lambda: CASES[case](self.home, out)) == 0
                self._seconds[case] = time.perf_counter() - begun
            self._expected[case] = content(out)
        if self._draw.random() < 0.5:
            self._clear()
        else:
            assert not out.exists() or content(out) == self._expected[case]
        delay = calls = None
        if self._draw.random() < 0.6:
            delay = self._draw.uniform(0.0, self._seconds[case])
        else:
            calls = self._draw.randrange(_MOST_CALLS)
        died = self._child(lambda: CASES[case](self.home, out), delay, calls)
        assert died in (0, signal.SIGKILL), died
        how = f"{case}, killed after {delay} s or before call {calls}"
        assert self._child(lambda: CASES[case](self.home, out)) == 0, how
        made, expected = content(out), self._expected[case]
        assert made == expected, (how, [name for name in made | expected if made.get(name) != expected.get(name)])
        assert [path.name for path in self.place.iterdir()] == [out.name], (how, list(self.place.iterdir()))
        assert not list(self.scratch.iterdir()), (how, list(self.scratch.iterdir()))
        return died == signal.SIGKILL

    def kill_worker(self, client: Any, case: str) -> bool:
        """Train or predict on two workers, of which one is killed at a random moment; whether it was before the end."""
        self._clear()
        client.wait_for_workers(2, timeout=300)
        out, killed = self.place / f"out.{case}", threading.Event()

        def kill() -> None:
            os.kill(self._draw.choice(pids), signal.SIGKILL)
            killed.set()

        pids = list(client.run(os.getpid).values())
        timer = threading.Timer(self._draw.uniform(0.0, self._seconds.get(case, 0.0)), kill)
        if case in self._seconds:
            timer.start()
        begun = time.perf_counter()
        if case == "dask":
            bigforest.train(self.home / "table.parquet", "y", out=out, trees=TREES, scheduler=client)
        else:
            bigforest.predict_file(self.home / "a.forest", self.home / "large.parquet", out, scheduler=client)
        if case not in self._seconds:  # the first is not disturbed
            self._seconds[case] = time.perf_counter() - begun
            self._expected[case] = content(self.home / "a.forest") if case == "dask" else _rows(out)
        ended = not killed.is_set()
        timer.cancel()
        assert (content(out) if case == "dask" else _rows(out)) == self._expected[case], case
        assert [path.name for path in self.place.iterdir()] == [out.name], list(self.place.iterdir())
        return not ended

    @contextmanager
    def cluster(self) -> Iterator[Any]:
        """A client of two workers, that are replaced when they are killed; at the end nothing of theirs is left."""
        import dask
        from distributed import Client, LocalCluster

        os.environ["TMPDIR"] = str(self.scratch)
        quiet = {"dashboard_address": None, "silence_logs": 50}
        away = {"distributed.deploy.lost-worker-timeout": "10 minutes", "temporary-directory": str(self.home)}
        with (
            dask.config.set(away),
            LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **quiet) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        tempfile.tempdir = str(self.scratch)
        bigforest.predict_file(self.home / "a.forest", self.home / "test.parquet", self.place / "last")  # it sweeps
        left = [path for path in self.scratch.iterdir() if path.name.startswith("bigforest")]
        assert not left, left

    def _clear(self) -> None:
        for path in self.place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _child(self, work: Callable[[], object], delay: float | None = None, calls: int | None = None) -> int:
        """Do it in a forked child, which is killed; the signal that it died of, 0 for none."""
        child = os.fork()
        if child == 0:
            try:
                tempfile.tempdir = str(self.scratch)
                if calls is not None:
                    die_at_call(_CALLS, calls, None)
                work()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            # A child of a process is not ended by its exit handlers: what is to go with the last object goes now.
            os._exit(0)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def main() -> None:
    """Kill as often as asked, and say how often which case was killed before it had ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of children")
    parser.add_argument("--workers", type=int, default=0, help="besides, of workers of a cluster")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--folder", type=Path, help="an empty folder; a temporary one unless given")
    given = parser.parse_args()
    killed, tried = Counter[str](), Counter[str]()

    def count(case: str, hit: bool) -> None:
        tried[case] += 1
        killed[case] += hit
        print(f"\r{killed.total()} of {given.kills + given.workers}", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        kills = Kills(Path(folder), given.seed)
        for case in cycle(given.case or CASES):
            if killed.total() >= given.kills:
                break
            count(case, kills.kill(case))
        if given.workers:
            with kills.cluster() as client:
                for case in cycle(["dask", "dask-predict"]):
                    if killed.total() >= given.kills + given.workers:
                        break
                    count(case, kills.kill_worker(client, case))
    print("".join(f"\n{case}: killed {killed[case]} of {tried[case]} times" for case in tried))


if __name__ == "__main__":
    main()
