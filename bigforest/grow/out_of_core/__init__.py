"""Growing trees whose rows do not fit in memory, by passes over the store."""
