"""A training run from a table to a forest on disk: its plan, its stages, and resuming after an interruption."""
