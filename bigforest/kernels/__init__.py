"""The compiled loops. These modules import numpy and numba only, know nothing of files, names of columns or estimators,
do not check bounds, and allocate nothing per node: callers validate first. Each kernel names its oracle in tests/naive.
"""
