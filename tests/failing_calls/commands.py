"""The commands whose calls fail, and how each goes on afterwards."""

from __future__ import annotations

import contextlib
import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import bigforest
from bigforest.events import Event, StageAdvanced

_RESUME = ["train", "--resume", "out", "--threads", "1", "--quiet"]
_INTERRUPTED = ("out.unfinished", "out.unfinished")
_PLAIN = ["train", "HOME/table.parquet", "--trees", "2", "--threads", "1", "--quiet", "--out", "out"]
_TRAIN = [*_PLAIN, "--mtry", "2"]  # without the trial trees that choose it, which call nothing
_COMPARE = ["compare", "HOME/table.parquet", "--target", "y", "--candidates", "2", "--trees", "2", "--threads", "1"]
_COMPARE += ["--quiet", "--out", "out"]
_PARTS = "importance unbiased permutation local strength contributions shap interactions proximities trees"
_COLUMNS = ["train", "HOME/columns.csv.gz", "--trees", "2", "--threads", "1", "--quiet", "--out", "out"]
_PLOT = ["plot", "HOME/a.forest", "--what", "error,tree", "--format", "html", "--threads", "1", "--quiet"]
_PLOT += ["--out", "out"]
# Files with timings.
TIMED = ("run.parquet", "candidates.parquet", "race.json", "explain.json")


@dataclass(frozen=True)
class Command:
    """A command line that writes an output in the current folder, where the tables and forests are in HOME.

    again   the command that goes on once there is a forest, finished or not
    out     the output
    before  what is in the current folder, copied from HOME: names there and here
    """

    line: list[str]
    again: list[str] | None = None
    out: str = "out"
    before: tuple[str, str] | None = None


def _train(*options: str) -> Command:
    return Command([*_TRAIN, *options], _RESUME)


def _on_forest(*words: str, out: str = "out") -> Command:
    return Command([*words, "--quiet", "--out", out], out=out)


COMMANDS = {
    "train": Command(_PLAIN, _RESUME),
    "passes": _train("--memory", "SMALLEST"),
    "votes": _train("--keep-votes"),
    "regression": _train("--target", "x0", "--keep-targets"),
    "resumed": Command(_RESUME, before=_INTERRUPTED),
    "moved": Command([*_RESUME, "--scratch", "temporary"], _RESUME, before=_INTERRUPTED),
    "more trees": Command([*_RESUME, "--trees", "5"], before=("a.forest", "out")),
    "predict": _on_forest("predict", "HOME/a.forest", "HOME/test.parquet", "--proba", "--threads", "1"),
    "encode": _on_forest("encode", "HOME/table.parquet", "--target", "y", "--threads", "1"),
    "compare": Command(_COMPARE),
    "compared again": Command([*_COMPARE, "--overwrite"], before=("b.comparison", "out")),
    "explain": _on_forest(
        "explain",
        "HOME/a.forest",
        "HOME/table.parquet",
        "--importance",
        "--trees",
        "--permutation",
        "--threads",
        "1",
    ),
    "merge": _on_forest("merge", "HOME/a.forest", "HOME/b.forest"),
    "export": _on_forest("export", "HOME/a.forest", "--to", "sql", out="out.sql"),
    "report": _on_forest("report", "HOME/a.forest", "--threads", "1", out="out.html"),
    "calibrate": _on_forest("calibrate", "HOME/a.forest", "HOME/test.parquet", "--threads", "1"),
    "validate": _on_forest("validate", "HOME/a.forest", "HOME/test.parquet", "--threads", "1"),
    "shrink": _on_forest("shrink", "HOME/a.forest", "--data", "HOME/table.parquet", "--threads", "1"),
    "prune": _on_forest("prune", "HOME/a.forest", "HOME/test.parquet", "--threads", "1"),
    "replaced": Command([*_TRAIN, "--overwrite"], _RESUME, before=("b.forest", "out")),
    "merged again": Command(
        ["merge", "HOME/a.forest", "HOME/b.forest", "--quiet", "--out", "out", "--overwrite"],
        before=("b.forest", "out"),
    ),
    "columns": Command(
        [*_COLUMNS, "--weight", "w", "--group", "g", "--refine", "3", "--calibration", "0.2"],
        _RESUME,
    ),
    "oblique": Command([*_PLAIN, "--family", "sparse-oblique"], _RESUME),
    "rotation": _train("--family", "rotation"),
    "tuned": Command([*_PLAIN, "--tune", "2"]),
    "all parts": _on_forest(
        "explain", "HOME/a.forest", "HOME/table.parquet", *(f"--{part}" for part in _PARTS.split()), "--threads", "1"
    ),
    "predict csv": _on_forest(
        "predict", "HOME/a.forest", "HOME/columns.csv.gz", "--keep", "c", "--threads", "1", out="out.csv"
    ),
    "images": _on_forest("images", "HOME/images-idx3-ubyte", out="out.parquet"),
    "simulate": _on_forest("simulate", "trunk", "--rows", "300", "--dims", "3", out="out.parquet"),
    "plot": Command(_PLOT, [*_PLOT, "--overwrite"]),
}


