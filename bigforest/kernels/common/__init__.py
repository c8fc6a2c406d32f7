"""Primitives that kernels share: layouts, random numbers, sorting, searching."""
