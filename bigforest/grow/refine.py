"""Grow the boosted stage (forest/refinement.py): sequences of trees, each tree fitted to the errors of those before it.

Each row is left out of LEFT_OUT of the SEQUENCES, which evaluate it. They are drawn by the number of the row or, with
groups, by the number of its group. A sequence is a task:

1. Read the codes of the rows of the sequence.
2. Put the codes of each feature into bins with about equally many rows. A threshold is the midpoint of the neighbouring
   values of these rows, as in the trees of the forest. Each level of a category is a bin. If there are too many levels,
   the rarest ones share the last bin, and nodes do not list them.
3. Grow the trees (kernels/refine/grow.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import FeatureSpec
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.refinement import LEFT_OUT, SEQUENCES, outputs_of
from bigforest.kernels.common.layout import LEAF, LevelLists
from bigforest.kernels.common.midpoint import midpoints
from bigforest.kernels.common.rng import draw_rows, stream_key, to_fraction
from bigforest.kernels.refine.grow import (
    BINS,
    GAPS,
    LEVELS,
    MAX_COUNTS,
    NUMBERS,
    POOLED,
    PURPOSE_REFINE,
    SequenceRows,
    StageNodes,
    StageRules,
    grow_rounds,
    words_of_bin,
)
from bigforest.kernels.refine.link import SQUARED
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import are_held_out
from bigforest.store.store import Store

# Values of StageRules, chosen on the sets of benchmarks/refine.md. The mean over the sequences allows a high rate, and
# therefore few rounds.
RATE = 0.5
LEAVES = 15
LEAST_ROWS = 10
PENALTY = 1.0
SMOOTH = 10.0
# Share of the features that a tree with several outputs draws, because its sums take longer. A tree with one output
# uses all.
_SHARE_OF_SEVERAL = 0.4
# Most bins of a numeric feature, including the bin of missing values: one for each _BIN_ROWS rows, but not fewer than
# _LEAST_BINS, and less than BINS.
_BIN_ROWS, _LEAST_BINS = 128, 32
# Most rows, scores and cells of the sample of a large table.
_MAX_ROWS, _MAX_SCORES, _MAX_CELLS = 1 << 18, 1 << 20, 1 << 27
# Rows of the table that are read at a time. Rows of each code are counted if a feature is a category, or has at most
# COUNTED codes for each row of the sequence; with more codes, sorting the codes of the rows is as fast.
READ_ROWS, COUNTED = 1 << 20, 4
# Streams of random numbers: for each row the sequences that leave it out, and whether the stage uses it; for each
# sequence the features that its trees draw.
_BAGS, _SAMPLE, _FEATURES = 0, 1, 2

# Sequences that leave out a row, bool [SEQUENCES, possible choices of LEFT_OUT sequences].
_PAIRS = np.array(
    [[sequence in out for out in combinations(range(SEQUENCES), LEFT_OUT)] for sequence in range(SEQUENCES)]
)


class StageSample(NamedTuple):
    """Rows of the table that the stage uses.

    rows   int64 [rows], ascending
    start  float64 [rows, outputs], `Link.start` of their out-of-bag predictions
    loss   one of the losses of kernels/refine/link.py
    """

    rows: NDArray[np.int64]
    start: NDArray[np.float64]
    loss: np.int64


class Bins(NamedTuple):
    """The bins of a feature.

    kind   one of NUMBERS, GAPS, LEVELS and POOLED
    of     uint8 [codes], bin of each code that was counted
    cuts   float64 [bins], threshold above each bin, for numbers; infinite for the last bin and for missing values
    codes  uint32 [bins], code of each bin, for categories; 0 for a bin that several levels share
    """

    kind: np.uint8
    of: NDArray[np.uint8]
    cuts: NDArray[np.float64]
    codes: NDArray[np.uint32]


def in_bags(store: Store, config: TrainConfig, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the sequences that may use each row, bool [SEQUENCES, rows]."""
    pair = (row_random(store, config, rows, _BAGS) >> np.uint64(32)) * np.uint64(_PAIRS.shape[1]) >> np.uint64(32)
    return ~_PAIRS[:, pair.astype(np.int64)]


