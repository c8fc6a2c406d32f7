"""A training run: from a table to a forest directory, in a folder where it can continue after any interruption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bigforest.columns.types import kind_of
from bigforest.encode.encode import encode
from bigforest.encode.roles import column_roles
from bigforest.encode.weights import class_weight_of, for_all_classes
from bigforest.errors import (
    BigForestError,
    ClusterError,
    ConfigError,
    DataError,
    DiskFullError,
    FormatError,
    OutputExistsError,
    StorageError,
    api,
    counted,
    listed,
)
from bigforest.events import Event, Listener, Notice, StageFinished, stage
from bigforest.execution.resources import Resources
from bigforest.forest.choices import Choices, Power, Shrinkage
from bigforest.forest.decreases import importance
from bigforest.forest.files import Header, read_choices, write_features, write_levels, write_run
from bigforest.forest.forest_files import ForestFiles, is_forest
from bigforest.forest.leaf_shrinking import lambdas_to_try, leaf_lambdas
from bigforest.forest.origin import Origin
from bigforest.forest.ranks import ranked_store
from bigforest.forest.rewrite import recut
from bigforest.grow.criteria import criterion_of
from bigforest.grow.filled_store import filled_store
from bigforest.grow.forest import ForestJob, KeptTrees, part_groups
from bigforest.grow.memory import GrowPlan
from bigforest.oob.choice import powers_to_try
from bigforest.oob.leaf_targets import write_targets
from bigforest.oob.plan import oob_estimate
from bigforest.oob.report import write_oob
from bigforest.options.train_config import TrainConfig, check_features
from bigforest.options.values import AUTO
from bigforest.predict.forest import Forest, read_forest
from bigforest.predict.packed_trees import PackedTrees
from bigforest.predict.rows import open_rows
from bigforest.revise.validate import check_validation, write_validation
from bigforest.source import Source, check_csv, open_source, opens_quickly
from bigforest.source.files import find_files
from bigforest.storage.atomic import TemporaryFolder, disk_full, remove, replace_output
from bigforest.storage.paths import as_path, free_bytes, local_workdir
from bigforest.store.format import is_meant_as_store
from bigforest.store.store import Store
from bigforest.training.boosting import grow_boosted
from bigforest.training.choose import choose_min_level, complete_config
from bigforest.training.early_stopping import grow_until_settled
from bigforest.training.memory import check_boosting, check_budget, check_machine
from bigforest.training.resumable_run import ResumableRun, begin, go_on, is_unfinished, remove_leftovers, reopen
from bigforest.training.run_state import RunState, TrainingJob, versions
from bigforest.training.weighing import grower_of


class StageTimer:
    """Passes events on and sums the time of each stage."""

    def __init__(self, listener: Listener) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self.seconds[event.stage] = self.seconds.get(event.stage, 0.0) + event.seconds
        self._listener(event)


def train_temporary(job: TrainingJob, resources: Resources, clock: StageTimer) -> Forest:
    """A forest in a temporary folder, which is removed with it."""
    home = TemporaryFolder(resources.scratch)
    try:
        temporary, made, directory = (home.path / name for name in ("temporary", "table.store", "forest"))
        temporary.mkdir()
        _find_validation(job)
        store, config = make_store(job, made, temporary, resources, clock)
        validation = _validation(job, store, temporary)
        config = complete_config(store, config, resources, clock)
        directory.mkdir()
        origin = Origin(job.location, job.exclude, store.fingerprint)
        inner = replace(resources, scratch=temporary)
        trees = _write_forest(ForestJob(store, config, directory, inner, clock), origin, clock, validation)
        for folder in (made, temporary):
            remove(folder)
        return _opened(directory, trees, home)
    except BaseException:
        home.remove()
        raise


def train_new(job: TrainingJob, out: Path, resources: Resources, clock: StageTimer, *, overwrite: bool) -> Forest:
    """Grow the forest `out` in the folder of an unfinished run, which stays when the run is interrupted."""
    state = RunState(data=job.location, target=job.target, exclude=job.exclude, config=job.config, replaces=overwrite)
    with columns_first(job, resources):
        if overwrite and is_unfinished(out):  # whose trees are about to be discarded
            check_roles(job, resources)
        run = begin(out, state, scratch=resources.scratch, overwrite=overwrite)
    with run, _resumable(run):
        trees = _go_on(run, job, resources, clock)
    return _opened(out, trees)


@contextmanager
def columns_first(job: TrainingJob, resources: Resources) -> Iterator[None]:
    """If the block refuses an output because it exists, raise instead what is wrong with the columns of the table."""
    try:
        yield
    except OutputExistsError:
        check_roles(job, resources)
        raise


def check_roles(job: TrainingJob, resources: Resources) -> None:
    """Raise ConfigError and DataError where the columns of a table cannot be used so, if it opens in a moment."""
    table = job.data
    if isinstance(table, str | Path) and is_meant_as_store(as_path(table)):
        table = Store.open(table, verify=False)
    if isinstance(table, Store):
        match_config_to_store(table, job)
    elif opens_quickly(table):
        with TemporaryFolder(resources.scratch) as folder:
            source = open_source(table, scratch=folder, missing=job.config.missing)
            column_roles(source, job.target, job.exclude, job.config)


def _opened(directory: Path, trees: PackedTrees | None, holding: object = None) -> Forest:
    """The finished forest, which need not read its trees where they are in memory."""
    forest = Forest(ForestFiles.of_run(directory, read_choices(directory), holding))
    if trees is not None:
        forest.loader.take(trees)
    return forest


def resume(out: Path, job: TrainingJob, resources: Resources, clock: StageTimer) -> Forest:
    """Continue the unfinished run for `out`; or add trees to the finished forest there.

    job  what was given now. Its data, if any, must be the same table.

    Raises ConfigError for an option that contradicts the run, or when there is nothing to continue with.
    """
    run = reopen(out)
    if run is None:
        run = _extend(out, job, resources, clock)
        if run is None:
            return read_forest(out)
    with run:
        if not run.fresh:
            _check_options(run.out, run.state, job)
            _check_versions(run.out, run.state.versions)
        with _resumable(run):
            if resources.scratch is not None:
                run.move_work(resources.scratch)
            trees = _go_on(run, job, resources, clock)
    return _opened(out, trees)


def _extend(out: Path, job: TrainingJob, resources: Resources, clock: StageTimer) -> ResumableRun | None:
    """A run that adds trees to the finished forest `out`; None when it has all the trees requested."""
    if not is_forest(out):
        raise ConfigError(f"{out}: no unfinished run and no forest to continue; check the path")
    forest = read_forest(out)
    origin, config = forest.origin, forest.config
    if origin is None:
        raise ConfigError(f"{out} does not record its training table, so no trees can be added; train it again")
    if origin.merged:
        raise ConfigError(
            f"{out} was merged from other forests, so no trees can be added to it; train another forest with a seed of "
            "its own and merge that"
        )
    if forest.shrinkage.tried and config.shrink != "auto":
        raise ConfigError(f"{out} was shrunk after training, so no trees can be added to it; add them before that")
    if forest.revised:
        raise ConfigError(f"{out} was {forest.revised}, so no trees can be added to it; add them before that")
    trees = job.options.get("trees", config.trees)
    state = RunState(
        data=origin.data,
        target=forest.spec.target.name,
        exclude=origin.exclude,
        config=replace(config, trees=trees),
        replaces=True,
        extends=config.trees,
        fingerprint=origin.fingerprint,
    )
    _check_options(out, state, job)
    if trees < config.trees:
        raise ConfigError(
            f"{out} has {counted(config.trees, 'tree')}, more than {trees:,}; trees can be added but not removed"
        )
    finished = f"{out} is finished and has {counted(trees, 'tree')}"
    if trees == config.trees and job.validate is not None:
        raise ConfigError(f"{finished}; evaluate it with {api('validate_forest')}, or ask for more")
    if trees == config.trees:
        clock(Notice(f"{finished}; ask for more trees to add some"))
        return None
    grown_by = forest.run.row(0, named=True)
    _check_versions(out, {"bigforest": grown_by["bigforest"], "numpy": ".".join(grown_by["numpy"].split(".")[:2])})
    return begin(out, state, scratch=resources.scratch, overwrite=True)


def _check_options(out: Path, state: RunState, job: TrainingJob) -> None:
    """Raise ConfigError naming the first option that was given and is not that of the run."""
    of_run: dict[str, Any] = asdict(state.config)
    given = asdict(replace(state.config, **job.options))
    if given["axes_from"] == (AUTO,):
        given["axes_from"] = of_run["axes_from"]  # what was chosen
    if job.target is not None and state.target is not None:
        of_run["target"], given["target"] = state.target, job.target
    if job.exclude:
        of_run["exclude"], given["exclude"] = sorted(state.exclude), sorted(job.exclude)
    for name, value in given.items():
        if value != of_run[name]:
            was = f"{name} {of_run[name]!r}" if of_run[name] is not None else f"the default of {name}"
            raise ConfigError(
                f"{out} has {was}, which resuming cannot change to {value!r}; drop {api(name)}, or train another forest"
            )


def _check_versions(out: Path, then: Mapping[str, str]) -> None:
    for name, now in versions().items():
        if then.get(name) != now:
            raise ConfigError(
                f"{out} was grown with {name} {then.get(name)} and this is {now}, which may grow other trees; install "
                "that version to continue, or train again"
            )


@contextmanager
def _resumable(run: ResumableRun) -> Iterator[None]:
    """If the block fails, add to the error how to continue; a run refused before it grew anything leaves nothing."""
    try:
        yield
    except BaseException as error:
        if disk_full(error):
            full = str(error)  # of a worker
            if not isinstance(error, DiskFullError):
                full = f"no space left on the disk of {min({as_path(run.state.work), run.folder}, key=free_bytes)}"
            raise DiskFullError(f"{full}; free some space and {go_on(run.out)}") from error
        if not isinstance(error, BigForestError) or isinstance(error, ClusterError | StorageError):
            error.add_note(go_on(run.out))
        elif run.fresh and not any(run.forest.rglob("part-*")):
            run.discard()
        raise


def _go_on(run: ResumableRun, job: TrainingJob, resources: Resources, clock: StageTimer) -> PackedTrees | None:
    """Run the remaining stages; returns the trees if they are in memory."""
    resources = replace(resources, scratch=run.temporary)
    _find_validation(job)
    store = _run_store(run, job.data, resources, clock)
    validation = _validation(job, store, run.temporary)
    state = run.state
    if state.extends:
        groups = [group for group in part_groups(store.rows, state.config.trees) if group.stop <= state.extends]
        recut(run.path, groups, run.forest, Header(store.spec, state.config))
    assert state.fingerprint is not None
    origin = Origin(state.data, state.exclude, state.fingerprint)
    trees = _write_forest(ForestJob(store, state.config, run.forest, resources, clock), origin, clock, validation, run)
    run.finish()
    return trees


def _run_store(run: ResumableRun, data: Any, resources: Resources, clock: StageTimer) -> Store:
    """The store of the run, made if missing; afterwards the state has its fingerprint and the complete configuration.

    Options are chosen once the store is in its place, where workers see it.

    Raises DataError when the table is not that of the run, FormatError when the store is damaged.
    """
    state = run.state
    job = TrainingJob(state.data if data is None else data, state.target, state.exclude, asdict(state.config))
    complete = run.store.exists() and state.fingerprint is not None
    if job.data is None and not complete:
        raise ConfigError(f"{run.out} was started with a table in memory; give the table again")
    moved = data is not None and (job.location is None or job.location != state.data)
    config: TrainConfig | None = None
    fingerprint = state.fingerprint
    if not complete or moved:
        with local_workdir(run.temporary) as workdir:
            made = workdir / "table.store"
            store, config = make_store(job, made, run.temporary, resources, clock)
            if fingerprint not in (None, store.fingerprint):
                raise DataError(
                    f"the table is not the one that {run.out} was started with: columns or values differ; give the "
                    "same table, or train again"
                )
            if complete or store.path != made:
                return _completed(run, job, store, config, resources, clock)
            fingerprint = store.fingerprint
            replace_output(made, run.store, workdir / "replaced")
    try:
        store = filled_store(Store.open(run.store, verify=complete), state.config, resources)
        if store.fingerprint != fingerprint:
            raise FormatError(f"{run.store} is not the store that the run made; it is damaged")
    except FormatError as error:
        raise FormatError(f"{error}: remove the folder {run.store} and resume, which makes it again") from error
    return store if config is None else _completed(run, job, store, config, resources, clock)


def _completed(
    run: ResumableRun, job: TrainingJob, store: Store, config: TrainConfig, resources: Resources, clock: StageTimer
) -> Store:
    """The store, after the state of the run has its fingerprint and the complete configuration."""
    config = complete_config(store, config, resources, clock)
    run.save(data=job.location, target=store.spec.target.name, config=config, fingerprint=store.fingerprint)
    return store


def open_table(job: TrainingJob, temporary: Path, *, memory: int | None = None, verify: bool = True) -> Source | Store:
    """The store that the data of a job is or names, else the table, read through the folder `temporary` (open_source).

    verify  read and check all of a store on the disk.
    """
    data, missing = job.data, job.config.missing
    if isinstance(data, str | Path) and is_meant_as_store(as_path(data)):
        return Store.open(data, verify=verify)
    if isinstance(data, Store):
        return data
    check_csv(data, missing)
    return open_source(data, scratch=temporary, memory=memory, missing=missing)


def make_store(
    job: TrainingJob, path: Path, temporary: Path, resources: Resources, listener: Listener
) -> tuple[Store, TrainConfig]:
    """The store to train on, made at `path` unless `data` is one, and the configuration, part of which it may
    decide."""
    table = open_table(job, temporary, memory=resources.memory)
    config = job.config
    if isinstance(table, Store):
        config = choose_min_level(table, match_config_to_store(table, job))
        table = filled_store(table, config, resources)
    # Once: it may read the target.
    roles = None if isinstance(table, Store) else column_roles(table, job.target, job.exclude, config)
    check_budget(table, job, config, resources, roles)
    if not isinstance(table, Store):
        encoded = encode(
            table,
            job.target,
            path,
            config=config,
            exclude=job.exclude,
            resources=resources,
            listener=listener,
            roles=roles,
        )
        config = choose_min_level(encoded, config.settled(encoded.spec.target.task))
        table = filled_store(encoded, config, resources)
    check_boosting(table.rows, config, resources)
    check_machine(table, config, resources)
    criterion_of(config).check(table)
    return table, config


def _tell_of_fills(store: Store, listener: Listener) -> None:
    """Say what is put in place of missing values and categories, if anything is."""
    features = store.spec.features
    filled = [repr(feature.name) for feature in features if feature.is_filled and feature.kind == "numeric"]
    if filled:
        listener(
            Notice(
                f"projections need every value, so the mean is put in place of missing values in {listed(filled, 5)}; "
                "the families axis and tree split on missing values as such"
            )
        )
    categories = [repr(feature.name) for feature in features if feature.has_level_values]
    if categories:
        listener(
            Notice(
                "projections need numbers, so each level has one, by the mean of the target in its rows, in "
                f"{listed(categories, 5)}; the families axis and tree split on sets of levels"
            )
        )


def match_config_to_store(store: Store, job: TrainingJob) -> TrainConfig:
    """The configuration with the options that the store was made with.

    Raises ConfigError where the options differ from that, or ask for more features than there are.
    """
    config, spec = job.config, store.spec
    check_features(config, set(spec.feature_names))
    if job.exclude:
        raise ConfigError(f"columns are excluded when a table is encoded, and {store.path} is a store; encode it again")
    group = None if spec.group is None or not config.bootstrap else spec.group.name
    class_weight = class_weight_of(spec)
    weight = None if spec.weight is None else spec.weight.name
    categories = tuple(f.name for f in spec.features if f.kind == "category" and kind_of(f.dtype).family != "text")
    for name, given, stored in (
        ("target", job.target, spec.target.name),
        ("max_bins", None if config.max_bins == "exact" else config.max_bins, store.max_bins),
        ("group", config.group, group),
        ("task", config.task, spec.target.task),
        ("categories", sorted(config.categories) or None, sorted(categories)),
        ("missing", config.missing or None, spec.missing_words or None),
        ("weight", config.weight, weight),
        ("class_weight", for_all_classes(spec.target, config.class_weight), class_weight),
    ):
        if given not in (None, stored):
            raise ConfigError(
                f"the store {store.path} was made {f'without {name}' if stored is None else f'with {name} {stored!r}'}"
                f", not with {given!r}; encode the table again"
            )
    config = replace(config, max_bins=store.max_bins, group=group, categories=categories, missing=spec.missing_words)
    return replace(config, weight=weight, class_weight=class_weight).settled(spec.target.task)


def _find_validation(job: TrainingJob) -> None:
    """Raise DataError before the run starts if there is no validation set at the path given."""
    if isinstance(job.validate, str | Path):
        find_files(job.validate)


def _validation(job: TrainingJob, store: Store, temporary: Path) -> Source | None:
    """The validation set, read as a table to predict for, since the dataspec says which columns are text; opened, and
    its labels checked, before trees are grown."""
    if job.validate is None:
        return None
    source = open_rows(job.validate, store.spec, scratch=temporary)
    check_validation(source, store.spec)
    return source


def _write_forest(
    job: ForestJob, origin: Origin, clock: StageTimer, validation: Source | None, run: ResumableRun | None = None
) -> PackedTrees | None:
    """Write what is missing of a forest; returns its trees where they are in memory.

    clock       the listener of the job.
    validation  the validation set, if any.
    run         keeps where the out-of-bag error stopped decreasing, if that decides; None: nothing is kept.
    """
    store, _, directory, resources, _ = job
    _tell_of_fills(store, clock)
    keep = validation is None or resources.memory is None  # a budget is not shared with validation
    with store.unchanged():
        config, origin, choices, trees = _grow_and_report(job, origin, run, keep=keep)
    if validation is not None:
        write_validation(directory, validation, choices, resources, clock)
    store.check_unchanged()
    remove_leftovers(directory)
    write_run(directory, clock.seconds, resources.executor().size, Header(store.spec, config), origin, choices)
    return trees


def _grow_and_report(
    job: ForestJob, origin: Origin, run: ResumableRun | None, *, keep: bool
) -> tuple[TrainConfig, Origin, Choices, PackedTrees | None]:
    """The stages that need the store alone.

    keep  whether the trees are wanted.

    Returns the configuration and the origin with the final number of trees, the shrinkage and the power, and the trees,
    so shrunk, if they are in memory.
    """
    if job.config.stop_oob is not None:
        known = None if run is None else run.state.settled

        def remember(trees: int) -> None:
            if run is not None:
                run.save(settled=trees)

        config, stop = grow_until_settled(job, known, remember)
        job, origin = job._replace(config=config), replace(origin, stop=stop)
    job = job._replace(store=ranked_store(job.store, job.config, job.directory))
    store, config, directory, resources, _ = job
    header = job.header()
    write_levels(directory, header)
    tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width)
    grown = None
    if config.boosts:
        grow_boosted(job)
    elif origin.stop is None:
        grown = grow_forest(job, keep=keep)
    if grown is not None and resources.memory is not None:
        rest = replace(resources, memory=resources.memory - grown.nbytes)
        needed = oob_estimate(store.shape, config, rest, grown.sizes).smallest if config.bootstrap else 0
        if config.keep_targets or needed > (rest.memory or 0):
            grown = None
        else:
            job = job._replace(resources=rest)
    if config.bootstrap:
        choices = write_oob(job)
    else:
        choices = Choices(Shrinkage(tried[0] if tried else 0.0), Power(powers_to_try(config, 1)[0]))
    if config.keep_targets:
        write_targets(job)
    if grown is None:  # within a budget a process reads one part at a time
        shares = importance(directory, store.spec, resources.executor(None if resources.memory is None else 1))
    else:
        shares = grown.decreases.shares
    write_features(directory, header, shares)
    trees = None if grown is None else grown.packed(leaf_lambdas(config, choices.shrinkage.amount), resources.workers)
    return config, origin, choices, trees


def grow_forest(job: ForestJob, *, keep: bool = False, way: GrowPlan | None = None) -> KeptTrees | None:
    """Write trees/part-*.parquet: all trees of the forest, except for the parts that exist already.

    keep  whether to give the trees, where it has them in memory and they fit; else it gives None.
    way   how to grow; None for the best within the resources. It decides nothing else.

    Raises what `Grower` does.
    """
    # Tasks do not make it, which a cluster may run again after the run has ended.
    job.directory.mkdir(parents=True, exist_ok=True)
    with stage("grow", job.config.trees, "trees", job.listener) as progress, grower_of(job, way, keep) as grower:
        grower.grow(part_groups(job.store.rows, job.config.trees), progress.advance)
        return grower.grown()
