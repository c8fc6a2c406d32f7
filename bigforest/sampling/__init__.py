"""Bags: the rows that a tree is grown on."""
