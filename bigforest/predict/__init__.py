"""Predictions for tables in memory, lazy queries and files: rows in, rows out, in order."""
