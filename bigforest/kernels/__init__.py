"""The compiled loops. Kernels know nothing of files, names of columns or estimators, do not check bounds, and allocate
nothing per node: callers validate first. They import numpy, numba and its llvmlite only. Most name an oracle in
tests/naive.
"""
