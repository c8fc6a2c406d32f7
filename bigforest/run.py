"""A training run: from a table to a forest directory, in a folder where it can go on after any interruption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bigforest.columns import kind_of
from bigforest.config import TrainConfig
from bigforest.encode.pipeline import encode
from bigforest.encode.weights import class_weight_of, for_all_classes
from bigforest.errors import (
    BigForestError,
    ClusterError,
    ConfigError,
    DataError,
    DiskFullError,
    FormatError,
    StorageError,
)
from bigforest.events import Event, Listener, Notice, StageFinished
from bigforest.forest.forest import is_forest, read_forest
from bigforest.forest.levels import write_levels
from bigforest.forest.origin import Origin
from bigforest.forest.summary import write_features, write_run
from bigforest.forest.trees import recut
from bigforest.grow.forest import grow_forest, part_groups
from bigforest.grow.ranked import ranked_store
from bigforest.oob.pipeline import write_oob
from bigforest.output import disk_full, install, remove
from bigforest.places import absolute, free_bytes, place_of, workshop
from bigforest.plan import check_budget
from bigforest.resources import Resources
from bigforest.source import Source, open_source
from bigforest.state import State, versions
from bigforest.store.format import is_store
from bigforest.store.store import Store
from bigforest.unfinished import Unfinished, begin, go_on, reopen
from bigforest.validate import check_validation, write_validation


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be trained: arguments of `bigforest.train`; `options` are the fields of TrainConfig given.

    validate  the table to judge the forest by; None for none. It is not part of what an unfinished run remembers.
    """

    data: Any
    target: str | None
    exclude: tuple[str, ...]
    options: Mapping[str, Any]
    validate: Any = None

    @property
    def config(self) -> TrainConfig:
        """The configuration, with the defaults of what was not given."""
        return TrainConfig.of(**self.options)

    @property
    def location(self) -> str | None:
        """Absolute path, or glob, of the table or kept store; None for a table in memory."""
        data = self.data.path if isinstance(self.data, Store) else self.data
        return absolute(data) if isinstance(data, str | Path) else None


class Clock:
    """Passes events on and remembers how long each stage took."""

    def __init__(self, listener: Listener) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self.seconds[event.stage] = event.seconds
        self._listener(event)


def train_temporary(task: Task, home: Path, resources: Resources, clock: Clock) -> Path:
    """Grow the forest in the folder `home`, which is the caller's to remove; returns its directory."""
    temporary = home / "temporary"
    temporary.mkdir()
    validation = _validation(task, temporary)
    store, config = _make_store(task, home / "table.store", temporary, resources, clock)
    forest = home / "forest"
    forest.mkdir()
    origin = Origin(task.location, task.exclude, store.fingerprint)
    _write_forest(store, config, origin, forest, replace(resources, scratch=temporary), clock, validation)
    for folder in (home / "table.store", temporary):
        remove(folder)
    return forest


def train_new(task: Task, out: Path, resources: Resources, clock: Clock, *, overwrite: bool) -> None:
    """Grow the forest `out` in the folder of an unfinished run, which stays when the run is interrupted."""
    state = State(
        data=task.location,
        target=task.target,
        exclude=task.exclude,
        config=task.config,
        work="",
        replaces=overwrite,
        extends=0,
        fingerprint=None,
        versions=versions(),
    )
    with begin(out, state, scratch=resources.scratch, overwrite=overwrite) as run, _kept(run):
        _go_on(run, task, resources, clock)


def resume(out: Path, task: Task, resources: Resources, clock: Clock) -> None:
    """Go on with the unfinished run for `out`; or add trees to the finished forest there.

    task  what was given again. Its data, where given, must be the same table.

    Raises ConfigError for an option that contradicts the run, or when there is nothing to go on with.
    """
    run = reopen(out)
    if run is None:
        run = _extend(out, task, resources, clock)
        if run is None:
            return
    with run:
        if not run.fresh:
            _check_options(run.out, run.state, task)
            _check_versions(run.out, run.state.versions)
        with _kept(run):
            if resources.scratch is not None:
                run.move_work(resources.scratch)
            _go_on(run, task, resources, clock)


