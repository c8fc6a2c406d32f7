"""The sections of an explanation, by name: help, plan and tables of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from bigforest.errors import ConfigError
from bigforest.explain.contributions import (
    SHAP,
    plan_contributions,
    plan_interactions,
    write_contributions,
    write_interactions,
)
from bigforest.explain.dependence import EFFECTS, plan_dependence, write_dependence
from bigforest.explain.importance import plan_importance, plan_unbiased, write_importance, write_unbiased
from bigforest.explain.job import ExplainJob
from bigforest.explain.permutation import plan_local, plan_permutation, write_local, write_permutation
from bigforest.explain.proximities import plan_filling, plan_proximities, write_filling, write_proximities
from bigforest.explain.strength import plan_strength, write_strength
from bigforest.explain.tree_groups import SectionPlan
from bigforest.explain.trees import plan_trees, write_trees
from bigforest.options.values import some_of
from bigforest.predict.forest import Forest


class Section(NamedTuple):
    """A section of an explanation: one or several tables that are asked for together.

    help   its text in the help of the command line.
    plan   plan(job) returns how the section iterates over the trees, and its memory.
    write  write(job, plan) writes its tables, unless they exist already.
    needs  its input: the forest alone, any rows with its features, or rows that are out of bag.
    fast   whether it is made unless others are asked for.
    """

    help: str
    plan: Callable[[ExplainJob], SectionPlan]
    write: Callable[[ExplainJob, SectionPlan], None]
    needs: Literal["forest", "rows", "out of bag"]
    fast: bool = False


# By name. docs/options.py writes the options of the command line and the docstring of `explain_forest` from them.
SECTIONS: dict[str, Section] = {
    "importance": Section(
        "Importance of features by the decrease of impurity.", plan_importance, write_importance, "forest", fast=True
    ),
    "unbiased": Section(
        "The same on out-of-bag rows, without bias towards features of many values (MDI-oob).",
        plan_unbiased,
        write_unbiased,
        "out of bag",
        fast=True,
    ),
    "permutation": Section(
        "Importance by permuting features among out-of-bag rows.",
        plan_permutation,
        write_permutation,
        "out of bag",
        fast=True,
    ),
    "local": Section("The same for single rows, given or sampled.", plan_local, write_local, "out of bag"),
    "strength": Section(
        "Strength and correlation of the trees, and the bound on the error.",
        plan_strength,
        write_strength,
        "out of bag",
        fast=True,
    ),
    "contributions": Section(
        "Contribution of each feature to the prediction of every row, along the path.",
        partial(plan_contributions, name="contributions"),
        partial(write_contributions, name="contributions"),
        "rows",
    ),
    SHAP: Section(
        "Exact Shapley values. Slow; prints an estimate of the time first.",
        partial(plan_contributions, name=SHAP),
        partial(write_contributions, name=SHAP),
        "rows",
    ),
    "interactions": Section(
        "Exact Shapley interactions of pairs of features, on selected rows.",
        plan_interactions,
        write_interactions,
        "rows",
    ),
    "dependence": Section(
        "Partial dependence on a feature, or on two.",
        partial(plan_dependence, name="dependence"),
        partial(write_dependence, name="dependence"),
        "rows",
    ),
    EFFECTS: Section(
        "Accumulated local effects, for correlated features.",
        partial(plan_dependence, name=EFFECTS),
        partial(write_dependence, name=EFFECTS),
        "rows",
    ),
    "proximities": Section(
        "Proximities of training rows: nearest rows, outliers and prototypes.",
        plan_proximities,
        write_proximities,
        "out of bag",
    ),
    "filling": Section(
        "Imputed missing values of training rows, from similar rows.", plan_filling, write_filling, "out of bag"
    ),
    "trees": Section(
        "Depth and size of trees, pairs of features on paths, rules of leaves.",
        plan_trees,
        write_trees,
        "forest",
        fast=True,
    ),
}


def register_section(name: str, section: Section) -> None:
    """Let `explain_forest` make a section from outside the package. Raises ConfigError for a name that is taken."""
    if name in SECTIONS:
        raise ConfigError(f"a part of an explanation needs a new name, not {name!r}")
    SECTIONS[name] = section


def chosen_sections(parts: Iterable[str] | str | None, data: Any, forest: Forest) -> tuple[str, ...]:
    """Return the names of the sections to make, in their order, each once. Raises ConfigError."""
    if parts is None:
        alone = data is None or forest.config.boosts
        return tuple(name for name, own in SECTIONS.items() if own.fast and (own.needs == "forest" or not alone))
    given = some_of(parts, SECTIONS, "parts")
    if forest.config.boosts:
        _check_boosting(forest, given)
    if "filling" in given and any(feature.is_filled for feature in forest.spec.features):
        raise ConfigError("filling needs trees that split on missing values; this forest puts numbers in their place")
    return tuple(name for name in SECTIONS if name in given)


def _check_boosting(forest: Forest, names: Sequence[str]) -> None:
    """Raise ConfigError for sections that evaluate the trees of a boosted forest one by one."""
    for name in names:
        if SECTIONS[name].needs == "out of bag":
            others = ", ".join(other for other, own in SECTIONS.items() if own.needs != "out of bag")
            raise ConfigError(
                f"{name} uses out-of-bag rows, which cannot be recomputed for a forest trained with sampling "
                f"{forest.config.sampling!r}; ask for {others}"
            )


def plan_sections(job: ExplainJob) -> dict[str, SectionPlan]:
    """Plan each requested section. Raises ConfigError and DataError for options that do not fit forest or table."""
    job.options.check_names(job.forest.spec, job.forest.classes)
    return {name: SECTIONS[name].plan(job) for name in job.options.parts}
