"""No kernel is compiled once for an array and once more for the same array read-only."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

import numba
import polars as pl
import pytest

import bigforest
import bigforest.kernels
from bigforest.kernels.compiler.jit import _Kernel


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_kernels__are_not_compiled_for_read_only_arrays_as_well(tmp_path: Path) -> None:
    kernels = {
        value
        for module in pkgutil.walk_packages(bigforest.kernels.__path__, "bigforest.kernels.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, _Kernel)
    }
    for kernel in kernels:
        kernel._reset_overloads()  # of other tests
    plain = bigforest.simulate("trunk", rows=200, dims=3)
    numbers = plain.with_columns(target=pl.col("x0") + pl.col("x1"))
    several = plain.with_columns(target=(pl.col("x0") * 2).round().clip(-1, 1))
    for number, (table, options) in enumerate([(plain, {"sampling": "balanced"}), (several, {}), (numbers, {})]):
        out = tmp_path / f"{number}.forest"
        made = bigforest.train(table, "target", trees=4, threads=1, shrink="auto", out=out, **options)
        for forest in (made, bigforest.read_forest(out)):
            forest.predict(table)
        made.explain(table, parts=["permutation", "proximities"], threads=1)
        made.explain(table, parts="local", rows=[1, 2, 3], threads=1)
        made.explain(table, parts="permutation", new_rows=True, threads=1)
    signatures = Counter(
        (kernel.py_func.__qualname__, re.sub(r"readonly |(?<='\w', )(True|False)", "", str(signature)))
        for kernel in kernels
        for signature in kernel.overloads
    )
    assert [kernel for kernel, count in signatures.items() if count > 1] == []
