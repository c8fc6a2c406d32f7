"""Functions of single numbers: compiled as in plain Python, and never by Numba's own way of compiling."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from bigforest.kernels.llvm import numbers

KERNELS = Path(inspect.getfile(numbers)).parents[1]
COMPILED = not numba.config.DISABLE_JIT
FLOATS = (0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan)
VALUES: dict[Any, tuple[Any, ...]] = {
    np.float64: FLOATS,
    np.int64: (-(2**63), -1, 0, 5, 2**63 - 1),
    np.uint64: (0, 5, 2**63, 2**64 - 1),
    np.uint8: (0, 5, 255),
}


def compiled(function: Any) -> Any:
    return numba.njit(lambda *numbers: function(*numbers)) if COMPILED else function


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("function", [numbers.smaller, numbers.larger], ids=lambda function: function.__name__)
def test_smaller_larger__as_in_python(function: Any, kind: Any) -> None:
    of_two = compiled(function)
    for number in map(kind, VALUES[kind]):
        for other in map(kind, VALUES[kind]):
            assert kind(of_two(number, other)).tobytes() == kind(function(number, other)).tobytes()


def test_bits_of__float_of() -> None:
    bits_of, float_of = compiled(numbers.bits_of), compiled(numbers.float_of)
    for number in FLOATS:
        bits = np.float64(number).view(np.int64)
        assert bits_of(np.float64(number)) == bits
        assert np.float64(float_of(bits)).tobytes() == np.float64(number).tobytes()


def test_kernels_do_not_call_min_and_max() -> None:
    """For each type of number Numba compiles these as functions of their own, with all its passes."""
    for path in KERNELS.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            decorators = {ast.unparse(one) for one in getattr(function, "decorator_list", ())}
            if decorators & {"kernel", "helper", "inlined"}:
                called = {ast.unparse(one.func) for one in ast.walk(function) if isinstance(one, ast.Call)}
                assert not called & {"min", "max"}, (path.name, ast.unparse(function).splitlines()[:2])
