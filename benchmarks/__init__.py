"""Benchmarks against peers. Not installed; run from a clone: `python benchmarks/peers.py --data DIR`."""
