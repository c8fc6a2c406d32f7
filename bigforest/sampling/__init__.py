"""Which rows are in the bag of a tree."""