def sample_share(rows: int, features: int, outputs: int) -> float:
    """Return the share of the rows of a table that the stage uses; 1 for a small table."""
    return min(1.0, min(_MAX_ROWS, _MAX_SCORES // outputs, _MAX_CELLS // features) / rows)


def in_sample(store: Store, config: TrainConfig, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the rows that the stage uses."""
    share = sample_share(store.rows, len(store.spec.features), outputs_of(store.spec))
    sampled: NDArray[np.bool_] = to_fraction(row_random(store, config, rows, _SAMPLE)) < share
    return sampled


def stage_bags(store: Store, config: TrainConfig, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the sequences that used each row, bool [SEQUENCES, rows]."""
    used = in_bags(store, config, rows)
    used &= in_sample(store, config, rows)
    if config.calibration is not None and rows.size:
        used &= ~held_out_rows(store, config, rows)
    return used


def held_out_rows(store: Store, config: TrainConfig, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the held-out rows among ascending row numbers; config.calibration must be set."""
    assert config.calibration is not None
    return are_held_out(_drawn_numbers(store, config, rows), config.calibration)


def _read_rows(read: Callable[[int, int], NDArray[Any]], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Read the values of some rows.

    read  function of (first row, end) that reads the values of a range of rows
    rows  ascending, at least one

    A range has at most READ_ROWS rows, so the memory does not depend on the number of rows.
    """
    pieces = []
    for start in range(int(rows[0]), int(rows[-1]) + 1, READ_ROWS):
        stop = min(start + READ_ROWS, int(rows[-1]) + 1)
        begin, end = np.searchsorted(rows, (start, stop))
        if begin < end:
            pieces.append(read(start, stop)[rows[begin:end] - start])
    return np.concatenate(pieces)


def row_random(store: Store, config: TrainConfig, rows: NDArray[np.int64], stream: int) -> NDArray[np.uint64]:
    """Return a random number for each row; with groups, the same number for all rows of a group."""
    return draw_rows(stream_key(config.seed, PURPOSE_REFINE, stream, 0), _drawn_numbers(store, config, rows))


def _drawn_numbers(store: Store, config: TrainConfig, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the numbers of some ascending rows or, if groups are drawn, the numbers of their groups."""
    if config.group is None or store.spec.group is None or not rows.size:
        return rows.astype(np.uint64)
    return _read_rows(store.groups_of, rows).astype(np.uint64)


def row_truth(store: Store, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the targets of some ascending rows, or the numbers of their classes."""
    return _read_rows(store.labels if store.spec.target.classes else store.numbers, rows).astype(np.float64)


def unit_weights(store: Store, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights of some ascending rows, with a mean of 1 over the table."""
    if store.spec.weight is None:
        return np.ones(rows.size)
    return _read_rows(store.weights_of, rows) * store.spec.weight_unit


def grow_sequence(store: Store, config: TrainConfig, sample: StageSample, rounds: int, sequence: int) -> TreeArrays:
    """Task: grow the trees of a sequence, one for each round."""
    used = in_bags(store, config, sample.rows)[sequence]
    rows, start = sample.rows[used], sample.start[used]
    truth = row_truth(store, rows)
    size, outputs = start.shape
    features = len(store.spec.features)
    columns = np.empty((features, size), np.uint8)
    bins = [_bin(store, feature, rows, columns[feature]) for feature in range(features)]
    unit = 1.0
    if sample.loss == SQUARED:  # so that no square overflows
        unit = 2.0 ** np.frexp(np.abs(truth - start[:, 0]).max())[1]
        truth, start = truth / unit, start / unit
    sequence_rows = SequenceRows(
        columns,
        np.array([each.kind for each in bins], np.uint8),
        np.array([each.cuts.size for each in bins], np.int32),
        truth,
        unit_weights(store, rows),
        start,
        np.zeros((size, outputs)),
    )
    key = stream_key(config.seed, PURPOSE_REFINE, _FEATURES, sequence)
    rules = StageRules(sample.loss, RATE, LEAVES, LEAST_ROWS, PENALTY, SMOOTH)
    nodes = grow_rounds(sequence_rows, rules, _features_per_tree(features, outputs), key, rounds)
    nodes = nodes._replace(value=nodes.value * unit)
    with np.errstate(over="ignore"):
        return _with_values(nodes, bins, min(unit, 2.0**500))


def _bin(store: Store, feature: int, rows: NDArray[np.int64], column: NDArray[np.uint8]) -> Bins:
    """Return the bins of a feature. Set `column`, uint8 [rows], to the bin of each row."""
    spec = store.spec.features[feature]
    codes = store.feature_codes(feature)[rows]
    if spec.splits_on_levels or spec.codes <= COUNTED * codes.size:
        present, place, counts = np.arange(spec.codes), codes, np.bincount(codes, minlength=spec.codes)
    else:  # counts of all codes may not fit in memory
        present, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    bins = _level_bins(spec, counts) if spec.splits_on_levels else _number_bins(store, feature, present, counts)
    column[:] = bins.of[place]
    return bins


def _level_bins(spec: FeatureSpec, counts: NDArray[np.int64]) -> Bins:
    """Return the bins of a category; counts: rows of each code."""
    if spec.codes <= BINS:
        codes, of, kind = np.arange(spec.codes), np.arange(spec.codes), LEVELS
    else:
        codes = np.sort(np.argsort(-counts, kind="stable")[: BINS - 1])
        of, kind = np.full(spec.codes, BINS - 1), POOLED
        of[codes] = np.arange(BINS - 1)
        codes = np.append(codes, 0)  # the last bin is never listed
    return Bins(kind, of.astype(np.uint8), np.full(codes.size, np.inf), codes.astype(np.uint32))


def _features_per_tree(features: int, outputs: int) -> int:
    return features if outputs == 1 else max(1, round(_SHARE_OF_SEVERAL * features))


def _most_bins(rows: int) -> int:
    return min(BINS - 1, max(_LEAST_BINS, rows // _BIN_ROWS))


def node_counts(rows: int, features: int, outputs: int) -> int:
    """Return the approximate number of counts and sums of a node, over all bins.

    rows  rows of the table that the stage uses
    """
    return _features_per_tree(features, outputs) * (_most_bins(rows) + 1) * (1 + outputs)


def most_counts(features: int, outputs: int) -> int:
    """Return the most counts and sums in memory while a tree grows: of all leaves, or of one if these are too many."""
    node = _features_per_tree(features, outputs) * BINS * words_of_bin(outputs)
    return min(LEAVES * node, max(node, MAX_COUNTS))


def _number_bins(store: Store, feature: int, codes: NDArray[Any], counts: NDArray[np.int64]) -> Bins:
    """Return the bins of a feature with values.

    codes   ascending; other codes have no rows
    counts  int64 [codes], rows of each code
    """
    spec, low, high = store.spec.features[feature], store.low(feature)[codes], store.high(feature)[codes]
    gaps = int(spec.has_gaps)
    missing = codes < gaps
    present = np.flatnonzero((counts > 0) & ~missing)
    if spec.fill is not None:  # values of missing cells and of levels are not in the order of codes
        present = present[np.argsort(low[present], kind="stable")]
    total = np.cumsum(counts[present])
    if spec.fill is not None:  # levels may have equal values
        ends = np.flatnonzero(np.append(high[present[:-1]] < low[present[1:]], np.ones(min(present.size, 1), np.bool_)))
        present, total = present[ends], total[ends]
    rows = int(total[-1]) if total.size else 0
    most = _most_bins(rows) - gaps
    if present.size > most:
        place = (total - 1) * most // rows
        last = np.flatnonzero(np.diff(place))
    else:
        last = np.arange(present.size - 1)
    cuts = midpoints(high[present[last]], low[present[last + 1]])
    of = np.searchsorted(cuts, low, side="left") + gaps
    of[missing] = 0
    cuts = np.concatenate([np.full(gaps, np.inf), cuts, [np.inf]])
    return Bins(GAPS if gaps else NUMBERS, of.astype(np.uint8), cuts, np.zeros(0, np.uint32))


def _with_values(nodes: StageNodes, bins: list[Bins], unit: float) -> TreeArrays:
    """Return grown nodes with thresholds and levels instead of bins.

    unit  unit of the errors that the nodes were grown on; gains are multiplied by its square
    """
    feature, cut, size = nodes.feature, nodes.cut, nodes.feature.size
    threshold, levels = np.full(size, np.nan), None
    kinds = np.array([each.kind for each in bins])
    inner = feature != LEAF
    on_levels = inner & (kinds[feature] >= LEVELS)
    for column in np.unique(feature[inner & ~on_levels]).tolist():
        splits = np.flatnonzero(feature == column)
        threshold[splits] = bins[column].cuts[cut[splits]]
    if on_levels.any():
        places = np.flatnonzero(on_levels)
        bits = np.unpackbits(nodes.listed[places].view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        lists = [
            bins[column].codes[np.flatnonzero(listed)] for column, listed in zip(feature[places], bits, strict=True)
        ]
        length = np.zeros(size + 1, np.int64)
        length[places + 1] = [codes.size for codes in lists]
        levels = LevelLists(np.cumsum(length), np.concatenate(lists))
    return TreeArrays(
        feature,
        nodes.right,
        nodes.depth,
        threshold,
        nodes.default,
        np.where(inner, nodes.gain * unit * unit, np.nan),
        nodes.rows,
        np.zeros((size, 0), np.uint32),
        nodes.value,
        levels,
    )
