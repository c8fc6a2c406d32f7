"""The plan of a run: memory, scratch and time of each stage, estimated before the run starts."""

from __future__ import annotations

from dataclasses import dataclass

from bigforest.html import facts_table, rows_table
from bigforest.planning.memory import MemoryEstimate
from bigforest.planning.sizes import megabytes


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Needs of a stage, and its estimated seconds."""

    stage: str
    need: MemoryEstimate
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Needs of a run, as upper bounds unless stated otherwise.

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
        """True if memory and scratch suffice."""
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
                one.stage,
                f"{one.need.passes:,}",
                megabytes(one.need.memory),
                megabytes(one.need.scratch),
                f"{one.seconds:,.1f}",
            ]
            for one in self.stages
        ]
        return facts_table(title, facts) + rows_table(["stage", "passes", "memory", "scratch", "seconds"], rows)
