"""Bags: the rows that a tree is grown on, with multiplicities. Recomputed where they are needed, never stored.

    draws of a tree over the blocks of rows      [ 65,501 | 65,588 | ... ]        one stream for the tree
    draws of a block over its rows               [ 1 0 2 1 0 ... ]                one stream for each block

The draws of a tree are distributed over the blocks as independent draws would be: with replacement by a multinomial
distribution, without replacement by a multivariate hypergeometric distribution. So the bag of any block can be drawn
alone, and the draws of all blocks add up to exactly the size of the bag.

Stratified and balanced bags are drawn in this way for each class separately, from the number of its rows in each block.
In a stratified bag a class has the same share of the draws as of the rows. In a balanced bag (Chen, Liaw and Breiman
2004) all classes have as many draws as the smallest class with rows. With groups, groups are drawn instead of rows, and
every row follows its group.

Rows that are held out to calibrate intervals, sets and rejection are in no bag: bags are drawn from the other rows.
Whether a row is held out depends only on its number (with groups, the number of its group) and on the option
`calibration`. Forests of all seeds, and their trial trees, therefore hold out the same rows.

With boosting (boosting.py) a bag depends on the earlier trees: the caller passes the weights of the rows to
`Sampler.draw_boosted`, tree by tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import DataSpec, max_bag_weight
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.execution.process_cache import ProcessCache
from bigforest.kernels.common.rng import (
    PURPOSE_BAG,
    PURPOSE_HELD_OUT,
    PURPOSE_WEIGHT,
    draw_rows,
    stream_key,
    to_fraction,
)
from bigforest.kernels.tree.bags import draw_by_weight, draw_strata, draw_with_replacement
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store

# Most bytes of draws that a sampler keeps; the draws of one tree are always kept.
_KEPT_BYTES = 64 << 20
# Limit of numpy's multivariate_hypergeometric.
_MAX_ROWS_WITHOUT_REPLACEMENT = 10**9 - 1


class Sampler:
    """The bags of all trees of a forest.

    Keeps the draws of recent trees, up to _KEPT_BYTES, for callers that need many blocks of a few trees. Draws are not
    pickled: each process computes them again.
    """

    def __init__(self, store: Store, config: TrainConfig) -> None:
        """Read the target once, if bags are drawn class by class.

        Raises ConfigError if the store lacks the groups, or all rows are held out.
        """
        group = store.spec.group if config.group is not None else None
        if config.group is not None and (group is None or group.name != config.group):
            raise ConfigError(
                f"the store {store.path} has no groups {config.group!r}; encode the table again with them"
            )
        self.store = store
        self.config = config
        self._recent_draws: ProcessCache[NDArray[Any] | None] = ProcessCache(kept_trees(store.shape, config))
        self._boosted: tuple[int, NDArray[np.uint16]] | None = None  # the tree of the last `draw_boosted`, and its bag
        self._groups = 0 if group is None else group.groups  # number of groups to draw; 0 if rows are drawn
        self._counts = _drawable_rows(store, config)
        if not self._counts.any():
            raise ConfigError(
                f"{api('calibration')} {config.calibration} leaves no row to learn from; lower it, or train on more "
                "rows"
            )

    def __reduce__(self) -> tuple[Callable[..., Sampler], tuple[Store, TrainConfig]]:
        return _make_sampler, (self.store, self.config)

    def draw_boosted(self, tree: int, weights: NDArray[np.int64]) -> None:
        """Draw the bag of a tree grown with boosting, and keep it until the next call.

        weights  int64 [rows], positive weights of the rows
        """
        ends = np.cumsum(weights, dtype=np.uint64)
        counts = np.zeros(weights.size, np.uint16)
        draw_by_weight(counts, ends, bag_size(weights.size, self.config), _key(self.config, tree, 2))
        self._boosted = (tree, counts)

    def draws(self, tree: int) -> NDArray[Any] | None:
        """Return the draws of a tree, from which the bag of each block is computed.

        int64 [blocks, strata]  draws in each block, strata as in `_drawable_rows`
        uint16 [groups]         multiplicity of each group, with groups
        uint16 [rows]           multiplicity of each row, with boosting
        None                    without bootstrap

        With boosting, raises ConfigError unless the last bag that was drawn is the bag of this tree.
        """
        if not self.config.bootstrap:
            return None
        if self.config.boosts:
            if self._boosted is None or self._boosted[0] != tree:
                raise unknown_bags(self.config)
            return self._boosted[1]
        if self._groups:
            return self._group_bag(tree)
        return _spread_draws(self._counts, tree, self.config)

    def _group_bag(self, tree: int) -> NDArray[np.uint16]:
        """Return how often each group is in the bag, uint16 [groups]."""
        if self.config.calibration is None:
            return uniform_bag(self._groups, tree, self.config)
        drawable = np.flatnonzero(~are_held_out(np.arange(self._groups, dtype=np.uint64), self.config.calibration))
        counts = np.zeros(self._groups, np.uint16)
        counts[drawable] = uniform_bag(drawable.size, tree, self.config)
        return counts

    def block(self, tree: int, block: int) -> NDArray[np.uint16]:
        """Return how often each row of the block is in the bag of the tree, uint16 [rows of the block]."""
        return self._bag_in_block(tree, block, self._recent_draws.get(tree, partial(self.draws, tree)))

    def bag(self, tree: int) -> NDArray[np.uint16]:
        """Return how often each row is in the bag of the tree, uint16 [rows]."""
        draws = self.draws(tree)
        return np.concatenate([self._bag_in_block(tree, block, draws) for block in range(block_count(self.store.rows))])

    def _bag_in_block(self, tree: int, block: int, draws: NDArray[Any] | None) -> NDArray[np.uint16]:
        """Return the result of `block`; draws: the result of `draws` for this tree."""
        span = block_span(self.store.rows, block)
        if draws is None:
            return np.ones(len(span), np.uint16)
        if self.config.boosts:
            return draws[span.start : span.stop]
        if self._groups:
            return draws[self.store.groups_of(span.start, span.stop)]
        held = held_out_of(self.store, self.config, span.start, span.stop)
        if held is None:
            return self._draw_rows(tree, block, draws, slice(None))
        counts = np.zeros(held.size, np.uint16)
        counts[~held] = self._draw_rows(tree, block, draws, ~held)
        return counts

    def _draw_rows(self, tree: int, block: int, draws: NDArray[Any], drawable: Any) -> NDArray[np.uint16]:
        """Draw how often each drawable row of a block is in the bag of a tree, uint16 [drawable rows].

        draws     result of `draws`, int64 [blocks, strata]
        drawable  mask of the drawable rows of the block, or slice(None) for all
        """
        if not self.config.draws_by_class:
            return _draw_uniformly(int(self._counts[block, 0]), tree, block, self.config, int(draws[block, 0]))
        span = block_span(self.store.rows, block)
        target = self.store.labels(span.start, span.stop)[drawable]
        return _draw_by_class(target, tree, block, self.config, draws[block])

    def search_weights(self, tree: int, first: int, multiplicity: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return the weight of each row of a bag in the search for splits, uint16 [rows].

        first         number of the first row
        multiplicity  uint16 [rows], how often each row is in the bag

        This is the weight of the row in the table times its multiplicity, 0 for rows that are not in the bag. Wide
        weights are divided by WeightSpec.search. Their products are rounded up or down at random, so that the expected
        value is exact, and then clipped to the range from 1 to 65,535. Products of other weights are exact; a DataError
        is raised if such a product exceeds 65,535.
        """
        spec, most = self.store.spec.weight, np.iinfo(np.uint16).max
        if spec is None:
            return multiplicity
        weight = self.store.weights_of(first, first + multiplicity.size)
        if not spec.wide:
            total = multiplicity.astype(np.uint32) * weight
            heaviest = int(total.argmax())
            if total[heaviest] > most:
                raise DataError(
                    f"a row is in a bag {counted(int(multiplicity[heaviest]), 'time')} and weighs {total[heaviest]} "
                    f"there, more than the possible {most}: lower {api('sample_fraction')}"
                )
            return total.astype(np.uint16)
        rounded = np.zeros(multiplicity.size, np.uint16)
        drawn = np.flatnonzero(multiplicity)
        key = stream_key(self.config.seed, PURPOSE_WEIGHT, tree, 0)
        random = draw_rows(key, (drawn + first).astype(np.uint64))
        exact = multiplicity[drawn] * (weight[drawn] / spec.search)
        rounded[drawn] = np.floor(exact + to_fraction(random)).clip(1.0, most)
        return rounded

    def block_search_weights(self, tree: int, block: int) -> NDArray[np.uint16]:
        """Return `search_weights` of a block in the bag of a tree, uint16 [rows of the block]."""
        return self.search_weights(tree, block * BLOCK_ROWS, self.block(tree, block))


