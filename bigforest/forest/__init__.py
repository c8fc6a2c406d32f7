"""The forest as a table: written, checked on reading, and rewritten."""
