"""Scores of the splits of few rows, by comparing all pairs of rows, sixteen pairs at a time.

The cost is quadratic, but sixteen pairs take a few instructions, and no branch depends on the data. For few rows this
is faster than sorting. The plain-Python bodies are the oracle of the compiled versions.

Scores are float32. Only splits whose score is at least the highest score * (1 - SCORE_ERROR) need an exact comparison.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import FLOATS, LANES, VECTOR, Lanes, emits

# Most rows that are compared by pairs: the cost is quadratic.
PAIRS = 128
# Nodes below this weight are scored in float32: products of two weights have at most 30 bits.
SCORED_WEIGHT = 1 << 15
# Bound of the relative error of comparing two float32 scores; proof in edges.py.
SCORE_ERROR = 1e-6


def sums_up_to(code, add, n, out):
    """Set out[i], i < n, to the sum of add[j] over all j < n with code[j] <= code[i].

    code, add, out  uint32 [>= n rounded up to LANES]. The padding of code is read and the padding of out is written;
                    their values are arbitrary

    Sums wrap at 2**32. Cost: n * n / 16 steps.
    """
    for i in range(int(n)):
        out[i] = np.uint32(int(add[:n][code[:n] <= code[i]].sum()) & 0xFFFFFFFF)


@emits(sums_up_to)
def _emit_sums_up_to(lanes: Lanes, rows: Any) -> None:
    with lanes.blocks(rows) as base:
        lanes.store(_sum_up_to(lanes, base, rows), "out", base)


def _sum_up_to(lanes: Lanes, base: Any, rows: Any) -> Any:
    """Emit, for the block of `code` at `base`, the sums of `add` over the rows whose code is not larger."""
    mine = lanes.load("code", base)

    def term(index: Any) -> Any:
        below = lanes.builder.icmp_unsigned("<=", lanes.spread("code", index), mine)
        return lanes.where(below, lanes.spread("add", index))

    return lanes.sum(rows, term)


def score_pairs_two(code, add, n, before, ones, weight, min_leaf, out, score):
    """Set `out` as `sums_up_to` does, and score[i] to the score d**2 / (w_l w_r) of the split after code[i], see
    kernels/scan/two_class.py.

    add     weights of the rows, shifted by 16 bits for class 1
    before  uint32, sum of the weights of the rows of the node with smaller codes; added to `out`
    ones    weight of class 1 in the node
    weight  weight of the node, below SCORED_WEIGHT
    score   float32, as long as out: -1 if a side weighs less than min_leaf >= 1

    Return the highest score, float64.
    """
    sums_up_to(code, add, n, out)
    out[: int(n)] += before
    for i in range(int(n)):
        ones_l = int(out[i]) >> 16
        w_l = ones_l + (int(out[i]) & 0xFFFF)
        w_r = int(weight) - w_l
        d = ones_l * int(weight) - int(ones) * w_l
        score[i] = d * d / (w_l * w_r) if min(w_l, w_r) >= int(min_leaf) else -1.0
    return float(score[: int(n)].max())


class TwoClassScores:
    """Emitter of the scores of splits of two classes. It keeps the highest score.

    ones, weight, min_leaf  arguments of `score_pairs_two`, as vectors of 32-bit integers
    """

    def __init__(self, lanes: Lanes, ones: Any, weight: Any, min_leaf: Any) -> None:
        self._lanes = lanes
        self.ones, self.weight, self.min_leaf = (lanes.splat(number) for number in (ones, weight, min_leaf))
        self._best = cgutils.alloca_once_value(lanes.builder, ir.Constant(FLOATS, [-1.0] * LANES))

    def sides(self, left: Any) -> tuple[Any, Any, Any]:
        """Emit d**2 and w_l w_r, float32, and a mask of the splits whose sides both weigh enough.

        left  weights on the left, as `out` of score_pairs_two
        """
        lanes, builder = self._lanes, self._lanes.builder
        ones_l = builder.lshr(left, ir.Constant(VECTOR, [16] * LANES))
        w_l = builder.add(ones_l, builder.and_(left, ir.Constant(VECTOR, [0xFFFF] * LANES)))
        w_r = builder.sub(self.weight, w_l)
        d = lanes.real(builder.sub(builder.mul(ones_l, self.weight), builder.mul(self.ones, w_l)))
        enough = (builder.icmp_signed(">=", side, self.min_leaf) for side in (w_l, w_r))
        return builder.fmul(d, d), lanes.real(builder.mul(w_l, w_r)), builder.and_(*enough)

    def store(self, left: Any, base: Any, rows: Any) -> None:
        """Write the scores of the block at `base`, of `rows` rows in all, to the array `score`."""
        lanes, builder = self._lanes, self._lanes.builder
        square, room, enough = self.sides(left)
        scores = lanes.masked(builder.fdiv(square, room), builder.and_(enough, lanes.inside(base, rows)))
        lanes.store(scores, "score", base)
        builder.store(lanes.larger(scores, builder.load(self._best)), self._best)

    def highest(self) -> Any:
        """Emit the highest score that was stored."""
        return self._lanes.highest(self._lanes.builder.load(self._best))


@emits(score_pairs_two, types.float64, before=types.uint32)
def _emit_score_pairs_two(lanes: Lanes, rows: Any, before: Any, ones: Any, weight: Any, min_leaf: Any) -> Any:
    before = lanes.splat(before)
    scores = TwoClassScores(lanes, ones, weight, min_leaf)
    with lanes.blocks(rows) as base:
        left = lanes.builder.add(_sum_up_to(lanes, base, rows), before)
        lanes.store(left, "out", base)
        scores.store(left, base, rows)
    return scores.highest()
