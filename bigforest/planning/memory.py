"""Estimates of the memory and time of a run, so that it is refused at the start instead of killed later.

The module of each stage has a function `..._estimate`, mostly of (shape, config, resources), which returns a
`MemoryEstimate`. Stages follow one another, so a run needs the memory of its largest stage (`combined_estimate`).
`MemoryEstimate.check` refuses a run with an error that names this stage and the smallest sufficient budget. A `RunPlan`
has the estimates of all stages of a run.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bigforest.errors import ConfigError, api
from bigforest.html import facts_table, rows_table
from bigforest.planning.sizes import megabytes

# Anonymous memory of a process with interpreter, libraries and kernels loaded. Measured: 140 MB after training on a
# small table. Compiling the kernels takes up to 350 MB more, once; budgets do not include it.
BASE_BYTES = 200_000_000
# Parameters of mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, and their values.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_KEPT_BYTES = 16 << 20
_LARGE_BYTES = 2 << 20


class TableTraits(NamedTuple):
    """Traits of a table that need separate kernels or more memory.

    non_plain_features  names of features that are categories or have missing values; empty if these are filled
    category            most codes of a category; 0 without categories, or if they are filled
    regression          the task is regression
    weighted            rows have weights
    filled              missing values and categories are filled, see grow/filled_store.py
    levels              most codes of a category, if categories are filled; otherwise 0
    many                the target has more than two classes
    """

    non_plain_features: tuple[str, ...] = ()
    category: int = 0
    regression: bool = False
    weighted: bool = False
    filled: bool = False
    levels: int = 0
    many: bool = False


PLAIN = TableTraits()


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a table, which determines the memory of a run. It is known, or bounded from above, before the run starts.

    rows     number of rows.
    widths   bytes of a code of each feature, in the order of the features.
    codes    sum over the features of the number of distinct values.
    classes  number of classes of the target; 1 for regression.
    sizes    bytes of a value of each feature in the table to encode; empty for a store.
    bits     True if each feature is known to have only the values 0 and 1, or a single whole number below 256.
    dropped  True if rows may be left out in encoding, because they have no target or the weight 0.
    extras   traits that need more memory, as far as they are known.
    """

    rows: int
    widths: tuple[int, ...]
    codes: int
    classes: int
    sizes: tuple[int, ...] = ()
    bits: bool = False
    extras: TableTraits = PLAIN
    dropped: bool = False

    @property
    def features(self) -> int:
        return len(self.widths)

    @property
    def row_bytes(self) -> int:
        return sum(self.widths)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory, scratch and passes of a stage.

    stage     name of the stage, as in events.
    memory    maximum bytes of anonymous memory with the budget of the run, BASE_BYTES included.
    smallest  smallest budget with which the stage can run.
    scratch   bytes on disk in addition to the output of the stage.
    passes    number of times the stage reads the table or store from end to end.
    trees     number of trees that share a pass; 0 if passes are not by groups of trees.
    without   advice on how to leave the stage out, for the error of `check`; empty if it cannot be left out.
    """

    stage: str
    memory: int
    smallest: int
    scratch: int = 0
    passes: int = 1
    trees: int = 0
    without: str = ""

    def check(self, budget: int | None) -> None:
        """Raise ConfigError that names the smallest budget if `budget` is smaller; None means no limit."""
        if budget is not None and self.smallest > budget:
            raise self.refusal(budget)

    def refusal(self, budget: int) -> ConfigError:
        allowed = f"{budget // 10**6}MB" if budget >= 10**6 else f"{budget}B"
        least = megabytes(self.smallest)
        return ConfigError(
            f"the stage {self.stage} needs at least {least} of memory and may use {allowed}; raise {api('memory')} to "
            f"that{self.without and ', or '}{self.without}"
        )


def combined_estimate(needs: Collection[MemoryEstimate]) -> MemoryEstimate:
    """Return the estimate of a run whose stages follow one another: the largest memory and scratch, the sum of passes.

    `stage`, `smallest` and `without` come from the stage with the largest `smallest`. The scratch files of a stage are
    removed when it ends. Only a table that was streamed to scratch (stage "read") stays, so its bytes are added.
    """
    streamed = sum(need.scratch for need in needs if need.stage == "read")
    largest = max(needs, key=lambda need: need.smallest)
    return MemoryEstimate(
        largest.stage,
        max(need.memory for need in needs),
        largest.smallest,
        streamed + max(need.scratch for need in needs if need.stage != "read"),
        sum(need.passes for need in needs),
        without=largest.without,
    )


def machine_bytes() -> int | None:
    """Return the bytes of memory of this machine, or of the container of this process if less; None if unknown."""
    limits: list[int] = []
    with suppress(OSError, AttributeError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup versions 2 and 1; "max" means no limit
        with suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", file).read_text()))
    return min((limit for limit in limits if limit > 0), default=None)


def keep_freed(large: int = _LARGE_BYTES) -> None:
    """Make the C library keep freed memory for later arrays, up to 16 MB in each thread, except for large arrays.

    large  bytes from which on an array is large.

    By default, the C library returns the memory of a tree to the system when its arrays are freed. The system then has
    to make new pages for the next tree: 450 pages, a twentieth of the processor time, for a tree of the data set
    diamonds. Also by default, the library places large arrays among small ones after the first large array was freed,
    which leaves holes. With this setting, large arrays always get their own pages, which are returned. Growing on 12
    million rows within 360 MB took 370 MB at the peak by default, and takes 353 MB with this setting. Does nothing if
    the C library does not support it.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, large)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def release_freed() -> None:
    """Return freed memory to the system, and call `keep_freed` for memory that is freed later.

    The C library keeps the freed memory of each thread separately, which adds up over many short-lived threads. Does
    nothing if the C library does not support it.
    """
    keep_freed()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Estimates of a stage: memory, and time in seconds."""

    stage: str
    need: MemoryEstimate
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Estimates of a run, as upper bounds unless stated otherwise.

    memory        the budget; None for no limit.
    smallest      the smallest sufficient budget.
    scratch       bytes of temporary files.
    scratch_free  free bytes on their disk.
    stages        stages in the order in which they run.
    """

    memory: int | None
    smallest: int
    scratch: int
    scratch_free: int
    stages: tuple[StagePlan, ...]

    @property
    def fits(self) -> bool:
        """True if the memory budget and the free disk space suffice."""
        return (self.memory is None or self.smallest <= self.memory) and self.scratch <= self.scratch_free

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run."""
        return sum(stage.seconds for stage in self.stages)

    def _html(self, title: str, facts: dict[str, str]) -> str:
        """Return the plan as HTML for a notebook. `facts` come first."""
        facts = facts | {
            "memory": "no limit" if self.memory is None else megabytes(self.memory),
            "smallest memory": megabytes(self.smallest),
            "scratch": f"{megabytes(self.scratch)} of {megabytes(self.scratch_free)} that are free",
            "seconds": f"about {self.seconds:,.0f}",
            "fits": "yes" if self.fits else "no",
        }
        rows = [
            [
                planned.stage,
                f"{planned.need.passes:,}",
                megabytes(planned.need.memory),
                megabytes(planned.need.scratch),
                f"{planned.seconds:,.1f}",
            ]
            for planned in self.stages
        ]
        return facts_table(title, facts) + rows_table(["stage", "passes", "memory", "scratch", "seconds"], rows)
