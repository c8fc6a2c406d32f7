"""Slow and obvious versions of what the kernels do, in plain Python; every fast path is held to them."""
