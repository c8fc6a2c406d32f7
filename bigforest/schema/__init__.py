"""Definitions of tables and training runs: types of columns, the dataspec, the options of training."""
