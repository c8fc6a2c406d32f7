"""Scratch of the criterion of a growing tree, and the call of its scan of a feature (`scan_codes`).

README.md of this folder lists the module of each criterion. Kernels are compiled for the fields of CriterionScratch
that are not None, without the code of other criteria.
"""

from __future__ import annotations

from typing import NamedTuple

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.scan.impurity import GINI, ScoreScratch, make_score_scratch, scan_scores
from bigforest.kernels.scan.many_classes import ManyClassScratch, make_many_class_scratch, scan_many
from bigforest.kernels.scan.regression import scan_sums
from bigforest.kernels.scan.target import ClassTarget, RegressionScratch, RegressionTarget, make_regression_scratch
from bigforest.kernels.scan.two_class import (
    TwoClassScratch,
    is_light,
    make_two_class_scratch,
    prepare_two,
    scan_light,
    scan_two,
)


class CriterionScratch(NamedTuple):
    """Scratch of one growing tree for its criterion.

    two     Gini of classes
    many    Gini of more than two classes, in addition to `two`
    scores  other criteria of classes, and random splits of classes by any criterion
    sums    regression
    """

    two: TwoClassScratch | None = None
    many: ManyClassScratch | None = None
    scores: ScoreScratch | None = None
    sums: RegressionScratch | None = None


def make_criterion_scratch(
    target: ClassTarget | RegressionTarget, impurity: int, rows: int, random: bool
) -> CriterionScratch:
    """Allocate the scratch for trees of up to `rows` rows; random: True for random splits."""
    if isinstance(target, RegressionTarget):
        return CriterionScratch(sums=make_regression_scratch(rows, target.zero))
    if random or impurity != GINI:
        return CriterionScratch(scores=make_score_scratch(impurity, target.table, target.number))
    many = make_many_class_scratch(target.number, rows) if target.number > 2 else None
    return CriterionScratch(make_two_class_scratch(rows), many)


@inlined
def prepare(node, two):
    """Prepare the scans of a node, before its features are scanned."""
    if two is not None and node.total.size == 2:
        prepare_two(node, two)


@inlined
def scan_codes(low, high, scan, two, many, scores, sums):
    """Offer every threshold of a feature. Call `prepare` before.

    low, high                smallest and largest of the codes of the rows, work.codes[:n]; low < high
    two, many, scores, sums  fields of CriterionScratch
    """
    if sums is not None:
        scan_sums(low, high, scan, sums)
    if scores is not None:
        scan_scores(low, high, scan, scores)
    if many is not None:
        if scan.node.total.size == 2 and is_light(scan.node):
            scan_light(low, high, scan, two)
        else:
            scan_many(low, high, scan, many)
    elif two is not None:
        scan_two(low, high, scan, two)
