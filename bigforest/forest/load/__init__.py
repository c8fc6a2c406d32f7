"""The trees of a forest in memory, ready for prediction."""
