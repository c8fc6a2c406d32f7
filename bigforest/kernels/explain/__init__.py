"""Explanations: loops over single rows."""
