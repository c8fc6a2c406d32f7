"""Predictions with the boosted stage, which adds its values on the scale of a link.

    loss       link                                 prediction with the stage
    SQUARED    the number itself                    number + added
    LOGISTIC   log odds of the second class         odds * exp(added), as a probability
    SOFTMAX    log probability of each class        probability * exp(added), divided by the sum over the classes
    POISSON    log of the number                    number * exp(added)

No logarithm is needed: exp(log(p) + added) is p * exp(added). The exponential is made of additions, multiplications and
divisions in a fixed order, so it has the same bits on every processor. Its steps have no branch and no change of type,
so the compiler makes vector instructions of the loop over all scores. Oracle: tests/naive/refine.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import bits_of, float_of, larger, smaller

SQUARED, LOGISTIC, SOFTMAX, POISSON = np.int64(0), np.int64(1), np.int64(2), np.int64(3)

# The exponential of fdlibm (Sun Microsystems 1993, e_exp.c): exp(x) is 2**k exp(r), where r is at most half of ln 2 in
# size. ln 2 is the sum of two constants, the first with few bits.
_PER_LN2 = 1.44269504088896338700e00
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_MANTISSA_BITS = np.int64(52)
# A number plus _ROUND has the nearest whole number in its last bits.
_ROUND = 1.5 * 2.0**52
# Larger arguments of the exponential count as _MOST, and larger predictions as _LARGEST.
_MOST, _LARGEST = 700.0, 1e304


@inlined
def exponential(x):
    """Return e**x of a float64, accurate to the last or second last bit; x is limited to -700..700."""
    x = smaller(larger(x, -_MOST), _MOST)
    rounded = x * _PER_LN2 + _ROUND
    k = rounded - _ROUND
    high = x - k * _LN2_HIGH
    low = k * _LN2_LOW
    r = high - low
    t = r * r
    series = 4.13813679705723846039e-08
    series = series * t - 1.65339022054652515390e-06
    series = series * t + 6.61375632143793436117e-05
    series = series * t - 2.77777777770155933842e-03
    series = series * t + 1.66666666666666019037e-01
    c = r - t * series
    found = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    return float_of(bits_of(found) + (bits_of(rounded) << _MANTISSA_BITS))


@kernel
def correct(loss, start, means):
    """Replace the sums that the stage adds to rows by the predictions with the stage.

    start  float64 [rows, outputs], predictions without the stage: numbers (SQUARED, POISSON), odds (LOGISTIC) or
           probabilities (SOFTMAX)
    means  float64 [rows, outputs], C order, mutated: sums of the stage, then predictions with the stage

    Cost: about 2 ns for each output of a row.
    """
    rows, outputs = np.uint64(means.shape[0]), np.uint64(means.shape[1])
    before, flat = start.reshape(start.size), means.reshape(means.size)
    size = np.uint64(flat.size)
    if loss == SQUARED:
        for i in range(size):
            flat[i] += before[i]
        return
    if loss == SOFTMAX:  # subtract the largest sum, so its exponential is 1
        for row in range(rows):
            most = means[row, np.uint64(0)]
            for k in range(np.uint64(1), outputs):
                most = larger(most, means[row, k])
            for k in range(outputs):
                means[row, k] -= most
    for i in range(size):
        flat[i] = smaller(before[i] * exponential(flat[i]), _LARGEST)
    if loss == LOGISTIC:
        for i in range(size):
            flat[i] /= 1.0 + flat[i]
    if loss == SOFTMAX:
        for row in range(rows):
            total = 0.0
            for k in range(outputs):
                total += means[row, k]
            for k in range(outputs):
                means[row, k] /= total
