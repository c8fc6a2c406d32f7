"""Ours against scikit-learn, YDF and LightGBM, all at their defaults, over the UCI sets and all real ones.

    python benchmarks/suite.py --data DIR --out OUT [--sets uci,real/adult] [--half report] [--repeats 5] [--trees 100]
        [--peers bigforest,scikit-learn,ydf] [--option min_level=10] [--max-rows 20000] [--least-rows 1000]

Sets and halves: suite_sets.py; contestants: suite_fits.py. A set with an official split is measured on that, with
another seed in every round, all others on splits of which a fifth is for testing, another in every round and the same
for all. `--option` gives an option of training to one more contestant of ours, several with several.

Every contestant has a process of its own, which grows a forest of one tree first on every set, uncounted. They take
turns. Each measurement is added to OUT/suite.ndjson; those that are there are not made again, so that an interrupted
run goes on where it was. At the end OUT gets suite.parquet, suite.md and suite.png (suite_report.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import polars as pl
from columns import turned
from datasets import TARGET
from runs import environment, machine
from suite_fits import FITS, Asked, measure
from suite_report import write_report
from suite_sets import HALVES, Set, sets_of

KEY = ("set", "contestant", "round", "trees", "max_rows")


class Worker:
    """The process of one contestant. `answer` asks it for one measurement."""

    def __init__(self, contestant: str, options: argparse.Namespace) -> None:
        self.contestant, self._options = contestant, options
        self._process: subprocess.Popen[str] | None = None

    def answer(self, task: dict[str, Any]) -> dict[str, Any]:
        """What was measured, or {"error": ...}; a process that ends is begun anew by the next task."""
        if self._process is None:
            command = [sys.executable, __file__, "--work", self.contestant, "--data", str(self._options.data)]
            command += ["--threads", str(self._options.threads)]
            environ = environment(self._options.threads)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
            )
        source, sink = _pipes(self._process)
        print(json.dumps(task), file=sink, flush=True)
        for line in source:
            if line.startswith("{"):  # others are what a library prints
                found: dict[str, Any] = json.loads(line)
                return found
        code = self._process.wait()
        self._process = None
        return {"error": f"the process ended with {code}"}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            _pipes(self._process)[1].close()
            self._process.wait()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdout, process.stdin


def work(options: argparse.Namespace) -> None:
    """Measure what stdin asks for, a line each, and print a line each."""
    sets = sets_of(options.data)
    known = ""
    for line in sys.stdin:
        task = json.loads(line)
        chosen = sets[task["set"]]
        try:
            train, test = parts = chosen.parts(task["round"], task["max_rows"])
            classes = [] if chosen.regression else sorted(train[TARGET].unique().cast(pl.Int64).to_list())
            asked = Asked(task["trees"], options.threads, task["round"], classes)
            if known != chosen.name:
                measure(options.work, parts, asked._replace(trees=1))
                known = chosen.name
            sizes = {"rows": train.height, "test_rows": test.height, "features": train.width - 1}
            found = sizes | {"classes": len(classes)} | measure(options.work, parts, asked)
        except Exception as error:  # whatever a library says; the run goes on
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(found), flush=True)


def chosen_sets(options: argparse.Namespace) -> Iterator[Set]:
    """The sets that are asked for: by name or kind, of a half, by number of rows."""
    wanted = options.sets.split(",")
    for name, found in sets_of(options.data).items():
        if not any(name == one or name.startswith(one + "/") for one in wanted):
            continue
        if (options.half is None or found.half == options.half) and found.read().height >= options.least_rows:
            yield found


def run(options: argparse.Namespace, journal: Path) -> None:
    """Make the measurements that are not in the journal yet."""
    peers = options.peers.split(",") + [":".join(["bigforest", *options.option])] * bool(options.option)
    there = {tuple(row[name] for name in KEY) for row in _rows(journal)}
    workers = {peer: Worker(peer, options) for peer in peers}
    with journal.open("a", encoding="utf-8") as file:
        for chosen in chosen_sets(options):
            for round_ in range(options.repeats):
                for peer in turned(peers, round_):
                    task = dict(zip(KEY, (chosen.name, peer, round_, options.trees, options.max_rows), strict=True))
                    if tuple(task.values()) in there:
                        continue
                    row = task | {"half": chosen.half} | workers[peer].answer(task)
                    print(json.dumps(row), file=file, flush=True)
                    said = row.get("error") or f"{row['score']:.4f}, {row['fit_seconds']:.2f} s"
                    print(f"{chosen.name} {round_} {peer}: {said}", file=sys.stderr, flush=True)
    for worker in workers.values():
        worker.close()


def _rows(journal: Path) -> list[dict[str, Any]]:
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines]


def main() -> None:
    """Ours against scikit-learn, YDF and LightGBM, all at their defaults."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with uci/ and real/")
    parser.add_argument("--out", type=Path, help="folder of the results; those of before are gone on with")
    parser.add_argument("--sets", default="uci,real", help="names, or kinds: uci, real, number, sim")
    parser.add_argument("--half", choices=HALVES, help="only the sets of one half")
    parser.add_argument("--peers", default=",".join(FITS), help="the first is compared with the others")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of training; repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-rows", type=int, default=1 << 40, help="draw this number of rows of larger sets")
    parser.add_argument("--least-rows", type=int, default=0, help="pass over smaller sets")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.out / "suite.ndjson"
    run(options, journal)
    write_report(
        pl.DataFrame(_rows(journal), infer_schema_length=None), options.peers.split(",")[0], machine(), options.out
    )


if __name__ == "__main__":
    main()
