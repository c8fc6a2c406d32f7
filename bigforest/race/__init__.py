"""Choosing among configurations by their out-of-bag rows: a race of forests on one store."""
