"""`bigforest.explain_forest`, from a forest and rows to a folder of tables, and `bigforest.plan_explanation`.

SECTIONS lists the sections of an explanation, by name: help, plan and tables of each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bigforest.errors import ConfigError, api
from bigforest.events import Listener, silent
from bigforest.execution.connect import open_resources
from bigforest.execution.forks import check_polars_threads
from bigforest.execution.resources import resources_of
from bigforest.explain.contributions import (
    SHAP,
    plan_contributions,
    plan_interactions,
    write_contributions,
    write_interactions,
)
from bigforest.explain.dependence import EFFECTS, plan_dependence, write_dependence
from bigforest.explain.importance import plan_importance, plan_unbiased, write_importance, write_unbiased
from bigforest.explain.job import ExplainJob, SectionPlan
from bigforest.explain.options import ExplainOptions
from bigforest.explain.permutation import plan_local, plan_permutation, write_local, write_permutation
from bigforest.explain.proximities import plan_filling, plan_proximities, write_filling, write_proximities
from bigforest.explain.strength import plan_strength, write_strength
from bigforest.explain.tables import Explanation, ExplanationFolder, digest
from bigforest.explain.trees import plan_trees, write_trees
from bigforest.options.values import some_of
from bigforest.planning.memory import RunPlan, StagePlan, combined_estimate
from bigforest.predict.files import tell_of_training
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.rows import open_rows
from bigforest.progress import watching
from bigforest.source.source import Source
from bigforest.source.spool import read_estimate
from bigforest.storage.atomic import TemporaryFolder, made_folder, naming_full_disk
from bigforest.storage.paths import as_path, free_bytes


class Section(NamedTuple):
    """A part of an explanation (`parts`): one or several tables that are requested together.

    help     text for the help of the command line.
    plan     plan(job) returns how the section iterates over the trees, and its memory.
    write    write(job, plan) writes the tables, unless they exist already.
    needs    input: the forest alone, any rows with its features, or out-of-bag rows.
    fast     True if the section is made by default.
    options  options of `explain_forest` that the section uses, in addition to the options that every section uses; None
             allows any.
    """

    help: str
    plan: Callable[[ExplainJob], SectionPlan]
    write: Callable[[ExplainJob, SectionPlan], None]
    needs: Literal["forest", "rows", "out of bag"]
    fast: bool = False
    options: tuple[str, ...] | None = None


# Sections by name. From them, docs/options.py writes options of the command line, and `parts` in the docstring of
# `explain_forest`.
SECTIONS: dict[str, Section] = {
    "importance": Section(
        "Importance of features by the decrease of impurity.", plan_importance, write_importance, "forest", True, ()
    ),
    "unbiased": Section(
        "Decrease of impurity on out-of-bag rows, without bias towards features of many values (MDI-oob).",
        plan_unbiased,
        write_unbiased,
        "out of bag",
        fast=True,
        options=(),
    ),
    "permutation": Section(
        "Importance by permuting features among out-of-bag rows.",
        plan_permutation,
        write_permutation,
        "out of bag",
        fast=True,
        options=("loss", "groups"),
    ),
    "local": Section(
        "Permutation importance for single rows, given or sampled.",
        plan_local,
        write_local,
        "out of bag",
        options=("loss", "groups", "sample", "rows"),
    ),
    "strength": Section(
        "Strength and correlation of the trees, and the bound on the error.",
        plan_strength,
        write_strength,
        "out of bag",
        fast=True,
        options=(),
    ),
    "contributions": Section(
        "Contribution of each feature to the prediction of every row, along the path.",
        partial(plan_contributions, name="contributions"),
        partial(write_contributions, name="contributions"),
        "rows",
        options=("classes",),
    ),
    SHAP: Section(
        "Exact Shapley values. Slow; prints an estimate of the time first.",
        partial(plan_contributions, name=SHAP),
        partial(write_contributions, name=SHAP),
        "rows",
        options=("classes",),
    ),
    "interactions": Section(
        "Exact Shapley interactions of pairs of features, on selected rows.",
        plan_interactions,
        write_interactions,
        "rows",
        options=("classes", "sample", "rows"),
    ),
    "dependence": Section(
        "Partial dependence on a feature, or on two.",
        partial(plan_dependence, name="dependence"),
        partial(write_dependence, name="dependence"),
        "rows",
        options=("classes", "features", "grid", "individual", "sample"),
    ),
    EFFECTS: Section(
        "Accumulated local effects, for correlated features.",
        partial(plan_dependence, name=EFFECTS),
        partial(write_dependence, name=EFFECTS),
        "rows",
        options=("classes", "features", "grid", "sample"),
    ),
    "proximities": Section(
        "Proximities of training rows: nearest rows, outliers and prototypes.",
        plan_proximities,
        write_proximities,
        "out of bag",
        options=("sample", "rows", "neighbors"),
    ),
    "filling": Section(
        "Imputed missing values of training rows, from similar rows.",
        plan_filling,
        write_filling,
        "out of bag",
        options=("sample", "rows"),
    ),
    "trees": Section(
        "Depth and size of trees, pairs of features on paths, rules of leaves.",
        plan_trees,
        write_trees,
        "forest",
        fast=True,
        options=("rules",),
    ),
}


# Options that only some sections use. All other options apply to every section.
_SOME_OPTIONS = {option for section in SECTIONS.values() for option in section.options or ()}


def register_section(name: str, section: Section) -> None:
    """Let `explain_forest` make a section from outside the package. Raises ConfigError for a name that is taken."""
    if name in SECTIONS:
        raise ConfigError(f"a part of an explanation needs a new name, not {name!r}")
    SECTIONS[name] = section


def chosen_sections(parts: Iterable[str] | str | None, data: Any, forest: Forest) -> tuple[str, ...]:
    """Return the names of the requested sections, in the order of SECTIONS. Raises ConfigError.

    parts  requested names; None for the fast sections that the forest and `data` allow.
    """
    if parts is None:
        without_rows = data is None or forest.config.boosts
        return tuple(
            name
            for name, section in SECTIONS.items()
            if section.fast and (section.needs == "forest" or not without_rows)
        )
    requested = some_of(parts, SECTIONS, "parts")
    unfit = [name for name in requested if SECTIONS[name].needs == "out of bag"]
    if forest.config.boosts and unfit:
        others = ", ".join(name for name, section in SECTIONS.items() if section.needs != "out of bag")
        raise ConfigError(
            f"{unfit[0]} uses out-of-bag rows, which cannot be recomputed for a forest trained with sampling "
            f"{forest.config.sampling!r}; ask for {others}"
        )
    if "filling" in requested and any(feature.is_filled for feature in forest.spec.features):
        raise ConfigError("filling needs trees that split on missing values; this forest puts numbers in their place")
    return tuple(name for name in SECTIONS if name in requested)


def plan_sections(job: ExplainJob) -> dict[str, SectionPlan]:
    """Check the options of a job, and return the plans of its sections by name."""
    job.options.check_names(job.forest.spec)
    _check_used(job.options)
    return {name: SECTIONS[name].plan(job) for name in job.options.parts}


def _check_used(options: ExplainOptions) -> None:
    """Raise ConfigError for an option that no part uses: it would be ignored without a word."""
    if any(SECTIONS[name].options is None for name in options.parts):
        return
    used = {option for name in options.parts for option in SECTIONS[name].options or ()}
    defaults = ExplainOptions()
    for option in sorted(_SOME_OPTIONS - used):
        if getattr(options, option) != getattr(defaults, option):
            users = ", ".join(name for name, section in SECTIONS.items() if option in (section.options or ()))
            raise ConfigError(f"{api(option)} is an option of {users}; ask for such a part, or drop it")


# Rows of a table in memory that are hashed at a time.
_HASHED_ROWS = 1 << 17
# Nanoseconds to check a node, and to read a value and write it for the tasks. Measured.
_CHECK_NS = 500.0
_READ_NS = 40.0


def explain_forest(
    forest: Forest | str | Path,
    data: Any = None,
    out: str | Path | None = None,
    *,
    parts: Iterable[str] | str | None = None,
    loss: str | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    new_rows: bool = False,
    classes: Sequence[Any] | None = None,
    features: Sequence[Any] | None = None,
    grid: int = 20,
    individual: int = 0,
    sample: int | None = None,
    rows: Sequence[int] = (),
    neighbors: int = 10,
    rules: int = 20,
    seed: int = 0,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Explanation:
    """Explain the predictions of a forest, as tables in the folder `out`.

    Results do not depend on threads, memory and workers. With a boosted stage (`refine`), "contributions", "shap" and
    "interactions" are on the scale of the stage. For regression, this is the predicted number, or its logarithm with
    the impurity poisson. For two classes, it is the log odds; for more classes, the log probabilities before they are
    scaled to the sum 1. Parts about trees describe the trees without the stage.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path, default=None
        Rows to explain, a table as for `train`. Parts that use out-of-bag rows need the training table with the target.
    out : str, Path or None, default=None
        Folder of the tables, each a Parquet file that appears when it is complete. An existing table of the same
        forest, data and options is kept, so repeating an interrupted run continues it. None for a temporary folder,
        which exists as long as the Explanation.
    parts : iterable of str, str or None, default=None
        Parts of the explanation: of the forest alone ("importance", "trees"), of any rows ("contributions", "shap",
        "interactions", "dependence", "effects"), and of out-of-bag rows ("unbiased", "permutation", "local",
        "strength", "proximities", "filling"). None for the fast ones ("importance", "unbiased", "permutation",
        "strength", "trees"); those on out-of-bag rows only with `data`, and not after boosting.
    loss : str or None, default=None
        Loss for permutation importance. For classes "error" or "log_loss", for regression "mse", with the impurity
        poisson "poisson_deviance" or "mse". None for the first loss of the task.
    groups : mapping or None, default=None
        Features to permute together, in addition to each feature alone: lists of names, by the name of the group.
    new_rows : bool, default=False
        The rows are not training rows: all of them are out of bag.
    classes : sequence or None, default=None
        Classes to explain in contributions, shap, interactions, dependence and effects. None for all, or for the second
        of two. Refused for a regression forest.
    features : sequence or None, default=None
        Features for dependence and effects: names, and pairs of names. None for the 10 with the largest decrease of
        impurity.
    grid : int, default=20
        Maximum number of values of a feature at which dependence is evaluated. For a category, all levels in the rows
        are used.
    individual : int, default=0
        Number of sampled rows whose own curves of dependence are kept in addition to the mean, for single features.
    sample : int or None, default=None
        Number of rows to sample. None for 1,000 in dependence, effects and local, 100 in interactions, 10,000 in
        proximities, and all rows with a missing value in filling.
    rows : sequence of int, default=()
        Rows that local, interactions, proximities and filling explain, instead of a sample.
    neighbors : int, default=10
        Number of rows with the largest proximity to keep for each row.
    rules : int, default=20
        Number of leaves to show as rules, the most informative ones.
    seed : int, default=0
        Seed of permutations and samples.
    overwrite, threads, scratch, memory, listener, scheduler
        As for `predict_file`.

    Returns
    -------
    Explanation

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> explanation = bf.explain_forest(forest, table, parts=["importance", "permutation"])
    >>> explanation["permutation"]["feature"].to_list()
    ['length', 'width']
    """
    values = {name: value for name, value in locals().items() if name in ExplainOptions.__dataclass_fields__}
    forest = opened_forest(forest)
    values |= {"parts": chosen_sections(parts, data, forest), "groups": {} if groups is None else groups}
    options = ExplainOptions(**values)
    resources = resources_of(threads, scratch, memory)
    check_polars_threads()
    holding = TemporaryFolder(resources.scratch) if out is None else None
    home = as_path(out) if out is not None else holding.path / "explanation"  # type: ignore[union-attr]
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, home, listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
        naming_full_disk(home),
    ):
        if new_rows:
            tell_of_training(forest, data, f"so they are not new: drop {api('new_rows')}", listener)
        source = None if data is None else open_rows(data, forest.spec, scratch=work, memory=resources.memory)
        # No process replaces a temporary forest, and workers may not see its folder.
        stamp = None if forest.is_temporary else forest.files.stamp
        folder = ExplanationFolder(home, *_input_digests(forest, source), stamp, overwrite=overwrite)
        job = ExplainJob(forest, source, options, resources, listener, folder, work)
        with made_folder(home), forest.files.same_run():
            plans = plan_sections(job)
            combined_estimate([plan.need for plan in plans.values()]).check(resources.memory)
            folder.remove_other_forests()
            for name in sorted(plans, key=_writing_order):
                SECTIONS[name].write(job, plans[name])
    return Explanation(home, holding)


def _writing_order(name: str) -> tuple[bool, bool]:
    """Sort sections that may refuse the rows before all others, so that no table is written before they refuse.

    Sections on out-of-bag rows refuse another table than in training, and requested rows without a target.
    """
    section = SECTIONS[name]
    return section.needs != "out of bag", "rows" not in (section.options or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationPlan(RunPlan):
    """The needs of an explanation, as upper bounds unless stated otherwise. Its stages are reading the rows, and the
    parts.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> plan = bf.plan_explanation(forest, table, parts="permutation")
    >>> plan.fits
    True
    """

    def _repr_html_(self) -> str:
        return self._html("Plan of an explanation", {})


def plan_explanation(
    forest: Forest | str | Path,
    data: Any = None,
    *,
    parts: Iterable[str] | str | None = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    **options: Any,
) -> ExplanationPlan:
    """Estimate the memory, scratch and time of each part of `explain_forest`. Rows are only counted, not read.

    Times are estimates, accurate within a factor of two or three.

    Parameters
    ----------
    forest, data, parts, threads, scratch, memory
        As for `explain_forest`.
    **options
        Other options of `explain_forest` that define what to explain: loss, groups, new_rows, classes, features, grid,
        individual, sample, rows, neighbors, rules, seed.

    Returns
    -------
    ExplanationPlan
        `fits` is True if memory and scratch suffice, `seconds` is the estimated total time, and `stages` has the needs
        and the time of reading the rows and of each part.

    Raises
    ------
    ConfigError, DataError, FormatError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.plan_explanation(forest, table, parts="permutation").fits
    True
    """
    forest = opened_forest(forest)
    explain_options = ExplainOptions(parts=chosen_sections(parts, data, forest), **options)
    resources = resources_of(threads, scratch, memory)
    with TemporaryFolder(resources.scratch) as work:
        source = None if data is None else open_rows(data, forest.spec, scratch=work, memory=resources.memory)
        folder = ExplanationFolder(work / "planned", "", "", None, overwrite=False)
        job = ExplainJob(forest, source, explain_options, resources, silent, folder, work)
        with forest.files.same_run():
            plans = plan_sections(job)
        stages = [StagePlan(name, plan.need, job.seconds(plan)) for name, plan in plans.items()]
        stages.insert(0, _reading(job))
        whole = combined_estimate([stage.need for stage in stages])
        return ExplanationPlan(
            memory=resources.memory,
            smallest=whole.smallest,
            scratch=whole.scratch,
            scratch_free=free_bytes(resources.scratch or Path.cwd()),
            stages=tuple(stages),
        )


def _reading(job: ExplainJob) -> StagePlan:
    """Estimate the time of checking the trees and of writing the rows to a file, and the size of this file."""
    seconds, scratch = job.stock.node_count * _CHECK_NS * 1e-9 / job.resources.workers, 0
    if job.source is not None:
        described = job.described
        seconds += described.rows * (len(described.used) + 1) * _READ_NS * 1e-9
        scratch = described.file_bytes
    return StagePlan("read", read_estimate(0, scratch), seconds)


def _input_digests(forest: Forest, source: Source | None) -> tuple[str, str]:
    """Return two digests: of a forest, with the lambda, power and rounds of its predictions, and of a table."""
    run = None if forest.files.stamp is None else forest.files.stamp.digest
    amounts = [forest.shrinkage.amount, forest.power.amount]
    amounts += [forest.rounds.amount] if forest.files.is_refined else []
    rows: list[Any] | None = None
    if source is not None and source.files and not source.spooled:
        rows = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in source.files]
    elif source is not None:
        batches = source.batches([*source.schema], _HASHED_ROWS)
        hashes = [zlib.crc32(batch.hash_rows(0).to_numpy().tobytes()) for batch in batches]
        rows = [{name: str(dtype) for name, dtype in source.schema.items()}, source.rows, hashes]
    return digest(forest.identity, run, amounts), digest(rows)
