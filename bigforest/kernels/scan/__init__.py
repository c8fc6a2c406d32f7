"""The best split of a node on one column of codes, by number of classes and by criterion."""