def _extend(out: Path, task: Task, resources: Resources, clock: Clock) -> Unfinished | None:
    """A run that adds trees to the finished forest `out`; None when it has all the trees asked for."""
    if not is_forest(out):
        raise ConfigError(f"{out}: there is neither an unfinished run nor a forest to go on with; check the path")
    forest = read_forest(out)
    origin, config = forest.origin, forest.config
    if origin is None:
        raise ConfigError(f"{out} does not say which table it was grown on, so no trees can be added; train it anew")
    if origin.merged:
        raise ConfigError(
            f"{out} was merged from other forests, so no trees can be added to it; train another forest with a seed of "
            "its own and merge that"
        )
    if forest.revised:
        raise ConfigError(f"{out} was {forest.revised}, so no trees can be added to it; add them before that")
    trees = task.options.get("trees", config.trees)
    state = State(
        data=origin.data,
        target=forest.spec.target.name,
        exclude=origin.exclude,
        config=replace(config, trees=trees),
        work="",
        replaces=True,
        extends=config.trees,
        fingerprint=origin.fingerprint,
        versions=versions(),
    )
    _check_options(out, state, task)
    if trees < config.trees:
        raise ConfigError(f"{out} has {config.trees} trees, more than {trees}; trees can be added but not removed")
    if trees == config.trees and task.validate is not None:
        raise ConfigError(f"{out} is finished and has {trees} trees; judge it with validate_forest, or ask for more")
    if trees == config.trees:
        clock(Notice(f"{out} is finished and has {trees} trees; ask for more with trees to add some"))
        return None
    grown_by = forest.run.row(0, named=True)
    _check_versions(out, {"bigforest": grown_by["bigforest"], "numpy": ".".join(grown_by["numpy"].split(".")[:2])})
    return begin(out, state, scratch=resources.scratch, overwrite=True)


def _check_options(out: Path, state: State, task: Task) -> None:
    """Raise ConfigError naming the first option that was given and is not that of the run."""
    there: dict[str, Any] = asdict(state.config)
    given = asdict(replace(state.config, **task.options))
    if task.target is not None and state.target is not None:
        there["target"], given["target"] = state.target, task.target
    if task.exclude:
        there["exclude"], given["exclude"] = sorted(state.exclude), sorted(task.exclude)
    for name, value in given.items():
        if value != there[name]:
            raise ConfigError(
                f"{out} has {name} {there[name]!r}, which resuming cannot change to {value!r}; leave {name} away, or "
                "train another forest"
            )


def _check_versions(out: Path, then: Mapping[str, str]) -> None:
    for name, now in versions().items():
        if then.get(name) != now:
            raise ConfigError(
                f"{out} was grown with {name} {then.get(name)} and this is {now}, which may grow other trees; install "
                "that version to go on, or train anew"
            )


@contextmanager
def _kept(run: Unfinished) -> Iterator[None]:
    """When the block fails, let the error say how to go on; a run refused before it grew anything leaves nothing."""
    try:
        yield
    except BaseException as error:
        if disk_full(error):
            raise DiskFullError(f"{_full_folder(run, error)}; make room and {go_on(run.out)}") from error
        if not isinstance(error, BigForestError) or isinstance(error, ClusterError | StorageError):
            error.add_note(go_on(run.out))
        elif run.fresh and not (run.forest / "trees").exists():
            run.discard()
        raise


def _full_folder(run: Unfinished, error: BaseException) -> str:
    full = min({place_of(run.state.work), run.folder}, key=free_bytes)
    return f"the disk of {full} has no room ({error})"


def _go_on(run: Unfinished, task: Task, resources: Resources, clock: Clock) -> None:
    """Do what is left to do."""
    resources = replace(resources, scratch=run.temporary)
    validation = _validation(task, run.temporary)
    store = _run_store(run, task.data, resources, clock)
    state = run.state
    if state.extends:
        groups = [group for group in part_groups(store.rows, state.config.trees) if group.stop <= state.extends]
        recut(run.place, groups, run.forest, store.spec, state.config)
    assert state.fingerprint is not None
    origin = Origin(state.data, state.exclude, state.fingerprint)
    _write_forest(store, state.config, origin, run.forest, resources, clock, validation)
    run.finish()


