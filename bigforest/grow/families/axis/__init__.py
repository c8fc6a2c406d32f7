"""Trees that split on features."""