def _drawable_rows(store: Store, config: TrainConfig) -> NDArray[np.int64]:
    """Count the rows of each block that are not held out, int64 [blocks, strata].

    A stratum is a class if bags are drawn by class; otherwise there is one stratum of all rows.
    """
    by_class = config.draws_by_class
    strata = len(store.spec.target.classes) if by_class else 1
    counts = []
    for block in range(block_count(store.rows)):
        span = block_span(store.rows, block)
        held = held_out_of(store, config, span.start, span.stop)
        drawable = slice(None) if held is None else ~held
        stratum = store.labels(span.start, span.stop) if by_class else np.zeros(len(span), np.uint8)
        counts.append(np.bincount(stratum[drawable], minlength=strata))
    return np.array(counts, np.int64)


def left_out_share(store: Store, config: TrainConfig) -> float:
    """Return the expected share of the rows that are out of the bag of a tree, for bags drawn without boosting.

    Reads the target if bags are drawn by class.
    """
    rows = _drawable_rows(store, config).sum(axis=0)
    if not rows.any():
        return 1.0
    chance = stratum_draws(rows, config) / np.maximum(rows, 1)  # mean number of draws of a row
    in_bag = rows * (-np.expm1(-chance) if config.replace else chance)
    return 1.0 - float(in_bag.sum()) / store.rows


