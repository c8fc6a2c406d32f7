"""Compile what growing in memory needs, by growing on two rows, so that it is not taken for the first tree's time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.kernels.grow import grow, grow_mixed, grow_oblique
from bigforest.kernels.impurity import GINI, entropy_table
from bigforest.kernels.layout import Codes
from bigforest.kernels.mixed import CATEGORY, Subsets, make_mixed
from bigforest.kernels.oblique import Oblique, Pool, smallest
from bigforest.kernels.random_split import Dictionary
from bigforest.kernels.rows import by_rows
from bigforest.kernels.space import Subspace
from bigforest.kernels.subspace import smallest_subspace
from bigforest.kernels.target import Classes, Numbers
from bigforest.kernels.tree import CodeTree, Roots, Rules


class Needs(NamedTuple):
    """What a forest needs beside splits of classes on plain numbers.

    family   splits on projections of this family
    mixed    features that are categories or have missing values
    numbers  numbers to predict
    random   random splits on features
    """

    family: type[Oblique | Subspace] | None = None
    mixed: bool = False
    numbers: bool = False
    random: bool = False


def compile_kernels(needs: Needs) -> tuple[CodeTree, Pool | Subsets | None]:
    """Compile, or load from the cache, the kernels of `grow`, `grow_mixed` or `grow_oblique`; returns their tree."""
    codes = Codes(
        u8=np.zeros((1, 2), np.uint8),
        u16=np.zeros((0, 2), np.uint16),
        u32=np.zeros((0, 2), np.uint32),
        place=np.array([[1, 0]], np.uint32),
    )
    value = np.arange(2)
    dictionary = Dictionary(np.arange(2), np.zeros(1))
    for array in (*codes, value, *dictionary):
        array.flags.writeable = False  # as in a store; other flags would be compiled apart
    items = np.array([1, 1 << 32 | (0 if needs.numbers else 1 << 16) | 1], np.uint64)
    target = Numbers(value) if needs.numbers else Classes(2, entropy_table())
    random = dictionary if needs.random else None
    roots = Roots.one(items.size, np.uint64(0))
    rules = Rules(mtry=1, impurity=GINI, max_depth=-1, min_split=2, min_leaf=1, redraw=True)
    with np.errstate(over="ignore"):
        if isinstance(target, Classes) and needs.family is not None:
            oblique = needs.family is Oblique
            family = smallest(codes, items.size) if oblique else smallest_subspace(codes.place.shape[0], items.size)
            return grow_oblique(codes, by_rows(codes), items, target, roots, rules, family)
        if needs.mixed:
            mixed = make_mixed(np.array([CATEGORY], np.uint8), 1, items.size, 2)
            return grow_mixed(codes, by_rows(codes), items, target, roots, rules, mixed, random)
        return grow(codes, by_rows(codes), items, target, roots, rules, random), None
