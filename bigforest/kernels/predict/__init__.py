"""Packed trees, routing rows down them, and adding up the votes of leaves."""
