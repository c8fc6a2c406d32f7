"""From a store to the parts of a forest table."""
