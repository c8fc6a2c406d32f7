"""The memory of the stages of a run, from the estimates next to their code, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable

from bigforest.encode.memory import encode_estimate
from bigforest.encode.roles import ColumnRoles
from bigforest.encode.table_shape import shape_of
from bigforest.errors import ConfigError, api, counted
from bigforest.execution.resources import Resources
from bigforest.grow.memory import grow_estimate
from bigforest.oob.leaf_targets import leaf_targets_estimate
from bigforest.oob.plan import oob_estimate
from bigforest.oob.weigh import weigh_estimate
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import MemoryEstimate, Shape, add_estimates, machine_bytes
from bigforest.planning.sizes import megabytes
from bigforest.sampling.boosting import check_rows
from bigforest.source import Source
from bigforest.source.spool import read_estimate
from bigforest.store.store import Store
from bigforest.training.choose import is_open, most_of
from bigforest.training.run_state import TrainingJob
from bigforest.training.trial_trees import choose_estimate

# What the stages need, in the order in which they run.
_STAGES: tuple[Callable[[Shape, TrainConfig, Resources], MemoryEstimate], ...] = (
    encode_estimate,
    choose_estimate,
    grow_estimate,
    oob_estimate,
    leaf_targets_estimate,
    weigh_estimate,
)


def estimates(table: Source | Store, shape: Shape, config: TrainConfig, resources: Resources) -> list[MemoryEstimate]:
    """What the stages of a run need; a kept store is not encoded, and without bootstrap nothing is out of bag."""
    skipped = {"encode"} if isinstance(table, Store) else set()
    if config.chooses_axes or is_open(config, shape.features, shape.rows, shape.classes):
        config = most_of(config, shape)
    else:
        skipped.add("choose")
    if not config.bootstrap:
        skipped.add("oob")
    if not config.keep_targets:
        skipped.add("targets")
    # Whether weights are wide is known once they are read.
    if not (table.spec.wide_weights if isinstance(table, Store) else config.weighs_rows):
        skipped.add("weigh")
    needs = [need for stage in _STAGES if (need := stage(shape, config, resources)).stage not in skipped]
    if isinstance(table, Source) and table.spooled:
        needs.insert(0, read_estimate(table.spooled, sum(file.stat().st_size for file in table.files)))
    return needs


def settled_for(shape: Shape, config: TrainConfig) -> TrainConfig:
    """The configuration for a table of this shape."""
    return config.settled("regression" if shape.extras.regression else "classification")


def check_boosting(rows: int | None, config: TrainConfig, resources: Resources) -> None:
    """Raise ConfigError where a boosted forest cannot be grown so. rows: of the table; None while that is not known."""
    if not config.boosts:
        return
    if resources.cluster is not None:
        raise ConfigError(
            f"with sampling {config.sampling!r} each tree needs the trees before it, so workers of a cluster would "
            f"wait; drop the {api('scheduler')}, or use another sampling"
        )
    if rows is not None:
        check_rows(rows, config)


def check_budget(
    table: Source | Store, job: TrainingJob, config: TrainConfig, resources: Resources, roles: ColumnRoles | None
) -> None:
    """Raise ConfigError when the memory budget, if there is one, is too small for a stage of the run.

    roles  of the columns, None of a store.
    """
    check_boosting(None, config, resources)
    if resources.memory is None:
        return
    shape = shape_of(table, job.data, job.target, job.exclude, config, roles)
    needs = estimates(table, shape, settled_for(shape, config), resources)
    if not isinstance(table, Store):  # whether weights are wide is known once they are read: then this is asked again
        needs = [need for need in needs if need.stage != "weigh"]
    add_estimates(needs).check(resources.memory)


def check_machine(store: Store, config: TrainConfig, resources: Resources, machine: int | None = None) -> None:
    """Raise ConfigError where a run without a budget would need more memory than the machine has, however it goes.

    machine  bytes of memory; None for those of this machine. A cluster's machines are not known.
    """
    machine = machine_bytes() if machine is None else machine
    if resources.memory is not None or resources.cluster is not None or machine is None:
        return
    worst = add_estimates(estimates(store, store.shape, config, resources))
    if worst.smallest > machine:
        raise ConfigError(
            f"the stage {worst.stage} needs up to {megabytes(worst.smallest)} of memory for "
            f"{counted(store.rows, 'row')}, {counted(store.shape.features, 'feature')} and "
            f"{counted(store.shape.classes, 'class')}, and this machine has {megabytes(machine)}; take fewer "
            f"of them, or set {api('memory')} to that much to try all the same"
        )
