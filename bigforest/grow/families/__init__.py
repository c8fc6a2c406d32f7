"""Families of trees, a file each; family.py is their interface."""
