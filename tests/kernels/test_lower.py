"""Loops and arrays are compiled to what they are in Python, by our own writer of LLVM code too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bigforest.kernels.compiler.jit import kernel


def up_to(begin: Any, end: Any, out: Any) -> None:
    for number in range(end):
        out[0] += 1
        out[1] += number


def between(begin: Any, end: Any, out: Any) -> None:
    number = begin
    for number in range(begin, end):
        out[0] += 1
        out[1] += number
    out[2] = number


def with_step(begin: Any, end: Any, out: Any) -> None:
    for number in range(begin, end, 3):
        out[0] += number
    for number in range(end, begin, -2):
        out[1] += number


def left_early(begin: Any, end: Any, out: Any) -> None:
    for number in range(begin, end):
        if number == begin + begin:
            continue
        if number > 5:
            break
        out[0] += number
    else:
        out[1] = 1


def nested(begin: Any, end: Any, out: Any) -> None:
    for number in range(begin, end):
        for inner in range(number):
            for _ in range(inner, number):
                out[0] += inner
        end += begin  # the range stays as it was
    out[1] = end


def chosen(begin: Any, end: Any, out: Any) -> None:
    numbers = range(end)
    if begin > 2:
        numbers = range(begin, end)
    for _ in range(2):
        for number in numbers:
            out[0] += number


SHAPES = (up_to, between, with_step, left_early, nested, chosen)


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("loop", SHAPES, ids=lambda loop: loop.__name__)
def test_range__loops_as_in_python(loop: Callable[..., None], kind: type) -> None:
    compiled = kernel(loop)
    for begin, end in [(0, 0), (0, 1), (1, 9), (3, 7), (7, 3), (-4, 3), (3, -4), (-5, -2), (0, 12)]:
        expected, found = np.zeros(3, np.int64), np.zeros(3, np.int64)
        loop(begin, end, expected)
        compiled(kind(begin), kind(end), found)
        assert found.tolist() == expected.tolist(), (begin, end)


@pytest.mark.parametrize("loop", [up_to, between, left_early, nested, chosen], ids=lambda loop: loop.__name__)
def test_range__of_unsigned_numbers(loop: Callable[..., None]) -> None:
    compiled = kernel(loop)
    for begin, end in [(0, 0), (0, 1), (1, 9), (7, 3), (2**40, 2**40 + 3)]:
        if begin > 9 and loop is not between:
            continue
        expected, found = np.zeros(3, np.uint64), np.zeros(3, np.uint64)
        loop(begin, end, expected)
        compiled(np.uint64(begin), np.uint64(end), found)
        assert found.tolist() == expected.tolist(), (begin, end)


@kernel
def measure(array, part, sizes):
    sizes[0], sizes[1], sizes[2] = array.size, array.shape[0], array.shape[1]
    sizes[3], sizes[4] = array.itemsize, part.size
    rows, columns = part.shape
    sizes[5], sizes[6] = rows, columns
    n = np.uint64(1)
    if rows > 1:
        n = np.uint64(part.size)
    sizes[7] = n
    sizes[8] = part.size / 2


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (4, 6)])
def test_array__sizes(shape: tuple[int, int]) -> None:
    array = np.zeros(shape, np.uint16)
    for part in (array, array[::2, 1:], array.T):
        sizes = np.zeros(9)
        measure(array, part, sizes)
        n = part.size if part.shape[0] > 1 else 1
        assert sizes.tolist() == [array.size, *shape, 2, part.size, *part.shape, n, part.size / 2]
