"""`bigforest.compare` and `train(tune=...)`: several runs over one store, compared by their out-of-bag losses.

1. Encode the table once.
2. In each round, grow the forest of every remaining candidate to the same number of trees.
3. Retire candidates that are too far behind, and save the state.
4. The winner is the first candidate whose loss is within a standard error of the lowest. Its forest is complete.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from bigforest.encode.arguments import ColumnArguments, column_arguments
from bigforest.errors import (
    ConfigError,
    DataError,
    OutputExistsError,
    api,
    counted,
    shown,
    write_names,
)
from bigforest.events import Listener, Notice, once
from bigforest.execution.connect import open_resources
from bigforest.execution.resources import Resources, resources_of
from bigforest.forest.files import write_tables
from bigforest.forest.forest_files import FOREST, is_forest
from bigforest.forest.format import TUNING
from bigforest.forest.run_file import write_run
from bigforest.grow.criteria import criterion_named
from bigforest.metrics.classes import MOST_CURVES, curves_of
from bigforest.options.signatures import explicit_options
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from bigforest.options.values import Task, check_flag, plain
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate
from bigforest.predict.forest import Forest, read_forest
from bigforest.progress import watching
from bigforest.sampling.bags import left_out_share
from bigforest.storage.atomic import (
    OutputKind,
    TemporaryFolder,
    check_output,
    naming_refusal,
    remove,
    replace_output,
    set_aside,
    sync,
    sync_all,
    write_durably,
)
from bigforest.storage.paths import UNFINISHED, as_path, is_remote, remove_half_made
from bigforest.store.format import is_store
from bigforest.store.store import Store
from bigforest.training.candidates import (
    METRICS,
    ROW_BYTES,
    Rows,
    RowScores,
    check_candidate_count,
    cross_fitted,
    default_candidates,
    given_candidates,
    measure_loss,
    retired,
    rounds,
    row_scores,
    standings,
    winner,
)
from bigforest.training.comparison import (
    FILE,
    WINNER,
    Comparison,
    ComparisonState,
    Round,
    announce,
    candidate_table,
    curve_table,
    has_begun,
)
from bigforest.training.plan import TrainingPlan, open_table, resolve
from bigforest.training.run import check_table, resume, train_forest
from bigforest.training.run_folder import Run, advising, is_unfinished

_STORE = "table.store"
_FORESTS = "forests"
_WORK = "work"
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h)\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# A notice is sent if the largest share of out-of-bag rows of a candidate is more than this multiple of the smallest.
_SHARES = 1.25


def parse_duration(text: str | float | None, name: str = "budget", other: str = "") -> float | None:
    """Return the seconds of a duration such as 90s, 10m or 1.5h, or of a number of seconds; None for None.

    name   the option, for errors.
    other  what else the option may be, for errors, such as "a number or ".

    Raises ConfigError.
    """
    if text is None:
        return None
    text, seconds = plain(text), math.nan
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    elif isinstance(text, str) and (match := _DURATION.fullmatch(text)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{api(name)} must be {other}a time such as 90s, 10m or 1.5h, not {shown(text)}")
    return seconds


def is_comparison(path: Path) -> bool:
    return (path / FILE).is_file()


def _may_hold(path: Path) -> bool:
    """Return True for the folder of a comparison, for an empty folder, and for one with only a half-written FILE."""
    return is_comparison(path) or (path.is_dir() and all(file.name.startswith(f".{FILE}.") for file in path.iterdir()))


_COMPARISON = OutputKind("comparison", _may_hold)


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """A comparison to make, or to continue.

    arguments   the table, and the options of all candidates.
    candidates  options by name, or the path of a TOML file; a number of default candidates; None for all defaults.
    metric      None for the default: log_loss for classes, mse for numbers, poisson_deviance if `arguments` have the
                impurity poisson.
    budget      seconds after which no further round begins; the first always does. None for no limit.
    out         folder of the comparison.
    """

    arguments: ColumnArguments
    candidates: Mapping[str, Mapping[str, Any]] | str | Path | int | None
    metric: str | None
    budget: float | None
    out: Path
    resources: Resources
    listener: Listener

    def run(self, *, overwrite: bool = False) -> Comparison:
        """Compare the candidates. Continue an interrupted comparison with the same settings; return a finished one.

        Raises ConfigError, DataError, FormatError and OutputExistsError.
        """
        begin, out = time.monotonic(), self.out
        check_flag(overwrite, "overwrite")
        if is_remote(out):
            raise ConfigError(f"{out}: a comparison is written to a local folder; choose one")
        check_output(out, _COMPARISON, overwrite=True)  # removes hidden folders of killed comparisons, too
        with set_aside(out.resolve()) if overwrite and out.is_dir() and is_comparison(out) else nullcontext():
            store, state = self._open_folder()
        if state.winner is not None and is_forest(out / WINNER):
            remove(out / _FORESTS)  # it exists if the comparison was killed while it removed the forests
            return Comparison(out)
        rows = _rows_of(store, state, self.resources)
        _tell_of_shares(store, state, self.listener)
        # This replaces the advice on resuming the run of one candidate.
        with advising(f"what is finished is kept: repeat the comparison into {out}, and it goes on", out):
            # If the winner is named, the comparison was killed before it moved the forest of the winner.
            following = rounds(state.run.config.trees)[len(state.rounds) :] if state.winner is None else []
            for trees in following:
                late = self.budget is not None and time.monotonic() - begin > self.budget
                if late and state.rounds:
                    state.stopped = (
                        f"the time of {self.budget:g} s was over after {counted(state.rounds[-1].trees, 'tree')}"
                    )
                    break
                self._run_round(store, state, trees, rows)
            _finish(state, out, rows)
        return Comparison(out)

    def _open_folder(self) -> tuple[Store, ComparisonState]:
        """Call `_begin` in the folder of the comparison. Create the folder; remove it again if `_begin` fails."""
        made = not self.out.exists()
        with naming_refusal(self.out.parent):
            self.out.mkdir(exist_ok=True)
        remove_half_made(self.out)
        if not is_comparison(self.out):
            announce(self.out)
        try:
            return self._begin()
        except BaseException:
            if made and not has_begun(self.out):
                remove(self.out)
            raise

    def _begin(self) -> tuple[Store, ComparisonState]:
        """Return the store and the state of the comparison: a new state, or the saved one of the same comparison.

        Raises ConfigError and DataError if the table or the settings cannot be used, OutputExistsError or DataError if
        the saved comparison is another one.
        """
        run, out, work = Run.of(self.arguments), self.out, self.out / _WORK
        begun = ComparisonState.read(out) if has_begun(out) else None
        other = f"choose another output, or {api('overwrite')} it"
        if begun is not None and run.location is not None and begun.run.location not in (None, run.location):
            raise OutputExistsError(f"{out} compares candidates on {begun.run.location}; {other}")
        remove(work)  # of a killed comparison
        work.mkdir()
        try:
            plan = resolve(run, open_table(run, work, memory=self.resources.memory), self.resources)
            assert plan.config.task is not None
            state = self._new_state(run, plan.config.task)
            if begun is not None and begun.settings != state.settings:
                raise OutputExistsError(f"{out} is a comparison of other candidates or options; {other}")
            self._check_memory(plan, state)
            store = self._make_store(plan, work, None if begun is None else begun.run.fingerprint)
        finally:
            remove(work)
        self._check_candidates(store, state)
        if begun is not None:
            return store, begun
        state.run = replace(run, fingerprint=store.fingerprint)
        state.write(out)
        return store, state

    def _new_state(self, run: Run, task: Task) -> ComparisonState:
        """Return the state of a comparison that has not begun, for a table of this task. Raises ConfigError."""
        options = {name: value for name, value in self.arguments.options.items() if name != "trees"}
        if isinstance(self.candidates, int | None):
            candidates = default_candidates(task, self.candidates)
        else:
            candidates = given_candidates(self.candidates, options)
        for name, candidate in candidates.items():
            config = TrainConfig.of(**options | candidate)
            if not config.bootstrap:
                raise ConfigError(
                    f"the candidate {name} grows on all rows, so no row is out of bag to evaluate it; drop "
                    f"it, or set {api('bootstrap')}"
                )
            if config.boosts:
                raise ConfigError(
                    f"the candidate {name} cannot be evaluated on out-of-bag rows: with sampling "
                    f"{config.sampling!r} rows that are hard to predict are rarely among them; drop it"
                )
        if options.get("stop_oob") is not None:
            raise ConfigError(
                f"{api('stop_oob')} cannot be used in a comparison: candidates are compared at equal numbers of trees"
            )
        metric = plain(self.metric)
        if metric is None:
            metric = "poisson_deviance" if options.get("impurity") == "poisson" else METRICS[task][0]
        if not isinstance(metric, str) or metric not in METRICS[task]:
            raise ConfigError(f"{api('metric')} must be {' or '.join(METRICS[task])} here, not {shown(metric)}")
        return ComparisonState(run, metric, options=options, candidates=candidates)

    def _check_memory(self, plan: TrainingPlan, state: ComparisonState) -> None:
        """Raise ConfigError, before the table is encoded, if no candidate can be grown in the memory."""
        if plan.roles is None:  # a store, see `_check_candidates`
            return
        task, faults = plan.roles.task, list[ConfigError]()
        for candidate in state.candidates.values():
            try:
                config = TrainConfig.of(**self.arguments.options | candidate).for_task(task)
                replace(plan, config=config).check()
                return
            except ConfigError as error:
                faults.append(error)
        raise faults[0]

    def _make_store(self, plan: TrainingPlan, work: Path, fingerprint: str | None) -> Store:
        """Return the store of the comparison: the table if it is a store, or the table encoded in the folder.

        work         empty folder for temporary files.
        fingerprint  fingerprint of the store; None if the comparison has not begun. If it has begun, the table is
                     encoded again, because its content may have changed since then.

        Raises DataError if the table is not the same as before.
        """
        kept = self.out / _STORE
        plan = replace(plan, run=replace(plan.run, fingerprint=fingerprint), stages=("read", "encode"))
        store = plan.make_store(work / _STORE, self.listener, f"{self.out} compares candidates on")
        if isinstance(plan.table, Store):
            return store
        if fingerprint is None or not is_store(kept):
            replace_output(store.path, kept, work / "replaced")
        return Store.open(kept, verify=fingerprint is not None)

    def _check_candidates(self, store: Store, state: ComparisonState) -> None:
        """Raise ConfigError or DataError if the metric, or an explicit candidate, does not fit the table."""
        for name, candidate in () if isinstance(self.candidates, int | None) else state.candidates.items():
            try:
                self._check_candidate(candidate, store)
            except (ConfigError, DataError) as error:
                raise type(error)(f"the candidate {name}: {error.text}") from error
        classes = len(store.spec.target.classes)
        if state.metric == "auc" and not curves_of(classes):
            raise ConfigError(f"auc is for 2 to {MOST_CURVES} classes, and there are {classes}; take log_loss")
        if state.metric == "poisson_deviance":
            criterion_named("poisson").check(store)

    def _check_candidate(self, candidate: Mapping[str, Any], store: Store) -> None:
        """Raise ConfigError and DataError if a candidate cannot be grown on the table."""
        arguments = ColumnArguments(store, None, (), {**self.arguments.options, **candidate})
        resolve(Run.of(arguments), store, self.resources).for_store(store)

    def _run_round(self, store: Store, state: ComparisonState, trees: int, rows: Rows) -> None:
        """Grow all remaining candidates to this number of trees, evaluate them, and save the state."""
        scores: dict[str, RowScores] = {}
        newly_retired: dict[str, str] = {}
        for name in state.remaining:
            if not state.rounds and isinstance(self.candidates, int | None):
                try:
                    self._check_candidate(state.candidates[name], store)
                except (ConfigError, DataError) as error:
                    newly_retired[name] = f"cannot be grown here: {error.text}"
                    continue
            begin = time.perf_counter()
            scores[name] = self._grow_to(state, name, store, trees)
            state.seconds[name] = state.seconds.get(name, 0.0) + time.perf_counter() - begin
        if not scores:
            raise ConfigError(f"no candidate can be grown on this table: {next(iter(newly_retired.values()))}")
        results = standings({name: measure_loss(each, rows) for name, each in scores.items()}, rows)
        for name in retired(results, trees):
            standing = results[name]
            newly_retired[name] = f"behind by {standing.difference:.4g}, {standing.behind:.1f} standard errors"
        state.rounds.append(Round(trees, results, {name: write_names(why) for name, why in newly_retired.items()}))
        state.write(self.out)
        for name in newly_retired:
            forest = _forest_of(self.out, name)
            for folder in filter(Path.is_dir, (forest, forest.with_name(forest.name + UNFINISHED))):
                remove(folder)
        best = min(results, key=lambda name: results[name].difference)
        left = f"candidates left: {len(state.remaining)} of {len(state.candidates)}"
        loss = f"{state.metric.replace('_', ' ')} {results[best].loss:.5g}"
        self.listener(Notice(f"{counted(trees, 'tree')}: {best} leads, {loss}; {left}"))

    def _grow_to(self, state: ComparisonState, name: str, store: Store, trees: int) -> RowScores:
        (self.out / _FORESTS).mkdir(exist_ok=True)
        folder = _forest_of(self.out, name)
        options = {**state.options, **state.candidates[name], "trees": trees}
        arguments = ColumnArguments(store, None, (), options)
        if not is_forest(folder) and not is_unfinished(folder):
            train_forest(Run.of(arguments), folder, self.resources, self.listener)
        elif not is_forest(folder) or read_forest(folder).trees < trees:
            resume(folder, arguments, self.resources, self.listener)
        forest = read_forest(folder)
        state.grown[name] = forest.trees
        state.size[name] = sum(path.stat().st_size for path in forest.part_files)
        return row_scores(forest, state.metric)


def _rows_of(store: Store, state: ComparisonState, resources: Resources) -> Rows:
    """Read the weights and groups of the rows. Raises ConfigError if the scores do not fit in memory."""
    curves = curves_of(len(store.spec.target.classes)) if state.metric == "auc" else 1
    needed = BASE_BYTES + ROW_BYTES * curves * store.rows * (len(state.remaining) + 4)
    MemoryEstimate("compare", needed, needed).check(resources.memory)
    return Rows.of(store)


def _tell_of_shares(store: Store, state: ComparisonState, listener: Listener) -> None:
    """Send a notice if the bags of candidates leave out very different shares of the rows."""
    shares = {}
    for name, options in state.candidates.items():
        config = TrainConfig.of(**{**state.options, **options})
        shares[name] = left_out_share(store, config)
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    if shares[most] > _SHARES * shares[least]:
        listener(
            Notice(
                f"bags of {most} leave out {shares[most]:.0%} of the rows, bags of {least} {shares[least]:.0%}: "
                f"{most} is evaluated with more trees per row, which favours it while there are few trees"
            )
        )


def _finish(state: ComparisonState, out: Path, rows: Rows) -> None:
    """Name the winner, write the tables, move the forest of the winner into place, and remove the other forests."""
    remaining = state.remaining
    if state.winner is None:
        scores = {name: row_scores(read_forest(_forest_of(out, name)), state.metric) for name in remaining}
        results = standings({name: measure_loss(each, rows) for name, each in scores.items()}, rows)
        state.winner = winner(results)
        crossed = cross_fitted(scores, rows)
        state.cross_fitted = None if math.isnan(crossed) else crossed
        state.write(out)
    for table, name in ((candidate_table(state), "candidates"), (curve_table(state), "curve")):
        table.write_parquet(content := io.BytesIO())  # a full disk is an error of Python, not one of Polars
        with write_durably(out / f"{name}.parquet") as path:
            path.write_bytes(content.getvalue())
    if state.run.location is not None:  # if the table was in memory, the forest names the store of the comparison
        name_table(_forest_of(out, state.winner), state.run.location, state.run.exclude)
    sync_all(_forest_of(out, state.winner))
    _forest_of(out, state.winner).rename(out / WINNER)  # the comparison is finished
    sync(out)
    remove(out / _FORESTS)


def name_table(directory: Path, data: str | None, exclude: Iterable[str]) -> None:
    """Record the table of the comparison as the training table of the forest in `directory`.

    data     path of the table; None for a table in memory.
    exclude  excluded columns.
    """
    forest = read_forest(directory)
    if forest.origin is None:
        return
    origin = replace(forest.origin, data=data, exclude=tuple(exclude))
    seconds = dict(forest.run.select("stage", "seconds").iter_rows())
    write_run(directory, seconds, forest.run["threads"][0], forest.files.header, origin, forest.choices)


def _forest_of(out: Path, name: str) -> Path:
    return out / _FORESTS / f"{name}.forest"


def tuned_forest(
    arguments: ColumnArguments,
    tune: int | str,
    out: str | Path | None,
    resources: Resources,
    listener: Listener,
    *,
    overwrite: bool,
) -> Forest:
    """Compare some default candidates and return the forest of the winner, at `out` or temporary.

    tune  number of default candidates, or a time limit such as "10m" for comparing all of them.
    """
    tune = plain(tune)
    if isinstance(tune, bool) or not isinstance(tune, int | str):
        raise ConfigError(f"{api('tune')} must be a number of candidates, or a time such as 10m, not {shown(tune)}")
    count, budget = (tune, None) if isinstance(tune, int) else (None, parse_duration(tune, "tune", "a number or "))
    if count is not None:
        check_candidate_count(count, name="tune")
    run = Run.of(arguments)
    holding = TemporaryFolder(resources.scratch)  # removes the folders of killed runs, even if the output is refused
    try:
        if out is not None:
            try:
                check_output(out, FOREST, overwrite=overwrite)
            except OutputExistsError:
                check_table(run, resources)  # an unusable table is reported first
                raise
        folder = holding.path / "comparison"
        tuned = ComparisonRun(arguments, count, None, budget, folder, resources, once(listener)).run()
        if run.location is None:
            name_table(tuned.forest.directory, None, run.exclude)
        _keep_candidates(tuned)
        listener(Notice("; ".join(f"{name}: {value}" for name, value in tuned.facts().items())))
        if out is None:
            return read_forest(tuned.forest.directory, holding=holding)
        tuned.forest.write(out, overwrite)
    except BaseException:
        holding.remove()
        raise
    holding.remove()
    return read_forest(out)


def _keep_candidates(tuned: Comparison) -> None:
    """Write the table of the candidates into the forest of the winner."""
    forest = tuned.forest
    table = tuned.candidates.with_columns(
        metric=pl.lit(tuned.metric), cross_fitted=pl.when("winner").then(pl.lit(tuned.cross_fitted, pl.Float64))
    )
    columns, path = TUNING.columns, TUNING.at(forest.directory)
    made = table.select(columns.names).to_arrow().cast(pa.schema([field.with_nullable(True) for field in columns]))
    path.parent.mkdir(exist_ok=True)
    write_tables([pa.table(made.columns, schema=columns)], path, TUNING, forest.files.header)


@explicit_options
def compare(
    data: Any,
    target: Any = None,
    *,
    candidates: Mapping[str, Mapping[str, Any]] | str | Path | int | None = None,
    metric: str | None = None,
    budget: str | float | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Comparison:
    """Compare configurations by their out-of-bag loss, and keep the best forest.

    All candidates grow on one presorted table, with bags of the same seed, 25 trees at a time, and more from 200 trees
    on. From 50 trees on, a candidate is retired if its loss exceeds the lowest loss by more than three standard errors
    of the difference, paired by row. At the end, the winner is the first in the list whose loss is within one standard
    error of the lowest. Its forest is the one that `train` grows with the same options; it is not trained again.

    Parameters
    ----------
    data : path or table
        The table or store, as for `train`.
    target : str or ArrayLike or None, default=None
        The target column, as for `train`.
    candidates : mapping, path, int or None, default=None
        Options of `train` by the name of the candidate, the simplest first; or the path of a TOML file with a table of
        options for each candidate; or the number of default candidates to use. None for all default candidates.
    metric : {"log_loss", "error", "auc", "mse", "poisson_deviance"} or None, default=None
        Loss to compare. None for log_loss (classification) or mse (regression; poisson_deviance if the options have
        that impurity).
    budget : str or float or None, default=None
        Time after which no more trees are grown, such as "10m". It is checked between rounds only, so the first round
        is always complete, and affects nothing else. None for no limit.
    out : path or None, default=None
        Folder of the comparison. Repeating an interrupted comparison continues it. None for a temporary folder, which
        exists as long as the result.
    options : mapping or None, default=None
        Options of `train` that apply to all candidates, such as {"trees": 200, "group": "patient"}.
    overwrite : bool, default=False
        Replace an existing comparison at `out`.
    exclude, threads, scratch, memory, listener, scheduler
        As for `train`.

    Returns
    -------
    Comparison

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError
        As for `train`; ConfigError also for candidates without out-of-bag rows, or with boosting.

    Notes
    -----
    Candidates with different out-of-bag fractions (`sample_fraction`) are evaluated with different numbers of trees per
    row. With few trees this favours candidates that leave out more rows.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> stumps = {"one": {"max_depth": 1}, "two": {"max_depth": 2}}
    >>> bf.compare(table, "kind", candidates=stumps, options={"trees": 20}).candidates["candidate"].to_list()
    ['one', 'two']
    """
    if not isinstance(options, Mapping | None):
        raise ConfigError(f"{api('options')} must be a mapping of options of training to values, not {shown(options)}")
    training_options = dict(options or {})
    for name in training_options:
        if name not in OPTIONS:
            raise ConfigError(f"there is no option {name!r} of training; see the options of {api('train')}")
    arguments = column_arguments(data, target, exclude, training_options)
    seconds = parse_duration(budget)
    resources = resources_of(threads, scratch, memory)
    holding = TemporaryFolder(resources.scratch) if out is None else None
    folder = as_path(out) if out is not None else holding.path / "comparison"  # type: ignore[union-attr]
    with watching(listener) as events, open_resources(scheduler, resources, folder, events, beside=True) as resources:
        run = ComparisonRun(arguments, plain(candidates), metric, seconds, folder, resources, once(events))
        comparison = run.run(overwrite=overwrite)
    return comparison if holding is None else Comparison(comparison.path, holding)
