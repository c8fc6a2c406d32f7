"""Passes over the table, one block of rows at a time: routing rows and answering the probes of nodes."""