def held_out_of(store: Store, config: TrainConfig, start: int, stop: int) -> NDArray[np.bool_] | None:
    """Return a mask of the held-out rows from `start` to before `stop`, bool [rows]; None without `calibration`."""
    if config.calibration is None:
        return None
    whole_groups = config.group is not None and store.spec.group is not None
    held = np.empty(stop - start, np.bool_)
    for first in range(start, stop, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, stop)
        numbers = store.groups_of(first, last) if whole_groups else np.arange(first, last)
        held[first - start : last - start] = are_held_out(numbers.astype(np.uint64), config.calibration)
    return held


def are_held_out(numbers: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Return a mask of the rows, or groups, with these numbers that are held out, each with probability `share`."""
    held: NDArray[np.bool_] = to_fraction(draw_rows(stream_key(0, PURPOSE_HELD_OUT, 0, 0), numbers)) < share
    return held


def unknown_bags(config: TrainConfig) -> ConfigError:
    """Return the error for the bags of a forest grown with boosting, which are not known afterwards."""
    return ConfigError(
        f"the bags of a forest grown with sampling {config.sampling!r} depend on the errors of its trees, so "
        "they are known only while it grows; train with another sampling"
    )


_samplers: ProcessCache[Sampler] = ProcessCache(1)


def _make_sampler(store: Store, config: TrainConfig) -> Sampler:
    """Return the sampler that all tasks of a forest in this process share."""
    return _samplers.get((store, config), lambda: Sampler(store, config))


def _spread_draws(counts: NDArray[np.int64], tree: int, config: TrainConfig) -> NDArray[np.int64]:
    """Distribute the draws of a tree's bag over the blocks at random, int64 [blocks, strata].

    counts  int64 [blocks, strata], rows of each stratum in each block

    The draws of a stratum over all blocks sum to `stratum_draws`. Without replacement, raises DataError if a
    stratum has more rows than numpy supports.
    """
    rows = counts.sum(axis=0)
    sums = stratum_draws(rows, config)
    if not config.replace and rows.max() > _MAX_ROWS_WITHOUT_REPLACEMENT:
        raise DataError(
            f"bags are drawn without replacement from {rows.max()} rows, and at most {_MAX_ROWS_WITHOUT_REPLACEMENT} "
            f"are possible: set {api('replace')} to true"
        )
    if len(counts) == 1:  # without a draw: making a stream would take longer than the rest of a small bag
        return sums[None]
    key = np.array([_key(config, tree, 0), _key(config, tree, 1)], dtype=np.uint64)
    random = np.random.Generator(np.random.Philox(key=key))
    draws = np.zeros_like(counts)
    for stratum in np.flatnonzero(sums):
        if config.replace:
            draws[:, stratum] = random.multinomial(sums[stratum], counts[:, stratum] / rows[stratum])
        else:
            draws[:, stratum] = random.multivariate_hypergeometric(counts[:, stratum], sums[stratum])
    return draws


def _draw_uniformly(size: int, tree: int, block: int, config: TrainConfig, draws: int) -> NDArray[np.uint16]:
    """Make `draws` draws among `size` drawable rows of a block. Return how often each was drawn, uint16 [size]."""
    if not config.replace:  # all rows in one class
        return _draw_by_class(np.zeros(size, np.uint16), tree, block, config, np.array([draws]))
    counts = np.zeros(size, np.uint16)
    draw_with_replacement(counts, draws, _key(config, tree, 2 + block))
    return counts


def _draw_by_class(
    classes: NDArray[np.uint16], tree: int, block: int, config: TrainConfig, draws: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Draw how often each drawable row of a block is in the bag, uint16 [drawable rows].

    classes  uint16 [drawable rows], class of each of these rows
    draws    int64 [classes], draws from each class
    """
    counts, order = np.zeros(classes.size, np.uint16), np.empty(classes.size, np.uint16)
    ends = np.empty(draws.size, np.uint32)
    draw_strata(counts, read_only(classes), ends, order, draws, config.replace, _key(config, tree, 2 + block))
    return counts


def uniform_bag(rows: int, tree: int, config: TrainConfig) -> NDArray[np.uint16]:
    """Draw the bag of a tree among rows, or groups, that all have the same chance, uint16 [rows]."""
    sizes = [len(block_span(rows, block)) for block in range(block_count(rows))]
    draws = _spread_draws(np.array(sizes, np.int64)[:, None], tree, config)[:, 0].tolist()
    counts = [_draw_uniformly(size, tree, block, config, draws[block]) for block, size in enumerate(sizes)]
    return np.concatenate(counts)


def _key(config: TrainConfig, tree: int, stream: int) -> np.uint64:
    """Return the key of a stream of random numbers of a tree.

    Streams 0 and 1 distribute the draws over the blocks. Stream 2 + block draws the rows of a block. With boosting,
    stream 2 draws the whole bag.
    """
    return stream_key(config.seed, PURPOSE_BAG, tree, stream)


def stratum_draws(rows: NDArray[np.int64], config: TrainConfig) -> NDArray[np.int64]:
    """Return the number of draws of a bag from each stratum, int64 [strata], at least 1 from a stratum with rows.

    rows  int64 [strata], rows of each stratum
    """
    share = np.full_like(rows, rows[rows > 0].min()) if config.sampling == "balanced" else rows
    return np.where(rows > 0, np.maximum(1, (config.sample_fraction * share + 0.5).astype(np.int64)), 0)


def bag_size(rows: int, config: TrainConfig) -> int:
    """Return the number of draws of a bag: `sample_fraction` of the rows, rounded half up, at least 1.

    A bag that is drawn by class has at most one more draw per class. A balanced bag may have far fewer draws.
    """
    return max(1, int(config.sample_fraction * rows + 0.5))


def distinct_rows(rows: int, config: TrainConfig, classes: int = 0) -> int:
    """Return an upper bound of the number of distinct rows of a bag.

    classes  number of classes, for bags that are drawn class by class

    Of n rows, d draws with replacement leave out about n exp(-d / n) on average, with a standard deviation of at most
    sqrt(n) / 2. The bound is 12 standard deviations above the mean, or d if d is lower. A bag that is drawn by class
    has at most one more draw per class: the number of draws of a class is rounded, and at least 1. With groups, or
    without bootstrap, the bound is the number of all rows.
    """
    if not config.bootstrap or config.group is not None:
        return rows
    draws = bag_size(rows, config)
    spare = classes if config.draws_by_class else 0
    expected = math.ceil(rows * -math.expm1(-draws / rows) + 6 * math.sqrt(rows)) if config.replace else draws
    return min(rows, min(draws, expected) + spare)


def max_nodes(rows: int, config: TrainConfig, classes: int = 0) -> int:
    """Return the most nodes of a tree: every leaf has at least one distinct row, and at least min_leaf draws.

    The option max_depth limits the nodes, too. With weights or groups, min_leaf does not: a leaf may then have fewer
    draws.
    """
    draws = bag_size(rows, config) + (classes if config.draws_by_class else 0) if config.bootstrap else rows
    leaves = distinct_rows(rows, config, classes)
    if config.group is None and not config.weighs_rows:  # groups have any size, and min_leaf counts weights
        leaves = max(1, min(leaves, draws // config.leaf_rule))
    if config.max_depth is not None and config.max_depth < leaves.bit_length():
        leaves = min(leaves, 1 << config.max_depth)
    return 2 * leaves - 1


def max_bag_rows(store: Store, config: TrainConfig) -> int:
    """Return an upper bound of the number of rows of a bag, repeats included.

    With groups of unequal sizes, the probability of a larger bag is negligible.
    """
    rows, group = store.rows, store.spec.group
    if config.group is None or group is None:
        return bag_size(rows, config) + (len(store.spec.target.classes) if config.draws_by_class else 0)
    mean = rows * bag_size(group.groups, config) / group.groups
    return math.ceil(mean + 12 * math.sqrt(mean * group.largest) + 12 * group.largest)


def check_bag(weight: int, spec: DataSpec) -> None:
    """Raise DataError if the weight of a bag is too large for the sums of kernels."""
    most = max_bag_weight(spec)
    if weight > most:
        raise DataError(f"a bag weighs {weight}, more than the possible {most}: lower {api('sample_fraction')}")


def draws_bytes(shape: Shape, config: TrainConfig) -> int:
    """Return the most bytes of the draws of one tree."""
    if config.group is not None or config.boosts:
        return 2 * shape.rows
    return 8 * block_count(shape.rows) * (shape.classes if config.draws_by_class else 1)


def kept_trees(shape: Shape, config: TrainConfig) -> int:
    """Return the number of trees whose draws a `Sampler` keeps."""
    return max(1, min(config.trees, _KEPT_BYTES // draws_bytes(shape, config)))
