"""Which rows are in the bag of a tree, and how often. Bags are recomputed wherever they are needed, never stored.

The draws of a tree are first spread over the blocks of rows, exactly as independent draws would fall (a multinomial;
without replacement a multivariate hypergeometric), then over the rows of each block by a stream of its own. So the
bag of any block can be had alone, and every bag of n rows drawn with replacement has exactly n draws.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.kernels.draw import draw_with_replacement, draw_without_replacement
from bigforest.kernels.rng import PURPOSE_BAG, stream_key

# Rows of a block. Part of the store's format and of what a seed means: changing it changes every forest.
BLOCK_ROWS = 65_536


def bag_size(rows: int, config: TrainConfig) -> int:
    """Draws of one bag: the fraction of the rows, rounded half up, at least 1."""
    return max(1, int(config.sample_fraction * rows + 0.5))


def distinct_rows(rows: int, config: TrainConfig) -> int:
    """Rows of a bag without repeats: an upper bound that holds for all bags we shall ever see (12 standard deviations).

    Of n rows, d draws with replacement leave out n exp(-d / n) on average.
    """
    draws = bag_size(rows, config) if config.bootstrap else rows
    if not config.bootstrap or not config.replace:
        return draws
    return min(draws, math.ceil(rows * -math.expm1(-draws / rows) + 6 * math.sqrt(rows)))


def most_nodes(rows: int, config: TrainConfig) -> int:
    """Nodes of a tree of the forest at most: every leaf has a row of its own, and min_leaf bag rows."""
    draws = bag_size(rows, config) if config.bootstrap else rows
    leaves = max(1, min(distinct_rows(rows, config), draws // config.min_leaf))
    if config.max_depth is not None and config.max_depth < leaves.bit_length():
        leaves = min(leaves, 1 << config.max_depth)
    return 2 * leaves - 1


def block_count(rows: int) -> int:
    """Blocks of a table; only the last may be shorter than BLOCK_ROWS."""
    return -(-rows // BLOCK_ROWS)


def block_draws(rows: int, tree: int, config: TrainConfig) -> NDArray[np.int64]:
    """Draws of the tree's bag that fall into each block, int64 [blocks]; they sum to `bag_size`."""
    sizes = np.full(block_count(rows), BLOCK_ROWS, dtype=np.int64)
    sizes[-1] = rows - BLOCK_ROWS * (sizes.size - 1)
    key = np.array([_key(config, tree, 0), _key(config, tree, 1)], dtype=np.uint64)
    random = np.random.Generator(np.random.Philox(key=key))
    if config.replace:
        return random.multinomial(bag_size(rows, config), sizes / rows)
    return random.multivariate_hypergeometric(sizes, bag_size(rows, config))


@lru_cache(maxsize=64)
def kept_draws(rows: int, tree: int, config: TrainConfig) -> NDArray[np.int64] | None:
    """`block_draws` of a tree whose bag is wanted block by block, read-only; None without bootstrap."""
    if not config.bootstrap:
        return None
    draws = block_draws(rows, tree, config)
    draws.flags.writeable = False
    return draws


def bag_block(
    rows: int, tree: int, block: int, config: TrainConfig, draws: NDArray[np.int64] | None = None
) -> NDArray[np.uint16]:
    """How often each row of the block is in the bag of the tree, uint16 [rows of the block].

    rows is the size of the whole table; `draws` is what `block_draws` gives, for callers that ask for many blocks.
    """
    size = min(BLOCK_ROWS, rows - block * BLOCK_ROWS)
    if not config.bootstrap:
        return np.ones(size, dtype=np.uint16)
    counts = np.zeros(size, dtype=np.uint16)
    here = int((block_draws(rows, tree, config) if draws is None else draws)[block])
    key = _key(config, tree, 2 + block)  # streams 0 and 1 of the tree spread the draws over the blocks
    if config.replace:
        draw_with_replacement(counts, here, key)
    else:
        draw_without_replacement(counts, here, key)
    return counts


def bag(rows: int, tree: int, config: TrainConfig) -> NDArray[np.uint16]:
    """How often each row is in the bag of the tree, uint16 [rows]."""
    draws = block_draws(rows, tree, config) if config.bootstrap else None
    return np.concatenate([bag_block(rows, tree, block, config, draws) for block in range(block_count(rows))])


def _key(config: TrainConfig, tree: int, stream: int) -> np.uint64:
    with np.errstate(over="ignore"):  # plain Python wraps too, and says so
        return np.uint64(stream_key(np.uint64(config.seed), PURPOSE_BAG, np.uint64(tree), np.uint64(stream)))
