"""The families and criteria of the package. Written by docs/options.py from bigforest/grow/families/ and
bigforest/grow/criteria.py: change these."""

# ruff: noqa: E501
# fmt: off
from typing import Literal

from bigforest.options.declaration import KnownFamily
from bigforest.options.values import Task

Family = Literal["axis", "tree", "rotation", "sparse-oblique", "subspace-cap", "subspace-perceptron"]
FAMILIES = {
    "axis": KnownFamily("axis", ("classification", "regression"), "one of `mtry` features drawn in the node (Breiman 2001)"),
    "tree": KnownFamily("tree", ("classification", "regression"), "any feature; one tree, no bootstrap (Breiman et al. 1984, CART)"),
    "rotation": KnownFamily("rotation", ("classification", "regression"), "one coordinate of the table, standardised and rotated for every tree (Rodriguez et al. 2006)"),
    "sparse-oblique": KnownFamily("sparse-oblique", ("classification", "regression"), "one of about `projections` random sums of features, drawn in the node (Tomita et al., Randomer forests)"),
    "subspace-cap": KnownFamily("subspace-cap", ("classification",), "the best of several points between the two farthest class means of a random subspace; no bootstrap (Ho 1995)"),
    "subspace-perceptron": KnownFamily("subspace-perceptron", ("classification",), "a perceptron that separates classes near one of the two farthest class means from the others; no bootstrap (Ho 1995)"),
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
