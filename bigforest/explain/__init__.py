"""Why a forest answers as it does, in tables."""
