"""Ranking the values of a column."""
