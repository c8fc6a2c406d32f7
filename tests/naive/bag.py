"""The bag of a tree, draw by draw in plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigforest.options.train_config import TrainConfig
from tests.naive import rng

BLOCK_ROWS = 65_536
PURPOSE_BAG = 1
PURPOSE_HELD_OUT = 8
SPREADING = (0, 1)  # streams that spread the draws over the blocks
FIRST_BLOCK = 2  # stream of block 0


def bag(rows: int, tree: int, config: TrainConfig) -> list[int]:
    """Return how often each row is drawn."""
    sizes = [min(BLOCK_ROWS, rows - start) for start in range(0, rows, BLOCK_ROWS)]
    if not config.bootstrap:
        return [1] * rows
    wanted = rows if config.sample_fraction == 1.0 else max(1, int(config.sample_fraction * rows + 0.5))
    key = [rng.stream_key(config.seed, PURPOSE_BAG, tree, stream) for stream in SPREADING]
    random = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
    if config.replace:
        shares = random.multinomial(wanted, [size / rows for size in sizes]).tolist()
    else:
        shares = random.multivariate_hypergeometric(sizes, wanted).tolist()
    counts: list[int] = []
    for block, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        stream = rng.stream_key(config.seed, PURPOSE_BAG, tree, FIRST_BLOCK + block)
        counts += (drawn_again if config.replace else drawn_once)(size, share, stream)
    return counts


def bag_by_class(target: list[int], tree: int, config: TrainConfig) -> list[int]:
    """Return how often each row is drawn if each class is drawn separately."""
    blocks = [target[start : start + BLOCK_ROWS] for start in range(0, len(target), BLOCK_ROWS)]
    key = [rng.stream_key(config.seed, PURPOSE_BAG, tree, stream) for stream in SPREADING]
    random = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
    rows = [target.count(label) for label in range(max(target) + 1)]
    shares: list[list[int]] = []  # [class][block]
    for label, size in enumerate(rows):
        base = min(rows) if config.sampling == "balanced" else size
        wanted = max(1, int(config.sample_fraction * base + 0.5))
        sizes = [block.count(label) for block in blocks]
        if config.replace:
            shares.append(random.multinomial(wanted, [own / size for own in sizes]).tolist())
        else:
            shares.append(random.multivariate_hypergeometric(sizes, wanted).tolist())
    counts: list[int] = []
    for number, block in enumerate(blocks):
        stream = rng.stream_key(config.seed, PURPOSE_BAG, tree, FIRST_BLOCK + number)
        here = [0] * len(block)
        for label in range(len(rows)):
            places = [row for row, own in enumerate(block) if own == label]
            share = shares[label][number]
            drawn = (drawn_again if config.replace else drawn_once)(len(places), share, stream)
            for place, count in zip(places, drawn, strict=True):
                here[place] = count
            stream += (share if config.replace else len(places)) * rng.GOLDEN
        counts += here
    return counts


def drawn_again(rows: int, draws: int, key: int) -> list[int]:
    """Return how often each row is drawn with replacement."""
    counts = [0] * rows
    for draw in range(1, draws + 1):
        counts[uniform(key, draw, rows)] += 1
    return counts


def drawn_once(rows: int, draws: int, key: int) -> list[int]:
    """Return 1 for each row that is drawn without replacement. All subsets are equally likely."""
    counts = [0] * rows
    for row in range(rows):
        if uniform(key, row + 1, rows - row) < draws:
            counts[row] = 1
            draws -= 1
    return counts


def uniform(key: int, draw: int, bound: int) -> int:
    """Draw number `draw` of a stream, from 0 to bound - 1, by the upper 48 bits."""
    return (rng.mix((key + draw * rng.GOLDEN) & rng.MASK) >> 16) * bound >> 48


def bag_of(target: list[int], tree: int, config: TrainConfig) -> list[int]:
    """Return how often each row is drawn, by class or not. With held-out rows there must be a single block."""
    if config.calibration is not None:
        assert len(target) <= BLOCK_ROWS
        others = [row for row in range(len(target)) if not is_held_out(row, config.calibration)]
        drawn = bag_of([target[row] for row in others], tree, replace(config, calibration=None))
        counts = dict(zip(others, drawn, strict=True))
        return [counts.get(row, 0) for row in range(len(target))]
    return bag(len(target), tree, config) if config.sampling == "uniform" else bag_by_class(target, tree, config)


def is_held_out(number: int, share: float) -> bool:
    """Return True if the row, or group, of this number is in no bag."""
    key = rng.stream_key(0, PURPOSE_HELD_OUT, 0, 0)
    return (rng.mix((key + (number + 1) * rng.GOLDEN) & rng.MASK) >> 11) / 2**53 < share
