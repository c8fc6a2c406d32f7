"""Plan of a run: options, roles of columns, and the memory, disk, passes and time of each stage.

`resolve` makes the plan before the table is encoded, from its metadata and, if necessary, from the target.
`TrainingPlan.check` refuses a run that does not fit. `TrainingPlan.summary` is printed by `bigforest plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bigforest.columns.types import flat_columns, kind_of
from bigforest.encode.encode import encode
from bigforest.encode.memory import encode_estimate
from bigforest.encode.roles import ColumnRoles, column_roles, shape_of
from bigforest.encode.rows import class_weight_of, for_all_classes
from bigforest.encode.values import FEW_ROWS
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.events import Listener
from bigforest.execution.compile_stage import ENCODING, is_compiled
from bigforest.execution.resources import Resources
from bigforest.grow.criteria import criterion_of
from bigforest.grow.filled_store import filled_store
from bigforest.grow.memory import expected_visits, grow_estimate
from bigforest.grow.needed_kernels import kernels_of
from bigforest.oob.leaf_targets import leaf_targets_estimate
from bigforest.oob.plan import oob_estimate
from bigforest.oob.refine import refine_estimate, refine_nanoseconds, refines, refining_kernels
from bigforest.oob.weigh import weigh_estimate
from bigforest.options.train_config import TrainConfig, check_features
from bigforest.options.values import Task
from bigforest.planning.memory import MemoryEstimate, RunPlan, Shape, StagePlan, combined_estimate, machine_bytes
from bigforest.planning.sizes import megabytes
from bigforest.sampling.boosting import check_rows
from bigforest.source.open import check_csv, open_source
from bigforest.source.source import Reading, Source
from bigforest.source.spool import read_estimate
from bigforest.storage.paths import as_path, free_bytes
from bigforest.store.format import (
    CHECKSUM_TYPE,
    GROUP_TYPE,
    ROW_NUMBER_TYPE,
    TARGET_TYPES,
    VALUE_TYPE,
    WEIGHT_TYPES,
    block_count,
    is_meant_as_store,
)
from bigforest.store.store import Store
from bigforest.training.choose import choose_min_level, rules_for, visits_to_choose
from bigforest.training.run_folder import Run
from bigforest.training.trial_trees import choose_estimate

# The stages in the order in which they run, except for "weigh", which is a part of growing.
# Each function is in the module of its stage, and returns its memory, scratch and passes.
STAGES: tuple[Callable[[Shape, TrainConfig, Resources], MemoryEstimate], ...] = (
    encode_estimate,
    choose_estimate,
    grow_estimate,
    oob_estimate,
    refine_estimate,
    leaf_targets_estimate,
    weigh_estimate,
)

# Nanoseconds of one thread for a cell or a visit, measured on 2 cores of an AMD EPYC with 500,000 rows of 16 float32
# and noisy classes. On other processors, disks and tables they differ by a factor of two and more.
_READ_CELL = 100.0
_ENCODE_CELL = 130.0
_GROW_VISIT = 14.0
# For a row and a tree: finding the leaves of all rows after a tree grown with boosting; adding up the votes of
# out-of-bag rows; keeping the targets of leaves, or weighing.
_ROUTE_ROW_TREE = 400.0
_VOTE_ROW_TREE = 100.0
_TARGETS_ROW_TREE = 400.0
# Bytes of the store that one more pass reads per nanosecond.
_PASS_BYTES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(RunPlan):
    """The needs of a training run, as upper bounds unless stated otherwise. In addition to the fields of `RunPlan`:

    rows, features, classes  of the table.
    widths        number of features by the bytes of their codes: 1, 2 and 4.
    store         bytes of the presorted table, 0 if it exists. These bytes are part of `scratch`. The text of levels
                  is not included: it is unknown before the table is read.
    categories    number of features with levels; 0 if the store exists.
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
    categories: int
    output_free: int
    compiling: float

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run, compiling included."""
        return self.compiling + sum(stage.seconds for stage in self.stages)

    def _repr_html_(self) -> str:
        return self._html("Plan", {"rows": f"{self.rows:,}", "features": f"{self.features:,}"})


@dataclass(frozen=True)
class TrainingPlan:
    """Decisions of a run: table, options, roles of columns and resources.

    run        the run, with the options as they were given.
    table      the opened table. After `for_store` the store; for projections, with filled missing cells and levels.
    config     the options. `for_store` chooses min_level; `choose_options` (choose.py) chooses the other options that
               depend on the rows.
    roles      the use of each column; None for a store.
    resources  threads, memory and disk.
    stages     names of the stages that run; None for all that the options need.
    """

    run: Run
    table: Source | Store
    config: TrainConfig
    roles: ColumnRoles | None
    resources: Resources
    stages: Collection[str] | None = None

    @property
    def store(self) -> Store:
        """The table of the plan, after it was encoded."""
        assert isinstance(self.table, Store)
        return self.table

    @cached_property
    def shape(self) -> Shape:
        """Rows, features and classes of the table; upper bounds unless it is a store."""
        if isinstance(self.table, Store):
            return self.table.shape
        assert self.roles is not None
        return shape_of(self.table, self.roles, self.config)

    @cached_property
    def needs(self) -> list[MemoryEstimate]:
        """Memory, scratch and passes of each stage, in their order."""
        table, shape, config = self.table, self.shape, self.config
        rules = rules_for(config, shape)
        # Some options are chosen later. The last rule, and all features as axes, need the most memory.
        largest = replace(rules[-1], axes_from=()) if config.chooses_axes else rules[-1]
        runs = {
            "encode": isinstance(table, Source),
            "choose": config.chooses_axes or len(rules) > 1,
            "oob": config.bootstrap,
            "refine": refines(config, shape.rows, shape.classes),
            "targets": config.keep_targets,
            "weigh": table.spec.wide_weights if isinstance(table, Store) else config.weighs_rows,
        }
        needs = [need for stage in STAGES if runs.get((need := stage(shape, largest, self.resources)).stage, True)]
        if isinstance(table, Source) and table.spooled:
            needs.insert(0, read_estimate(table.spooled, sum(file.stat().st_size for file in table.files)))
        return [need for need in needs if self.stages is None or need.stage in self.stages]

    def check(self) -> None:
        """Raise ConfigError if a stage needs more memory than the budget.

        Without a budget, compare with the memory of the machine, but only if the table is a store, and not on a
        cluster.
        """
        resources = self.resources
        if resources.memory is not None:
            # Only 64-bit weights need the stage "weigh". Before encoding it is unknown whether weights have 64 bits.
            sure = [need for need in self.needs if need.stage != "weigh" or isinstance(self.table, Store)]
            combined_estimate(sure).check(resources.memory)
        elif isinstance(self.table, Store) and resources.cluster is None:
            self.check_machine(machine_bytes())

    def check_machine(self, machine: int | None) -> None:
        """Raise ConfigError if the smallest possible memory of a stage is more than `machine` bytes."""
        worst = combined_estimate(self.needs)
        if machine is not None and worst.smallest > machine:
            raise ConfigError(
                f"the stage {worst.stage} needs up to {megabytes(worst.smallest)} of memory for "
                f"{counted(self.shape.rows, 'row')}, {counted(self.shape.features, 'feature')}, "
                f"{counted(self.shape.classes, 'class')} and {counted(self.resources.workers, 'thread')}, and this "
                f"machine has {megabytes(machine)}; use fewer of these, or set {api('memory')} to what the stage needs "
                "and try anyway"
            )

    def make_store(self, path: Path, listener: Listener, earlier: str) -> Store:
        """Encode the table into a store at `path`, and return the store. If the table is a store, return it.

        earlier  words that say in the error how the table was used before, such as "the forest was grown on"

        Raises ConfigError before anything is written if a stage needs more memory than the budget, and DataError if the
        run has the fingerprint of another table.
        """
        store = self.table
        if not isinstance(store, Store):
            self.check()
            assert self.roles is not None
            config = self.run.config
            store = encode(store, self.roles, path, config=config, resources=self.resources, listener=listener)
        if self.run.fingerprint not in (None, store.fingerprint):
            raise DataError(
                f"the table is not the one that {earlier}: columns, values, weights or groups differ; give the same "
                "ones again"
            )
        return store

    def for_store(self, store: Store) -> TrainingPlan:
        """Return the plan for the encoded table, with `min_level` chosen and missing cells and levels filled.

        The exact shape of the table is known now. Raises ConfigError or DataError if the table does not fit.
        """
        config = choose_min_level(store, self.config)
        store = filled_store(store, config, self.resources)
        plan = replace(self, table=store, config=config, roles=None)
        plan.check()
        criterion_of(config).check(store)
        return plan

    def summary(self, home: Path) -> Plan:
        """Return the figures that `bigforest plan` prints. The forest is to be written into the folder `home`."""
        shape, config, resources = self.shape, self.config, self.resources
        kept = isinstance(self.table, Store)
        needs = {need.stage: need for need in self.needs}
        run = combined_estimate(needs.values())
        store = 0 if kept else store_disk_bytes(shape, config)
        kinds_of_features = [] if self.roles is None else list(self.roles.kinds.values())
        times = _seconds(shape, config, resources)
        pass_seconds = shape.rows * shape.row_bytes / _PASS_BYTES * 1e-9
        stages = tuple(
            StagePlan(stage, need, times[stage] + (need.passes - 1) * pass_seconds) for stage, need in needs.items()
        )
        kinds = [ENCODING] if not kept and shape.rows > FEW_ROWS else []
        kinds.append(kernels_of(shape.extras, config, needs["grow"].passes > 1))
        kinds += [refining_kernels(shape.extras)] if "refine" in needs else []
        return Plan(
            rows=shape.rows,
            features=shape.features,
            classes=shape.classes,
            widths={width: shape.widths.count(width) for width in (1, 2, 4)},
            store=store,
            categories=kinds_of_features.count("category"),
            scratch=store + run.scratch,
            scratch_free=free_bytes(resources.scratch or home),
            output_free=free_bytes(home),
            memory=resources.memory,
            smallest=run.smallest,
            stages=stages,
            compiling=sum(kind.seconds for kind in kinds if not is_compiled(kind)),
        )


def open_table(run: Run, temporary: Path, *, memory: int | None = None, verify: bool = True) -> Source | Store:
    """Open the table or store of a run. Raises the errors of `open_source`, and FormatError for a damaged store.

    temporary  existing folder. A table that cannot be read by column is streamed into it.
    verify     read a store on disk completely and check it.
    """
    data, missing = run.data, run.config.missing
    if isinstance(data, str | Path) and is_meant_as_store(as_path(data)):
        return Store.open(data, verify=verify)
    if isinstance(data, Store):
        return data
    check_csv(data, missing)
    reading = Reading(missing=missing, excluded=frozenset(run.exclude), categories=frozenset(run.config.categories))
    return open_source(data, scratch=temporary, memory=memory, reading=reading)


def resolve(run: Run, table: Source | Store, resources: Resources) -> TrainingPlan:
    """Return the plan of a run, from the metadata of its table.

    Raises ConfigError or DataError if columns cannot be used as requested, or options do not fit the table.
    """
    config, roles = run.config, None
    if not isinstance(table, Store):
        if run.fingerprint is not None:
            _check_given_again(run, table)
        roles = column_roles(table, run.target, run.exclude, config)  # may read the target
        task: Task = roles.task
    else:
        task = table.spec.target.task
        if run.fingerprint is None:
            config = match_config_to_store(run, table)
    config = config.for_task(task)
    if config.boosts and resources.cluster is not None:
        raise ConfigError(
            f"with sampling {config.sampling!r} each tree needs the trees before it, so workers of a cluster would "
            f"wait; drop the {api('scheduler')}, or use another sampling"
        )
    if config.boosts:
        check_rows(table.rows, config)
    return TrainingPlan(run, table, config, roles, resources)


def _check_given_again(run: Run, table: Source) -> None:
    """Raise DataError if the table lacks the target, weights or groups of training, which may have been arrays."""
    columns = flat_columns(table.schema, run.exclude)
    for option, name in (("target", run.target), ("weight", run.config.weight), ("group", run.config.group)):
        if name is not None and name not in columns:
            raise DataError(
                f"the table lacks {name!r}, the {api(option)} of training; add the column, or give the array again as "
                f"{api(option)}"
            )


def match_config_to_store(run: Run, store: Store) -> TrainConfig:
    """Return the configuration with the options that the store was made with.

    Raises ConfigError if an explicit option differs from the option of the store, if an option names a feature that the
    store lacks, or if columns are excluded.
    """
    config, spec = run.config, store.spec
    check_features(config, set(spec.feature_names))
    if run.exclude:
        raise ConfigError(f"columns are excluded when a table is encoded, and {store.path} is a store; encode it again")
    group = None if spec.group is None or not config.bootstrap else spec.group.name
    class_weight = class_weight_of(spec)
    weight = None if spec.weight is None else spec.weight.name
    categories = tuple(f.name for f in spec.features if f.kind == "category" and kind_of(f.dtype).family != "text")
    for name, asked, stored in (
        ("target", run.target, spec.target.name),
        ("max_bins", None if config.max_bins == "exact" else config.max_bins, store.max_bins),
        ("group", config.group, group),
        ("task", config.task, spec.target.task),
        ("categories", sorted(config.categories) or None, sorted(categories)),
        ("missing", config.missing or None, spec.missing_words or None),
        ("weight", config.weight, weight),
        ("class_weight", for_all_classes(spec.target, config.class_weight), class_weight),
    ):
        if asked not in (None, stored):
            made = f"without {api(name)}" if stored is None else f"with {api(name)} {stored!r}"
            raise ConfigError(f"the store {store.path} was made {made}, not with {asked!r}; encode the table again")
    config = replace(config, max_bins=store.max_bins, group=group, categories=categories, missing=spec.missing_words)
    return replace(config, weight=weight, class_weight=class_weight)


def store_disk_bytes(shape: Shape, config: TrainConfig) -> int:
    """Return an upper bound of the bytes of a store of this shape, without manifest and levels.

    Weights count with 64 bits, and the targets of a regression with a float64 in addition to the whole steps.
    """
    row_bytes = shape.row_bytes + TARGET_TYPES[config.task or "classification"].itemsize
    for present, dtype in (
        (shape.extras.regression, VALUE_TYPE),
        (shape.dropped, ROW_NUMBER_TYPE),
        (config.group is not None, GROUP_TYPE),
        (config.weighs_rows, WEIGHT_TYPES[True]),
    ):
        row_bytes += dtype.itemsize if present else 0
    low_high = 1 if config.max_bins == "exact" else 2
    checksums = (shape.features + 1) * block_count(shape.rows) * CHECKSUM_TYPE.itemsize
    return shape.rows * row_bytes + shape.codes * low_high * VALUE_TYPE.itemsize + checksums


def _seconds(shape: Shape, config: TrainConfig, resources: Resources) -> dict[str, float]:
    """Estimate the seconds of each stage, if all data is in memory, and each leaf is pure or at max_depth.

    Finding the leaves of out-of-bag rows is part of growing; adding up their votes is part of the report.
    """
    total = {
        "read": shape.rows * shape.features * _READ_CELL,
        "encode": shape.rows * shape.features * _ENCODE_CELL,
        "choose": visits_to_choose(shape, config) * _GROW_VISIT,
        "grow": expected_visits(shape, config) * _GROW_VISIT,
        "oob": config.trees * shape.rows * _VOTE_ROW_TREE,
        "refine": refine_nanoseconds(shape, config),
        "targets": config.trees * shape.rows * _TARGETS_ROW_TREE,
        "weigh": config.trees * shape.rows * _TARGETS_ROW_TREE,
    }
    threads = resources.executor().size
    if config.boosts:  # a tree grows on one thread, and all threads route the rows
        total["grow"] = threads * total["grow"] + config.trees * shape.rows * _ROUTE_ROW_TREE
    return {stage: nanoseconds * 1e-9 / threads for stage, nanoseconds in total.items()}
