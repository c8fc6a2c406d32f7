"""Choosing among configurations out of bag: a race of forests on one store."""
