"""Plots of a forest: tables to Altair charts, and charts to files."""
