"""Trees that split on the axes of a table rotated for each."""
