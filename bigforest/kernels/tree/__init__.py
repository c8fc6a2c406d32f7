"""Growing trees in memory, from bags to finished nodes."""
