"""Forests, stores and tables with something wrong in them: whatever it is, bigforest is fine or raises BigForestError.

`python -m tests.fuzz --cases 10000 --kind forest --seed 1` tries many; tests/test_fuzz.py tries some, always the same.
"""
