"""Defaults by the task."""

from __future__ import annotations

from typing import NamedTuple

from bigforest.schema.options import FeatureRule, Impurity, Task


class TaskDefaults(NamedTuple):
    """What options of TrainConfig mean that are not given (None)."""

    impurity: Impurity
    min_leaf: int
    mtry: FeatureRule


TASKS: dict[Task, TaskDefaults] = {
    "classification": TaskDefaults("gini", 1, "sqrt"),
    "regression": TaskDefaults("variance", 2, "half"),
}
