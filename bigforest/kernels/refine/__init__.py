"""The boosted stage: links, and growing small trees on bins."""
