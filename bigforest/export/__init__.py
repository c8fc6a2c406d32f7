"""Forests in the formats of other engines: see README.md."""
