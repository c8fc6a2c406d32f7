"""Explanations of forests, as tables."""
