"""A training run: from a table to a forest on disk, in a folder where it can continue after any interruption.

    plan = resolve(run, table)        decides roles of columns and the task; refuses unusable columns and options
    store = plan.make_store(...)      refuses if memory is too little; encodes the table, unless it is a store
    plan = plan.for_store(store)      min_level; refuses again, by the exact sizes
    choose_options(...)               trial trees: mtry, min_leaf, axes
    grow                              trees/part-*.parquet, and the leaves of out-of-bag rows
    report                            shrinkage, power, error, rows
    finish                            the forest is renamed, and the rest of the folder removed

A resumed run takes the same steps. It reads its final options from state.json, and does not write existing files again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bigforest.encode.arguments import ColumnArguments
from bigforest.errors import (
    BigForestError,
    ConfigError,
    FormatError,
    OutputExistsError,
    api,
    counted,
    listed,
)
from bigforest.events import Event, Listener, Notice, StageFinished, stage
from bigforest.execution.resources import Resources
from bigforest.forest.ballots import lambdas_to_try, leaf_lambdas
from bigforest.forest.decreases import importance
from bigforest.forest.files import Header, write_features, write_levels
from bigforest.forest.forest_files import ForestFiles, is_forest
from bigforest.forest.parts import recut
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import Choices, Power, Shrinkage, read_choices, write_run
from bigforest.grow.forest import ForestJob, KeptTrees, divide_into_parts
from bigforest.grow.memory import GrowPlan
from bigforest.oob.choice import powers_to_try
from bigforest.oob.leaf_targets import write_targets
from bigforest.oob.plan import oob_estimate
from bigforest.oob.report import write_oob
from bigforest.options.values import AUTO
from bigforest.predict.files import tell_of_training
from bigforest.predict.forest import Forest, read_forest
from bigforest.predict.loader import needed_features
from bigforest.predict.packed_trees import PackedTrees
from bigforest.predict.rows import open_rows
from bigforest.revise.validate import KNOWN_ROWS, check_validation, write_validation
from bigforest.source.files import separated, separator_of
from bigforest.source.find import find_files
from bigforest.source.open import opens_quickly
from bigforest.source.source import Source
from bigforest.storage.atomic import TemporaryFolder, replace_output
from bigforest.storage.paths import as_path, files_in, local_workdir
from bigforest.store.format import is_meant_as_store
from bigforest.store.store import Store
from bigforest.training.choose import choose_options
from bigforest.training.growers import grow_until_converged, grower_of
from bigforest.training.plan import TrainingPlan, open_table, resolve
from bigforest.training.run_folder import (
    PASSING,
    Run,
    RunFolder,
    advising,
    begin,
    is_unfinished,
    remove_leftovers,
    reopen,
    resume_advice,
    versions,
)


class StageTimer:
    """A listener that passes events on and adds up the seconds of each stage."""

    def __init__(self, listener: Listener) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self.seconds[event.stage] = self.seconds.get(event.stage, 0.0) + event.seconds
        self._listener(event)


def train_forest(
    run: Run,
    out: Path | None,
    resources: Resources,
    listener: Listener,
    *,
    validate: Any = None,
    overwrite: bool = False,
) -> Forest:
    """Train the forest of a run.

    out       output folder. An interrupted run leaves `out`.unfinished. None for a temporary folder, which is removed
              with the forest.
    validate  table to evaluate the forest on, or None.
    """
    timer = StageTimer(listener)
    if out is not None:
        with _begin_in(out, run, resources, overwrite=overwrite) as folder, _resumable(folder):
            trees = _carry_out(folder, run.data, validate, resources, timer)
        return _open_forest(out, trees)
    home = TemporaryFolder(resources.scratch)
    try:
        with begin(home.path / "forest", run, scratch=None, overwrite=False) as folder:
            trees = _carry_out(folder, run.data, validate, resources, timer)
        return _open_forest(folder.out, trees, home)
    except BaseException:
        home.remove()
        raise


def _begin_in(out: Path, run: Run, resources: Resources, *, overwrite: bool) -> RunFolder:
    """Begin the folder of a run, as `begin` does.

    Check the table (`check_table`) before an unfinished run is discarded, and before OutputExistsError is raised. If
    the table is unusable, the user then reads about the table, and keeps the unfinished run.
    """
    if overwrite and is_unfinished(out):
        check_table(run, resources)
    try:
        return begin(out, run, scratch=resources.scratch, overwrite=overwrite)
    except OutputExistsError:
        check_table(run, resources)
        raise


def check_table(run: Run, resources: Resources) -> None:
    """Raise ConfigError, DataError or FormatError if a run cannot use its table. Skip tables that open slowly."""
    data = run.data
    is_store = isinstance(data, Store) or (isinstance(data, str | Path) and is_meant_as_store(as_path(data)))
    if is_store or opens_quickly(data):
        with TemporaryFolder(resources.scratch) as folder:
            resolve(run, open_table(run, folder, verify=False), resources)


def _open_forest(directory: Path, trees: PackedTrees | None, holding: object = None) -> Forest:
    """Open the finished forest.

    trees    trees of the forest if they are in memory; None to read them when they are needed.
    holding  temporary folder of the forest, which is removed with the returned object.
    """
    forest = Forest(ForestFiles.of_run(directory, read_choices(directory), holding))
    if trees is not None:
        forest.loader.take(trees)
    return forest


def resume(
    out: Path, arguments: ColumnArguments, resources: Resources, listener: Listener, *, validate: Any = None
) -> Forest:
    """Continue the unfinished run for `out`, or add trees to the finished forest there.

    arguments  explicit arguments, which must agree with the run; arguments.data is the same table, or None.

    Raises ConfigError if an option contradicts the run, or if there is no run and no forest to continue.
    """
    folder = reopen(out)
    if folder is None:
        folder = _extend(out, arguments, validate, resources, listener)
        if folder is None:
            return read_forest(out)
    with folder:
        if not folder.fresh:
            _check_arguments(out, folder.state.run, arguments)
            _check_versions(out, folder.state.versions)
        with _resumable(folder):
            if resources.scratch is not None:
                folder.use_scratch(resources.scratch)
            trees = _carry_out(folder, arguments.data, validate, resources, StageTimer(listener))
    return _open_forest(out, trees)


def _extend(
    out: Path, arguments: ColumnArguments, validate: Any, resources: Resources, listener: Listener
) -> RunFolder | None:
    """Begin a run that adds trees to the finished forest `out`. Return None if the forest has all requested trees."""
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
    trees = arguments.options.get("trees", config.trees)
    run = Run(
        separated(origin.data, forest.spec.separator),
        forest.spec.target.name,
        origin.exclude,
        replace(config, trees=trees),
        fingerprint=origin.fingerprint,
    )
    _check_arguments(out, run, arguments)
    if trees < config.trees:
        raise ConfigError(
            f"{out} has {counted(config.trees, 'tree')}, more than {trees:,}; trees can be added but not removed"
        )
    finished = f"{out} is finished and has {counted(trees, 'tree')}"
    if trees == config.trees and validate is not None:
        raise ConfigError(f"{finished}; evaluate it with {api('validate_forest')}, or ask for more trees")
    if trees == config.trees:
        listener(Notice(f"{finished}; to add trees, set {api('trees')} to a larger number"))
        return None
    grown_by = forest.run.row(0, named=True)
    _check_versions(out, {"bigforest": grown_by["bigforest"], "numpy": ".".join(grown_by["numpy"].split(".")[:2])})
    return begin(out, run, scratch=resources.scratch, overwrite=True, extends=config.trees)


def _check_arguments(out: Path, run: Run, arguments: ColumnArguments) -> None:
    """Raise ConfigError naming the first explicit argument that differs from the run."""
    of_run: dict[str, Any] = asdict(run.config)
    asked = asdict(replace(run.config, **arguments.options))
    if asked["axes_from"] == (AUTO,):
        asked["axes_from"] = of_run["axes_from"]  # as chosen
    if arguments.target is not None and run.target is not None:
        of_run["target"], asked["target"] = run.target, arguments.target
    if arguments.exclude:
        of_run["exclude"], asked["exclude"] = sorted(run.exclude), sorted(arguments.exclude)
    for name, value in asked.items():
        if value != of_run[name]:
            was = f"{api(name)} {of_run[name]!r}" if of_run[name] is not None else f"the default of {api(name)}"
            raise ConfigError(
                f"{out} has {was}, which resuming cannot change to {value!r}; drop {api(name)}, or train another forest"
            )


def _check_versions(out: Path, then: Mapping[str, str]) -> None:
    """Raise ConfigError if the run was started with versions of the software that may grow other trees."""
    for name, now in versions().items():
        if then.get(name) != now:
            raise ConfigError(
                f"{out} was grown with {name} {then.get(name)} and this is {now}, which may grow other trees; install "
                "that version to continue, or train again"
            )


@contextmanager
def _resumable(folder: RunFolder) -> Iterator[None]:
    """Add advice on resuming to errors that may not occur again (`advising`).

    Any other error would occur again. After it, remove the folder of the run if the folder is new and has no trees.
    """
    try:
        with advising(resume_advice(folder.out), folder.work, folder.folder):
            yield
    except BigForestError as error:
        if not isinstance(error, PASSING) and folder.fresh and not files_in(folder.forest, "**/part-*"):
            folder.discard()
        raise


def _carry_out(
    folder: RunFolder, data: Any, validate: Any, resources: Resources, timer: StageTimer
) -> PackedTrees | None:
    """Run the stages of a run in its folder, from where it stopped. Return the trees if they are in memory.

    data  the table that was passed to this call; None to use the table that the run names.
    """
    resources = replace(resources, scratch=folder.temporary)
    if isinstance(validate, str | Path):
        find_files(validate)  # raises DataError if there are none
    plan = _make_or_open_store(folder, data, resources, timer)
    store = plan.store
    # Columns are read with the types of the training table, as in prediction.
    validation = None
    if validate is not None:
        validation = open_rows(validate, store.spec, scratch=folder.temporary, excluded=plan.run.exclude)
        check_validation(validation, store.spec)
        tell_of_training(plan.run.location, validate, KNOWN_ROWS, timer)
    config = choose_options(store, plan.config, resources, timer)
    data = separated(plan.run.location, separator_of(plan.run.data))
    folder.save(run=Run(data, store.spec.target.name, plan.run.exclude, config, store.fingerprint))
    job = ForestJob(store, config, folder.forest, resources, timer)
    if folder.state.extends:
        parts = divide_into_parts(store.rows, config.trees)
        existing = [part for part in parts if part.stop <= folder.state.extends]
        recut(folder.path, existing, folder.forest, Header(store.spec, config))
    trees = write_forest(job, folder, validation, timer)
    folder.finish()
    return trees


def _make_or_open_store(folder: RunFolder, data: Any, resources: Resources, timer: StageTimer) -> TrainingPlan:
    """Return the plan of a run for its store. Encode the table if the store is missing.

    data  the table that was passed to this call. It is encoded even if the store exists, to compare fingerprints. None
          to use the table that the run names.

    Raises DataError for another table than before, FormatError if the store is damaged, ConfigError if a table in
    memory is not given again.
    """
    run = folder.state.run
    has_store = run.fingerprint is not None and folder.store.exists()
    if has_store and data is None:
        store = _open_store(folder, run.fingerprint)
        return resolve(run, store, resources).for_store(store)
    run = run if data is None else replace(run, data=separated(data, separator_of(run.data)))
    if run.data is None:
        raise ConfigError(f"{folder.out} was started with a table in memory or on standard input; give it again")
    with local_workdir(folder.temporary) as workdir:
        plan = resolve(run, open_table(run, folder.temporary, memory=resources.memory), resources)
        store = plan.make_store(workdir / folder.store.name, timer, f"{folder.out} was started with")
        if isinstance(plan.table, Store):  # it stays where it is
            return plan.for_store(store)
        if not has_store:
            replace_output(store.path, folder.store, workdir / "replaced")
    return plan.for_store(_open_store(folder, store.fingerprint, verify=has_store))


def _open_store(folder: RunFolder, fingerprint: str | None, *, verify: bool = True) -> Store:
    """Open the store in the folder of a run. Raises FormatError if it is damaged.

    verify  read the store completely.
    """
    try:
        store = Store.open(folder.store, verify=verify)
        if store.fingerprint != fingerprint:
            raise FormatError(f"{folder.store} is not the store that the run made; it is damaged")
    except FormatError as error:
        raise FormatError(f"{error.text}: remove the folder {folder.store} and resume, which makes it again") from error
    return store


def write_forest(job: ForestJob, folder: RunFolder, validation: Source | None, timer: StageTimer) -> PackedTrees | None:
    """Write the missing files of a forest. Return its trees if they are in memory.

    validation  table to evaluate the forest on, or None.
    """
    store, config, directory, resources, _ = job
    _tell_of_fills(store, timer)
    keep = validation is None or resources.memory is None  # validation may need the whole budget
    with store.unchanged():
        stop = None
        if config.stop_oob is not None:
            config, stop = grow_until_converged(job, folder.state.trees, lambda trees: folder.save(trees=trees))
        job = job._replace(config=config, store=ranked_store(store, config, directory))
        write_levels(directory, job.header())
        grown = None if stop is not None else grow_forest(job, keep=keep)
        choices, trees = write_report(job, grown)
        if validation is not None:
            write_validation(directory, validation, choices, resources, timer)
    remove_leftovers(directory)
    origin, threads = folder.state.run.origin(stop), resources.executor().size
    write_run(directory, timer.seconds, threads, Header(store.spec, config), origin, choices)
    return trees


def grow_forest(job: ForestJob, *, keep: bool = False, plan: GrowPlan | None = None) -> KeptTrees | None:
    """Write trees/part-*.parquet: all trees of the forest, except for the parts that exist already.

    keep  True to return the trees if they fit in memory. Returns None if they do not fit, or if `keep` is False.
    plan  how to grow; None for the fastest way within the resources. It does not change the trees.

    Raises the errors of `Grower`.
    """
    # Create the directory here: Dask may rerun a task after the run has ended.
    job.directory.mkdir(parents=True, exist_ok=True)
    with stage("grow", job.config.trees, "trees", job.listener) as progress, grower_of(job, plan, keep) as grower:
        grower.grow(divide_into_parts(job.store.rows, job.config.trees), progress.advance)
        return grower.grown()


def write_report(job: ForestJob, grown: KeptTrees | None) -> tuple[Choices, PackedTrees | None]:
    """Write the out-of-bag report, the targets of leaves (keep_targets) and the table of features.

    grown  the trees if they are in memory, otherwise None.

    Returns the choices (shrinkage, power, boosted rounds) and the shrunk trees. The second result is None if the trees
    are not in memory, or if the report needs their memory.
    """
    store, config, directory, resources, _ = job
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
        tried = lambdas_to_try(config, store.rows, store.spec.target.answer_width)
        choices = Choices(Shrinkage(tried[0] if tried else 0.0), Power(powers_to_try(config, 1)[0]))
    if config.keep_targets:
        write_targets(job)
    if grown is not None:
        importances = grown.importance
    else:  # within a budget a process reads one part at a time
        importances = importance(directory, job.header(), resources.executor(None if resources.memory is None else 1))
    write_features(directory, job.header(), importances)
    lambdas = leaf_lambdas(config, choices.shrinkage.amount)
    used = needed_features(store.spec, refined=bool(choices.rounds.amount))
    return choices, None if grown is None else grown.packed(lambdas, resources.workers, used)


def _tell_of_fills(store: Store, listener: Listener) -> None:
    """Send notices of the numbers that replace missing cells and levels, if there are any."""
    features = store.spec.features
    filled = [repr(feature.name) for feature in features if feature.is_filled and feature.kind == "numeric"]
    if filled:
        listener(
            Notice(
                f"projections need every value, so the mean is put in place of missing values in {listed(filled, 5)}; "
                "the families axis and tree send missing values to either side"
            )
        )
    categories = [repr(feature.name) for feature in features if feature.has_level_values]
    if categories:
        listener(
            Notice(
                f"projections need numbers, so the levels of {listed(categories, 5)} are replaced by numbers, computed "
                "from the target in their rows; the families axis and tree split on sets of levels"
            )
        )
