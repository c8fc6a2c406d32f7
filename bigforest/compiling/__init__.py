"""Compiling kernels in advance: `warm_up`, and wheels with compiled kernels."""
