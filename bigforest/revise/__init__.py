"""Merging, pruning and calibrating forests, and validation on other rows."""
