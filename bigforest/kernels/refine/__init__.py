"""The boosted stage: links, growing small trees on bins, and adding the values of their leaves."""