def _reading(*words: str, of: str = "a.forest") -> Command:
    return Command([words[0], of, *words[1:]], before=(of, of))


# Commands that read a forest or a store in the current folder.
READERS = {
    "predict": _reading("predict", "HOME/test.parquet", "--threads", "1", "--quiet"),
    "importance": _reading("explain", "HOME/table.parquet", "--importance", "--threads", "1", "--quiet"),
    "export": _reading("export", "--to", "sql", "--quiet"),
    "merge": _reading("merge", "HOME/b.forest", "--out", "out", "--quiet"),
    "report": _reading("report", "--threads", "1", "--quiet"),
    "oob": _reading("oob"),
    "train": _reading("train", "--trees", "2", "--threads", "1", "--quiet", "--out", "out", of="t.store"),
    "resumed": Command(_RESUME, before=_INTERRUPTED),
}


def make_home(home: Path, place: Path) -> None:
    """Write the tables and forests that the commands read, and an interrupted training that belongs to `place`."""
    home.mkdir()
    draw = np.random.default_rng(5)
    columns = {f"x{index}": draw.normal(size=150).round(2) for index in range(3)}
    late = columns["x0"] + columns["x1"] + draw.normal(size=150) > 0
    table = pl.DataFrame({**columns, "y": np.where(late, "late", "fine")})
    table.head(100).write_parquet(home / "table.parquet")
    table.tail(50).write_parquet(home / "test.parquet")
    levels = {"c": draw.choice(["ulm", "bonn", "kiel"], 150), "w": draw.integers(1, 4, 150), "g": np.arange(150) // 5}
    mixed = table.with_columns(**levels, x1=pl.when(draw.random(150) < 0.8).then("x1"))
    with gzip.open(home / "columns.csv.gz", "wb") as file:
        mixed.write_csv(file)
    images, sizes = draw.integers(0, 256, (20, 4, 4)).astype(np.uint8), np.array([20, 4, 4], ">i4")
    (home / "images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + sizes.tobytes() + images.tobytes())
    for name, seed in (("a", 0), ("b", 9)):
        bigforest.train(home / "table.parquet", "y", out=home / f"{name}.forest", trees=4, threads=1, seed=seed)
    options, again = {"trees": 2}, home / "b.comparison"
    bigforest.compare(home / "test.parquet", "y", candidates=2, options=options, out=again, threads=1)

    bigforest.encode_store(home / "table.parquet", home / "t.store", target="y", threads=1)
    plan = bigforest.plan_training(home / "table.parquet", "y", trees=2, threads=1)
    (home / "memory").write_text(str(plan.smallest))

    def interrupt(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow" and event.done >= 1:
            raise KeyboardInterrupt

    place.mkdir()
    with contextlib.suppress(KeyboardInterrupt):
        bigforest.train(home / "table.parquet", "y", out=place / "out", trees=2, threads=1, listener=interrupt)
    (place / "out.unfinished").rename(home / "out.unfinished")


def lay(command: Command, home: Path, place: Path) -> None:
    """Make a folder for a command, with a folder for temporary files and what the command begins with."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "temporary").mkdir(parents=True)
    if (before := command.before) is not None:
        shutil.copytree(home / before[0], place / before[1])


def content(place: Path) -> dict[str, bytes]:
    """Return the files and folders below a folder. Files with timings, and files not renamed yet, are empty."""
    return {
        str(path.relative_to(place)): b""
        if path.is_dir() or path.name in TIMED or path.suffix == ".tmp"
        else path.read_bytes()
        for path in sorted(place.rglob("*"))
    }
