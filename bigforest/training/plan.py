"""The plan of a training run: rows, widths, disk, passes, memory and time of each stage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bigforest.encode.table_shape import shape_of
from bigforest.execution.compiling import ENCODING, is_compiled
from bigforest.execution.resources import Resources
from bigforest.grow.families.registry import family_of
from bigforest.grow.warm_up import kernels_of
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape, add_estimates
from bigforest.planning.plan import RunPlan, StagePlan
from bigforest.source import Source
from bigforest.storage.paths import free_bytes
from bigforest.store.format import block_count
from bigforest.store.store import Store
from bigforest.training.choose import visits_to_choose
from bigforest.training.memory import check_boosting, estimates, settled_for
from bigforest.training.run_state import TrainingJob

# Nanoseconds of one thread, measured on 2 cores of an AMD EPYC with 500,000 rows of 16 float32 and noisy classes.
# Other processors, disks and tables differ by a factor of two and more: times are estimates.
_READ_CELL = 100.0
_ENCODE_CELL = 130.0
_GROW_VISIT = 14.0
# Finding the leaves of all rows after a tree of a boosted forest; adding up the votes of out-of-bag rows.
_ROUTE_ROW_TREE = 400.0
_VOTE_ROW_TREE = 100.0
_TARGETS_ROW_TREE = 400.0
# Bytes of the store that one more pass reads per nanosecond.
_PASS_BYTES = 0.5

# Share of the rows that are in a bag drawn with replacement.
_DRAWN = 1.0 - math.exp(-1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(RunPlan):
    """The needs of a training run, as upper bounds unless stated otherwise. In addition to the fields of `RunPlan`:

    rows, features, classes  of the table.
    widths        numbers of features with codes of 1, 2 and 4 bytes.
    store         bytes of the presorted table, which are part of the scratch; 0 if the store exists.
    output_free   free bytes on the disk of the forest.
    compiling     seconds for compiling kernels, once per machine; 0 if that has been done.

    Examples
    --------
    >>> import bigforest as bf
    >>> plan = bf.plan_training({"size": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "a", "b", "b"]}, "kind", trees=10)
    >>> plan.rows, plan.features, plan.classes, plan.fits
    (4, 1, 2, True)
    """

    rows: int
    features: int
    classes: int
    widths: dict[int, int]
    store: int
    output_free: int
    compiling: float

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run, compiling included."""
        return self.compiling + sum(stage.seconds for stage in self.stages)

    def _repr_html_(self) -> str:
        return self._html("Plan", {"rows": f"{self.rows:,}", "features": f"{self.features:,}"})


def make_plan(
    table: Source | Store,
    job: TrainingJob,
    config: TrainConfig,
    resources: Resources,
    home: Path,
) -> Plan:
    """The plan for training on `table`, which was opened for a job, into a forest in the folder `home`.

    Raises DataError when the table cannot be used.
    """
    kept = isinstance(table, Store)
    shape = shape_of(table, job.data, job.target, job.exclude, config)
    config = settled_for(shape, config)
    check_boosting(shape.rows, config, resources)
    needs = {need.stage: need for need in estimates(table, shape, config, resources)}
    run = add_estimates(needs.values())
    store = 0 if kept else store_disk_bytes(shape, binned=config.max_bins != "exact", weighted=config.weighs_rows)
    times = _seconds(shape, config, resources)
    pass_seconds = shape.rows * shape.row_bytes / _PASS_BYTES * 1e-9
    stages = tuple(
        StagePlan(stage, need, times[stage] + (need.passes - 1) * pass_seconds) for stage, need in needs.items()
    )
    kinds = [] if kept else [ENCODING]
    kinds.append(kernels_of(shape.extras, config, needs["grow"].passes > 1))
    return Plan(
        rows=shape.rows,
        features=shape.features,
        classes=shape.classes,
        widths={width: shape.widths.count(width) for width in (1, 2, 4)},
        store=store,
        scratch=store + run.scratch,
        scratch_free=free_bytes(resources.scratch or home),
        output_free=free_bytes(home),
        memory=resources.memory,
        smallest=run.smallest,
        stages=stages,
        compiling=sum(kind.seconds for kind in kinds if not is_compiled(kind)),
    )


def store_disk_bytes(shape: Shape, *, binned: bool, weighted: bool) -> int:
    """Bytes of a store of this shape: codes, dictionaries, targets, weights, checksums; without the text of levels.

    Weights are assumed to be wide, and targets to be exact whole numbers.
    """
    target = 2 if shape.classes > 1 else 8
    cells = shape.rows * (shape.row_bytes + target + (8 if weighted else 0))
    return cells + shape.codes * (16 if binned else 8) + (shape.features + 1) * block_count(shape.rows) * 4


def _seconds(shape: Shape, config: TrainConfig, resources: Resources) -> dict[str, float]:
    """Estimated seconds of each stage with all its data in memory, for trees grown until their leaves are pure.

    Growing finds the leaves of out-of-bag rows; the report adds their votes up.
    """
    drawn = min(1.0, config.sample_fraction * (_DRAWN if config.replace else 1.0)) if config.bootstrap else 1.0
    bag = max(2.0, shape.rows * drawn)
    levels = math.log2(bag) if config.max_depth is None else min(config.max_depth, math.log2(bag))
    visits = config.trees * bag * levels * family_of(config).expected_reads(shape.features, config)
    total = {
        "read": shape.rows * shape.features * _READ_CELL,
        "encode": shape.rows * shape.features * _ENCODE_CELL,
        "choose": visits_to_choose(shape, config) * _GROW_VISIT,
        "grow": visits * _GROW_VISIT,
        "oob": config.trees * shape.rows * _VOTE_ROW_TREE,
        "targets": config.trees * shape.rows * _TARGETS_ROW_TREE,
        "weigh": config.trees * shape.rows * _TARGETS_ROW_TREE,
    }
    threads = resources.executor().size
    if config.boosts:  # a tree grows on one thread, and all threads route the rows
        total["grow"] = threads * total["grow"] + config.trees * shape.rows * _ROUTE_ROW_TREE
    return {stage: nanoseconds * 1e-9 / threads for stage, nanoseconds in total.items()}
