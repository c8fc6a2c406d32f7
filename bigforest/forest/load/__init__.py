"""The trees of a forest in memory, ready to answer rows."""
