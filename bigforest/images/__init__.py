"""Conversion of images to a table of features."""
