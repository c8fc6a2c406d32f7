"""Benchmarks against peers. Not installed; run from a clone: `python benchmarks/fit.py --data DIR`."""
