"""Levels of x86-64: features that a processor must have to run kernels compiled for a level."""

from __future__ import annotations

from functools import cache

import llvmlite.binding

_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "ssse3")
# Features of each level, as LLVM names them; the best first. Source: System V ABI, AMD64 Architecture Processor
# Supplement, section on micro-architecture levels.
LEVELS = {
    "x86-64-v4": (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
    "x86-64-v3": _V3,
}


@cache
def levels_of_host() -> tuple[str, ...]:
    """Return the levels of this processor, the best first; empty for another architecture."""
    try:
        has = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this processor
        return ()
    return tuple(level for level, features in LEVELS.items() if all(has.get(feature) for feature in features))
