"""Slow and obvious versions of the kernels, in plain Python. Tests compare every fast path with them."""
