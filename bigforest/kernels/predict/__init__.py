"""Packed trees, routing rows down them, and accumulating answers."""
