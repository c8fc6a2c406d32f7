"""Tests of the explanations of a forest."""
