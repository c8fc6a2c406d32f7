"""Used by every layer: errors, events, sizes, memory estimates, the version."""
