"""Link of predictions, on whose scale the boosted stage adds, and its inverse; gradients of the loss.

    loss       link of a prediction                inverse
    SQUARED    the number itself                   the number itself
    LOGISTIC   log odds of the second class        1 / (1 + exp(-score))
    SOFTMAX    log probability of each class       exp(score), divided by the sum over the classes
    POISSON    log of the number                   exp(score)

The exponential and the logarithm (common/deviance.py) are made of additions, multiplications and divisions in a fixed
order, so they have the same bits on every processor. Oracle: tests/naive/refine.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.deviance import logarithm
from bigforest.kernels.compiler.jit import inlined, kernel

SQUARED, LOGISTIC, SOFTMAX, POISSON = np.int64(0), np.int64(1), np.int64(2), np.int64(3)

# The exponential of fdlibm (Sun Microsystems 1993, e_exp.c): exp(x) is 2**k exp(r) with r within half of ln 2, which
# is in two parts, the first with few bits.
_PER_LN2 = 1.44269504088896338700e00
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_MANTISSA_BITS, _BIAS = np.int64(52), np.int64(1023)
# Scores beyond it are as good as infinite.
_MOST = 700.0


@inlined
def exponential(x):
    """Return e to the power of a float64, right to the last bit or the one before; of numbers beyond 700 as of 700."""
    x = min(max(x, -_MOST), _MOST)
    k = np.int64(x * _PER_LN2 + (0.5 if x >= 0.0 else -0.5))
    high = x - np.float64(k) * _LN2_HIGH
    low = np.float64(k) * _LN2_LOW
    r = high - low
    t = r * r
    series = 4.13813679705723846039e-08
    series = series * t - 1.65339022054652515390e-06
    series = series * t + 6.61375632143793436117e-05
    series = series * t - 2.77777777770155933842e-03
    series = series * t + 1.66666666666666019037e-01
    c = r - t * series
    found = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    return found * np.int64((k + _BIAS) << _MANTISSA_BITS).view(np.float64)


@inlined
def put_means(loss, scores):
    """Replace the scores of a row, float64 [outputs], by its prediction: log odds by the probability of each."""
    if loss == SQUARED:
        return
    most, total = 0.0, 0.0
    if loss == SOFTMAX:
        most = scores[np.uint64(0)]
        for k in range(np.uint64(1), np.uint64(scores.size)):
            most = max(most, scores[np.uint64(k)])
    for k in range(np.uint64(scores.size)):
        own = scores[np.uint64(k)] - most
        power = exponential(-own if loss == LOGISTIC else own)
        total += power
        scores[np.uint64(k)] = 1.0 / (1.0 + power) if loss == LOGISTIC else power
    if loss == SOFTMAX:
        for k in range(np.uint64(scores.size)):
            scores[np.uint64(k)] /= total


@kernel
def link(loss, predictions, least, scores):
    """Put the link of predictions into scores.

    predictions  float64 [rows, classes], or [rows, 1] of numbers
    least        float64: smaller probabilities and, with POISSON, smaller numbers count as it
    scores       float64 [rows, outputs], out: an output for each class, but one of two classes, and of numbers

    Cost: some ns for each prediction.
    """
    for i in range(np.uint64(predictions.shape[0])):
        row = np.uint64(i)
        if loss == SQUARED:
            scores[row, 0] = predictions[row, 0]
        elif loss == LOGISTIC:
            scores[row, 0] = logarithm(max(predictions[row, 1], least)) - logarithm(max(predictions[row, 0], least))
        else:
            for k in range(np.uint64(scores.shape[1])):
                scores[row, np.uint64(k)] = logarithm(max(predictions[row, np.uint64(k)], least))


@kernel
def inverse_link(loss, scores, predictions):
    """Put the predictions of scores into `predictions`; see `link`."""
    for i in range(np.uint64(predictions.shape[0])):
        row = np.uint64(i)
        for k in range(np.uint64(scores.shape[1])):
            predictions[row, np.uint64(k)] = scores[row, np.uint64(k)]
        if loss == LOGISTIC:
            predictions[row, 0], predictions[row, 1] = -scores[row, 0], scores[row, 0]
        put_means(loss, predictions[row])
