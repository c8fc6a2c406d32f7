"""Fetching the codes and values of rows."""
