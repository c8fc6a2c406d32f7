"""Trees that split on sparse random projections (Randomer forests)."""
