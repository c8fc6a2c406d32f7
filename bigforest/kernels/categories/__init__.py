"""The order in which the levels of a category are split, and their scan."""
