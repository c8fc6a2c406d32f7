"""The families and criteria of the package. Written by docs/options.py from bigforest/grow/families/ and
bigforest/grow/criteria.py: change these."""

# ruff: noqa: E501
from typing import Literal

from bigforest.options.values import Task

Family = Literal[
    "axis",
    "tree",
    "rotation",
    "sparse-oblique",
    "subspace-cap",
    "subspace-perceptron",
]
# By family: the other family whose options and defaults it has, if any.
OPTIONS_OF: dict[str, str] = {}
# By family: the options of its family in OPTIONS_OF that it lacks.
LACKS: dict[str, tuple[str, ...]] = {}
# Tasks of each family.
TASKS_OF = {
    "axis": ("classification", "regression"),
    "tree": ("classification", "regression"),
    "rotation": ("classification", "regression"),
    "sparse-oblique": ("classification", "regression"),
    "subspace-cap": ("classification",),
    "subspace-perceptron": ("classification",),
}
# Splits of the nodes of each family, and their source.
SPLITS_ON = {
    "axis": "one of `mtry` features drawn in the node (Breiman 2001)",
    "tree": "any feature; one tree, no bootstrap (Breiman et al. 1984, CART)",
    "rotation": "one coordinate of the table, standardised and rotated for every tree (Rodriguez et al. 2006)",
    "sparse-oblique": "one of about `projections` random sums of features, drawn in the node (Tomita et al., Randomer forests)",
    "subspace-cap": "the best of several points between the two farthest class means of a random subspace; no bootstrap (Ho 1995)",
    "subspace-perceptron": "a perceptron that separates classes near one of the two farthest class means from the others; no bootstrap (Ho 1995)",
}
Impurity = Literal["gini", "entropy", "error", "variance", "poisson"]
# Task of each impurity.
IMPURITIES: dict[str, Task] = {
    "gini": "classification",
    "entropy": "classification",
    "error": "classification",
    "variance": "regression",
    "poisson": "regression",
}
# Definition of each impurity.
MEANINGS = {
    "gini": "1 minus the sum of the squared shares of the classes",
    "entropy": "entropy of the classes, in bits",
    "error": "share of rows outside the most frequent class (Tomasi 2017, section 3); most splits do not change it, so trees of many rows are thousands of levels deep, and growing takes far longer",
    "variance": "variance, for regression",
    "poisson": "half the Poisson deviance, for regression on counts and other targets that are not negative; a split that leaves a sum of 0 on a side is not made, and the family must be axis or tree",
}
