"""Trees in random subspaces (Ho 1995)."""
