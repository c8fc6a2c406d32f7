"""`bigforest.plan_explanation`: the parts of an explanation, and the memory, scratch and time of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bigforest.errors import ConfigError
from bigforest.events import silent
from bigforest.execution.arguments import resources_of
from bigforest.explain.contributions import SHAP, plan_contributions, write_contributions
from bigforest.explain.dependence import EFFECTS, plan_dependence, write_dependence
from bigforest.explain.filling import plan_filling, write_filling
from bigforest.explain.importance import plan_importance, plan_unbiased, write_importance, write_unbiased
from bigforest.explain.interactions import plan_interactions, write_interactions
from bigforest.explain.job import ExplainJob
from bigforest.explain.options import ExplainOptions
from bigforest.explain.permutation import plan_local, plan_permutation, write_local, write_permutation
from bigforest.explain.proximity import plan_proximities, write_proximities
from bigforest.explain.strength import plan_strength, write_strength
from bigforest.explain.structure import plan_trees, write_trees
from bigforest.explain.tables import ExplanationFolder
from bigforest.explain.tree_groups import PartPlan
from bigforest.options.values import some_of
from bigforest.planning.memory import add_estimates
from bigforest.planning.plan import RunPlan, StagePlan
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.rows import open_rows
from bigforest.source.spool import read_estimate
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.paths import free_bytes

# Nanoseconds of a node that is checked, and of a value that is read and written for the tasks. Measured.
_CHECK_NS = 500.0
_READ_NS = 40.0


class PartMaker(NamedTuple):
    """A part of an explanation: what the help says of it, how it is planned, and how it is made as planned.

    needs  what it is made of: the forest alone, any rows with its features, or rows that are out of bag.
    fast   whether it is made unless others are asked for.
    """

    help: str
    plan: Callable[[ExplainJob], PartPlan]
    write: Callable[[ExplainJob, PartPlan], None]
    needs: Literal["forest", "rows", "out of bag"]
    fast: bool = False


# By name. docs/options.py writes the options of the command line and the docstring of `explain_forest` from them.
MAKERS: dict[str, PartMaker] = {
    "importance": PartMaker(
        "Importance of features by the decrease of impurity.", plan_importance, write_importance, "forest", fast=True
    ),
    "unbiased": PartMaker(
        "The same on out-of-bag rows, without bias towards features of many values (MDI-oob).",
        plan_unbiased,
        write_unbiased,
        "out of bag",
        fast=True,
    ),
    "permutation": PartMaker(
        "Importance by permuting features among out-of-bag rows.",
        plan_permutation,
        write_permutation,
        "out of bag",
        fast=True,
    ),
    "local": PartMaker("The same for single rows, given or sampled.", plan_local, write_local, "out of bag"),
    "strength": PartMaker(
        "Strength and correlation of the trees, and the bound on the error.",
        plan_strength,
        write_strength,
        "out of bag",
        fast=True,
    ),
    **{
        name: PartMaker(text, partial(plan_contributions, name=name), partial(write_contributions, name=name), "rows")
        for name, text in (
            ("contributions", "Contribution of each feature to the prediction of every row, along the path."),
            (SHAP, "Exact Shapley values. Slow; prints an estimate of the time first."),
        )
    },
    "interactions": PartMaker(
        "Exact Shapley interactions of pairs of features, on selected rows.",
        plan_interactions,
        write_interactions,
        "rows",
    ),
    **{
        name: PartMaker(text, partial(plan_dependence, name=name), partial(write_dependence, name=name), "rows")
        for name, text in (
            ("dependence", "Partial dependence on a feature, or on two."),
            (EFFECTS, "Accumulated local effects, for correlated features."),
        )
    },
    "proximities": PartMaker(
        "Proximities of training rows: nearest rows, outliers and prototypes.",
        plan_proximities,
        write_proximities,
        "out of bag",
    ),
    "filling": PartMaker(
        "Imputed missing values of training rows, from similar rows.", plan_filling, write_filling, "out of bag"
    ),
    "trees": PartMaker(
        "Depth and size of trees, pairs of features on paths, rules of leaves.",
        plan_trees,
        write_trees,
        "forest",
        fast=True,
    ),
}


def register_part(name: str, maker: PartMaker) -> None:
    """Let `explain_forest` make a part from outside the package. Raises ConfigError for a name that is taken."""
    if name in MAKERS:
        raise ConfigError(f"a part of an explanation needs a new name, not {name!r}")
    MAKERS[name] = maker


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
        `fits` says whether memory and scratch suffice, `seconds` is the estimated total time, and `stages` has the same
        for each part.

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
    asked = ExplainOptions(parts=asked_parts(parts, data, forest), **options)
    resources = resources_of(threads, scratch, memory)
    with TemporaryFolder(resources.scratch) as work:
        source = None if data is None else open_rows(data, forest.spec, scratch=work, memory=resources.memory)
        folder = ExplanationFolder(work / "planned", "", "", overwrite=False)
        job = ExplainJob(forest, source, asked, resources, silent, folder, work)
        plans = plan_parts(job)
        stages = [StagePlan(part, plan.need, job.seconds(plan)) for part, plan in plans.items()]
        stages.insert(0, _reading(job))
        whole = add_estimates([stage.need for stage in stages])
        return ExplanationPlan(
            memory=resources.memory,
            smallest=whole.smallest,
            scratch=whole.scratch,
            scratch_free=free_bytes(resources.scratch or Path.cwd()),
            stages=tuple(stages),
        )


def _reading(job: ExplainJob) -> StagePlan:
    """The trees are checked, and the rows written into a file."""
    seconds, scratch = job.stock.node_count * _CHECK_NS * 1e-9 / job.resources.workers, 0
    if job.source is not None:
        described = job.described
        seconds += described.rows * (len(described.used) + 1) * _READ_NS * 1e-9
        scratch = described.file_bytes
    return StagePlan("read", read_estimate(0, scratch), seconds)


def plan_parts(job: ExplainJob) -> dict[str, PartPlan]:
    """How each requested part runs. Raises ConfigError and DataError for what cannot be requested."""
    job.options.check_names(job.forest.spec, job.forest.classes)
    return {part: MAKERS[part].plan(job) for part in job.options.parts}


def asked_parts(parts: Iterable[str] | str | None, data: Any, forest: Forest) -> tuple[str, ...]:
    """The parts, in their order, each once. Raises ConfigError."""
    if parts is None:
        alone = data is None or forest.config.boosts
        return tuple(part for part, made in MAKERS.items() if made.fast and (made.needs == "forest" or not alone))
    given = some_of(parts, MAKERS, "parts")
    if forest.config.boosts:
        _check_boosting(forest, given)
    if "filling" in given and any(feature.is_filled for feature in forest.spec.features):
        raise ConfigError("filling needs trees that split on missing values; this forest puts numbers in their place")
    return tuple(part for part in MAKERS if part in given)


def _check_boosting(forest: Forest, parts: Sequence[str]) -> None:
    """Raise ConfigError for parts that evaluate the trees of a boosted forest one by one."""
    for part in parts:
        if MAKERS[part].needs == "out of bag":
            others = ", ".join(name for name, made in MAKERS.items() if made.needs != "out of bag")
            raise ConfigError(
                f"{part} uses out-of-bag rows, which cannot be recomputed for a forest trained with sampling "
                f"{forest.config.sampling!r}; ask for {others}"
            )
