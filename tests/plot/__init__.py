"""Tests of pictures and of the report."""
