"""From a Source to a store: every column presorted into codes."""
