"""Calls the tree kernel on a table in memory, with any weights and any width of codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.criteria import criterion_of
from bigforest.grow.trees import Ends, drawn_thresholds, tree_arrays
from bigforest.kernels.common.layout import CATEGORY, MISSING, NUMBER, Codes, CodeValues, RowMajorCodes
from bigforest.kernels.scan.categorical_missing import SEEN_LEFT, UNSEEN, make_categorical_missing
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Dictionaries
from tests.naive import rng
from tests.naive.random_split import drawn_threshold
from tests.naive.split import Split, Table, best_split, threshold_between
from tests.naive.tree import Node, with_min_leaf
from tests.naive.tree import grow as grow_naively
from tests.strategies import Data

WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def check_kernel(
    data: Data,
    weights: Sequence[int],
    config: TrainConfig,
    width: int = 4,
    split: Callable[..., Split | None] = best_split,
    gaps: Sequence[int] = (1,),
) -> list[Node]:
    """Assert that the kernel grows the oracle's tree on rows of these weights and codes of `width` bytes.

    Consecutive values have codes `gaps` apart, over and over, as if other rows of a larger table had those between.
    """
    table = Table(data.values, data.values, data.target.tolist(), data.classes, zero=data.zero)
    expected = grow_naively(table, weights, config, 0, split)
    dictionaries, codes = encoded(data.values, width, gaps)
    with np.errstate(over="ignore"):
        found, _ = grow(*kernel_arguments(data, weights, config, codes), None, dictionary_of(dictionaries, config))
    tree = in_values(found, dictionaries, config, data.zero)
    # The deviance is of means as float64 holds them: of targets far from their centre, with few digits after the point.
    resolution = 2.0**-50 * float(np.abs(data.target).max()) if config.impurity == "poisson" else 0.0
    for number, node in enumerate(expected):
        assert number < found.feature.size, f"{found.feature.size} nodes instead of {len(expected)}"
        got = (found.feature[number], found.depth[number], holds(found, number))
        assert got == (node.feature, node.depth, node.counts), f"node {number} is {got}, but should be {node}"
        if node.feature >= 0:
            assert tree.threshold[number] == node.threshold, f"node {number}: {tree.threshold[number]} {node}"
            assert tree.right[number] == node.right
            assert abs(tree.gain[number] - node.gain) < 1e-9 * max(1.0, node.gain) + resolution
    assert found.feature.size == len(expected)
    return expected


def check_mixed_kernel(
    data: Data,
    weights: Sequence[int],
    config: TrainConfig,
    width: int = 4,
    gaps: Sequence[int] = (1,),
) -> list[Node]:
    """`check_kernel` for tables with categories and missing values, whose code is 0."""
    least = lone(config, data.values.shape[1])
    table = Table(data.values, data.values, data.target.tolist(), data.classes, data.categories, least, data.zero)
    expected = grow_naively(table, weights, config, 0)
    dictionaries, codes = encoded(data.values, width, gaps)
    kind = np.where(np.isnan(data.values).any(axis=0), MISSING, NUMBER).astype(np.uint8)
    kind[list(data.categories)] = CATEGORY
    most = max((max(dictionaries[feature]) + 1 for feature in data.categories), default=0)
    call = kernel_arguments(data, weights, config, codes)
    mixed = make_categorical_missing(kind, np.array(least), most, call[2].size, max(data.classes, 1))
    with np.errstate(over="ignore"):
        found, subsets = grow(*call, mixed, dictionary_of(dictionaries, config))
    assert (mixed.levels.totals == 0).all()
    assert found.feature.size == len(expected) == subsets.size.size
    ends = np.cumsum(subsets.size)
    for number, node in enumerate(expected):
        got = (found.feature[number], found.depth[number], holds(found, number))
        assert got == (node.feature, node.depth, node.counts), f"node {number} is {got}, but should be {node}"
        listed = subsets.level[ends[number] - subsets.size[number] : ends[number]].tolist()
        if node.feature < 0:
            assert not listed
            continue
        values = dictionaries[node.feature]
        assert found.right[number] == node.right
        if node.levels is not None:
            assert listed == sorted(set(listed))
            assert {None if np.isnan(values[code]) else values[code] for code in listed} == node.levels
            continue
        assert not listed
        below, above = (values[side[number]] for side in (found.left_code, found.right_code))
        alone = found.right_code[number] == 0
        between = threshold_between(below, above)
        if config.splitter == "random":
            between = drawn_threshold(config, 0, number, below, above)
        assert node.threshold == (np.inf if alone else between)
        if subsets.missing[number] != UNSEEN:
            assert node.default_left == (subsets.missing[number] == SEEN_LEFT)
    return expected


def dictionary_of(dictionaries: list[dict[int, float]], config: TrainConfig) -> CodeValues | None:
    """The values of the codes, for random splits; a code that no row has has the value before it."""
    if config.splitter == "best":
        return None
    low: list[NDArray[np.float64]] = []
    for dictionary in dictionaries:
        codes = np.array(sorted(dictionary))
        before = np.searchsorted(codes, np.arange(codes[-1] + 1), side="right") - 1
        low.append(np.array([dictionary[code] for code in codes.tolist()])[before])
    found = CodeValues(np.cumsum([0, *map(len, low)]), np.concatenate(low))
    for array in found:
        array.flags.writeable = False
    return found


def lone(config: TrainConfig, features: int) -> tuple[int, ...]:
    """The least rows of a level of each feature that random splits, which take every level by itself, and others ask
    for."""
    return (1,) * features if config.splitter == "random" else config.min_levels(features)


def holds(found: CodeTree, number: int) -> list[int]:
    """What the rows of a node hold: class weights, or of numbers the weight and the sum."""
    return found.counts[number].tolist() + ([] if found.sum is None else [int(found.sum[number])])


def kernel_arguments(data: Data, weights: Sequence[int], config: TrainConfig, codes: Codes) -> tuple[Any, ...]:
    """What `grow` is called with."""
    config = with_min_leaf(config, data.classes)
    rows = np.flatnonzero(weights).astype(np.uint64)
    multiplicity = np.asarray(weights, np.uint64)[rows]
    items = rows << np.uint64(32) | multiplicity
    target: ClassTarget | RegressionTarget
    if data.numbers:
        target = RegressionTarget(data.target.copy(), data.zero if config.criterion == "poisson" else None)
        target.value.flags.writeable = False
    else:
        items |= data.target.astype(np.uint64)[rows] << np.uint64(16)
        target = ClassTarget(data.classes, criterion_of(config).table)
    rules = Rules(
        config.drawn_features(data.values.shape[1]),
        criterion_of(config).number,
        -1 if config.max_depth is None else config.max_depth,
        config.min_split,
        config.min_leaf,
        config.constants == "redraw",
        -1 if config.feature_fraction is None else max(1, int(config.feature_fraction * 2**53)),
    )
    by_row = RowMajorCodes(*(np.array(matrix.T, order="C") for matrix in codes[:3]))
    key = rng.stream_key(config.seed, rng.PURPOSE_GROW, 0, 0)
    return codes, by_row, items, target, Roots.single(items.size, key), rules


def in_values(
    found: CodeTree, dictionaries: list[dict[int, float]], config: TrainConfig, zero: float = 0.0
) -> TreeArrays:
    """The tree in values; codes are numbered through first, because those of the test have gaps."""
    left_code, right_code = found.left_code.copy(), found.right_code.copy()
    for number in np.flatnonzero(found.feature >= 0):
        codes = list(dictionaries[found.feature[number]])
        left_code[number] = codes.index(found.left_code[number])
        right_code[number] = codes.index(found.right_code[number])
    values = read_only(np.concatenate([np.array(list(dictionary.values()), float) for dictionary in dictionaries]))
    offsets = np.cumsum([0, *map(len, dictionaries)])
    nodes = found._replace(left_code=left_code, right_code=right_code)
    dictionary = Dictionaries(offsets, values, values)
    numbers = np.arange(found.feature.size, dtype=np.uint64)
    known = drawn_thresholds(Ends.of(nodes, dictionary), numbers, config.seed, 0)
    known = known if config.splitter == "random" else None
    return tree_arrays(nodes, dictionary, criterion_of(config), thresholds=known, scale=(-zero, 1.0))


def encoded(values: NDArray[np.float64], width: int, gaps: Sequence[int]) -> tuple[list[dict[int, float]], Codes]:
    """The value of every code, column by column, and the columns as codes, 0 for NaN."""
    dictionaries, columns = [], []
    for column in values.T:
        distinct, ranks = np.unique(column, return_inverse=True)
        code_of = np.cumsum(np.resize(gaps, distinct.size)) - gaps[0]
        if np.isnan(distinct[-1]):
            code_of = np.append(code_of[:-1] + 1, 0)
        assert code_of[-1] <= np.iinfo(WIDTHS[width]).max
        dictionaries.append(dict(zip(code_of.tolist(), distinct.tolist(), strict=True)))
        columns.append(code_of[ranks])
    matrices = {size: np.empty((0, len(values)), kind) for size, kind in WIDTHS.items()}
    matrices[width] = np.array(columns, WIDTHS[width])
    place = np.array([[width, slot] for slot in range(len(columns))], np.uint32)
    for array in (*matrices.values(), place):
        array.flags.writeable = False  # as in a store; other flags would be compiled apart
    return dictionaries, Codes(matrices[1], matrices[2], matrices[4], place)
