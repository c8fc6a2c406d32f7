"""Scores of splits by the Poisson deviance (kernels/scan/regression.py). Oracle: tests/naive/split.py.

Half the deviance of numbers y from their mean is the sum of y log(y / mean). In a node with sum S and weight W, a split
that decreases the deviance more has a larger score

    1 + (S_l log(S_l W / (W_l S)) + S_r log(S_r W / (W_r S))) / S.

The score and its logarithm are computed by float64 additions, multiplications and divisions in a fixed order, so the
bits are the same on every machine. Mirrored splits tie, and so do splits that change no mean. Sums are counted from a
centre; `origin` is the centre minus the number that represents a target of zero.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.numbers import bits_of, float_of, larger

# The logarithm of fdlibm (Sun Microsystems 1993, e_log.c): x = 2**k (1 + f), where 1 + f >= sqrt(1 / 2), whose upper
# bits are _ROOT. log(1 + f) is a polynomial of f / (2 + f). ln 2 has two parts, the first with few bits.
_ROOT = np.int64(0x3FE6A09E << 32)
_MANTISSA_BITS, _BIAS = np.int64(52), np.int64(1023)
_TO_EXPONENT = (_BIAS << _MANTISSA_BITS) - _ROOT
_MANTISSA = (np.int64(1) << _MANTISSA_BITS) - np.int64(1)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@inlined
def logarithm(x):
    """Return the natural logarithm of float64 x > 0, accurate to the last or second last bit; a finite number for 0."""
    bits = bits_of(x) + _TO_EXPONENT
    k = np.float64((bits >> _MANTISSA_BITS) - _BIAS)
    f = float_of((bits & _MANTISSA) + _ROOT) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 1.479819860511658591e-01
    series = series * z + 1.531383769920937332e-01
    series = series * z + 1.818357216161805012e-01
    series = series * z + 2.222219843214978396e-01
    series = series * z + 2.857142874366239149e-01
    series = series * z + 3.999999999940941908e-01
    series = series * z + 6.666666666666735130e-01
    half = 0.5 * f * f
    return k * _LN2_HIGH - (half - (s * (half + series * z) + k * _LN2_LOW) - f)


@inlined
def _from_zero(sums, weight, origin):
    return np.float64(sums) + np.float64(weight) * origin


@inlined
def _part(sums, weight, all_sums, all_weight):
    """Return the term of a side in the score, times the sum of the node; both sums are counted from zero."""
    return sums * logarithm(sums * np.float64(all_weight) / (np.float64(weight) * all_sums))


@inlined
def poisson_corner(sum_l, w_l, weight, total, origin):
    """Return `poisson_score` of a corner of a bucket. A negative sum of a side counts as 0."""
    w_r, whole = weight - w_l, _from_zero(total, weight, origin)
    left = larger(_from_zero(sum_l, w_l, origin), 0.0)
    right = larger(_from_zero(total - sum_l, w_r, origin), 0.0)
    return 1.0 + (_part(left, w_l, whole, weight) + _part(right, w_r, whole, weight)) / whole


@inlined
def poisson_score(sum_l, w_l, weight, total, origin):
    """Return the score of a split with the sum of targets sum_l and the weight w_l on the left, all int64.

    total, weight  sum of the targets of the node, counted from its centre, and weight of the node

    The score is -1 if the sum of a side, counted from zero, is not above 0. Neither side is empty.
    """
    left, right = _from_zero(sum_l, w_l, origin), _from_zero(total - sum_l, weight - w_l, origin)
    score = poisson_corner(sum_l, w_l, weight, total, origin)
    return score if (left > 0.0) & (right > 0.0) else -1.0
