"""Compiling kernels: the only Numba flags, the cache on disk, parts that are compiled into kernels."""
