"""The quality of predictions, by scikit-learn's definitions, from rows in batches of any size."""
