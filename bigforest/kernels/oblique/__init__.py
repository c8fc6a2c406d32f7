"""Splits on projections: directions, projecting, ordering and scanning projections."""
