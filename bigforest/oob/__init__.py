"""The out-of-bag report."""
