"""How good answers are, by scikit-learn's definitions, from rows that come in pieces of any size."""
