"""Pictures of a forest: from tables to Altair charts, and charts to files."""
