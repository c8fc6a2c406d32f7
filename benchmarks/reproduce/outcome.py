"""What an item of `python -m benchmarks.reproduce` is asked for, what it gives, and the files it writes."""

from __future__ import annotations

import datetime
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

sys.path.append(str(Path(__file__).resolve().parent.parent))

from runs import machine
from tables import markdown

import bigforest

# A number that is further from its reference than this number of standard errors is called above or below it.
NEAR = 2.0
# With fewer draws a standard error is itself too uncertain for a verdict.
FEWEST_DRAWS = 5
# An item that takes fewer seconds has found what it measures in one before.
_SHARED = 5.0
_Unit = TypeVar("_Unit")
_Result = TypeVar("_Result")
_FORMATS = {"ours": "{:.4f}", "standard_error": "{:.4f}", "reference": "{:.4f}", "distance": "{:+.1f}"}


class NotPossibleError(Exception):
    """Data, or a library, that an item needs is not there; the message is one line."""


@dataclass(frozen=True, slots=True)
class Given:
    """The options. None stands for what the item has of its own.

    data       folder with mnist/ and uci/.
    draws      repetitions, each with a seed of its own.
    trees      of every forest, exactly.
    seed       of the first draw.
    processes  that measure side by side; each grows on one thread.
    """

    data: Path
    draws: int | None
    trees: int | None
    seed: int
    processes: int = 1

    def each(self, measure: Callable[[_Unit], _Result], units: Sequence[_Unit]) -> list[_Result]:
        """What `measure` finds of each unit, in their order; says on standard error how many are done."""
        found: list[_Result] = []
        if self.processes == 1:
            for unit in units:
                found.append(measure(unit))
                _say_done(len(found), len(units))
            return found
        # Threads of bigforest may be running here, so processes are not forked.
        started = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.processes, len(units) or 1), started) as pool:
            for result in pool.map(measure, units):
                found.append(result)
                _say_done(len(found), len(units))
        return found

    def seed_of(self, *parts: object) -> int:
        """A seed for a draw of a setting, that of another setting being independent of it."""
        from hashlib import blake2b

        text = repr((self.seed, *parts)).encode()
        return int.from_bytes(blake2b(text, digest_size=4).digest(), "little") >> 1

    def folder(self, name: str) -> Path:
        """A folder of the data. Raises NotPossibleError."""
        folder = self.data / name
        if not folder.is_dir():
            raise NotPossibleError(f"{folder} is not there; say with --data where the folders mnist and uci are")
        return folder

    def table(self, name: str) -> pl.DataFrame:
        """A data set of uci. Raises NotPossibleError."""
        path = self.folder("uci") / f"{name}.parquet"
        if not path.is_file():
            raise NotPossibleError(f"{path} is not there; the item needs this data set")
        return pl.read_parquet(path)


def _say_done(done: int, units: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {units}", end="\n" if done == units else "", file=sys.stderr, flush=True)


def seconds_of_processor() -> float:
    """Seconds of processor of this process and of those it has waited for."""
    return sum(os.times()[:4])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an item found.

    numbers   a row per draw, or finer.
    compared  a row per number: what it is, `ours`, `standard_error`, `reference` (null where there is none).
    about     draws, trees and whatever else there is to say.
    draw      makes the picture at a path.
    """

    numbers: pl.DataFrame
    compared: pl.DataFrame
    about: str
    draw: Callable[[Path], None]


def mean_and_error(numbers: pl.DataFrame, by: list[str], value: str = "error") -> pl.DataFrame:
    """The mean of a column and its standard error, by others."""
    error = (pl.col(value).std() / pl.len().sqrt()).fill_null(0.0)
    return numbers.group_by(by, maintain_order=True).agg(
        pl.col(value).mean().alias("ours"), error.alias("standard_error")
    )


def judged(compared: pl.DataFrame, reference_draws: float | pl.Expr = math.inf) -> pl.DataFrame:
    """With the distance from the reference in standard errors, and a verdict.

    reference_draws  how many times as many draws as ours the reference is a mean of: its error follows from ours.
    """
    spread = pl.col("standard_error") * (1.0 + 1.0 / reference_draws) ** 0.5
    known = pl.col("reference").is_not_null() & (pl.col("standard_error") > 0)
    distance = pl.when(known).then((pl.col("ours") - pl.col("reference")) / spread)
    verdict = (
        pl.when(pl.col("reference").is_null())
        .then(pl.lit("no reference"))
        .when(distance.is_null())
        .then(pl.lit("no standard error"))
        .when(distance.abs() <= NEAR)
        .then(pl.lit("agrees"))
        .when(distance > 0)
        .then(pl.lit("above"))
        .otherwise(pl.lit("below"))
    )
    return compared.with_columns(distance.alias("distance"), verdict.alias("verdict"))


def with_enough_draws(found: Outcome) -> pl.DataFrame:
    """The compared numbers, without verdicts by a standard error of too few draws."""
    column = next(name for name in ("draw", "trial") if name in found.numbers.columns)
    if found.numbers[column].n_unique() >= FEWEST_DRAWS:
        return found.compared
    decided = pl.col("verdict").is_in(["agrees", "above", "below"])
    return found.compared.with_columns(
        pl.when(decided).then(pl.lit("too few draws")).otherwise("verdict").alias("verdict")
    )


def write(name: str, what: str, command: str, found: Outcome, out: Path, begin: float) -> str:
    """Write OUT/NAME.parquet, NAME.md and NAME.svg; returns the Markdown."""
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = name
    out.mkdir(parents=True, exist_ok=True)
    compared = with_enough_draws(found)
    found.numbers.write_parquet(out / f"{name}.parquet")
    found.draw(out / f"{name}.svg")
    headings: dict[str, tuple[str, str]] = {}
    for column in compared.columns:
        headings[column] = (column.replace("_", " "), _FORMATS.get(column, "{}"))
    counts = compared.filter(pl.col("reference").is_not_null())["verdict"].value_counts(sort=True).rows()
    counted = ", ".join(f"{number} {verdict}" for verdict, number in counts) or "there are no reference numbers"
    spent = seconds_of_processor() - begin
    took = f"{spent:.0f} seconds of processor" if spent >= _SHARED else "measured with an item before it"
    text = "\n\n".join(
        [
            f"# {what}",
            f"`{command}`",
            f"{found.about} {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, bigforest {bigforest.__version__}, "
            f"{took}. Machine: {machine()}, shared with other work.",
            f"Verdicts: {counted}. A number agrees that is within {NEAR:g} standard errors of its reference.",
            f"![{what}]({name}.svg)",
            markdown(compared, headings),
        ]
    )
    (out / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    return text


def figure(rows: int, columns: int, width: float = 3.6, height: float = 3.2) -> tuple[Any, Any]:
    """A figure and its panels [rows, columns]."""
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=(width * columns + 0.4, height * rows + 0.4), squeeze=False)


def save(drawn: Any, path: Path) -> None:
    """Write a figure without its date, so that the same numbers give the same file."""
    from matplotlib import pyplot as plt

    drawn.tight_layout()
    drawn.savefig(path, metadata={"Date": None})
    plt.close(drawn)