def _run_store(run: Unfinished, data: Any, resources: Resources, clock: Clock) -> Store:
    """The store of the run, made if it is not there; afterwards the state has its fingerprint.

    Raises DataError when the table is not that of the run, FormatError when the store is damaged.
    """
    state = run.state
    task = Task(state.data if data is None else data, state.target, state.exclude, asdict(state.config))
    complete = run.store.exists()
    if task.data is None and not complete:
        raise ConfigError(f"{run.out} was begun with a table in memory; give DATA again")
    moved = data is not None and (task.location is None or task.location != state.data)
    if not complete or moved:
        with workshop(run.temporary) as here:
            made = here / "table.store"
            store, config = _make_store(task, made, run.temporary, resources, clock)
            if state.fingerprint not in (None, store.fingerprint):
                raise DataError(
                    f"the table is not the one that {run.out} was begun with: columns or values differ; give the same "
                    "table, or train anew"
                )
            run.save(data=task.location, target=store.spec.target.name, config=config, fingerprint=store.fingerprint)
            if complete or store.path != made:
                return store
            install(made, run.store, here / "replaced")
    try:
        store = Store.open(run.store, verify=complete)
        if store.fingerprint != run.state.fingerprint:
            raise FormatError(f"{run.store} is not the store that the run made; it is damaged")
    except FormatError as error:
        raise FormatError(f"{error}: remove the folder {run.store} and resume, which makes it again") from error
    return store


def open_table(data: Any, temporary: Path, *, memory: int | None = None, verify: bool = True) -> Source | Store:
    """The kept store that `data` is or names, or else the table, read through the folder `temporary` (open_source).

    verify  read and check all of a store on the disk.
    """
    if isinstance(data, str | Path) and is_store(place_of(data)):
        return Store.open(data, verify=verify)
    return data if isinstance(data, Store) else open_source(data, scratch=temporary, memory=memory)


def _make_store(
    task: Task, place: Path, temporary: Path, resources: Resources, clock: Clock
) -> tuple[Store, TrainConfig]:
    """The store to train on, at `place` unless it was kept, and the configuration, part of which it may decide."""
    table = open_table(task.data, temporary, memory=resources.memory)
    target, exclude, config = task.target, task.exclude, task.config
    if isinstance(table, Store):
        config = _agree(table, task)
    check_budget(table, task.data, target, exclude, config, resources)
    if isinstance(table, Store):
        return table, config
    store = encode(table, target, place, config=config, exclude=exclude, resources=resources, listener=clock)
    return store, config.settled(store.spec.target.task)


def _agree(store: Store, task: Task) -> TrainConfig:
    """The configuration with what was decided when the store was made. Raises ConfigError where the options differ."""
    config, spec = task.config, store.spec
    if task.exclude:
        raise ConfigError(f"columns are excluded when a table is encoded, and {store.path} is a store; encode it again")
    group = None if spec.group is None or not config.bootstrap else spec.group.name
    class_weight = class_weight_of(spec)
    weight = None if spec.weight is None else spec.weight.name
    categories = tuple(f.name for f in spec.features if f.kind == "category" and kind_of(f.dtype).family != "text")
    for name, given, own in (
        ("target", task.target, spec.target.name),
        ("max_bins", None if config.max_bins == "exact" else config.max_bins, store.max_bins),
        ("group", config.group, group),
        ("task", config.task, spec.target.task),
        ("categories", sorted(config.categories) or None, sorted(categories)),
        ("weight", config.weight, weight),
        ("class_weight", for_all_classes(spec.target, config.class_weight), class_weight),
    ):
        if given not in (None, own):
            raise ConfigError(
                f"the store {store.path} was made with {name} {own!r}, not {given!r}; encode the table again"
            )
    config = replace(config, max_bins=store.max_bins, group=group, categories=categories)
    return replace(config, weight=weight, class_weight=class_weight).settled(spec.target.task)


def _validation(task: Task, temporary: Path) -> Source | None:
    """The validation set, opened before anything is done."""
    return None if task.validate is None else open_source(task.validate, scratch=temporary)


def _write_forest(
    store: Store,
    config: TrainConfig,
    origin: Origin,
    directory: Path,
    resources: Resources,
    clock: Clock,
    validation: Source | None,
) -> None:
    """Write what is missing in the forest directory of a store; `validation` is what to judge it by, if anything."""
    if validation is not None:
        check_validation(validation, store.spec)
    store = ranked_store(store, config, directory)
    write_levels(directory, store.levels(), store.spec, config)
    grow_forest(store, config, directory, resources=resources, listener=clock)
    if config.bootstrap:
        write_oob(store, config, directory, resources=resources, listener=clock)
    write_features(directory, store.spec, config)
    if validation is not None:
        write_validation(directory, validation, resources, clock)
    write_run(directory, clock.seconds, resources.crew().size, store.spec, config, origin)
